//! What kernels of wide registers have in common: words of 32 bits to a register and back, and which lanes have a
//! column.
// Loads and stores are checked by slices.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Lanes of a register of AVX-512, and of a tile.
pub(crate) const WIDE: usize = 16;
pub(crate) const LANES: usize = 32;

/// What has 32 bits.
pub(crate) trait Word: Copy {}

impl Word for i32 {}
impl Word for u32 {}

/// Lanes of a register that have a column in the step that starts there.
#[inline]
pub(crate) fn mask_of(cols: usize, first: usize, half: usize) -> __mmask16 {
    let left = (cols - first).saturating_sub(WIDE * half);
    if left >= WIDE { __mmask16::MAX } else { (1 << left) - 1 }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load<T: Word>(list: &[T]) -> __m512i {
    // SAFETY: the slice is checked to hold sixteen.
    unsafe { _mm512_loadu_si512(list[..WIDE].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store<T: Word>(list: &mut [T], value: __m512i) {
    // SAFETY: the slice is checked to hold sixteen.
    unsafe { _mm512_storeu_si512(list[..WIDE].as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_half<T: Word>(list: &[T]) -> __m256i {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_loadu_si256(list[..WIDE / 2].as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_half<T: Word>(list: &mut [T], value: __m256i) {
    // SAFETY: the slice is checked to hold eight.
    unsafe { _mm256_storeu_si256(list[..WIDE / 2].as_mut_ptr().cast(), value) }
}
