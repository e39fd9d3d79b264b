//! Post-training quantizers that codecs are held against, as published: GPTQ and
//! AWQ with groups of 128, NF4, NVFP4, and GGUF's K-quants; and the bound that no code is below.
//!
//! Each replaces a weight by what its format holds and answers the bits of
//! that format, scales and zero points included. `trinity-tensor` has those that
//! files can hold.

use crate::Weight;
use crate::calibrate::{InputMoments, damped};
use crate::cholesky::Factor;
use crate::probe::disturb;
use trinity_tensor::Dtype;
use trinity_tensor::codec::{KQuant, Method, NF4_BLOCK, NF4_LEVELS, Precondition};

/// A quantizer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Round-to-nearest with whole-bit integers and one f32 scale a row, as
    /// published figures define it: the scales come on top of the bits. Rows that are `turned`
    /// go through a randomized Hadamard transform first, as QuaRot rotates weights.
    Rtn {
        width: u32,
        turned: bool,
    },
    Grouped {
        method: Method,
        width: u32,
    },
    /// Dettmers et al. 2023: 16 quantiles of a normal distribution, blocks of 64.
    Nf4,
    /// NVIDIA 2025: E2M1 under an E4M3 scale for 16 values and an f32 for all.
    Nvfp4,
    /// llama.cpp's, as GGUF files have them.
    KQuant(KQuant),
    /// Errors of the rate–distortion bound of normal weights, at so many thousandths of a bit: no code, but what none is better than.
    Bound {
        thousandths: u32,
    },
}

impl Baseline {
    pub fn find(name: &str, bits: f64) -> Option<Result<Self, String>> {
        let is_whole = bits.fract() == 0.0 && (2.0..=8.0).contains(&bits);
        let whole = || {
            if is_whole {
                Ok(bits as u32)
            } else {
                Err(format!("{name} has whole bits from 2 to 8, not {bits}"))
            }
        };
        Some(match name {
            "rtn" | "hadamard/rtn" if is_whole => Ok(Self::Rtn { width: bits as u32, turned: name != "rtn" }),
            "nf4" => Ok(Self::Nf4),
            "nvfp4" => Ok(Self::Nvfp4),
            "bound" => Ok(Self::Bound { thousandths: (1000.0 * bits) as u32 }),
            _ => match (Method::named(name), KQuant::named(name)) {
                (Some(method), _) => whole().map(|width| Self::Grouped { method, width }),
                (None, Some(format)) => Ok(Self::KQuant(format)),
                (None, None) => return None,
            },
        })
    }

    /// Whether the rate is the format's own, whatever is asked for.
    pub fn has_one_rate(self) -> bool {
        matches!(self, Self::Nf4 | Self::Nvfp4 | Self::KQuant(_))
    }

    pub fn needs_moments(self) -> bool {
        matches!(self, Self::Grouped { .. } | Self::Bound { .. })
    }

    /// Whether it may be told what layers before did to its inputs.
    pub fn follows_inputs(self) -> bool {
        matches!(self, Self::Bound { .. })
    }

    /// Quantizes rows of `cols` values in place; answers the bits they take.
    pub fn apply(
        self,
        cols: usize,
        values: &mut [f32],
        moments: Option<InputMoments<'_>>,
    ) -> Result<u64, String> {
        match (self, moments) {
            (Self::Rtn { width, turned: false }, _) => Ok(rtn(width, cols, values)),
            (Self::Rtn { width, turned: true }, _) => {
                let mut turned = values.to_vec();
                let (inside, _) =
                    Precondition::Hadamard.forward(&mut turned, cols).map_err(|e| e.to_string())?;
                let spent = rtn(width, inside, &mut turned);
                Precondition::Hadamard.inverse(&mut turned, cols);
                values.copy_from_slice(&turned);
                Ok(spent)
            }
            (Self::Grouped { method, width }, Some(moments)) => {
                let quantized = method.quantize(width, cols, values, moments.values())?;
                values.copy_from_slice(&quantized.values());
                Ok(quantized.published_bits())
            }
            (Self::Bound { thousandths }, Some(moments)) => {
                let seed = values.first().map_or(0, |first| u64::from(first.to_bits()));
                let factor = Factor::new(damped(moments.matrix())).ok_or("its inputs have no factor")?;
                let (rows, bits) = (values.len() / cols.max(1), f64::from(thousandths) / 1000.0);
                let mut weight = Weight { name: String::new(), rows, cols, values: values.to_vec() };
                disturb(&mut weight, &factor, bits, seed);
                values.copy_from_slice(&weight.values);
                Ok((bits * values.len() as f64) as u64)
            }
            (Self::Nf4, _) => Ok(nf4(values)),
            (Self::Nvfp4, _) => Ok(nvfp4(values)),
            (Self::KQuant(format), _) => Ok(format.apply(values)),
            _ => Err("it needs a text to calibrate on; give one with --calibrate".into()),
        }
    }
}

