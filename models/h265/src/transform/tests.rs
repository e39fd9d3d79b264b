use super::matrix::{DCT, DST};
use super::*;
use proptest::prelude::*;
use trinity_numeric::random::Lcg;

const EIGHT_BIT: Precision = Precision { depth: 8, extended: false };

fn noise(seed: u64, count: usize, bits: u32) -> Vec<i32> {
    let mut lcg = Lcg(seed | 1);
    (0..count).map(|_| (lcg.bits31() as i32 & ((1 << bits) - 1)) - (1 << (bits - 1))).collect()
}

#[test]
fn the_matrix_is_nearly_orthogonal_as_a_misprint_would_not_be() {
    for a in 0..32 {
        for b in 0..32 {
            let dot: i32 = (0..32).map(|x| i32::from(DCT[a][x]) * i32::from(DCT[b][x])).sum();
            let expected = if a == b { 64 * 64 * 32 } else { 0 };
            assert!((dot - expected).abs() <= 400, "rows {a} and {b}: {dot}");
        }
    }
    for a in 0..4 {
        for b in 0..4 {
            let dot: i32 = (0..4).map(|x| i32::from(DST[a][x]) * i32::from(DST[b][x])).sum();
            assert!((dot - if a == b { 16384 } else { 0 }).abs() <= 150, "rows {a} and {b}: {dot}");
        }
    }
}

#[test]
fn a_lone_dc_coefficient_is_a_flat_block() {
    for log2 in 2..=5 {
        let mut block = vec![0; 1 << (2 * log2)];
        block[0] = 64 << log2;
        inverse(&mut block, log2, Kernel::Dct, EIGHT_BIT);
        assert!(block.iter().all(|&r| r == block[0]), "{log2}");
    }
}

proptest! {
    #[test]
    fn forward_then_inverse_is_nearly_the_identity(log2 in 2u32..=5, depth in 8u32..=16, dst in any::<bool>(), extended in any::<bool>(), seed in any::<u64>()) {
        let kernel = if dst && log2 == 2 { Kernel::Dst } else { Kernel::Dct };
        let precision = Precision { depth, extended };
        let original = noise(seed, 1 << (2 * log2), depth);
        let mut block = original.clone();
        forward(&mut block, log2, kernel, precision);
        inverse(&mut block, log2, kernel, precision);
        // The bases are orthonormal to about one part in 500, and without
        // extended precision 15-bit coefficients round deep samples.
        let squares: f64 = original.iter().zip(&block).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let rms = (squares / original.len() as f64).sqrt();
        prop_assert!(rms <= 1.0 + f64::from(1 << depth) / 256.0, "rms error {rms}");
    }

    #[test]
    fn narrow_and_wide_arithmetic_agree(log2 in 2u32..=5, seed in any::<u64>()) {
        let mut narrow = noise(seed, 1 << (2 * log2), 16);
        let mut wide = narrow.clone();
        inverse_with::<i32>(&mut narrow, log2, Kernel::Dct, EIGHT_BIT);
        inverse_with::<i64>(&mut wide, log2, Kernel::Dct, EIGHT_BIT);
        prop_assert_eq!(narrow, wide);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_forward_vector_code_equals_the_scalar_code(log2 in 2u32..=5, depth in 8u32..=15, dst in any::<bool>(), seed in any::<u64>()) {
        if forward_avx2::available() {
            let kernel = if dst && log2 == 2 { Kernel::Dst } else { Kernel::Dct };
            let precision = Precision { depth, extended: false };
            let mut scalar = noise(seed, 1 << (2 * log2), depth + 1);
            let mut vector = scalar.clone();
            forward_with::<i32>(&mut scalar, log2, kernel, precision);
            forward_avx2::forward(&mut vector, log2, kernel, precision);
            prop_assert_eq!(scalar, vector);
        }
    }

    #[test]
    fn skipping_the_transform_loses_nothing_up_to_10_bits(log2 in 2u32..=5, depth in 8u32..=10, seed in any::<u64>()) {
        let precision = Precision { depth, extended: false };
        let original = noise(seed, 1 << (2 * log2), depth + 1);
        let mut block = original.clone();
        forward_skip(&mut block, log2, precision);
        inverse_skip(&mut block, log2, precision);
        prop_assert_eq!(original, block);
    }

    #[test]
    fn rdpcm_and_rotation_round_trip(log2 in 2u32..=5, vertical in any::<bool>(), seed in any::<u64>()) {
        let direction = if vertical { Rdpcm::Vertical } else { Rdpcm::Horizontal };
        let original = noise(seed, 1 << (2 * log2), 12);
        let mut block = original.clone();
        difference(&mut block, log2, direction);
        rotate(&mut block, log2);
        rotate(&mut block, log2);
        accumulate(&mut block, log2, direction);
        prop_assert_eq!(original, block);
    }
}

#[test]
fn vector_kernels_equal_their_scalar_twins() {
    let depths = [8u32, 10, 12, 15];
    for (seed, depth) in (0..400).zip(depths.into_iter().cycle()) {
        let log2 = 2 + seed as u32 / 4 % 4;
        let kernel = if log2 == 2 && seed % 3 == 0 { Kernel::Dst } else { Kernel::Dct };
        let precision = Precision { depth, extended: false };
        let count = 1usize << (2 * log2);
        // From dense and extreme to a few coefficients in the corner.
        let mut block = noise(seed + 1, count, 16);
        let reach = 1 + seed as usize % (1 << log2);
        for (at, c) in block.iter_mut().enumerate() {
            if at % (1 << log2) >= reach || at >> log2 >= reach || (seed % 5 == 1 && at > 0) {
                *c = 0;
            }
        }
        let mut scalar = block.clone();
        inverse(&mut block, log2, kernel, precision);
        inverse_scalar(&mut scalar, log2, kernel, precision);
        assert_eq!(block, scalar, "seed {seed}, size {}, depth {depth}", 1 << log2);

        let mut plane: Vec<u16> =
            noise(seed, 40 * (1 << log2), depth).iter().map(|&s| (s + (1 << (depth - 1))) as u16).collect();
        let mut twin = plane.clone();
        add_residual(&mut plane, 40, &block, log2, depth);
        add_residual_scalar(&mut twin, 40, &block, log2, depth);
        assert_eq!(plane, twin, "seed {seed}");
    }
}
