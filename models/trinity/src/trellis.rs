//! Trellis-coded (dependent) quantization.
//!
//! Two quantizers share the line: Q0 reconstructs at even multiples of the
//! step, Q1 at zero and the odd ones. Which one a value uses depends on the
//! parities of the levels before it, through the state machine of a
//! convolutional code (Ungerboeck's one-dimensional codes, 4 to 256 states).
//! The encoder finds the path of least distortion + λ · rate (Viterbi); the
//! decoder only follows the machine. Values are dealt to four lanes, each with
//! a machine of its own, so that both have four things to do at a time. Knows
//! rates as numbers, not how symbols are coded. Integers only.

#[cfg(target_arch = "x86_64")]
mod avx2;

use crate::rans::LANES;
use crate::scales::{FIRST_RAW_CLASS, raw_bits};
use crate::simd::{self, Kernel};

/// Ungerboeck's parity-check polynomials h0, h1 for 2^2 to 2^8 states.
const CODES: [(u16, u16); 7] =
    [(0o5, 0o2), (0o13, 0o4), (0o23, 0o4), (0o45, 0o10), (0o103, 0o24), (0o235, 0o126), (0o515, 0o362)];

/// States whose levels share statistics: those of one quantizer.
pub const GROUPS: usize = 2;

/// The state machine. One state is a plain uniform quantizer of twice the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    log2_states: u32,
    /// State after a level, `[2 · state + parity]`.
    successors: [u8; 512],
}

impl Code {
    /// `log2_states` is 0, or 2 to 8.
    pub fn new(log2_states: u32) -> Option<Self> {
        let mut successors = [0; 512];
        if log2_states > 0 {
            let (h0, h1) = *CODES.get((log2_states as usize).checked_sub(2)?)?;
            for (i, next) in successors.iter_mut().enumerate().take(2 << log2_states) {
                let (state, parity) = (i as u16 >> 1, i as u16 & 1);
                let feedback = (h0 >> 1) & (state & 1).wrapping_neg();
                *next = ((state >> 1) ^ feedback ^ ((h1 >> 1) & parity.wrapping_neg())) as u8;
            }
        }
        Some(Self { log2_states, successors })
    }

    /// Number of states.
    #[cfg(test)]
    pub fn states(&self) -> usize {
        1 << self.log2_states
    }

    /// The state after a level. Odd states use Q1.
    #[inline(always)]
    pub fn next(&self, state: u8, level: u32) -> u8 {
        self.successors[2 * usize::from(state) + (level & 1) as usize]
    }
}

/// Shifts of the reconstruction points in 1/64 step, by quantizer and
/// magnitude (1, 2, more), toward where values really lie.
pub type Centroids = [[i8; 3]; 2];

/// Where levels stand.
#[derive(Debug, Clone, Copy)]
pub struct Points {
    centroids: Centroids,
    /// By quantizer and magnitude up to 3: what is added to 128 a level.
    shift: [[i32; 4]; 2],
}

impl Points {
    pub fn new(centroids: &Centroids) -> Self {
        let of = |q: usize| {
            let at = |i: usize| i32::from(centroids[q][i]) - 64 * q as i32;
            [0, at(0), at(1), at(2)]
        };
        Self { centroids: *centroids, shift: [of(0), of(1)] }
    }

