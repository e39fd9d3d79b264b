//! Random numbers for tests, examples and made-up data: the same on every machine.
//!
//! Knuth's linear congruential generator (MMIX). No library's, because pinned
//! streams follow from its numbers. Stands on nothing, so that `xtask` includes
//! this file as it is. No secret may come from it.

/// The generator; its seed is its first state.
#[derive(Debug, Clone, Copy)]
pub struct Lcg(pub u64);

impl Lcg {
    /// The next state, of which only the upper bits are random.
    pub fn state(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// An integer of 31 bits.
    pub fn bits31(&mut self) -> u64 {
        self.state() >> 33
    }

    /// A number from 0 up to 1, of 24 bits.
    pub fn uniform(&mut self) -> f32 {
        (self.state() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// About Gaussian, of variance 1: twelve uniform numbers.
    pub fn gaussian(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_generators_and_fill_their_range() {
        assert_eq!(Lcg(1).state(), 7_806_831_264_735_756_412);
        let mut random = Lcg(7);
        let drawn: Vec<f32> = (0..4096).map(|_| random.uniform()).collect();
        assert!(drawn.iter().all(|u| (0.0..1.0).contains(u)));
        assert!((drawn.iter().sum::<f32>() / 4096.0 - 0.5).abs() < 0.02);
        let gaussian: Vec<f32> = (0..4096).map(|_| random.gaussian()).collect();
        assert!((gaussian.iter().map(|v| v * v).sum::<f32>() / 4096.0 - 1.0).abs() < 0.1);
    }
}
