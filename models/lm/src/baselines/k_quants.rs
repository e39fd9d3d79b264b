//! K-quants of GGUF as quantizers: 256 values in sub-blocks of 16 or 32, whose
//! scales and minima are small integers under an f16 for all. Written from the
//! format's description; scales are found by trying some and refitting each by
//! least squares, minima with them.
//!
//! Blocks run on over the ends of rows that are no multiple of 256.

const BLOCK: usize = 256;
/// Scales tried for a sub-block, in tenths of a level more or fewer than span it.
const TENTHS: std::ops::RangeInclusive<i32> = -9..=15;

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KQuant {
    /// Two bits; 16 sub-blocks with a scale and a minimum of four bits.
    Q2,
    /// Three bits; 16 sub-blocks with a signed scale of six bits.
    Q3,
    /// Four bits; 8 sub-blocks with a scale and a minimum of six bits.
    Q4,
}

impl KQuant {
    /// Bytes of a block of 256 values.
    fn block_bytes(self) -> u64 {
        match self {
            Self::Q2 => 84,
            Self::Q3 => 110,
            Self::Q4 => 144,
        }
    }

    /// Quantizes in place; answers the bits that blocks take.
    pub fn apply(self, values: &mut [f32]) -> u64 {
        let blocks = values.len().div_ceil(BLOCK) as u64;
        for block in values.chunks_mut(BLOCK) {
            match self {
                Self::Q2 => affine(block, 16, 3.0, 15.0),
                Self::Q3 => signed(block),
                Self::Q4 => affine(block, 32, 15.0, 63.0),
            }
        }
        8 * blocks * self.block_bytes()
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

/// Sub-blocks of `size` values with levels up to `top`, their scales and minima
/// whole numbers up to `most`.
fn affine(block: &mut [f32], size: usize, top: f32, most: f32) {
    let fits: Vec<Fit> = block.chunks(size).map(|values| fit(values, top)).collect();
    let largest = |of: fn(&Fit) -> f32| as_f16(fits.iter().map(of).fold(0.0, f32::max) / most);
    let (scale_unit, minimum_unit) = (largest(|f| f.scale), largest(|f| f.minimum));
    let whole =
        |value: f32, unit: f32| if unit > 0.0 { (value / unit).round().min(most) * unit } else { 0.0 };
    for (values, fit) in block.chunks_mut(size).zip(&fits) {
        let (scale, minimum) = (whole(fit.scale, scale_unit), whole(fit.minimum, minimum_unit));
        for v in values {
            let level = if scale > 0.0 { ((*v + minimum) / scale).round().clamp(0.0, top) } else { 0.0 };
            *v = scale * level - minimum;
        }
    }
}

/// The scale, of either sign, with the least squared error for levels −4 to 3.
fn fit_signed(values: &[f32]) -> f32 {
    let extreme = values.iter().fold(0f32, |most, &v| if v.abs() > most.abs() { v } else { most });
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

fn signed(block: &mut [f32]) {
    let scales: Vec<f32> = block.chunks(16).map(fit_signed).collect();
    let extreme = scales.iter().fold(0f32, |most, &s| if s.abs() > most.abs() { s } else { most });
    let unit = as_f16(-extreme / 32.0);
    for (values, &scale) in block.chunks_mut(16).zip(&scales) {
        let scale = if unit == 0.0 { 0.0 } else { (scale / unit).round().clamp(-32.0, 31.0) * unit };
        for v in values {
            *v = if scale == 0.0 { 0.0 } else { (*v / scale).round().clamp(-4.0, 3.0) * scale };
        }
    }
}

/// An f16, which scales are stored as.
pub(super) fn as_f16(value: f32) -> f32 {
    let mut bytes = Vec::new();
    trinity_tensor::Dtype::F16.extend_from_f32(&[value], &mut bytes);
    let mut back = [0.0];
    trinity_tensor::Dtype::F16.to_f32(&bytes, &mut back);
    back[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nmse(format: KQuant, values: &[f32]) -> f64 {
        let mut coded = values.to_vec();
        format.apply(&mut coded);
        let error: f64 = values.iter().zip(&coded).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        error / values.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
    }

    /// About normal.
    fn noise(count: usize) -> Vec<f32> {
        let mut state = 9u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| (0..12).map(|_| uniform()).sum()).collect()
    }

    #[test]
    fn a_bit_more_is_a_quarter_of_the_error_or_so_and_blocks_take_their_bytes() {
        let values = noise(64 * 256);
        let [q2, q3, q4] = [KQuant::Q2, KQuant::Q3, KQuant::Q4].map(|format| nmse(format, &values));
        assert!(q4 < 0.008 && q3 < 0.035 && q2 < 0.11, "{q2} {q3} {q4}");
        assert!(q3 < 0.5 * q2 && q4 < 0.4 * q3, "{q2} {q3} {q4}");
        for (format, bits) in [(KQuant::Q2, 2.625), (KQuant::Q3, 3.4375), (KQuant::Q4, 4.5)] {
            let spent = format.apply(&mut noise(4096));
            assert_eq!(spent as f64 / 4096.0, bits, "{format:?}");
        }
    }

    #[test]
    fn what_a_format_holds_comes_back() {
        // Levels of one scale and minimum a block are points of the format.
        let affine: Vec<f32> = (0..256).map(|i| 0.25 * (i % 4) as f32 - 0.25).collect();
        assert!(nmse(KQuant::Q2, &affine) < 1e-4 && nmse(KQuant::Q4, &affine) < 1e-4);
        let signed: Vec<f32> = (0..256).map(|i| 0.5 * (i % 8) as f32 - 2.0).collect();
        assert!(nmse(KQuant::Q3, &signed) < 1e-6);
        for format in [KQuant::Q2, KQuant::Q3, KQuant::Q4] {
            let mut zeros = vec![0.0; 256];
            format.apply(&mut zeros);
            assert!(zeros.iter().all(|&v| v == 0.0), "{format:?}");
            let mut ones = vec![-1.0; 256];
            format.apply(&mut ones);
            assert!(ones.iter().all(|&v| (v + 1.0).abs() < 1e-2), "{format:?}: {}", ones[0]);
        }
    }
}
