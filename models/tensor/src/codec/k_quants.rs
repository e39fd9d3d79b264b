//! Block formats of GGUF as codecs: K-quants (256 values in sub-blocks of 16 or 32, whose scales and minima are small
//! integers under an f16) and Q8_0. Bytes are those that a GGUF file has.
//!
//! Written from the format's description; scales are found by trying some and refitting each by least squares, minima
//! with them. Blocks run on over the ends of rows that are no multiple of a block, and the last may be short.

use half::f16;

use super::{Matrix, MatrixCodec};
use crate::Error;
use crate::file::Block;

/// Scales tried for a sub-block, in tenths of a level more or fewer than span it.
const TENTHS: std::ops::RangeInclusive<i32> = -9..=15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KQuant {
    /// Two bits; 16 sub-blocks with a scale and a minimum of four bits.
    Q2,
    /// Three bits; 16 sub-blocks with a signed scale of six bits.
    Q3,
    /// Four bits; 8 sub-blocks with a scale and a minimum of six bits.
    Q4,
    /// Eight bits and an f16 scale for 32 values.
    Q8,
}

impl KQuant {
    /// Every format, finer ones later.
    pub const ALL: [Self; 4] = [Self::Q2, Self::Q3, Self::Q4, Self::Q8];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Its name in GGUF files.
    pub fn name(self) -> &'static str {
        self.block().name()
    }

    pub(crate) fn block(self) -> Block {
        match self {
            Self::Q2 => Block::Q2_K,
            Self::Q3 => Block::Q3_K,
            Self::Q4 => Block::Q4_K,
            Self::Q8 => Block::Q8_0,
        }
    }

    /// Quantizes in place; answers the bits that blocks take.
    pub fn apply(self, values: &mut [f32]) -> u64 {
        let bytes = self.encode(values);
        self.decode(&bytes, values);
        8 * bytes.len() as u64
    }

    /// The blocks of values.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        let block = self.block();
        let mut bytes = Vec::with_capacity(values.len().div_ceil(block.values()) * block.bytes());
        for values in values.chunks(block.values()) {
            match self {
                Self::Q2 => q2(values, &mut bytes),
                Self::Q3 => q3(values, &mut bytes),
                Self::Q4 => q4(values, &mut bytes),
                Self::Q8 => q8(values, &mut bytes),
            }
        }
        bytes
    }

    fn decode(self, bytes: &[u8], values: &mut [f32]) {
        let block = self.block();
        let mut whole = vec![0.0; block.values()];
        for (bytes, values) in bytes.chunks_exact(block.bytes()).zip(values.chunks_mut(block.values())) {
            block.decode(bytes, &mut whole);
            values.copy_from_slice(&whole[..values.len()]);
        }
    }
}

/// A format as a codec.
#[derive(Debug)]
pub(crate) struct Blocks(pub KQuant);

impl MatrixCodec for Blocks {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn knobs(&self, _matrix: &Matrix) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn has_one_rate(&self) -> bool {
        true
    }

    fn encode(&self, matrix: &Matrix, _knob: f64, _choice: u8) -> Result<Vec<u8>, Error> {
        Ok(self.0.encode(&matrix.values))
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let (block, count) = (self.0.block(), rows * cols);
        if bytes.len() != count.div_ceil(block.values()) * block.bytes() {
            return Err(Error::corrupt(0, "blocks are cut, or more than the values need"));
        }
        let mut values = crate::memory::zeroed(count)?;
        self.0.decode(bytes, &mut values);
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Error::corrupt(0, "a scale that is no number"));
        }
        Ok(values)
    }
}

/// Scale and minimum of a sub-block: values are scale · level − minimum.
#[derive(Debug, Clone, Copy)]
struct Fit {
    scale: f32,
    minimum: f32,
}

