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
#[cfg(target_arch = "x86_64")]
mod avx512;
mod points;

pub use points::{Centroids, Costs, GROUPS, Points};

use crate::entropy::rans::LANES;
use crate::entropy::scales::raw_bits;
use crate::stage::trellis::points::{Candidates, LOST};
#[cfg(target_arch = "x86_64")]
use trinity_numeric::simd::Width;
use trinity_numeric::simd::{self, Kernel};
use trinity_numeric::tuned::Tuned;

/// Ungerboeck's parity-check polynomials h0, h1 for 2^2 to 2^8 states.
const CODES: [(u16, u16); 7] =
    [(0o5, 0o2), (0o13, 0o4), (0o23, 0o4), (0o45, 0o10), (0o103, 0o24), (0o235, 0o126), (0o515, 0o362)];

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

pub const MAX_LEVEL: i32 = 1 << 23;
/// Targets are magnitudes in 1/64 step, at most this.
pub const MAX_TARGET: i32 = 1 << 29;

/// Costs of a squared step.
pub const UNIT: f32 = 256.0;
/// More than any path of log2(states) candidates.
const UNREACHED: i16 = 8 * LOST as i16 + 100;

/// Buffers of the search, reused from segment to segment.
#[derive(Debug, Default)]
pub struct Search {
    candidates: Vec<[Candidates; LANES]>,
    /// Quantizers (bits 0 and 1) whose best even level is zero.
    zeros: Vec<[u8; LANES]>,
    /// Which candidate each value takes.
    subsets: Vec<[u8; LANES]>,
    decisions: Vec<u8>,
    /// Decisions as bits, for 32 states.
    #[cfg(target_arch = "x86_64")]
    bits: Vec<[u32; LANES]>,
}

impl Search {
    /// Quantizes targets to magnitudes, lanes starting from `states`, column
    /// `i` in lane `i mod 4`; `costs` holds two contexts for every class.
    pub fn run(
        &mut self,
        (code, points): (&Code, &Points),
        states: [u8; LANES],
        targets: &[i32],
        classes: &[u8],
        costs: &[Costs],
        magnitudes: &mut [u32],
    ) {
        let groups = targets.len().div_ceil(LANES);
        self.candidates.clear();
        self.candidates.resize(groups, Default::default());
        self.zeros.resize(groups, Default::default());
        self.subsets.resize(groups, Default::default());
        let (out, zeros) = (self.candidates.as_flattened_mut(), self.zeros.as_flattened_mut());
        consider(points, targets, classes, costs, &mut out[..targets.len()], zeros);
        match code.log2_states {
            0 => {
                let subsets = self.subsets.as_flattened_mut();
                for (subset, cost) in subsets.iter_mut().zip(self.candidates.as_flattened()) {
                    *subset = u8::from(cost[1] < cost[0]);
                }
            }
            2 => self.follow::<4, { 0o5 >> 1 }, { 0o2 >> 1 }>(states),
            3 => self.follow::<8, { 0o13 >> 1 }, { 0o4 >> 1 }>(states),
            4 => self.follow::<16, { 0o23 >> 1 }, { 0o4 >> 1 }>(states),
            #[cfg(target_arch = "x86_64")]
            5 if Width::widest() == Width::Avx512 => {
                // SAFETY: the processor has just said that it has AVX-512.
                #[allow(unsafe_code)]
                unsafe {
                    self.path_of_32_in_one(states);
                }
            }
            #[cfg(target_arch = "x86_64")]
            5 if simd::has_avx2() => {
                // SAFETY: the processor has just said that it has AVX2.
                #[allow(unsafe_code)]
                unsafe {
                    self.path_of_32(states);
                }
            }
            5 => self.follow::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(states),
            6 => self.follow::<64, { 0o103 >> 1 }, { 0o24 >> 1 }>(states),
            7 => self.follow::<128, { 0o235 >> 1 }, { 0o126 >> 1 }>(states),
            _ => self.follow::<256, { 0o515 >> 1 }, { 0o362 >> 1 }>(states),
        }
        let (subsets, zeros) = (self.subsets.as_flattened(), self.zeros.as_flattened());
        simd::widest(Magnitudes { targets, subsets, zeros, magnitudes });
    }

    fn follow<const S: usize, const H0: usize, const H1: usize>(&mut self, states: [u8; LANES]) {
        simd::widest(Path::<S, H0, H1> { search: self, states });
    }

