//! Tensor codecs in the loop, by name.
//!
//! K, V and activations are coded during the run, block by block of tokens, as
//! a cache stores them and a wire carries them; weights before it
//! ([`crate::weights`]). This module and that one alone know codecs.

use crate::baselines::Baseline;
use crate::calibrate::InputMoments;
use crate::{Hooks, TokenRows};
use trinity_tensor::codec::{self, Encoded, Method, Moments, Rate, TensorCodec};
use trinity_tensor::{Class, Dtype, Tensor};

/// `CODEC@BITS`: a codec and what it may spend.
#[derive(Debug)]
pub struct Coding {
    name: String,
    bits: f64,
    coder: Coder,
    /// Whether keys are coded before rotary positions.
    before_rotary: bool,
}

#[derive(Debug)]
enum Coder {
    /// A quantizer of a paper, with a rate of its own.
    Baseline(Baseline),
    /// Any other: the target counts everything.
    Codec(Box<dyn TensorCodec>),
}

/// What `pre-rope/CODEC` starts with: keys of a cache are coded before rotary positions, which are applied to what
/// comes back.
const PRE_ROPE: &str = "pre-rope/";
/// Quantizers whose papers take keys before rotary positions.
const TAKE_KEYS_EARLY: [&str; 3] = ["kvquant", "kvquant-1p", SHARED_BASIS];
/// The one whose paper codes caches in a basis that is learned ahead, across heads.
const SHARED_BASIS: &str = "kvtc";

/// Whether a name is that of a quantizer which is judged as published, and of no codec of files.
pub fn is_published(name: &str) -> bool {
    codec::codec(name).is_err() && Baseline::find(name, 4.0).is_some()
}

impl std::str::FromStr for Coding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bits) = text
            .rsplit_once('@')
            .ok_or_else(|| format!("`{text}` is not CODEC@BITS, such as h265@3 or rtn@4"))?;
        let bits: f64 = bits.parse().map_err(|_| format!("`{bits}` is no number of bits per value"))?;
        Self::new(name, bits)
    }
}

impl Coding {
    /// A codec by the name it has among tensor codecs.
    pub fn new(name: &str, bits: f64) -> Result<Self, String> {
        if !(bits.is_finite() && (0.05..=32.0).contains(&bits)) {
            return Err(format!("{bits} bits per value is outside 0.05 to 32"));
        }
        let (inner, early) = name.strip_prefix(PRE_ROPE).map_or((name, false), |inner| (inner, true));
        let coder = match Baseline::find(inner, bits) {
            Some(baseline) => Coder::Baseline(baseline?),
            None => Coder::Codec(codec::codec(inner).map_err(|e| e.to_string())?),
        };
        let before_rotary = early || TAKE_KEYS_EARLY.contains(&inner);
        Ok(Self { name: name.into(), bits, coder, before_rotary })
    }

