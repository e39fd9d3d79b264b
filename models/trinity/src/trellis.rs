//! Trellis-coded (dependent) quantization.
//!
//! Two quantizers share the line: Q0 reconstructs at even multiples of the
//! step, Q1 at zero and the odd ones. Which one a value uses depends on the
//! parities of the levels before it, through the state machine of a
//! convolutional code (Ungerboeck's one-dimensional codes, 4 to 256 states).
//! The encoder finds the path of least distortion + λ · rate (Viterbi); the
//! decoder only follows the machine. Knows rates as numbers, not how symbols
//! are coded.

use crate::rans::escape_bits;

/// Ungerboeck's parity-check polynomials h0, h1 for 2^2 to 2^8 states.
const CODES: [(u16, u16); 7] =
    [(0o5, 0o2), (0o13, 0o4), (0o23, 0o4), (0o45, 0o10), (0o103, 0o24), (0o235, 0o126), (0o515, 0o362)];

/// States whose levels share statistics: those of one quantizer.
pub const GROUPS: usize = 2;

/// The statistics a state uses.
#[inline(always)]
pub fn group(state: u16) -> usize {
    usize::from(state) % GROUPS
}

/// The state machine. One state is a plain uniform quantizer of twice the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    log2_states: u32,
    feedback: u16,
    input: u16,
}

impl Code {
    /// `log2_states` is 0, or 2 to 8.
    pub fn new(log2_states: u32) -> Option<Self> {
        if log2_states == 0 {
            return Some(Self { log2_states, feedback: 0, input: 0 });
        }
        let (h0, h1) = *CODES.get((log2_states as usize).checked_sub(2)?)?;
        Some(Self { log2_states, feedback: h0 >> 1, input: h1 >> 1 })
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        1 << self.log2_states
    }

    /// The state after a level of the given parity. Odd states use Q1.
    #[inline(always)]
    pub fn next(&self, state: u16, parity: u16) -> u16 {
        (state >> 1) ^ (self.feedback & (state & 1).wrapping_neg()) ^ (self.input & parity.wrapping_neg())
    }

    /// Both successors of every state, `[2 · state + parity]`.
    pub fn table(&self) -> Vec<u16> {
        (0..2 * self.states() as u16).map(|i| self.next(i >> 1, i & 1)).collect()
    }
}

/// Shifts of the reconstruction points in 1/64 step, by quantizer and
/// magnitude (1, 2, more), toward where values really lie.
pub type Centroids = [[i8; 3]; 2];

/// Where a level stands, in 1/64 step.
#[inline(always)]
pub fn position(level: i32, quantizer: usize, centroids: &Centroids) -> i32 {
    let magnitude = level.unsigned_abs() as i32;
    if magnitude == 0 {
        return 0;
    }
    let shift = i32::from(centroids[quantizer][magnitude.min(3) as usize - 1]);
    let point = 64 * (2 * magnitude - quantizer as i32) + shift;
    if level < 0 { -point } else { point }
}

/// Largest magnitude of a level.
pub const MAX_LEVEL: i32 = 1 << 23;

/// What levels cost, column by column.
pub trait Rates {
    /// The rates of one column.
    fn column(&self, column: usize) -> ColumnRates<'_>;
}

/// What the levels of one column cost, in units of squared steps.
#[derive(Debug, Clone, Copy)]
pub struct ColumnRates<'a> {
    /// λ · bits of each symbol, by group of states.
    pub costs: [&'a [f32; 16]; GROUPS],
    /// Low bits that are sent raw, and λ times their number.
    pub raw_bits: u32,
    pub raw_cost: f32,
    pub lambda: f32,
}

impl ColumnRates<'_> {
    /// λ times the bits of a magnitude in states of `group`.
    #[inline(always)]
    fn rate(&self, group: usize, magnitude: u32) -> f32 {
        let symbol = magnitude >> self.raw_bits;
        let sign = if magnitude != 0 { self.lambda } else { 0.0 };
        let mut cost = self.costs[group][symbol.min(15) as usize] + self.raw_cost + sign;
        if symbol >= 15 {
            cost += self.lambda * escape_bits(symbol - 15) as f32;
        }
        cost
    }
}

/// The best level of each quantizer and parity for one value.
#[derive(Debug, Clone, Copy, Default)]
struct Candidates {
    cost: [f32; 2 * GROUPS],
    magnitude: [i32; 2 * GROUPS],
}

