//! The values of a matrix that is to be coded: as numbers, or as a file has them.
//!
//! What a file has is read where it is needed, tile by tile, so that no copy of a large matrix is made. Knows number
//! formats; knows nothing of plans.

use std::borrow::Cow;

use crate::matrix::transpose_by;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// Values of a matrix, row after row.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// As they are.
    Numbers(&'a [f32]),
    /// In single precision, little-endian, to be multiplied by a power of two.
    F32(&'a [[u8; 4]], f32),
    /// Numbers in bf16, little-endian, to be multiplied by a power of two.
    Bf16(&'a [[u8; 2]], f32),
}

#[inline(always)]
fn of_f32(bytes: [u8; 4], factor: f32) -> f32 {
    f32::from_le_bytes(bytes) * factor
}

#[inline(always)]
fn of_bf16(bytes: [u8; 2], factor: f32) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16) * factor
}

impl<'a> Values<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::F32(bytes, _) => bytes.len(),
            Self::Bf16(bytes, _) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> f32 {
        match *self {
            Self::Numbers(values) => values[index],
            Self::F32(bytes, factor) => of_f32(bytes[index], factor),
            Self::Bf16(bytes, factor) => of_bf16(bytes[index], factor),
        }
    }

    /// As many from `start` on as there is room for.
    pub fn copy_to(&self, start: usize, out: &mut [f32]) {
        match *self {
            Self::Numbers(values) => out.copy_from_slice(&values[start..][..out.len()]),
            Self::F32(bytes, factor) => {
                let (stored, of) = (&bytes[start..][..out.len()], of_f32);
                with_width(Width::widest(), Read { stored, factor, of, out });
            }
            Self::Bf16(bytes, factor) => {
                let (stored, of) = (&bytes[start..][..out.len()], of_bf16);
                with_width(Width::widest(), Read { stored, factor, of, out });
            }
        }
    }

    /// All of them.
    pub fn numbers(&self) -> Cow<'a, [f32]> {
        if let Self::Numbers(values) = *self {
            return Cow::Borrowed(values);
        }
        let mut all = vec![0.0; self.len()];
        self.copy_to(0, &mut all);
        Cow::Owned(all)
    }

    /// Writes `rows` × `cols` values, in rows that are `stride` apart and from `start` on, as columns of rows that are
    /// `out_stride` apart.
    pub(crate) fn transpose_to(
        &self,
        start: usize,
        stride: usize,
        shape: (usize, usize),
        out: &mut [f32],
        out_stride: usize,
    ) {
        match *self {
            Self::Numbers(values) => {
                transpose_by(&values[start..], stride, shape, out, out_stride, |value| value);
            }
            Self::F32(bytes, factor) => {
                transpose_by(&bytes[start..], stride, shape, out, out_stride, |value| of_f32(value, factor));
            }
            Self::Bf16(bytes, factor) => {
                transpose_by(&bytes[start..], stride, shape, out, out_stride, |value| of_bf16(value, factor));
            }
        }
    }
}

/// Numbers of stored values.
struct Read<'a, const N: usize, F> {
    stored: &'a [[u8; N]],
    factor: f32,
    of: F,
    out: &'a mut [f32],
}

impl<const N: usize, F: Fn([u8; N], f32) -> f32> Kernel for Read<'_, N, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (out, &stored) in self.out.iter_mut().zip(self.stored) {
            *out = (self.of)(stored, self.factor);
        }
    }
}
