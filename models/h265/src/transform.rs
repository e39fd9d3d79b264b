//! Transforms of residual blocks (H.265 clauses 8.6.4 to 8.6.8): DCT and DST
//! both ways, transform skip, rotation, residual DPCM and cross-component
//! prediction.
//!
//! Blocks are square, row by row, `x` the horizontal frequency. Knows nothing
//! of quantization or of bits.

/// Table of clause 8.6.4.2: column 0 to 15 of the 32-point transform matrix,
/// one row a frequency. Columns 16 to 31 follow by symmetry, and the smaller
/// transforms are every 2nd, 4th, 8th row.
mod matrix;
// Intrinsics that load and store are unsafe by signature; see each use.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod forward_avx2;
mod kernel;
pub use kernel::{Kernel, Precision};

/// Sums of products. Extended precision needs the wider one: 22-bit
/// coefficients times 7-bit factors over 32 terms.
trait Accumulator: Copy + std::ops::AddAssign {
    fn zero() -> Self;
    fn product(a: i32, b: i16) -> Self;
    fn rounded(self, shift: u32) -> i64;
}

impl Accumulator for i32 {
    fn zero() -> Self {
        0
    }
    #[inline(always)]
    fn product(a: i32, b: i16) -> Self {
        a * i32::from(b)
    }
    #[inline(always)]
    fn rounded(self, shift: u32) -> i64 {
        i64::from((self + (1 << (shift - 1))) >> shift)
    }
}

impl Accumulator for i64 {
    fn zero() -> Self {
        0
    }
    #[inline(always)]
    fn product(a: i32, b: i16) -> Self {
        i64::from(a) * i64::from(b)
    }
    #[inline(always)]
    fn rounded(self, shift: u32) -> i64 {
        (self + (1 << (shift - 1))) >> shift
    }
}

/// Scaled coefficients to residual samples, in place (clause 8.6.4.2 followed
/// by the bdShift of clause 8.6.2).
pub fn inverse(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    let block = &mut block[..1 << (2 * log2)];
    #[cfg(target_arch = "x86_64")]
    if !precision.extended && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, all the function asks for.
        #[allow(unsafe_code)]
        unsafe {
            avx2::inverse(block, log2, kernel, precision.residual_shift());
        }
        return;
    }
    inverse_scalar(block, log2, kernel, precision);
}

/// [`inverse`] as the standard writes it, for any processor and precision.
fn inverse_scalar(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    if precision.extended {
        inverse_with::<i64>(block, log2, kernel, precision);
    } else {
        inverse_with::<i32>(block, log2, kernel, precision);
    }
}

fn inverse_with<A: Accumulator>(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    let size = 1usize << log2;
    let (low, high) = (i64::from(precision.coeff_min()), i64::from(precision.coeff_max()));
    let mut middle = [0i32; 32 * 32];
    let mut sums = [A::zero(); 32 * 32];

    // Columns first: row `f` of coefficients spreads over all output rows.
    let sums = &mut sums[..size * size];
    for (f, coefficients) in block.chunks_exact(size).enumerate() {
        if coefficients.iter().all(|&c| c == 0) {
            continue;
        }
        let basis = kernel.row(f, size);
        for (row, &b) in sums.chunks_exact_mut(size).zip(basis) {
            for (s, &c) in row.iter_mut().zip(coefficients) {
                *s += A::product(c, b);
            }
        }
    }
    for (m, s) in middle.iter_mut().zip(sums.iter()) {
        *m = s.rounded(7).clamp(low, high) as i32;
    }

    let shift = precision.residual_shift();
    for (row, out) in middle.chunks_exact(size).zip(block.chunks_exact_mut(size)) {
        let mut sums = [A::zero(); 32];
        for (f, &c) in row.iter().enumerate() {
            if c != 0 {
                for (s, &b) in sums.iter_mut().zip(kernel.row(f, size)) {
                    *s += A::product(c, b);
                }
            }
        }
        for (o, s) in out.iter_mut().zip(sums) {
            *o = s.rounded(shift) as i32;
        }
    }
}

/// Residual samples to coefficients, in place: the transpose of [`inverse`],
/// scaled so that a quantizer sees the range the standard expects. Informative:
/// an encoder is free here.
pub fn forward(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    let block = &mut block[..1 << (2 * log2)];
    // A 16-bit difference has 17 bits.
    #[cfg(target_arch = "x86_64")]
    if !precision.extended && precision.depth < 16 && forward_avx2::available() {
        return forward_avx2::forward(block, log2, kernel, precision);
    }
    if precision.extended {
        forward_with::<i64>(block, log2, kernel, precision);
    } else {
        forward_with::<i32>(block, log2, kernel, precision);
    }
}

