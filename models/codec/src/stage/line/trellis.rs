//! The trellis search of 32 lanes side by side, in wide registers.
//!
//! The same decisions as the scalar search in [`crate::stage::line::quantize`], which is the
//! truth and which a test holds beside it.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod narrow;

use crate::entropy::line::coder::Coder;
use crate::entropy::line::table::{ESCAPE, MAGNITUDES};
use crate::format::line::plan::Tile;
use crate::stage::line::quantizer::{FAR, NEVER, Quantizer, reduced, round};
#[cfg(target_arch = "x86_64")]
use crate::stage::line::trellis::avx512::Job;
#[cfg(target_arch = "x86_64")]
use crate::stage::line::trellis::narrow::DEAREST;
use trinity_numeric::simd::{Kernel, Width, with_width};

const LANES: usize = 32;
type Lanes = [i32; LANES];

/// What one step leaves for the way back.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Bit t: state t was reached by an odd level; bits 8 and 9: the even level of
    /// either quantizer is zero.
    decisions: [u16; LANES],
}

/// What all segments of a tile share: what follows from its classes, and scratch
/// that is used again.
#[derive(Debug)]
pub(crate) struct Scratch {
    steps: Vec<Step>,
    targets: Vec<Lanes>,
    decisions: Vec<[u16; 16]>,
    classes: Vec<i32>,
    lookup: [u32; 64],
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    narrow: Narrow,
}

/// What the search in sixteen bits needs beside.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of wide registers use it
#[derive(Debug, Default)]
struct Narrow {
    /// Whether rates are within what it takes.
    is_cheap: bool,
    classes: Vec<i16>,
    decisions: Vec<[u16; LANES]>,
}

impl Scratch {
    pub(crate) fn new(coder: &Coder, quantizer: &Quantizer, tile: &Tile, gain: u32) -> Self {
        let (classes, lookup) = (coder.step_classes(tile, gain), coder.class_lookup(0));
        #[cfg(target_arch = "x86_64")]
        let narrow = Narrow {
            is_cheap: quantizer.costs.as_flattened().iter().all(|rate| (0..=DEAREST).contains(rate)),
            classes: classes
                .iter()
                .map(|&class| class.clamp(i16::MIN.into(), i16::MAX.into()) as i16)
                .collect(),
            decisions: Vec::new(),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (narrow, _) = (Narrow::default(), quantizer);
        Self { steps: Vec::new(), targets: Vec::new(), decisions: Vec::new(), classes, lookup, narrow }
    }
}

#[derive(Debug)]
pub(crate) struct Segment<'a> {
    pub coder: &'a Coder,
    pub quantizer: &'a Quantizer,
    pub tile: &'a Tile,
    pub gain: u32,
    pub residuals: &'a [i32],
    pub row_classes: &'a [i32],
    pub states: &'a mut [u8],
    pub levels: &'a mut [i16],
    pub scratch: &'a mut Scratch,
}

/// Finds the levels with registers of that width. The plan has 32 lanes.
pub(crate) fn search(width: Width, segment: Segment<'_>) {
    #[cfg(target_arch = "x86_64")]
    if width == Width::Avx512 && Width::widest() == Width::Avx512 && segment.coder.plan.log2_states > 0 {
        return search_wide(segment);
    }
    match segment.coder.plan.log2_states {
        0 => with_width(width, Uniform(segment)),
        2 => with_width(width, Trellis::<4, 2, 1>(segment)),
        _ => with_width(width, Trellis::<8, 5, 2>(segment)),
    }
}