/// Buffers of the search, reused from segment to segment.
#[derive(Debug, Default)]
pub struct Search {
    candidates: Vec<Candidates>,
    decisions: Vec<u8>,
}

impl Search {
    /// Quantizes `values` (in steps) to `levels`, starting from state 0.
    /// Columns of `rates` begin at `first_column`.
    pub fn run(
        &mut self,
        code: &Code,
        values: &[f32],
        rates: &impl Rates,
        first_column: usize,
        centroids: &Centroids,
        levels: &mut [i32],
    ) {
        self.candidates.clear();
        let points = Points::new(centroids);
        self.candidates.extend(
            values
                .iter()
                .enumerate()
                .map(|(i, &v)| points.candidates(v.abs(), &rates.column(first_column + i))),
        );
        match code.log2_states {
            0 => {
                for (level, c) in levels.iter_mut().zip(&self.candidates) {
                    *level = if c.cost[1] < c.cost[0] { c.magnitude[1] } else { c.magnitude[0] };
                }
            }
            2 => self.path::<4, { (0o5 >> 1) as usize }, { (0o2 >> 1) as usize }>(code, levels),
            3 => self.path::<8, { (0o13 >> 1) as usize }, { (0o4 >> 1) as usize }>(code, levels),
            4 => self.path::<16, { (0o23 >> 1) as usize }, { (0o4 >> 1) as usize }>(code, levels),
            5 => self.path::<32, { (0o45 >> 1) as usize }, { (0o10 >> 1) as usize }>(code, levels),
            6 => self.path::<64, { (0o103 >> 1) as usize }, { (0o24 >> 1) as usize }>(code, levels),
            7 => self.path::<128, { (0o235 >> 1) as usize }, { (0o126 >> 1) as usize }>(code, levels),
            _ => self.path::<256, { (0o515 >> 1) as usize }, { (0o362 >> 1) as usize }>(code, levels),
        }
        for (level, value) in levels.iter_mut().zip(values) {
            if value.is_sign_negative() {
                *level = -*level;
            }
        }
    }

    /// Viterbi over `S` states with the code's taps as constants, so that the
    /// compiler turns the butterflies into shuffles.
    ///
    /// Even states lead to the lower half of the states and odd ones to the
    /// upper half, each to two that differ by `H1`.
    fn path<const S: usize, const H0: usize, const H1: usize>(&mut self, code: &Code, levels: &mut [i32]) {
        let count = self.candidates.len();
        self.decisions.resize(count * S, 0);
        let mut costs = [f32::MAX / 4.0; S];
        costs[0] = 0.0;
        for (c, decisions) in self.candidates.iter().zip(self.decisions.as_chunks_mut::<S>().0) {
            costs = step::<S, H0, H1>(&costs, &c.cost, decisions);
        }
        let mut state = 0;
        for s in 1..S {
            if costs[s] < costs[state] {
                state = s;
            }
        }
        for i in (0..count).rev() {
            let parity = usize::from(self.decisions[i * S + state]);
            let odd = usize::from(state >= S / 2);
            let half = if odd == 1 { state ^ H0 } else { state } ^ (H1 * parity);
            state = 2 * half + odd;
            levels[i] = self.candidates[i].magnitude[2 * (state % GROUPS) + parity];
        }
        debug_assert_eq!(state, 0);
        debug_assert_eq!(code.states(), S);
    }
}

/// One stage: the cheaper way into every state, and the parity it took.
#[inline(always)]
fn step<const S: usize, const H0: usize, const H1: usize>(
    costs: &[f32; S],
    value: &[f32; 2 * GROUPS],
    decisions: &mut [u8; S],
) -> [f32; S] {
    let mut next = [0.0; S];
    for t in 0..S / 2 {
        let (from_even, from_odd) = (2 * t, 2 * (t ^ H1));
        let even = costs[from_even] + value[2 * (from_even % GROUPS)];
        let odd = costs[from_odd] + value[2 * (from_odd % GROUPS) + 1];
        next[t] = if odd < even { odd } else { even };
        decisions[t] = u8::from(odd < even);
    }
    for t in S / 2..S {
        let (from_even, from_odd) = (2 * (t ^ H0) + 1, 2 * (t ^ H0 ^ H1) + 1);
        let even = costs[from_even] + value[2 * (from_even % GROUPS)];
        let odd = costs[from_odd] + value[2 * (from_odd % GROUPS) + 1];
        next[t] = if odd < even { odd } else { even };
        decisions[t] = u8::from(odd < even);
    }
    next
}