    /// By quantizer and magnitude up to 3: what is added to 128 a level.
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

/// Largest magnitude of a level.
pub const MAX_LEVEL: i32 = 1 << 23;
/// Targets are magnitudes in 1/64 step, at most this.
pub const MAX_TARGET: i32 = 1 << 29;

/// Costs of a squared step.
pub const UNIT: f32 = 256.0;
/// A candidate that costs so much more than the best one is as good as lost.
const LOST: i32 = 7 * 256;
/// More than any path of log2(states) candidates.
const UNREACHED: i16 = 8 * LOST as i16 + 100;

/// What symbols cost in one context, their signs included, in [`UNIT`]s.
pub type Costs = [u16; 16];

/// The best level of each quantizer and parity for one value.
#[derive(Debug, Clone, Copy, Default)]
struct Candidates {
    /// Above the best of the four: Q0 even, Q0 odd, Q1 even, Q1 odd.
    cost: [i16; 4],
    magnitude: [u32; 4],
}

/// Buffers of the search, reused from segment to segment.
#[derive(Debug, Default)]
pub struct Search {
    candidates: Vec<[Candidates; LANES]>,
    decisions: Vec<u8>,
    /// The same in bits, for 32 states.
    bits: Vec<[u32; LANES]>,
    /// Nearest levels of small targets, for the centroids they were made with.
    near: Vec<Near>,
    centroids: Option<Centroids>,
}

impl Search {
    /// Quantizes targets to magnitudes, lanes starting from `states`, column
    /// `i` in lane `i mod 4`; `costs` holds two contexts for every class.
    #[allow(clippy::too_many_arguments)] // what a segment is, and nothing else
    pub fn run(
        &mut self,
        code: &Code,
        points: &Points,
        states: [u8; LANES],
        targets: &[i32],
        classes: &[u8],
        costs: &[Costs],
        magnitudes: &mut [u32],
    ) {
        let groups = targets.len().div_ceil(LANES);
        self.candidates.clear();
        self.candidates.resize(groups, Default::default());
        if self.centroids != Some(points.centroids) {
            self.near = (0..NEAR_TARGETS).map(|target| Near::new(points, target)).collect();
            self.centroids = Some(points.centroids);
        }
        let (near, out) = (&self.near, self.candidates.as_flattened_mut());
        simd::widest(Consider { points, near, targets, classes, costs, out });
        match code.log2_states {
            0 => {
                for (magnitude, c) in magnitudes.iter_mut().zip(self.candidates.as_flattened()) {
                    *magnitude = c.magnitude[usize::from(c.cost[1] < c.cost[0])];
                }
            }
            2 => self.follow::<4, { 0o5 >> 1 }, { 0o2 >> 1 }>(states, magnitudes),
            3 => self.follow::<8, { 0o13 >> 1 }, { 0o4 >> 1 }>(states, magnitudes),
            4 => self.follow::<16, { 0o23 >> 1 }, { 0o4 >> 1 }>(states, magnitudes),
            #[cfg(target_arch = "x86_64")]
            5 if simd::has_avx2() => {
                // SAFETY: the processor has just said that it has AVX2.
                #[allow(unsafe_code)]
                unsafe {
                    self.path_of_32(states, magnitudes);
                }
            }
            5 => self.follow::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(states, magnitudes),
            6 => self.follow::<64, { 0o103 >> 1 }, { 0o24 >> 1 }>(states, magnitudes),
            7 => self.follow::<128, { 0o235 >> 1 }, { 0o126 >> 1 }>(states, magnitudes),
            _ => self.follow::<256, { 0o515 >> 1 }, { 0o362 >> 1 }>(states, magnitudes),
        }
    }

    fn follow<const S: usize, const H0: usize, const H1: usize>(
        &mut self,
        states: [u8; LANES],
        magnitudes: &mut [u32],
    ) {
        simd::widest(Path::<S, H0, H1> { search: self, states, magnitudes });
    }

