//! A symbol from its slot by one comparison of all sixteen ranges.
//!
//! [`super::Plain`] is the truth; a test compares both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use super::starts::Starts;
use std::arch::x86_64::*;

/// As [`super::Find::find`].
#[target_feature(enable = "avx2,popcnt")]
#[inline]
pub fn find(starts: &Starts, slot: u16) -> usize {
    // SAFETY: there are seventeen starts, of which sixteen fill a register.
    let starts = unsafe { _mm256_loadu_si256(starts.0.as_ptr().cast()) };
    let beyond = _mm256_cmpgt_epi16(starts, _mm256_set1_epi16(slot as i16));
    // Two bits for each.
    15usize.wrapping_sub((_mm256_movemask_epi8(beyond).count_ones() / 2) as usize) & 15
}

#[cfg(test)]
mod tests {
    use super::super::{Find, Plain};
    use super::*;

    #[test]
    fn registers_and_arrays_find_alike() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("no AVX2 here: nothing to compare");
            return;
        }
        let even = Starts(std::array::from_fn(|i| 2048 * i as u16));
        let skewed = Starts(std::array::from_fn(|i| if i < 3 { i as u16 } else { 32752 + i as u16 }));
        for starts in [even, skewed, Starts([0; 17])] {
            for slot in 0..1 << 15 {
                // SAFETY: the processor has AVX2.
                assert_eq!(unsafe { find(&starts, slot) }, Plain::find(&starts, slot), "{slot}");
            }
        }
    }
}