/// Reconstruction points with their shifts, as the search needs them.
struct Points {
    shift: [[f32; 4]; 2],
}

impl Points {
    fn new(centroids: &Centroids) -> Self {
        Self {
            shift: centroids
                .map(|c| [0.0, f32::from(c[0]) / 64.0, f32::from(c[1]) / 64.0, f32::from(c[2]) / 64.0]),
        }
    }

    /// Squared distance of a value from the point of a magnitude.
    #[inline(always)]
    fn error(&self, value: f32, quantizer: usize, magnitude: i32) -> f32 {
        let nominal = 2 * magnitude - (quantizer as i32 & -i32::from(magnitude != 0));
        let distance = value - (nominal as f32 + self.shift[quantizer][magnitude.min(3) as usize]);
        distance * distance
    }

    /// For each quantizer and parity, the better of the nearest level and the
    /// next one toward zero.
    #[inline(always)]
    fn candidates(&self, value: f32, rates: &ColumnRates<'_>) -> Candidates {
        let mut found = Candidates::default();
        // Points of (quantizer, parity) stand at 4j + OFFSET for magnitude 2j + parity.
        const OFFSET: [f32; 4] = [0.0, 2.0, -1.0, 1.0];
        for subset in 0..4 {
            let (quantizer, parity) = (subset >> 1, subset as i32 & 1);
            let nearest = (((value - OFFSET[subset]) * 0.25 + 0.5) as i32).clamp(0, MAX_LEVEL / 2 - 1);
            let (near, low) = (2 * nearest + parity, 2 * (nearest - 1).max(0) + parity);
            let (near_error, low_error) =
                (self.error(value, quantizer, near), self.error(value, quantizer, low));
            for group in (quantizer..GROUPS).step_by(2) {
                let near_cost = near_error + rates.rate(group, near as u32);
                let low_cost = low_error + rates.rate(group, low as u32);
                let lower = low_cost < near_cost;
                found.cost[2 * group + parity as usize] = if lower { low_cost } else { near_cost };
                found.magnitude[2 * group + parity as usize] = if lower { low } else { near };
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Free;
    impl Rates for Free {
        fn column(&self, _: usize) -> ColumnRates<'_> {
            // Room for every level without an escape.
            ColumnRates { costs: [&[0.0; 16]; GROUPS], raw_bits: 20, raw_cost: 0.0, lambda: 0.0 }
        }
    }

    fn noise(count: usize) -> Vec<f32> {
        let mut state = 1u64;
        (0..count)
            .map(|_| {
                let mut sum = 0.0;
                for _ in 0..12 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    sum += (state >> 40) as f32 / (1u64 << 24) as f32;
                }
                (sum - 6.0) * 6.0
            })
            .collect()
    }

    /// Mean squared error in squared steps of following the machine.
    fn error(log2_states: u32, values: &[f32]) -> f64 {
        let code = Code::new(log2_states).unwrap();
        let mut levels = vec![0; values.len()];
        Search::default().run(&code, values, &Free, 0, &Centroids::default(), &mut levels);
        let mut state = 0;
        let mut sum = 0.0;
        for (&value, &level) in values.iter().zip(&levels) {
            let point = position(level, usize::from(state & 1), &Centroids::default());
            sum += f64::from(value - point as f32 / 64.0).powi(2);
            state = code.next(state, (level & 1) as u16);
        }
        sum / values.len() as f64
    }

    #[test]
    fn more_states_leave_less_error() {
        let values = noise(20_000);
        let errors: Vec<f64> = [0, 2, 3, 4, 5, 6, 7, 8].map(|s| error(s, &values)).to_vec();
        assert!((errors[0] - 4.0 / 12.0).abs() < 0.01, "{errors:?}");
        assert!(errors.windows(2).all(|w| w[1] < w[0] * 1.005), "{errors:?}");
        // 1.33 dB of granular gain at 256 states (Marcellin and Fischer, 1990: 1.33).
        assert!(10.0 * (errors[0] / errors[7]).log10() > 1.25, "{errors:?}");
    }

    #[test]
    fn tables_follow_the_polynomials() {
        for log2_states in 2..=8 {
            let code = Code::new(log2_states).unwrap();
            let mut seen = vec![0; code.states()];
            code.table().iter().for_each(|&s| seen[usize::from(s)] += 1);
            assert!(seen.iter().all(|&n| n == 2), "{log2_states}");
        }
        assert_eq!(Code::new(1), None);
        assert_eq!(Code::new(9), None);
    }
}