    /// Viterbi over `S` states with the code's taps as constants, so that the
    /// compiler turns the butterflies into shuffles.
    ///
    /// Even states lead to the lower half of the states and odd ones to the
    /// upper half, each to two that differ by `H1`. Costs live modulo 2^16:
    /// they never lie further apart than half of that, so their difference
    /// has the right sign.
    #[inline(always)]
    fn path<const S: usize, const H0: usize, const H1: usize>(
        &mut self,
        states: [u8; LANES],
        magnitudes: &mut [u32],
    ) {
        self.decisions.resize(self.candidates.len() * LANES * S, 0);
        let mut costs = start::<S>(states);
        let (decisions, _) = self.decisions.as_chunks_mut::<S>();
        for (group, decisions) in self.candidates.iter().zip(decisions.as_chunks_mut::<LANES>().0) {
            for lane in 0..LANES {
                costs[lane] = step::<S, H0, H1>(&costs[lane], &group[lane].cost, &mut decisions[lane]);
            }
        }
        let (decisions, _) = self.decisions.as_chunks::<S>();
        let parity = |i: usize, lane: usize, state: usize| usize::from(decisions[i * LANES + lane][state]);
        trace::<S, H0, H1>(&self.candidates, costs.map(|c| cheapest(&c)), parity, magnitudes);
    }
}

#[cfg(target_arch = "x86_64")]
impl Search {
    /// As [`Search::path`] for 32 states, in registers.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn path_of_32(&mut self, states: [u8; LANES], magnitudes: &mut [u32]) {
        let mut costs = start::<32>(states).map(|costs| avx2::load(&costs));
        self.bits.clear();
        for group in &self.candidates {
            let mut bits = [0; LANES];
            for lane in 0..LANES {
                (costs[lane], bits[lane]) = avx2::step(costs[lane], &group[lane].cost);
            }
            self.bits.push(bits);
        }
        let ends = costs.map(|costs| cheapest(&avx2::store(costs)));
        let parity =
            |i: usize, lane: usize, state: usize| (self.bits[i][lane] >> avx2::bit(state) & 1) as usize;
        trace::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(&self.candidates, ends, parity, magnitudes);
    }
}

/// What paths cost at the start.
#[inline(always)]
fn start<const S: usize>(states: [u8; LANES]) -> [[i16; S]; LANES] {
    states.map(|state| {
        let mut costs = [UNREACHED; S];
        costs[usize::from(state) % S] = 0;
        costs
    })
}

/// The state at the end of the cheapest path.
#[inline(always)]
fn cheapest<const S: usize>(costs: &[i16; S]) -> usize {
    let above = |state: usize| costs[state].wrapping_sub(costs[0]);
    (1..S).fold(0, |best, state| if above(state) < above(best) { state } else { best })
}

/// Walks every lane's path back from its end and notes the magnitudes on it.
#[inline(always)]
fn trace<const S: usize, const H0: usize, const H1: usize>(
    candidates: &[[Candidates; LANES]],
    mut states: [usize; LANES],
    parity: impl Fn(usize, usize, usize) -> usize,
    magnitudes: &mut [u32],
) {
    for (i, group) in candidates.iter().enumerate().rev() {
        for lane in 0..LANES {
            let to = states[lane];
            let parity = parity(i, lane, to);
            let odd = usize::from(to >= S / 2);
            states[lane] = 2 * ((to ^ (H0 * odd) ^ (H1 * parity)) % (S / 2)) + odd;
            // The last group may have fewer values than lanes.
            if let Some(magnitude) = magnitudes.get_mut(i * LANES + lane) {
                *magnitude = group[lane].magnitude[2 * odd + parity];
            }
        }
    }
}

/// The candidates of some columns.
struct Consider<'a> {
    points: &'a Points,
    near: &'a [Near],
    targets: &'a [i32],
    classes: &'a [u8],
    costs: &'a [Costs],
    out: &'a mut [Candidates],
}

impl Kernel for Consider<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((out, &target), &class) in self.out.iter_mut().zip(self.targets).zip(self.classes) {
            let context = GROUPS * usize::from(class);
            let costs = [&self.costs[context], &self.costs[context + 1]];
            *out = match self.near.get(target as usize) {
                Some(near) if class < FIRST_RAW_CLASS => near.candidates(costs),
                _ => candidates(self.points, target, costs, raw_bits(class)),
            };
        }
    }
}

/// The best path of every lane.
struct Path<'a, const S: usize, const H0: usize, const H1: usize> {
    search: &'a mut Search,
    states: [u8; LANES],
    magnitudes: &'a mut [u32],
}

impl<const S: usize, const H0: usize, const H1: usize> Kernel for Path<'_, S, H0, H1> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.search.path::<S, H0, H1>(self.states, self.magnitudes);
    }
}

