//! Viterbi over 32 states with a state in every sixteen bits of two registers.
//!
//! [`super::step`] is the truth; this is the same arithmetic, in the order the
//! registers like. A test compares both.

// Intrinsics on memory; every other operation here is safe.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Costs of even and of odd states, sixteen each.
#[derive(Clone, Copy)]
pub struct States {
    even: __m256i,
    odd: __m256i,
}

#[target_feature(enable = "avx2")]
#[inline]
pub fn load(costs: &[i16; 32]) -> States {
    let (low, high) = costs.split_at(16);
    // SAFETY: both halves hold 32 bytes.
    let (low, high) =
        unsafe { (_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())) };
    dealt(low, high)
}

/// States 0 to 15 and 16 to 31, dealt into even and odd ones.
#[target_feature(enable = "avx2")]
#[inline]
fn dealt(low: __m256i, high: __m256i) -> States {
    let mask = _mm256_set1_epi32(0xffff);
    let even = _mm256_packus_epi32(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask));
    let odd = _mm256_packus_epi32(_mm256_srli_epi32::<16>(low), _mm256_srli_epi32::<16>(high));
    // Packing goes half by half of a register.
    States { even: _mm256_permute4x64_epi64::<0xd8>(even), odd: _mm256_permute4x64_epi64::<0xd8>(odd) }
}

/// One stage; the decisions are bits in the order of [`bit`].
#[target_feature(enable = "avx2")]
#[inline]
pub fn step(states: States, value: &[i16; 4]) -> (States, u32) {
    let [c0, c1, c2, c3] = value.map(|c| _mm256_set1_epi16(c));
    // Into state t of the lower half lead 2 t and 2 (t ^ 4).
    let a = _mm256_add_epi16(states.even, c0);
    let b = _mm256_add_epi16(_mm256_shuffle_epi32::<0x4e>(states.even), c1);
    let low = _mm256_sub_epi16(b, a);
    // Into state 16 + t of the upper half lead 2 (t ^ 2) + 1 and 2 (t ^ 6) + 1.
    let c = _mm256_add_epi16(_mm256_shuffle_epi32::<0xb1>(states.odd), c2);
    let d = _mm256_add_epi16(_mm256_shuffle_epi32::<0x1b>(states.odd), c3);
    let high = _mm256_sub_epi16(d, c);
    let zero = _mm256_setzero_si256();
    let next_low = _mm256_add_epi16(a, _mm256_min_epi16(low, zero));
    let next_high = _mm256_add_epi16(c, _mm256_min_epi16(high, zero));
    let decisions = _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32;
    (dealt(next_low, next_high), decisions)
}

/// The bit of a state among the decisions.
#[inline(always)]
pub fn bit(state: usize) -> usize {
    (state & 7) | (state >> 1 & 8) | (state << 1 & 16)
}

/// The costs of all states in their order.
#[target_feature(enable = "avx2")]
#[inline]
pub fn store(states: States) -> [i16; 32] {
    let (mut even, mut odd) = ([0i16; 16], [0i16; 16]);
    // SAFETY: both arrays hold 32 bytes.
    unsafe {
        _mm256_storeu_si256(even.as_mut_ptr().cast(), states.even);
        _mm256_storeu_si256(odd.as_mut_ptr().cast(), states.odd);
    }
    std::array::from_fn(|state| if state % 2 == 0 { even[state / 2] } else { odd[state / 2] })
}

#[cfg(test)]
mod tests {
    use super::super::step as plain;
    use super::*;

    #[test]
    fn registers_and_arrays_take_the_same_path() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("no AVX2 here: nothing to compare");
            return;
        }
        let mut seed = 1u64;
        let mut random = move |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) % limit) as i16
        };
        let mut costs: [i16; 32] = std::array::from_fn(|_| random(9000));
        for _ in 0..500 {
            let value = std::array::from_fn(|_| random(1792));
            let mut decisions = [0; 32];
            let next = plain::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(&costs, &value, &mut decisions);
            // SAFETY: the processor has AVX2.
            let (stored, bits) = unsafe {
                let (states, bits) = step(load(&costs), &value);
                (store(states), bits)
            };
            assert_eq!(stored, next);
            for (state, &decision) in decisions.iter().enumerate() {
                assert_eq!(bits >> bit(state) & 1, u32::from(decision), "state {state}");
            }
            costs = next;
        }
    }
}