    /// Viterbi over `S` states with the code's taps as constants, so that the
    /// compiler turns the butterflies into shuffles.
    ///
    /// Even states lead to the lower half of the states and odd ones to the
    /// upper half, each to two that differ by `H1`. Costs live modulo 2^16:
    /// they never lie further apart than half of that, so their difference
    /// has the right sign.
    #[inline(always)]
    fn path<const S: usize, const H0: usize, const H1: usize>(&mut self, states: [u8; LANES]) {
        self.decisions.resize(self.candidates.len() * LANES * S, 0);
        let mut costs = start::<S>(states);
        let (decisions, _) = self.decisions.as_chunks_mut::<S>();
        for (group, decisions) in self.candidates.iter().zip(decisions.as_chunks_mut::<LANES>().0) {
            for lane in 0..LANES {
                costs[lane] = step::<S, H0, H1>(&costs[lane], &group[lane], &mut decisions[lane]);
            }
        }
        let (decisions, _) = self.decisions.as_chunks::<S>();
        let parity = |i: usize, lane: usize, state: usize| usize::from(decisions[i * LANES + lane][state]);
        trace::<S, H0, H1>(costs.map(|c| cheapest(&c)), parity, &mut self.subsets);
    }
}

#[cfg(target_arch = "x86_64")]
impl Search {
    /// As [`Search::path`] for 32 states, in registers.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn path_of_32(&mut self, states: [u8; LANES]) {
        let mut costs = start::<32>(states).map(|costs| avx2::load(&costs));
        self.bits.resize(self.candidates.len(), Default::default());
        for (group, bits) in self.candidates.iter().zip(&mut self.bits) {
            for lane in 0..LANES {
                (costs[lane], bits[lane]) = avx2::step(costs[lane], &group[lane]);
            }
        }
        let ends = costs.map(|costs| cheapest(&avx2::store(costs)));
        let parity =
            |i: usize, lane: usize, state: usize| (self.bits[i][lane] >> avx2::bit(state) & 1) as usize;
        trace::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(ends, parity, &mut self.subsets);
    }

    /// As [`Search::path_of_32`], all states in one register.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn path_of_32_in_one(&mut self, states: [u8; LANES]) {
        let mut costs = start::<32>(states).map(|costs| avx512::load(&costs));
        self.bits.resize(self.candidates.len(), Default::default());
        for (group, bits) in self.candidates.iter().zip(&mut self.bits) {
            for lane in 0..LANES {
                (costs[lane], bits[lane]) = avx512::step(costs[lane], &group[lane]);
            }
        }
        let ends = costs.map(|costs| cheapest(&avx512::store(costs)));
        avx512::trace(ends, &self.bits, &mut self.subsets);
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

/// Walks every lane's path back from its end and notes the candidates on it.
#[inline(always)]
fn trace<const S: usize, const H0: usize, const H1: usize>(
    mut states: [usize; LANES],
    parity: impl Fn(usize, usize, usize) -> usize,
    subsets: &mut [[u8; LANES]],
) {
    for (i, group) in subsets.iter_mut().enumerate().rev() {
        for (lane, (state, subset)) in states.iter_mut().zip(group).enumerate() {
            let to = *state;
            let parity = parity(i, lane, to);
            let odd = usize::from(to >= S / 2);
            *state = 2 * ((to ^ (H0 * odd) ^ (H1 * parity)) % (S / 2)) + odd;
            *subset = (2 * odd + parity) as u8;
        }
    }
}

/// Leads from the candidates that values take to their magnitudes.
struct Magnitudes<'a> {
    targets: &'a [i32],
    subsets: &'a [u8],
    zeros: &'a [u8],
    magnitudes: &'a mut [u32],
}

impl Kernel for Magnitudes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let taken = self.targets.iter().zip(self.subsets).zip(self.zeros);
        for (magnitude, ((&target, &subset), &zeros)) in self.magnitudes.iter_mut().zip(taken) {
            let (subset, zeros) = (u32::from(subset), u32::from(zeros));
            let zero = zeros >> (subset >> 1) & !subset & 1;
            *magnitude = nearest(target, subset) & zero.wrapping_sub(1);
        }
    }
}