/// With all lanes in a register where sixteen bits are enough, else with sixteen.
#[cfg(target_arch = "x86_64")]
fn search_wide(segment: Segment<'_>) {
    let Segment { coder, quantizer, tile, gain, residuals, row_classes, states, levels, scratch } = segment;
    let smaller: Vec<i32>;
    let targets = if gain == 0 {
        residuals
    } else {
        smaller = residuals.iter().map(|&residual| reduced(residual, gain)).collect();
        &smaller
    };
    let has_raw_bits = Coder::has_raw_bits(&scratch.classes, row_classes);
    let Narrow { is_cheap, classes, decisions } = &mut scratch.narrow;
    if let (true, false, Ok(states)) = (*is_cheap, has_raw_bits, <&mut [u8; LANES]>::try_from(&mut *states)) {
        let rates = &quantizer.costs;
        let job =
            narrow::Job { cols: tile.cols, targets, classes, row_classes, lookup: scratch.lookup, rates };
        // SAFETY: the caller has seen that the processor has AVX-512.
        #[allow(unsafe_code)]
        let found = unsafe {
            match coder.plan.log2_states {
                2 => narrow::search::<4, 2, 1>(&job, states, decisions, levels),
                _ => narrow::search::<8, 5, 2>(&job, states, decisions, levels),
            }
        };
        if found {
            return;
        }
    }
    let job = Job {
        cols: tile.cols,
        targets,
        row_classes,
        lookup: scratch.lookup,
        has_raw_bits,
        classes: &scratch.classes,
        rates: &quantizer.costs,
        never: NEVER,
        far: FAR,
    };
    let decisions = &mut scratch.decisions;
    // SAFETY: the caller has seen that the processor has AVX-512.
    #[allow(unsafe_code)]
    unsafe {
        match coder.plan.log2_states {
            2 => crate::stage::line::trellis::avx512::search::<4, 2, 1>(&job, states, decisions, levels),
            _ => crate::stage::line::trellis::avx512::search::<8, 5, 2>(&job, states, decisions, levels),
        }
    }
}

struct Uniform<'a>(Segment<'a>);

impl Kernel for Uniform<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Segment { quantizer, gain, residuals, levels, .. } = self.0;
        if gain == 0 {
            for (level, &residual) in levels.iter_mut().zip(residuals) {
                *level = round(residual, quantizer.rounding);
            }
        } else {
            for (level, &residual) in levels.iter_mut().zip(residuals) {
                *level = round(reduced(residual, gain), quantizer.rounding);
            }
        }
    }
}

/// States, and the polynomials of [`crate::entropy::line::coder::next_state`].
struct Trellis<'a, const S: usize, const H0: usize, const H1: usize>(Segment<'a>);

impl<const S: usize, const H0: usize, const H1: usize> Kernel for Trellis<'_, S, H0, H1> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Segment { coder, quantizer, tile, gain, residuals, row_classes, states, levels, scratch } =
            self.0;
        let per_row = tile.cols.div_ceil(LANES);
        scratch.steps.clear();
        scratch.targets.clear();
        let mut costs = [[NEVER; LANES]; S];
        for lane in 0..LANES {
            costs[usize::from(states[lane])][lane] = 0;
        }
        let classes = &coder.plan.classes[tile.col..][..tile.cols];
        for (row, &row_class) in row_classes.iter().enumerate() {
            for first in (0..tile.cols).step_by(LANES) {
                let active = LANES.min(tile.cols - first);
                let (mut targets, mut tables, mut raw_bits) = ([0; LANES], [0; LANES], [0; LANES]);
                for lane in 0..active {
                    let class = Coder::class(classes[first + lane], row_class, gain);
                    let residual = residuals[row * tile.cols + first + lane];
                    targets[lane] = if gain == 0 { residual } else { reduced(residual, gain) };
                    tables[lane] = i32::from(coder.tables[class]);
                    raw_bits[lane] = i32::from(coder.raw_bits[class]);
                }
                let decisions =
                    step::<S, H0, H1>(&mut costs, &targets, &tables, &raw_bits, active, &quantizer.costs);
                scratch.steps.push(Step { decisions });
                scratch.targets.push(targets);
            }
        }
        let mut ends = best::<S>(&costs);
        for lane in 0..LANES {
            // A lane without a column stays where it is.
            if lane < tile.cols && !row_classes.is_empty() {
                states[lane] = ends[lane] as u8;
            }
        }
        for at in (0..scratch.steps.len()).rev() {
            let (row, first) = (at / per_row, at % per_row * LANES);
            let active = LANES.min(tile.cols - first);
            let chosen = walk::<S, H0, H1>(&mut ends, &scratch.targets[at], &scratch.steps[at], active);
            let out = &mut levels[row * tile.cols + first..][..active];
            out.iter_mut().zip(chosen).for_each(|(out, level)| *out = level as i16);
        }
    }
}

/// The state of least cost in each lane, the lowest of equals.
#[inline(always)]
fn best<const S: usize>(costs: &[Lanes; S]) -> Lanes {
    let (mut ends, mut least) = ([0; LANES], costs[0]);
    for state in 1..S {
        for lane in 0..LANES {
            if costs[state][lane] < least[lane] {
                (least[lane], ends[lane]) = (costs[state][lane], state as i32);
            }
        }
    }
    ends
}