/// The pair with the least squared error, levels from 0 to `top`.
fn fit(values: &[f32], top: f32) -> Fit {
    let (low, high) = values.iter().fold((0f32, f32::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    if high <= low {
        // Nothing but one value that is not above zero.
        return Fit { scale: 0.0, minimum: -low };
    }
    let mut best = (f64::INFINITY, Fit { scale: (high - low) / top, minimum: -low });
    for tenths in TENTHS {
        let inverse = (top + 0.1 * tenths as f32) / (high - low);
        let level = |v: f32| ((v - low) * inverse).round().clamp(0.0, top);
        let (mut q1, mut q2, mut x1, mut xq) = (0f64, 0f64, 0f64, 0f64);
        for &v in values {
            let (v, q) = (f64::from(v), f64::from(level(v)));
            (q1, q2, x1, xq) = (q1 + q, q2 + q * q, x1 + v, xq + v * q);
        }
        let count = values.len() as f64;
        let determinant = count * q2 - q1 * q1;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (count * xq - q1 * x1) / determinant;
        let mut minimum = (q1 * scale - x1) / count;
        if minimum < 0.0 {
            // A minimum has no sign.
            (scale, minimum) = (xq / q2.max(f64::MIN_POSITIVE), 0.0);
        }
        let error: f64 =
            values.iter().map(|&v| (scale * f64::from(level(v)) - minimum - f64::from(v)).powi(2)).sum();
        if error < best.0 && scale > 0.0 {
            best = (error, Fit { scale: scale as f32, minimum: minimum as f32 });
        }
    }
    best.1
}

/// A block of sub-blocks with a scale and a minimum each.
struct Affine {
    scale_unit: f16,
    minimum_unit: f16,
    /// Scales of each sub-block, in units.
    scales: Vec<u8>,
    minima: Vec<u8>,
    levels: Vec<u8>,
}

impl Affine {
    /// Sub-blocks of `size` values with levels up to `top`, their scales and minima whole numbers up to `most`.
    fn of(block: &[f32], size: usize, top: f32, most: f32) -> Self {
        let fits: Vec<Fit> = block.chunks(size).map(|values| fit(values, top)).collect();
        let unit = |of: fn(&Fit) -> f32| f16::from_f32(fits.iter().map(of).fold(0.0, f32::max) / most);
        let (scale_unit, minimum_unit) = (unit(|f| f.scale), unit(|f| f.minimum));
        let whole = |value: f32, unit: f16| match unit.to_f32() {
            unit if unit > 0.0 => (value / unit).round().min(most) as u8,
            _ => 0,
        };
        let scales: Vec<u8> = fits.iter().map(|fit| whole(fit.scale, scale_unit)).collect();
        let minima: Vec<u8> = fits.iter().map(|fit| whole(fit.minimum, minimum_unit)).collect();
        let mut levels = Vec::with_capacity(block.len());
        for ((values, &scale), &minimum) in block.chunks(size).zip(&scales).zip(&minima) {
            let scale = scale_unit.to_f32() * f32::from(scale);
            let minimum = minimum_unit.to_f32() * f32::from(minimum);
            let level =
                |v: &f32| if scale > 0.0 { ((v + minimum) / scale).round().clamp(0.0, top) } else { 0.0 };
            levels.extend(values.iter().map(|v| level(v) as u8));
        }
        Self { scale_unit, minimum_unit, scales, minima, levels }
    }

    fn units(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.scale_unit.to_le_bytes(), self.minimum_unit.to_le_bytes());
        [a, b, c, d]
    }
}

/// Two bits of each of 256 levels: 128 values to 32 bytes, bits 0–1 of each are the first 32.
fn pack_pairs(levels: impl Iterator<Item = u8>) -> [u8; 64] {
    let mut packed = [0; 64];
    for (i, level) in levels.enumerate() {
        packed[i / 128 * 32 + i % 32] |= (level & 3) << (2 * (i / 32 % 4));
    }
    packed
}

fn q2(values: &[f32], bytes: &mut Vec<u8>) {
    let block = Affine::of(values, 16, 3.0, 15.0);
    let mut scales = [0; 16];
    for (j, (scale, minimum)) in block.scales.iter().zip(&block.minima).enumerate() {
        scales[j] = scale | minimum << 4;
    }
    bytes.extend(scales);
    bytes.extend(pack_pairs(block.levels.iter().copied()));
    bytes.extend(block.units());
}

fn q4(values: &[f32], bytes: &mut Vec<u8>) {
    let block = Affine::of(values, 32, 15.0, 63.0);
    let mut packed = [0u8; 12];
    for (j, (&scale, &minimum)) in block.scales.iter().zip(&block.minima).enumerate() {
        if j < 4 {
            packed[j] |= scale;
            packed[j + 4] |= minimum;
        } else {
            packed[j + 4] = scale & 15 | minimum << 4;
            packed[j - 4] |= scale >> 4 << 6;
            packed[j] |= minimum >> 4 << 6;
        }
    }
    let mut nibbles = [0; 128];
    for (i, level) in block.levels.iter().enumerate() {
        nibbles[i / 64 * 32 + i % 32] |= level << (4 * (i / 32 % 2));
    }
    bytes.extend(block.units());
    bytes.extend(packed);
    bytes.extend(nibbles);
}

/// The scale, of either sign, with the least squared error for levels −4 to 3.
fn fit_signed(values: &[f32]) -> f32 {
    let extreme = extreme(values.iter().copied());
    if extreme == 0.0 {
        return 0.0;
    }
    let mut best = (f64::INFINITY, 0.0);
    for tenths in TENTHS {
        let inverse = -(4.0 + 0.1 * tenths as f32) / extreme;
        let level = |v: f32| f64::from((v * inverse).round().clamp(-4.0, 3.0));
        let (xq, q2) = values
            .iter()
            .fold((0f64, 0f64), |(xq, q2), &v| (xq + f64::from(v) * level(v), q2 + level(v) * level(v)));
        let scale = xq / q2.max(f64::MIN_POSITIVE);
        let error: f64 = values.iter().map(|&v| (scale * level(v) - f64::from(v)).powi(2)).sum();
        if error < best.0 {
            best = (error, scale as f32);
        }
    }
    best.1
}

/// The value that is farthest from zero.
fn extreme(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0f32, |most, v| if v.abs() > most.abs() { v } else { most })
}