#[inline(always)]
fn consider(
    points: &Points,
    targets: &[i32],
    classes: &[u8],
    costs: &[Costs],
    out: &mut [Candidates],
    zeros: &mut [u8],
) {
    #[cfg(target_arch = "x86_64")]
    let done = if Width::widest() == Width::Avx512 {
        // SAFETY: the processor has just said that it has AVX-512.
        #[allow(unsafe_code)]
        unsafe {
            avx512::consider(points, targets, classes, costs, out, zeros)
        }
    } else if simd::has_avx2() {
        // SAFETY: the processor has just said that it has AVX2.
        #[allow(unsafe_code)]
        unsafe {
            avx2::consider(points, targets, classes, costs, out, zeros)
        }
    } else {
        0
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let rest =
        targets[done..].iter().zip(&classes[done..]).zip(out[done..].iter_mut().zip(&mut zeros[done..]));
    for ((&target, &class), (out, zeros)) in rest {
        let context = GROUPS * usize::from(class);
        (*out, *zeros) = candidates(points, target, &costs[context..][..GROUPS], raw_bits(class));
    }
}

/// The best path of every lane.
struct Path<'a, const S: usize, const H0: usize, const H1: usize> {
    search: &'a mut Search,
    states: [u8; LANES],
}

impl<const S: usize, const H0: usize, const H1: usize> Kernel for Path<'_, S, H0, H1> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.search.path::<S, H0, H1>(self.states);
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

/// Squared distance in [`UNIT`]s.
#[inline(always)]
fn error(distance: i32) -> i32 {
    let near = distance.clamp(-(1 << 14), 1 << 14);
    (near * near) >> 4
}

/// The nearest magnitude of a quantizer and parity: points stand at 256 j + 128 ·
/// parity − 64 · quantizer for magnitude 2 j + parity.
#[inline(always)]
fn nearest(target: i32, subset: u32) -> u32 {
    let (quantizer, parity) = (subset as i32 >> 1, subset as i32 & 1);
    (2 * ((target - 128 * parity + 64 * quantizer + 128) >> 8) + parity) as u32
}

/// For each quantizer and parity what the nearest level costs, or zero where
/// that is cheaper: no other one is worth its error. Then the quantizers whose
/// even level is zero for that reason.
#[inline(always)]
fn candidates(points: &Points, target: i32, costs: &[Costs], raw_bits: u32) -> (Candidates, u8) {
    let mut cost = [0; 4];
    let mut zeros = 0;
    for (subset, cost) in cost.iter_mut().enumerate() {
        let (quantizer, magnitude) = (subset >> 1, nearest(target, subset as u32));
        let symbol = (magnitude >> raw_bits).min(15) as usize;
        *cost = error(target - points.distance(magnitude, quantizer)) + costs[quantizer][symbol] as i32;
        let zero = error(target) + costs[quantizer][0] as i32;
        if subset & 1 == 0 && zero < *cost {
            *cost = zero;
            zeros |= 1 << quantizer;
        }
    }
    let least = cost[0].min(cost[1]).min(cost[2].min(cost[3]));
    (cost.map(|c| (c - least).min(LOST) as i16), zeros)
}

/// How an encoder picks levels. Both ways give levels that any decoder takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Levels by distance alone, with a zone around zero.
    DeadZone,
    /// Levels by distance and rate.
    Rate,
}

/// Rounding of a plain uniform quantizer, in 1/128 of a level: what a Laplacian
/// source at some three bits per value asks of a rate-aware one.
pub static DEAD_ZONE: Tuned =
    Tuned::new("trinity-dead-zone", "trinity-static", 51.0, &[45.0, 48.0, 54.0, 58.0]);

/// [`DEAD_ZONE`], as targets are counted.
#[inline(always)]
pub fn dead_zone_rounding() -> i32 {
    DEAD_ZONE.get() as i32
}