/// The nearest magnitude of a quantizer and parity.
#[inline(always)]
fn nearest(magnitude: i32, quantizer: i32, parity: i32) -> i32 {
    2 * ((magnitude - 32 * parity + 16 * quantizer + 32) >> 6) + parity
}

/// Extends all survivors by one value in every active lane.
#[inline(always)]
fn step<const S: usize, const H0: usize, const H1: usize>(
    costs: &mut [Lanes; S],
    targets: &Lanes,
    tables: &Lanes,
    raw_bits: &Lanes,
    active: usize,
    rates: &[[i32; MAGNITUDES]],
) -> [u16; LANES] {
    let rates = rates.as_flattened();
    let last = rates.len() - 1;
    let mut subsets = [[0; LANES]; 4];
    let mut flags = [0u16; LANES];
    for quantizer in 0..2 {
        let mut zeros = [0; LANES];
        for lane in 0..LANES {
            let magnitude = targets[lane].abs();
            let rate = rates[(MAGNITUDES * (tables[lane] as usize + quantizer)).min(last)];
            zeros[lane] = square(magnitude) + rate;
        }
        for parity in 0..2 {
            for lane in 0..LANES {
                let magnitude = targets[lane].abs();
                let level = nearest(magnitude, quantizer as i32, parity);
                let point = if level == 0 { 0 } else { 32 * level - 16 * quantizer as i32 };
                let signed = if targets[lane] < 0 { -level } else { level };
                let half = (1 << raw_bits[lane]) >> 1;
                let symbol = ((signed + half) >> raw_bits[lane]).abs().min(ESCAPE as i32);
                let rate =
                    rates[(MAGNITUDES * (tables[lane] as usize + quantizer) + symbol as usize).min(last)];
                let cost = square(magnitude - point) + rate;
                let zero = parity == 0 && zeros[lane] < cost;
                subsets[2 * quantizer + parity as usize][lane] = if zero { zeros[lane] } else { cost };
                flags[lane] |= u16::from(zero) << (8 + quantizer);
            }
        }
    }
    let mut next = [[0; LANES]; S];
    for t in 0..S {
        let (quantizer, base) = if t < S / 2 { (0, t) } else { (1, t ^ H0) };
        let (from_even, from_odd) = (&costs[2 * base + quantizer], &costs[2 * (base ^ H1) + quantizer]);
        for lane in 0..LANES {
            let even = from_even[lane] + subsets[2 * quantizer][lane];
            let odd = from_odd[lane] + subsets[2 * quantizer + 1][lane];
            next[t][lane] = even.min(odd);
            flags[lane] |= u16::from(odd < even) << t;
        }
    }
    let mut least = next[0];
    for costs in &next[1..] {
        for lane in 0..LANES {
            least[lane] = least[lane].min(costs[lane]);
        }
    }
    for t in 0..S {
        for lane in 0..LANES {
            let cost = (next[t][lane] - least[lane]).min(NEVER);
            costs[t][lane] = if lane < active { cost } else { costs[t][lane] };
        }
    }
    flags
}

#[inline(always)]
fn square(distance: i32) -> i32 {
    let near = distance.abs().min(FAR);
    near * near
}

/// One step back: the levels that the paths took.
#[inline(always)]
fn walk<const S: usize, const H0: usize, const H1: usize>(
    states: &mut Lanes,
    targets: &Lanes,
    step: &Step,
    active: usize,
) -> Lanes {
    let mut levels = [0; LANES];
    for lane in 0..LANES {
        let (state, decisions) = (states[lane], i32::from(step.decisions[lane]));
        let odd = decisions >> state & 1;
        let quantizer = i32::from(state >= S as i32 / 2);
        let base = state ^ (-quantizer & H0 as i32);
        let zero = odd == 0 && decisions >> (8 + quantizer) & 1 == 1;
        let level = nearest(targets[lane].abs(), quantizer, odd);
        let level = if zero { 0 } else { level };
        levels[lane] = if targets[lane] < 0 { -level } else { level };
        let before = 2 * (base ^ (-odd & H1 as i32)) + quantizer;
        states[lane] = if lane < active { before } else { state };
    }
    levels
}