/// One stage: the cheaper way into every state, and the parity it took.
#[inline(always)]
fn step<const S: usize, const H0: usize, const H1: usize>(
    costs: &[i16; S],
    value: &[i16; 4],
    decisions: &mut [u8; S],
) -> [i16; S] {
    let mut next = [0; S];
    for t in 0..S / 2 {
        let even = costs[2 * t].wrapping_add(value[0]);
        let odd = costs[2 * (t ^ H1)].wrapping_add(value[1]);
        let less = odd.wrapping_sub(even) < 0;
        next[t] = if less { odd } else { even };
        decisions[t] = u8::from(less);
    }
    for t in S / 2..S {
        let even = costs[2 * (t ^ H0) + 1].wrapping_add(value[2]);
        let odd = costs[2 * (t ^ H0 ^ H1) + 1].wrapping_add(value[3]);
        let less = odd.wrapping_sub(even) < 0;
        next[t] = if less { odd } else { even };
        decisions[t] = u8::from(less);
    }
    next
}

/// Targets with an entry in the table of nearest levels: all whose candidates
/// need no escape, and more would not fit the cache.
const NEAR_TARGETS: i32 = 64 * 24;

/// What [`candidates`] finds for a small target before it looks at rates.
#[derive(Debug, Clone, Copy, Default)]
struct Near {
    error: [u16; 4],
    zero: u16,
    magnitude: [u8; 4],
}

impl Near {
    fn new(points: &Points, target: i32) -> Self {
        let free = [0; 16];
        let mut near = Self { zero: error(target).min(1 << 14) as u16, ..Self::default() };
        for subset in 0..4 {
            let (magnitude, cost) = nearest(points, target, subset, &free, 0);
            near.magnitude[subset] = magnitude as u8;
            near.error[subset] = cost as u16;
        }
        near
    }

    /// As [`candidates`], in a class without raw bits.
    #[inline(always)]
    fn candidates(&self, costs: [&Costs; GROUPS]) -> Candidates {
        let rate = |subset: usize| {
            u32::from(costs[subset >> 1][usize::from(self.magnitude[subset] & 15)])
                + u32::from(self.error[subset])
        };
        let zero = [0, 1].map(|quantizer: usize| u32::from(costs[quantizer][0]) + u32::from(self.zero));
        let near = [rate(0), rate(1), rate(2), rate(3)];
        let cost = [near[0].min(zero[0]), near[1], near[2].min(zero[1]), near[3]];
        let keep = |even: bool| if even { u32::MAX } else { 0 };
        let magnitude = [
            u32::from(self.magnitude[0]) & keep(near[0] <= zero[0]),
            u32::from(self.magnitude[1]),
            u32::from(self.magnitude[2]) & keep(near[2] <= zero[1]),
            u32::from(self.magnitude[3]),
        ];
        let least = cost[0].min(cost[1]).min(cost[2].min(cost[3]));
        Candidates { cost: cost.map(|c| (c - least).min(LOST as u32) as i16), magnitude }
    }
}

/// Squared distance in [`UNIT`]s.
#[inline(always)]
fn error(distance: i32) -> i32 {
    let near = distance.clamp(-(1 << 14), 1 << 14);
    (near * near) >> 4
}

/// The nearest magnitude of a quantizer and parity, and what it costs.
#[inline(always)]
fn nearest(points: &Points, target: i32, subset: usize, costs: &Costs, raw_bits: u32) -> (u32, i32) {
    // Points of (quantizer, parity) stand at 256 j + OFFSET for magnitude 2 j + parity.
    const OFFSET: [i32; 4] = [0, 128, -64, 64];
    let magnitude = 2 * ((target - OFFSET[subset] + 128) >> 8) as u32 + (subset as u32 & 1);
    let symbol = (magnitude >> raw_bits).min(15) as usize;
    (magnitude, error(target - points.distance(magnitude, subset >> 1)) + i32::from(costs[symbol]))
}