fn forward_with<A: Accumulator>(block: &mut [i32], log2: u32, kernel: Kernel, precision: Precision) {
    let size = 1usize << log2;
    let (low, high) = (i64::from(precision.coeff_min()), i64::from(precision.coeff_max()));
    let mut middle = [0i32; 32 * 32];
    // Both passes together divide by size × 2^(depth + 6 - log2 range...): the
    // inverse multiplies by 2^-(7 + residual_shift) and the basis norm twice.
    let first = (log2 + precision.depth + 6 - precision.log2_range()).max(1);
    let second = log2 + 6;
    for (row, out) in block.chunks_exact(size).zip(middle.chunks_exact_mut(size)) {
        for (f, o) in out.iter_mut().enumerate() {
            let mut sum = A::zero();
            for (&s, &b) in row.iter().zip(kernel.row(f, size)) {
                sum += A::product(s, b);
            }
            *o = sum.rounded(first) as i32;
        }
    }
    for (f, out) in block.chunks_exact_mut(size).enumerate() {
        let basis = kernel.row(f, size);
        let mut sums = [A::zero(); 32];
        for (row, &b) in middle.chunks_exact(size).zip(basis) {
            for (s, &m) in sums.iter_mut().zip(row) {
                *s += A::product(m, b);
            }
        }
        for (o, s) in out.iter_mut().zip(sums) {
            *o = s.rounded(second).clamp(low, high) as i32;
        }
    }
}

/// transform_skip_flag: scaled coefficients to residual samples, in place.
pub fn inverse_skip(block: &mut [i32], log2: u32, precision: Precision) {
    let (up, down) = (precision.skip_shift(log2), precision.residual_shift());
    // Coefficients may take 22 bits and the shift 10 more.
    for c in &mut block[..1 << (2 * log2)] {
        *c = (((i64::from(*c) << up) + (1 << (down - 1))) >> down) as i32;
    }
}

/// The encoder's side of [`inverse_skip`].
pub fn forward_skip(block: &mut [i32], log2: u32, precision: Precision) {
    let (up, down) = (precision.residual_shift(), precision.skip_shift(log2));
    let (low, high) = (i64::from(precision.coeff_min()), i64::from(precision.coeff_max()));
    for r in &mut block[..1 << (2 * log2)] {
        let scaled = if up >= down {
            i64::from(*r) << (up - down)
        } else {
            (i64::from(*r) + (1 << (down - up - 1))) >> (down - up)
        };
        *r = scaled.clamp(low, high) as i32;
    }
}

/// transform_skip_rotation_enabled_flag: the block turned by 180°. Its own inverse.
pub fn rotate(block: &mut [i32], log2: u32) {
    block[..1 << (2 * log2)].reverse();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rdpcm {
    Horizontal,
    Vertical,
}

impl Rdpcm {
    /// Implicit RDPCM follows the prediction (clause 8.6.2): only pure
    /// horizontal and vertical modes have it.
    pub fn implicit(mode: u8) -> Option<Self> {
        match mode {
            crate::intra::HORIZONTAL => Some(Self::Horizontal),
            crate::intra::VERTICAL => Some(Self::Vertical),
            _ => None,
        }
    }
}

/// Differences to residual samples (clauses 8.6.5 and 8.6.6), in place.
pub fn accumulate(block: &mut [i32], log2: u32, direction: Rdpcm) {
    let size = 1 << log2;
    let block = &mut block[..size * size];
    match direction {
        Rdpcm::Horizontal => {
            for row in block.chunks_exact_mut(size) {
                for x in 1..size {
                    row[x] = row[x].wrapping_add(row[x - 1]);
                }
            }
        }
        Rdpcm::Vertical => {
            for i in size..size * size {
                block[i] = block[i].wrapping_add(block[i - size]);
            }
        }
    }
}

/// Residual samples to differences, in place: the inverse of [`accumulate`],
/// exact only where nothing is quantized between the two.
pub fn difference(block: &mut [i32], log2: u32, direction: Rdpcm) {
    let size = 1 << log2;
    let block = &mut block[..size * size];
    match direction {
        Rdpcm::Horizontal => {
            for row in block.chunks_exact_mut(size) {
                for x in (1..size).rev() {
                    row[x] -= row[x - 1];
                }
            }
        }
        Rdpcm::Vertical => {
            for i in (size..size * size).rev() {
                block[i] -= block[i - size];
            }
        }
    }
}

/// Adds the luma residual to a chroma residual (clause 7.3.8.12 and 8.6.6):
/// `res_scale` is ResScaleVal, in eighths.
pub fn cross_component(chroma: &mut [i32], luma: &[i32], res_scale: i32, luma_depth: u32, chroma_depth: u32) {
    for (c, &l) in chroma.iter_mut().zip(luma) {
        let matched = (i64::from(l) << chroma_depth) >> luma_depth;
        *c = c.wrapping_add(((i64::from(res_scale) * matched) >> 3) as i32);
    }
}

/// Adds a residual to the prediction already in `plane` and clips.
pub fn add_residual(plane: &mut [u16], stride: usize, residual: &[i32], log2: u32, depth: u32) {
    #[cfg(target_arch = "x86_64")]
    if log2 > 2 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, all the function asks for.
        #[allow(unsafe_code)]
        unsafe {
            avx2::add_residual(plane, stride, residual, log2, depth);
        }
        return;
    }
    add_residual_scalar(plane, stride, residual, log2, depth);
}

/// [`add_residual`] for any processor.
fn add_residual_scalar(plane: &mut [u16], stride: usize, residual: &[i32], log2: u32, depth: u32) {
    let size = 1 << log2;
    let limit = (1i32 << depth) - 1;
    for (row, residual) in plane.chunks_mut(stride).zip(residual.chunks_exact(size)).take(size) {
        for (s, &r) in row[..size].iter_mut().zip(residual) {
            *s = i32::from(*s).wrapping_add(r).clamp(0, limit) as u16;
        }
    }
}

#[cfg(test)]
mod tests;