fn q3(values: &[f32], bytes: &mut Vec<u8>) {
    let fits: Vec<f32> = values.chunks(16).map(fit_signed).collect();
    let unit = f16::from_f32(-extreme(fits.iter().copied()) / 32.0);
    let whole = |scale: f32| match unit.to_f32() {
        0.0 => 0,
        unit => (scale / unit).round().clamp(-32.0, 31.0) as i8,
    };
    let scales: Vec<i8> = fits.into_iter().map(whole).collect();
    let mut levels = Vec::with_capacity(values.len());
    for (values, &scale) in values.chunks(16).zip(&scales) {
        let scale = unit.to_f32() * f32::from(scale);
        let level = |v: &f32| if scale == 0.0 { 0.0 } else { (v / scale).round().clamp(-4.0, 3.0) };
        levels.extend(values.iter().map(|v| (level(v) as i8 + 4) as u8));
    }
    let mut high = [0u8; 32];
    for (i, level) in levels.iter().enumerate() {
        high[i % 32] |= (level >> 2) << (i / 32);
    }
    let mut packed = [0u8; 12];
    for (j, &scale) in scales.iter().enumerate() {
        let scale = (scale + 32) as u8;
        packed[j % 8] |= (scale & 15) << (4 * (j / 8));
        packed[8 + j % 4] |= (scale >> 4) << (2 * (j / 4));
    }
    bytes.extend(high);
    bytes.extend(pack_pairs(levels.into_iter()));
    bytes.extend(packed);
    bytes.extend(unit.to_le_bytes());
}

fn q8(values: &[f32], bytes: &mut Vec<u8>) {
    let scale = f16::from_f32(extreme(values.iter().copied()).abs() / 127.0);
    let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    let mut quants = [0u8; 32];
    for (quant, v) in quants.iter_mut().zip(values) {
        *quant = (v * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
    }
    bytes.extend(scale.to_le_bytes());
    bytes.extend(quants);
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::random::Lcg;

    fn nmse(format: KQuant, values: &[f32]) -> f64 {
        let mut coded = values.to_vec();
        format.apply(&mut coded);
        let error: f64 = values.iter().zip(&coded).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        error / values.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
    }

    /// About normal.
    fn noise(count: usize) -> Vec<f32> {
        let mut lcg = Lcg(9);
        let mut uniform = move || lcg.uniform() - 0.5;
        (0..count).map(|_| (0..12).map(|_| uniform()).sum()).collect()
    }

    #[test]
    fn a_bit_more_is_a_quarter_of_the_error_or_so_and_blocks_take_their_bytes() {
        let values = noise(64 * 256);
        let [q2, q3, q4, q8] = KQuant::ALL.map(|format| nmse(format, &values));
        assert!(q8 < 1e-4 && q4 < 0.008 && q3 < 0.035 && q2 < 0.11, "{q2} {q3} {q4} {q8}");
        assert!(q3 < 0.5 * q2 && q4 < 0.4 * q3, "{q2} {q3} {q4}");
        for (format, bits) in KQuant::ALL.into_iter().zip([2.625, 3.4375, 4.5, 8.5]) {
            let spent = format.apply(&mut noise(4096));
            assert_eq!(spent as f64 / 4096.0, bits, "{format:?}");
        }
    }

    #[test]
    fn what_a_format_holds_comes_back_and_again_the_same() {
        // Levels of one scale and minimum a block are points of the format.
        let affine: Vec<f32> = (0..256).map(|i| 0.25 * (i % 4) as f32 - 0.25).collect();
        assert!(nmse(KQuant::Q2, &affine) < 1e-4 && nmse(KQuant::Q4, &affine) < 1e-4);
        let signed: Vec<f32> = (0..256).map(|i| 0.5 * (i % 8) as f32 - 2.0).collect();
        assert!(nmse(KQuant::Q3, &signed) < 1e-6);
        for format in KQuant::ALL {
            let mut zeros = vec![0.0; 256];
            format.apply(&mut zeros);
            assert!(zeros.iter().all(|&v| v == 0.0), "{format:?}");
            let mut ones = vec![-1.0; 300];
            format.apply(&mut ones);
            assert!(ones.iter().all(|&v| (v + 1.0).abs() < 1e-2), "{format:?}: {}", ones[0]);
        }
    }

    #[test]
    fn cut_blocks_are_errors() {
        for format in KQuant::ALL {
            let bytes = format.encode(&noise(512));
            assert!(Blocks(format).decode(&bytes, 2, 256).is_ok(), "{format:?}");
            assert!(Blocks(format).decode(&bytes[1..], 2, 256).is_err(), "{format:?}");
            assert!(Blocks(format).decode(&bytes, 3, 256).is_err(), "{format:?}");
        }
    }
}
