//! Reconstruction points, and what the four candidates of a value cost: what the plain search and its
//! twin for wide registers share.

/// States whose levels share statistics: those of one quantizer.
pub const GROUPS: usize = 2;

/// A candidate that costs so much more than the best one is as good as lost.
pub const LOST: i32 = 7 * 256;

/// What symbols cost in one context, their signs included, in [`UNIT`](super::UNIT)s.
pub type Costs = [u32; 16];

/// What the best level of each quantizer and parity costs for one value, above
/// the best of the four: Q0 even, Q0 odd, Q1 even, Q1 odd.
pub type Candidates = [i16; 4];

/// Shifts of the reconstruction points in 1/64 step, by quantizer and
/// magnitude (1, 2, more), toward where values really lie.
pub type Centroids = [[i8; 3]; 2];

/// Where levels stand.
#[derive(Debug, Clone, Copy)]
pub struct Points {
    /// By quantizer and magnitude up to 3: what is added to 128 a level.
    shift: [[i32; 4]; 2],
}

impl Points {
    pub fn new(centroids: &Centroids) -> Self {
        let of = |q: usize| {
            let at = |i: usize| i32::from(centroids[q][i]) - 64 * q as i32;
            [0, at(0), at(1), at(2)]
        };
        Self { shift: [of(0), of(1)] }
    }

    /// By quantizer and magnitude up to 3: what is added to 128 a level.
    #[cfg(target_arch = "x86_64")]
    pub fn shifts(&self) -> &[[i32; 4]; 2] {
        &self.shift
    }

    /// What a level of a uniform quantizer stands for.
    pub fn value(&self, level: i32, step: f32) -> f32 {
        let distance = self.distance(level.unsigned_abs(), 0);
        (if level < 0 { -distance } else { distance }) as f32 * (step / 64.0)
    }

    /// Distance of a magnitude from zero, in 1/64 step.
    #[inline(always)]
    pub fn distance(&self, magnitude: u32, quantizer: usize) -> i32 {
        128 * magnitude as i32 + self.shift[quantizer & 1][magnitude.min(3) as usize]
    }
}