/// Magnitudes of targets in 1/128 of a level.
#[inline(always)]
pub fn round(targets: &[i32], magnitudes: &mut [u32]) {
    let rounding = dead_zone_rounding();
    for (magnitude, target) in magnitudes.iter_mut().zip(targets) {
        *magnitude = ((target + rounding) >> 7) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use proptest::prelude::*;
    use trinity_numeric::random::Lcg;

    fn noise(count: usize) -> Vec<i32> {
        let mut lcg = Lcg(1);
        (0..count).map(|_| (lcg.gaussian() * 6.0 * 64.0).abs() as i32).collect()
    }

    /// Mean squared error in squared steps of following the machine.
    fn error(log2_states: u32, targets: &[i32]) -> f64 {
        let code = Code::new(log2_states).unwrap();
        let points = Points::new(&Centroids::default());
        let mut magnitudes = vec![0; targets.len()];
        let states = [0usize, 1, 2, 3].map(|s| (s % code.states()) as u8);
        // Classes with room for every level without an escape.
        let (classes, free) = (vec![79; targets.len()], [[0; 16]; 160]);
        Search::default().run((&code, &points), states, targets, &classes, &free, &mut magnitudes);
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

    #[cfg(target_arch = "x86_64")]
    type Consider = unsafe fn(&Points, &[i32], &[u8], &[Costs], &mut [Candidates], &mut [u8]) -> usize;

    #[cfg(target_arch = "x86_64")]
    proptest! {
        #[test]
        fn registers_and_arrays_consider_alike(
            values in prop::collection::vec((0i32..3000, 0u8..80, 0i32..18), 0..80),
            classes in prop::sample::select(vec![1u8, 2, 4, 80]),
            costs in prop::collection::vec(0u32..4000, 2560),
            shifts: [i8; 6],
        ) {
            let costs = costs.as_chunks().0;
            let shift = |i: usize| shifts[i].clamp(-31, 31);
            let points = Points::new(&[[shift(0), shift(1), shift(2)], [shift(3), shift(4), shift(5)]]);
            let targets: Vec<i32> = values.iter().map(|v| v.0 << v.2).collect();
            let least = values.first().map_or(0, |v| v.1.min(80 - classes));
            let classes: Vec<u8> = values.iter().map(|v| least + v.1 % classes).collect();
            let kernels: [(bool, usize, Consider); 2] = [
                (simd::has_avx2(), 8, avx2::consider),
                (Width::widest() == Width::Avx512, 16, avx512::consider),
            ];
            for (_, wide, consider) in kernels.into_iter().filter(|(is_here, ..)| *is_here) {
                let (mut out, mut zeros) = (vec![[0; 4]; values.len()], vec![0; values.len()]);
                // SAFETY: the processor has said that it has these instructions.
                #[allow(unsafe_code)]
                let done = unsafe { consider(&points, &targets, &classes, costs, &mut out, &mut zeros) };
                prop_assert_eq!(done, values.len() / wide * wide);
                for i in 0..done {
                    let costs = &costs[GROUPS * usize::from(classes[i])..][..GROUPS];
                    let plain = candidates(&points, targets[i], costs, raw_bits(classes[i]));
                    prop_assert_eq!((out[i], zeros[i]), plain, "{} {}", targets[i], classes[i]);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_arrays_take_the_same_path() {
        let mut lcg = Lcg(1);
        let mut random = move |limit: u64| (lcg.bits31() % limit) as i16;
        let mut costs: [i16; 32] = std::array::from_fn(|_| random(9000));
        for _ in 0..500 {
            let value = std::array::from_fn(|_| random(1792));
            let mut decisions = [0; 32];
            let next = step::<32, { 0o45 >> 1 }, { 0o10 >> 1 }>(&costs, &value, &mut decisions);
            let taken: [u32; 32] = decisions.map(u32::from);
            // SAFETY: the processor has said that it has these instructions.
            #[allow(unsafe_code)]
            unsafe {
                if simd::has_avx2() {
                    let (states, bits) = avx2::step(avx2::load(&costs), &value);
                    let bits = std::array::from_fn(|state| bits >> avx2::bit(state) & 1);
                    assert_eq!((avx2::store(states), bits), (next, taken));
                }
                if Width::widest() == Width::Avx512 {
                    let (states, bits) = avx512::step(avx512::load(&costs), &value);
                    let bits = std::array::from_fn(|state| bits >> state & 1);
                    assert_eq!((avx512::store(states), bits), (next, taken));
                }
            }
            costs = next;
        }
    }

    #[test]
    fn levels_stand_where_the_format_says() {
        let points = Points::new(&[[1, 2, 3], [-4, -5, -6]]);
        let at = |magnitude, quantizer| points.distance(magnitude, quantizer);
        assert_eq!([at(0, 0), at(1, 0), at(2, 0), at(3, 0), at(9, 0)], [0, 129, 258, 387, 1155]);
        assert_eq!([at(0, 1), at(1, 1), at(2, 1), at(3, 1), at(9, 1)], [0, 60, 187, 314, 1082]);
    }
}
