//! Blocks cut out of a source macroblock, and their differences from predictions.

use crate::intra::mode;
use crate::picture::Window;

/// An N×N block (N from the array's length) of the source, in units of its own size.
#[inline(always)]
pub fn source_block<const LEN: usize>(source: &[u16; 256], x: usize, y: usize) -> [i32; LEN] {
    let n = const { LEN.isqrt() };
    let mut block = [0; LEN];
    for row in 0..n {
        let samples = &source[(n * y + row) * 16 + n * x..][..n];
        for column in 0..n {
            block[n * row + column] = i32::from(samples[column]);
        }
    }
    block
}

#[inline(always)]
pub fn residual_nxn<const N: usize, const LEN: usize>(
    source: &[i32; LEN],
    prediction: &[[u16; N]; N],
) -> [i32; LEN] {
    let mut residual = [0; LEN];
    for k in 0..LEN {
        residual[k] = source[k] - i32::from(prediction[k / N][k % N]);
    }
    residual
}

/// One 4×4 block of a macroblock's samples or residuals, by column and row.
#[inline(always)]
pub fn cut_4x4<T: Copy + Default>(mb: &[T; 256], x: usize, y: usize) -> [T; 16] {
    let mut block = [T::default(); 16];
    for (row, own) in block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        if let Some(samples) = mb[(4 * y + row) * 16 + 4 * x..].first_chunk() {
            *own = *samples;
        }
    }
    block
}

#[inline(always)]
pub fn residual_mb(source: &[u16; 256], prediction: &[[u16; 16]; 16]) -> [i32; 256] {
    let mut residual = [0; 256];
    for k in 0..256 {
        residual[k] = i32::from(source[k]) - i32::from(prediction[k / 16][k % 16]);
    }
    residual
}

/// One 4×4 block of a chroma residual of 4:2:0.
pub fn chroma_block(source: &[u16; 256], prediction: &[[u16; 8]; 16], block: usize) -> [i32; 16] {
    let (x, y) = (4 * (block % 2), 4 * (block / 2));
    std::array::from_fn(|k| {
        i32::from(source[(y + k / 4) * 16 + x + k % 4]) - i32::from(prediction[y + k / 4][x + k % 4])
    })
}

/// The inverse of the lossless accumulation along rows or columns (clause 8.5.15).
pub fn difference_along(residual: &mut [i32], width: usize, mode: u8) {
    match mode {
        mode::HORIZONTAL => {
            for row in residual.chunks_exact_mut(width) {
                for x in (1..width).rev() {
                    row[x] -= row[x - 1];
                }
            }
        }
        mode::VERTICAL => {
            for at in (width..residual.len()).rev() {
                residual[at] -= residual[at - width];
            }
        }
        _ => {}
    }
}

/// A lossless block is its source.
pub fn put_source(window: &mut Window, source: &[u16; 256], x: usize, y: usize, size: usize) {
    for row in y..y + size {
        window.row_mut(row)[x..x + size].copy_from_slice(&source[row * 16 + x..row * 16 + x + size]);
    }
}

/// Squared error of a luma-sized macroblock.
pub fn squared_error(source: &[u16; 256], window: &Window) -> f32 {
    let mut sum = 0u64;
    for (y, own) in source.chunks_exact(16).enumerate() {
        let pairs = own.iter().zip(window.row(y));
        sum += u64::from(pairs.map(|(&a, &b)| u32::from(a.abs_diff(b)).pow(2)).sum::<u32>());
    }
    sum as f32
}