    /// A codec of files by its name, never a quantizer that stands as published.
    ///
    /// # Errors
    ///
    /// Where there is none of that name.
    pub fn of_files(name: &str, bits: f64) -> Result<Self, String> {
        let coder = Coder::Codec(codec::codec(name).map_err(|e| e.to_string())?);
        Ok(Self { name: name.into(), bits, coder, before_rotary: false })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn bits(&self) -> f64 {
        self.bits
    }

    /// Whether it is a codec of files, and no quantizer that stands as published.
    pub fn makes_streams(&self) -> bool {
        matches!(self.coder, Coder::Codec(_))
    }

    /// Whether it weighs its error by the moments of a layer's inputs.
    pub fn takes_moments(&self) -> bool {
        match &self.coder {
            Coder::Baseline(baseline) => baseline.needs_moments(),
            Coder::Codec(codec) => codec.takes_moments(),
        }
    }

    pub fn has_one_rate(&self) -> bool {
        match &self.coder {
            Coder::Baseline(baseline) => baseline.has_one_rate(),
            Coder::Codec(codec) => codec.has_one_rate(),
        }
    }

    pub fn needs_moments(&self) -> bool {
        match &self.coder {
            Coder::Baseline(baseline) => baseline.needs_moments(),
            Coder::Codec(codec) => codec.needs_moments(),
        }
    }

    /// Whether keys of a cache are coded before rotary positions.
    pub fn before_rotary(&self) -> bool {
        self.before_rotary
    }

    /// Whether caches are coded in a basis that is learned ahead.
    pub fn needs_cache_basis(&self) -> bool {
        self.name.rsplit('/').next() == Some(SHARED_BASIS)
    }

    /// Whether weights are coded one layer after the other, for what the coded
    /// layers before bring: GPTQ does, AWQ looks at the model as it was.
    pub(crate) fn is_progressive(&self) -> bool {
        self.takes_moments() && Method::named(&self.name) != Some(Method::Awq)
    }

    /// Whether a weight also makes good what coding did to its inputs.
    pub(crate) fn follows_inputs(&self) -> bool {
        match &self.coder {
            Coder::Codec(codec) => codec.takes_moments() && !codec.needs_moments(),
            Coder::Baseline(baseline) => baseline.follows_inputs(),
        }
    }

    /// Codes a weight in place for the inputs it will be multiplied with;
    /// answers the bits it takes.
    pub fn apply_calibrated(
        &self,
        rows: usize,
        values: &mut [f32],
        bits: f64,
        moments: InputMoments<'_>,
    ) -> Result<u64, String> {
        let cols = moments.inputs();
        if values.len() != rows * cols {
            return Err(format!("moments of {cols} inputs for {} values of {rows} rows", values.len()));
        }
        let codec = match &self.coder {
            Coder::Baseline(baseline) => return baseline.apply(cols, values, Some(moments)),
            Coder::Codec(codec) if codec.takes_moments() => codec,
            _ => return self.apply(Class::Weight, rows, cols, values, bits),
        };
        let moments = Moments::of_columns(moments.values());
        recoded(codec.as_ref(), ("matrix", Class::Weight), TokenRows { rows, cols, values }, |tensor| {
            codec.encode_weighted(tensor, Rate::Bits(bits), moments)
        })
    }

    /// Codes a matrix in place; answers the bits it takes.
    pub fn apply(
        &self,
        class: Class,
        rows: usize,
        cols: usize,
        values: &mut [f32],
        bits: f64,
    ) -> Result<u64, String> {
        if values.is_empty() {
            return Ok(0);
        }
        match &self.coder {
            Coder::Baseline(baseline) => baseline.apply(cols, values, None),
            Coder::Codec(codec) => {
                through(codec.as_ref(), Rate::Bits(bits), ("matrix", class), TokenRows { rows, cols, values })
            }
        }
    }

    /// Codes a block of a cache in place, of keys (`kind` "k") or values; answers the bits it takes.
    fn apply_to_cache(&self, kind: &str, matrix: TokenRows<'_>) -> Result<u64, String> {
        match &self.coder {
            Coder::Codec(codec) if !matrix.values.is_empty() => {
                through(codec.as_ref(), Rate::Bits(self.bits), (kind, Class::KvCache), matrix)
            }
            _ => self.apply(Class::KvCache, matrix.rows, matrix.cols, matrix.values, self.bits),
        }
    }
}

/// Puts in place of a matrix what a codec makes of it, as a tensor of that name: some codecs treat keys and values
/// differently. Answers the bits it takes.
pub fn through(
    codec: &dyn TensorCodec,
    target: Rate,
    named: (&str, Class),
    matrix: TokenRows<'_>,
) -> Result<u64, String> {
    recoded(codec, named, matrix, |tensor| codec.encode(tensor, target))
}

/// As [`through`], encoded in any way.
fn recoded<E: ToString>(
    codec: &dyn TensorCodec,
    (name, class): (&str, Class),
    TokenRows { rows, cols, values }: TokenRows<'_>,
    encode: impl FnOnce(&Tensor) -> Result<Encoded, E>,
) -> Result<u64, String> {
    let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensor = Tensor::new(name, class, Dtype::F32, vec![rows, cols], data).map_err(|e| e.to_string())?;
    let encoded = encode(&tensor).map_err(|e| e.to_string())?;
    let decoded = codec.decode(&encoded).map_err(|e| e.to_string())?;
    decoded.dtype().to_f32(decoded.data(), values);
    Ok(8 * encoded.bytes.len() as u64)
}

/// Codecs on the way: KV cache and pipeline activations.
#[derive(Debug)]
pub struct CodedPaths {
    pub kv: Option<Coding>,
    pub activations: Option<Coding>,
    pub stages: usize,
    pub block: usize,
    /// Tokens at the beginning of a window whose K and V stay as they are, 16 bits a value.
    pub sink: usize,
}

/// Bits of a value that a cache keeps as it is.
const KEPT_BITS: u64 = 16;

impl CodedPaths {
    /// Codes rows of `cols` values block by block; answers their bits.
    fn in_blocks(
        &self,
        cols: usize,
        values: &mut [f32],
        code: impl Fn(TokenRows<'_>) -> Result<u64, String>,
    ) -> Result<u64, String> {
        values.chunks_mut(self.block.max(1) * cols).try_fold(0, |bits, block| {
            Ok(bits + code(TokenRows { rows: block.len() / cols, cols, values: block })?)
        })
    }
}

impl Hooks for CodedPaths {
    fn kv(&self, _: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        let Some(coding) = &self.kv else { return Ok(0) };
        let (kept, coded) = matrix.values.split_at_mut(self.sink.min(matrix.rows) * matrix.cols);
        let spent = self.in_blocks(matrix.cols, coded, |block| coding.apply_to_cache(kind, block))?;
        Ok(spent + KEPT_BITS * kept.len() as u64)
    }