/// For each quantizer and parity the nearest level, or zero where that is
/// cheaper: no other one is worth its error.
#[inline(always)]
fn candidates(points: &Points, target: i32, costs: [&Costs; GROUPS], raw_bits: u32) -> Candidates {
    let mut magnitude = [0; 4];
    let mut cost = [0; 4];
    for subset in 0..4 {
        let costs = costs[subset >> 1];
        (magnitude[subset], cost[subset]) = nearest(points, target, subset, costs, raw_bits);
        if subset & 1 == 0 {
            let zero = error(target) + i32::from(costs[0]);
            if zero < cost[subset] {
                (magnitude[subset], cost[subset]) = (0, zero);
            }
        }
    }
    let least = cost[0].min(cost[1]).min(cost[2].min(cost[3]));
    Candidates { cost: cost.map(|c| (c - least).min(LOST) as i16), magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize) -> Vec<i32> {
        let mut state = 1u64;
        (0..count)
            .map(|_| {
                let mut sum = 0.0;
                for _ in 0..12 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    sum += (state >> 40) as f32 / (1u64 << 24) as f32;
                }
                ((sum - 6.0) * 6.0 * 64.0).abs() as i32
            })
            .collect()
    }

    /// Mean squared error in squared steps of following the machine.
    fn error(log2_states: u32, targets: &[i32]) -> f64 {
        let code = Code::new(log2_states).unwrap();
        let points = Points::new(&Centroids::default());
        let mut magnitudes = vec![0; targets.len()];
        let states = [0usize, 1, 2, 3].map(|s| (s % code.states()) as u8);
        // Classes with room for every level without an escape.
        let (classes, free) = (vec![79; targets.len()], [[0; 16]; 160]);
        Search::default().run(&code, &points, states, targets, &classes, &free, &mut magnitudes);
        let mut lanes = states;
        let mut sum = 0.0;
        for (i, (&target, &magnitude)) in targets.iter().zip(&magnitudes).enumerate() {
            let state = &mut lanes[i % LANES];
            let point = points.distance(magnitude, usize::from(*state));
            sum += (f64::from(target - point) / 64.0).powi(2);
            *state = code.next(*state, magnitude);
        }
        sum / targets.len() as f64
    }

    #[test]
    fn more_states_leave_less_error() {
        let targets = noise(20_001);
        let errors: Vec<f64> = [0, 2, 3, 4, 5, 6, 7, 8].map(|s| error(s, &targets)).to_vec();
        assert!((errors[0] - 4.0 / 12.0).abs() < 0.01, "{errors:?}");
        assert!(errors.windows(2).all(|w| w[1] < w[0] * 1.005), "{errors:?}");
        // 1.33 dB of granular gain at 256 states (Marcellin and Fischer, 1990: 1.33).
        assert!(10.0 * (errors[0] / errors[7]).log10() > 1.25, "{errors:?}");
    }

    #[test]
    fn the_table_of_small_targets_changes_nothing() {
        let points = Points::new(&[[3, -2, 1], [-9, 4, 0]]);
        let costs: [Costs; 2] =
            std::array::from_fn(|q| std::array::from_fn(|s| (100 + 90 * s + 40 * q * (s % 3)) as u16));
        for target in 0..64 * 6 {
            let costs = [&costs[0], &costs[1]];
            let plain = candidates(&points, target, costs, 0);
            let quick = Near::new(&points, target).candidates(costs);
            assert_eq!((plain.cost, plain.magnitude), (quick.cost, quick.magnitude), "{target}");
        }
    }

    #[test]
    fn every_state_has_two_ways_in() {
        for log2_states in 2..=8 {
            let code = Code::new(log2_states).unwrap();
            let mut seen = vec![0; code.states()];
            for state in 0..code.states() {
                for level in 0..2 {
                    seen[usize::from(code.next(state as u8, level))] += 1;
                }
            }
            assert!(seen.iter().all(|&n| n == 2), "{log2_states}");
        }
        assert_eq!(Code::new(1), None);
        assert_eq!(Code::new(9), None);
    }

    #[test]
    fn levels_stand_where_the_format_says() {
        let points = Points::new(&[[1, 2, 3], [-4, -5, -6]]);
        let at = |magnitude, quantizer| points.distance(magnitude, quantizer);
        assert_eq!([at(0, 0), at(1, 0), at(2, 0), at(3, 0), at(9, 0)], [0, 129, 258, 387, 1155]);
        assert_eq!([at(0, 1), at(1, 1), at(2, 1), at(3, 1), at(9, 1)], [0, 60, 187, 314, 1082]);
    }
}
