//! Rotary positions: each pair `(x[i], x[i + d/2])` of a head turned by an
//! angle that grows with the position.

#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: Scaling,
}

/// What stretches a model over more positions than it was first trained with.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    None,
    /// Every pair slower by a factor.
    Linear(f64),
    /// Llama 3.1: slow pairs slower by a factor, fast ones as they were, and a
    /// blend between (wavelengths against the positions of the first training).
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_positions: f64,
    },
    /// A factor for each pair, as GGUF files carry them.
    Factors(Vec<f64>),
}

impl Rope {
    /// Radians per position of pair `i` of `half`.
    fn frequency(&self, i: usize, half: usize) -> f64 {
        let frequency = self.theta.powf(-(i as f64) / half as f64);
        match &self.scaling {
            Scaling::None => frequency,
            Scaling::Linear(factor) => frequency / factor,
            Scaling::Factors(factors) => frequency / factors.get(i).copied().unwrap_or(1.0),
            Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                let turns = original_positions * frequency / std::f64::consts::TAU;
                let blend = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                let blend = blend.clamp(0.0, 1.0);
                (1.0 - blend) * frequency / factor + blend * frequency
            }
        }
    }
}

/// Sines and cosines for every position and pair.
#[derive(Debug, Clone)]
pub struct Rotary {
    /// `positions × head_dim / 2` of (cos, sin).
    table: Vec<(f32, f32)>,
    half: usize,
}

impl Rotary {
    pub fn new(positions: usize, head_dim: usize, rope: &Rope) -> Self {
        let half = head_dim / 2;
        let frequencies: Vec<f64> = (0..half).map(|i| rope.frequency(i, half)).collect();
        let table = (0..positions)
            .flat_map(|position| {
                frequencies.iter().map(move |frequency| {
                    let angle = position as f64 * frequency;
                    (angle.cos() as f32, angle.sin() as f32)
                })
            })
            .collect();
        Self { table, half }
    }

    /// Turns every head of a row back by the angles of a position.
    pub fn undo(&self, row: &mut [f32], position: usize) {
        self.turn(row, position, -1.0);
    }

    /// Turns every head of every token; row `t` of `x` is at position `t`.
    pub fn apply(&self, x: &mut [f32], channels: usize) {
        for (position, row) in x.chunks_exact_mut(channels).enumerate() {
            self.turn(row, position, 1.0);
        }
    }

    /// Turns every head of a row by the angles of a position, or back.
    fn turn(&self, row: &mut [f32], position: usize, direction: f32) {
        let angles = &self.table[position * self.half..][..self.half];
        for head in row.chunks_exact_mut(2 * self.half) {
            let (low, high) = head.split_at_mut(self.half);
            for ((a, b), &(cos, sin)) in low.iter_mut().zip(high).zip(angles) {
                let sin = direction * sin;
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_stands_still_and_turns_keep_length() {
        let rotary = Rotary::new(8, 4, &Rope { theta: 10000.0, scaling: Scaling::None });
        let mut x: Vec<f32> = (0..32).map(|i| i as f32).collect();
        let before = x.clone();
        rotary.apply(&mut x, 4);
        assert_eq!(x[..4], before[..4]);
        for (a, b) in x.chunks(4).zip(before.chunks(4)) {
            let norm = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
            assert!((norm(a) / norm(b) - 1.0).abs() < 1e-5);
        }
        for (position, (row, before)) in x.clone().chunks_mut(4).zip(before.chunks(4)).enumerate() {
            rotary.undo(row, position);
            assert!(row.iter().zip(before).all(|(a, b)| (a - b).abs() < 1e-5), "{position}");
        }
        // Position 1, pair 0 turns by one radian.
        assert!((x[4] - (4.0 * 1f32.cos() - 6.0 * 1f32.sin())).abs() < 1e-5);
    }

    #[test]
    fn llama_3_slows_slow_pairs_only() {
        let scaling = Scaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_positions: 8192.0,
        };
        let (plain, scaled) = (Rope { theta: 5e5, scaling: Scaling::None }, Rope { theta: 5e5, scaling });
        assert_eq!(scaled.frequency(0, 64), plain.frequency(0, 64));
        assert_eq!(scaled.frequency(63, 64), plain.frequency(63, 64) / 8.0);
    }
}