    fn activation(&self, _: usize, matrix: TokenRows<'_>) -> Result<u64, String> {
        let Some(coding) = &self.activations else { return Ok(0) };
        self.in_blocks(matrix.cols, matrix.values, |TokenRows { rows, cols, values }| {
            coding.apply(Class::Activation, rows, cols, values, coding.bits)
        })
    }

    fn before_rotary(&self) -> bool {
        self.kv.as_ref().is_some_and(Coding::before_rotary)
    }

    fn wants_kv(&self) -> bool {
        self.kv.is_some()
    }

    fn stages(&self) -> usize {
        if self.activations.is_some() { self.stages } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_outlier_costs_rounding_less() {
        let mut values: Vec<f32> = (0..64 * 8).map(|i| (i as f32 * 0.37).sin()).collect();
        values.chunks_mut(64).for_each(|row| row[5] = 30.0);
        let error = |name: &str| {
            let mut coded = values.clone();
            let coding = Coding::new(name, 4.0).unwrap();
            let spent = coding.apply(Class::Weight, 8, 64, &mut coded, 4.0).unwrap();
            assert_eq!(spent, 8 * (64 * 4 + 32));
            values.iter().zip(&coded).map(|(a, b)| (a - b).powi(2)).sum::<f32>()
        };
        let (plain, turned) = (error("rtn"), error("hadamard/rtn"));
        assert!(turned < 0.5 * plain, "{turned} against {plain}");
    }

    #[test]
    fn codings_are_parsed_or_refused_with_a_reason() {
        assert!("rtn@4".parse::<Coding>().is_ok() && "hadamard/h265@2.9".parse::<Coding>().is_ok());
        assert!("pre-rope/trinity@3".parse::<Coding>().unwrap().before_rotary());
        assert!("kvtc@2".parse::<Coding>().unwrap().needs_cache_basis());
        for bad in
            ["rtn", "rtn@x", "rtn@0", "nothing@3", "rtn@-1", "hadamard/nothing@3", "pre-rope/nothing@3"]
        {
            assert!(bad.parse::<Coding>().is_err(), "{bad}");
        }
    }
}
