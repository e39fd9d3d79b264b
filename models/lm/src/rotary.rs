//! Rotary positions: each pair `(x[i], x[i + d/2])` of a head turned by an
//! angle that grows with the position.

/// Sines and cosines for every position and pair.
#[derive(Debug, Clone)]
pub struct Rotary {
    /// `positions × head_dim / 2` of (cos, sin).
    table: Vec<(f32, f32)>,
    half: usize,
}

impl Rotary {
    pub fn new(positions: usize, head_dim: usize, theta: f64) -> Self {
        let half = head_dim / 2;
        let table = (0..positions)
            .flat_map(|position| {
                (0..half).map(move |i| {
                    let angle = position as f64 / theta.powf(i as f64 / half as f64);
                    (angle.cos() as f32, angle.sin() as f32)
                })
            })
            .collect();
        Self { table, half }
    }

    /// Turns every head of every token; row `t` of `x` is at position `t`.
    pub fn apply(&self, x: &mut [f32], channels: usize) {
        for (position, row) in x.chunks_exact_mut(channels).enumerate() {
            let angles = &self.table[position * self.half..][..self.half];
            for head in row.chunks_exact_mut(2 * self.half) {
                let (low, high) = head.split_at_mut(self.half);
                for ((a, b), &(cos, sin)) in low.iter_mut().zip(high).zip(angles) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_stands_still_and_turns_keep_length() {
        let rotary = Rotary::new(8, 4, 10000.0);
        let mut x: Vec<f32> = (0..32).map(|i| i as f32).collect();
        let before = x.clone();
        rotary.apply(&mut x, 4);
        assert_eq!(x[..4], before[..4]);
        for (a, b) in x.chunks(4).zip(before.chunks(4)) {
            let norm = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
            assert!((norm(a) / norm(b) - 1.0).abs() < 1e-5);
        }
        // Position 1, pair 0 turns by one radian.
        assert!((x[4] - (4.0 * 1f32.cos() - 6.0 * 1f32.sin())).abs() < 1e-5);
    }
}