/// Symmetric: `q = clamp(round(w / m · (2^(b−1) − 1)), −2^(b−1), 2^(b−1) − 1)`, `m` the row's largest.
fn rtn(width: u32, cols: usize, values: &mut [f32]) -> u64 {
    let levels = ((1i32 << (width - 1)) - 1) as f32;
    let mut bits = 0;
    for row in values.chunks_mut(cols) {
        let top = row.iter().fold(0f32, |m, v| m.max(v.abs()));
        if top > 0.0 {
            for v in row.iter_mut() {
                let q = (*v / top * levels).round().clamp(-levels - 1.0, levels);
                *v = q * top / levels;
            }
        }
        bits += u64::from(width) * row.len() as u64 + 32;
    }
    bits
}

fn nearest(levels: &[f32], value: f32) -> f32 {
    levels.iter().copied().min_by(|a, b| (a - value).abs().total_cmp(&(b - value).abs())).unwrap_or(0.0)
}

/// A scale as it is stored.
fn stored(dtype: Dtype, scale: f32) -> f32 {
    let (mut bytes, mut back) = (Vec::new(), [0.0]);
    dtype.extend_from_f32(&[scale], &mut bytes);
    dtype.to_f32(&bytes, &mut back);
    back[0]
}

fn nf4(values: &mut [f32]) -> u64 {
    let mut bits = 0;
    for block in values.chunks_mut(NF4_BLOCK) {
        let top = stored(Dtype::F16, block.iter().fold(0f32, |m, v| m.max(v.abs())));
        block
            .iter_mut()
            .for_each(|v| *v = if top > 0.0 { nearest(&NF4_LEVELS, *v / top) * top } else { 0.0 });
        bits += 4 * block.len() as u64 + 16;
    }
    bits
}

/// Magnitudes of E2M1 (OCP Microscaling 1.0).
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
const NVFP4_BLOCK: usize = 16;
const LARGEST_E4M3: f32 = 448.0;

fn nvfp4(values: &mut [f32]) -> u64 {
    let top = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    if top == 0.0 {
        return 32;
    }
    // One f32 brings the largest block scale to the largest E4M3.
    let whole = top / (6.0 * LARGEST_E4M3);
    let mut bits = 32;
    for block in values.chunks_mut(NVFP4_BLOCK) {
        let own = block.iter().fold(0f32, |m, v| m.max(v.abs())) / 6.0 / whole;
        let scale = stored(Dtype::F8e4m3, own) * whole;
        let round =
            |v: f32| if scale > 0.0 { nearest(&E2M1, v.abs() / scale).copysign(v) * scale } else { 0.0 };
        block.iter_mut().for_each(|v| *v = round(*v));
        bits += 4 * block.len() as u64 + 8;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 1.7).sin() + 0.3 * (i as f32 * 0.31).cos()).collect()
    }

    #[test]
    fn number_formats_take_what_they_say_and_come_close() {
        for (baseline, bits, most) in [(Baseline::Nf4, 4.25, 0.02), (Baseline::Nvfp4, 4.5, 0.02)] {
            let original = wave(4096);
            let mut coded = original.clone();
            let spent = baseline.apply(64, &mut coded, None).unwrap();
            assert!((spent as f64 / 4096.0 - bits).abs() < 0.01, "{baseline:?}");
            let error: f32 = original.iter().zip(&coded).map(|(a, b)| (a - b).powi(2)).sum();
            let energy: f32 = original.iter().map(|a| a * a).sum();
            assert!(error / energy < most, "{baseline:?}: {}", error / energy);
        }
        assert!(
            Baseline::Grouped { method: Method::Gptq, width: 4 }.apply(64, &mut wave(128), None).is_err()
        );
        assert!(matches!(Baseline::find("gptq-128g", 3.5), Some(Err(_))));
        assert!(Baseline::find("h265", 3.0).is_none());
    }
}
