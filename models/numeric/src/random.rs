//! Random numbers for tests, examples and made-up data: the same on every machine.
//!
//! Knuth's linear congruential generator (MMIX), and SplitMix64 where a number must
//! be as good as the next. No library's, because pinned streams and figures follow
//! from their numbers. Stands on nothing, so that `xtask` includes this file as it
//! is. No secret may come from it.

/// The generator; its seed is its first state.
#[derive(Debug, Clone, Copy)]
pub struct Lcg(pub u64);

impl Lcg {
    /// The next state, of which only the upper bits are random.
    pub fn state(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

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

/// SplitMix64 (Steele, Lea, Flood 2014); its seed is its first state.
#[derive(Debug, Clone, Copy)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The `n`th word after the seed 0, for numbers that are asked for by their place.
    pub fn nth(n: u64) -> u64 {
        Self::mixed(n.wrapping_mul(Self::INCREMENT))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::INCREMENT);
        Self::mixed(self.0)
    }

    fn mixed(state: u64) -> u64 {
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to 1, of 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number between 0 and 1 that is neither.
    fn within(&mut self) -> f64 {
        (self.word() >> 12) as f64 * 2f64.powi(-52) + 2f64.powi(-53)
    }

    /// Gaussian of variance 1 (Box and Muller).
    pub fn gaussian(&mut self) -> f64 {
        let radius = (-2.0 * self.within().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.within()).cos()
    }

    /// Laplacian of scale 1.
    pub fn laplacian(&mut self) -> f64 {
        (self.within() / self.within()).ln()
    }

    /// Student's t with a few degrees of freedom.
    pub fn student(&mut self, degrees: u32) -> f64 {
        let squares: f64 = (0..degrees).map(|_| self.gaussian().powi(2)).sum();
        self.gaussian() / (squares / f64::from(degrees)).sqrt()
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

    #[test]
    fn split_mix_has_its_words_and_laws_their_variances() {
        // The first words of the seed 0, of the authors' program.
        let mut random = SplitMix64(0);
        assert_eq!([random.word(), random.word()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(SplitMix64::nth(2), 0x6e78_9e6a_a1b9_65f4);
        let mut random = SplitMix64(3);
        let mut variance = |next: fn(&mut SplitMix64) -> f64| {
            (0..100_000).map(|_| next(&mut random).powi(2)).sum::<f64>() / 1e5
        };
        assert!((variance(SplitMix64::gaussian) - 1.0).abs() < 0.02);
        assert!((variance(SplitMix64::laplacian) - 2.0).abs() < 0.08);
        assert!((variance(|random| random.student(9)) - 9.0 / 7.0).abs() < 0.08);
        assert!((variance(SplitMix64::uniform) - 1.0 / 3.0).abs() < 0.01);
    }
}
