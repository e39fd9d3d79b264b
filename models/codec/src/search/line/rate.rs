//! From a target to a step: bits or an error per value.

use crate::entropy::line::coder::Coder;
use crate::format::line::device::{Cpu, Device};
use crate::format::line::error::Error;
use crate::format::line::plan::{MAX_CLASS, MAX_MEAN, Plan};
use crate::format::line::stream::{CodedTile, Settings, observed};
use crate::format::line::values::Values;
use crate::search::line::analyse::choose_fitted;
use crate::search::line::fit::{Fitted, Look, fit, improved, squared};
use crate::search::line::options::{Effort, Options};
use std::cell::Cell;
use trinity_bits::Rate;
use trinity_bits::search::{Found, Trial, Tried, search as tried_until};

/// Trials before the best so far is taken, and before there is none.
const TRIALS: usize = 8;
const LAST_TRIALS: usize = 20;
/// Steps are near each other, in the natural logarithm, where tables of one serve the other.
const NEAR: f32 = 0.06;
/// Steps are far from each other where stages are chosen anew, and how often they are at most.
const FAR: f32 = 0.25;
const CHOICES: usize = 2;
const NOTHING: [f32; 4096] = [0.0; 4096];
/// Columns whose bits are taken together.
const TOGETHER: usize = 8;

/// Codes a matrix so that the target is met.
pub fn encode_under(
    values: &[f32],
    rows: usize,
    cols: usize,
    target: Rate,
    options: &Options,
    settings: &Settings,
) -> Result<Vec<u8>, Error> {
    encode_on(&Cpu, values, (rows, cols), target, options, settings)
}

/// As [`encode_under`], of rows and columns, coded by a device: the same bytes.
pub fn encode_on(
    device: &dyn Device,
    values: &[f32],
    (rows, cols): (usize, usize),
    target: Rate,
    options: &Options,
    settings: &Settings,
) -> Result<Vec<u8>, Error> {
    let coding = |plan: &Plan, settings: &Settings| Ok((device.encode(plan, values, settings)?, ()));
    let decoding = |bytes: &[u8]| Ok(device.decode(bytes)?.2);
    let values = Values::Numbers(values);
    encode_by(&coding, &decoding, values, (rows, cols), target, options, settings).map(|(bytes, ())| bytes)
}

/// As [`encode_under`], on this CPU, with what `observe` makes of every tile of the stream.
pub fn encode_observed<T: Send>(
    values: Values<'_>,
    shape: (usize, usize),
    target: Rate,
    options: &Options,
    settings: &Settings,
    observe: &(dyn Fn(&CodedTile<'_>) -> T + Sync),
) -> Result<(Vec<u8>, Vec<T>), Error> {
    let coding = |plan: &Plan, settings: &Settings| {
        let coder = Coder::new(plan.clone())?;
        observed(&coder, values, settings, observe)
    };
    let decoding = |bytes: &[u8]| Ok(Cpu.decode(bytes)?.2);
    encode_by(&coding, &decoding, values, shape, target, options, settings)
}

/// The plan of a matrix near a target as far as a sample tells, with nothing coded: what others like it may be held to.
pub fn planned(
    values: &[f32],
    (rows, cols): (usize, usize),
    target: Rate,
    options: &Options,
) -> Option<Plan> {
    if values.len() != rows * cols || values.is_empty() || !is_met(target) {
        return None;
    }
    Search::new(Values::Numbers(values), options, target).planned(rows, cols).map(|fitted| fitted.plan)
}

/// Whether this format's encoder works to such a target.
fn is_met(target: Rate) -> bool {
    matches!(target, Rate::Bits(_) | Rate::Nmse(_) | Rate::Step(_))
}

/// Gives a stream under a plan, and whatever else there is to say of it.
type Coding<'a, T> = dyn Fn(&Plan, &Settings) -> Result<(Vec<u8>, T), Error> + 'a;
/// Gives the values of a stream.
type Decoding<'a> = dyn Fn(&[u8]) -> Result<Vec<f32>, Error> + 'a;

fn encode_by<T>(
    coding: &Coding<'_, T>,
    decoding: &Decoding<'_>,
    values: Values<'_>,
    (rows, cols): (usize, usize),
    target: Rate,
    options: &Options,
    settings: &Settings,
) -> Result<(Vec<u8>, T), Error> {
    if values.len() != rows * cols || values.is_empty() {
        return Err(Error::Mismatch { what: format!("{} values for {rows} × {cols}", values.len()) });
    }
    let unreachable = |reason: &str| Error::Unreachable { target: target.to_string(), reason: reason.into() };
    if !is_met(target) {
        return Err(unreachable("matrices are coded to bits, an error or a step"));
    }
    // What was fitted under one analysis is coded under the same.
    let settings = &Settings { analysis: options.fixed.analysis(), ..*settings };
    let no_step = || unreachable("no step leads there");
    let search = Search::new(values, options, target);
    let fitted = search.planned(rows, cols).ok_or_else(no_step)?;
    let mut fitted = improved(fitted, values, options).ok_or_else(no_step)?;
    if let Rate::Step(_) = target {
        return coding(&fitted.plan, settings);
    }
    let fine = fitted.plan.step * search.correction(&fitted);
    // Among the smallest of all values there is no smaller step.
    if fine.is_normal() {
        fitted = search.moved(&fitted, fine).ok_or_else(no_step)?;
    }
    let (aim, slack) = if options.effort == Effort::Best { (0.997, 0.004) } else { (0.996, 0.006) };
    let is_one_within = Cell::new(false);
    let first = fitted.plan.step;
    let attempt = |step: f32| -> Result<_, Error> {
        if step != fitted.plan.step {
            fitted = search.moved(&fitted, step).ok_or_else(no_step)?;
        }
        let (bytes, beside) = coding(&fitted.plan, settings)?;
        let bits = 8.0 * bytes.len() as f64 / values.len() as f64;
        // How far the stream is from the target, in bits to spend.
        let (within, room) = match target {
            Rate::Nmse(goal) => {
                let found =
                    squared(&values.numbers(), &decoding(&bytes)?) / search.energy.max(f64::MIN_POSITIVE);
                (found <= goal, 0.5 * (found / (goal * (0.998 * aim))).log2())
            }
            Rate::Bits(goal) => (bits <= goal, goal * aim - bits),
            _ => (true, 0.0),
        };
        is_one_within.set(is_one_within.get() || within);
        let close = within && room.abs() < slack * bits.max(0.5);
        let rank = (!within, room.abs());
        Ok(Trial { cost: room, over: room <= 0.0, close, rank, result: (bytes, beside) })
    };
    let mut bounds = (0.0f32, f32::INFINITY);
    let mut slope = Slope::default();
    let next = |tried: &Tried<f32>| {
        if tried.count >= TRIALS && is_one_within.get() {
            return None;
        }
        let (step, room) = tried.last;
        // More room for bits: a smaller step.
        if room > 0.0 {
            bounds.1 = bounds.1.min(step);
        } else {
            bounds.0 = bounds.0.max(step);
        }
        let mut next = slope.next(step, room);
        if (next <= bounds.0 || next >= bounds.1) && bounds.1.is_finite() && bounds.0 > 0.0 {
            next = (bounds.0 * bounds.1).sqrt();
        }
        (next.is_normal() && next != step).then_some(next)
    };
    let Found { best, .. } = tried_until(first, LAST_TRIALS, attempt, next)?;
    match best {
        Some(((false, _), coded)) => Ok(coded),
        _ => Err(unreachable("headers and lanes alone take more")),
    }
}

/// How the room that is left grows with the step's logarithm: as one bit for an
/// octave at high rates, and as the last two trials say where that is known.
#[derive(Debug, Default)]
struct Slope {
    last: Option<(f64, f64)>,
}

impl Slope {
    /// The step that should leave no room, after one that left so many bits.
    fn next(&mut self, step: f32, room: f64) -> f32 {
        let at = f64::from(step).log2();
        let slope = match self.last {
            Some((last_at, last_room)) if (at - last_at).abs() > 1e-6 => {
                ((room - last_room) / (at - last_at)).clamp(0.1, 3.0)
            }
            _ => 1.0,
        };
        self.last = Some((at, room));
        // A little beyond, so that the target comes to lie between two trials.
        (at - (1.05 * room / slope).clamp(-8.0, 8.0)).exp2() as f32
    }
}

struct Search<'a> {
    values: Values<'a>,
    options: &'a Options,
    target: Rate,
    /// The energy of all values, where an error is held against it.
    energy: f64,
}

impl<'a> Search<'a> {
    fn new(values: Values<'a>, options: &'a Options, target: Rate) -> Self {
        // What a rate is held against does not need the whole energy.
        let energy = if matches!(target, Rate::Nmse(_)) { energy(values) } else { 0.0 };
        Self { values, options, target, energy }
    }

    /// The best stages near the target.
    fn planned(&self, rows: usize, cols: usize) -> Option<Fitted> {
        let plan_at = |step: f32| choose_fitted(self.values, rows, cols, step, self.options);
        if let Rate::Step(step) = self.target {
            return plan_at(step as f32);
        }
        let step = self.first_step(rows, cols);
        // Stages are chosen near the target; steps then move with it.
        let mut fitted = self.approach(plan_at(step)?)?;
        // Far from where stages were chosen, others may be better, and matrices are signalled too
        // coarsely for a smaller step.
        let mut chosen_at = step;
        for _ in 0..if self.options.effort == Effort::Best { CHOICES } else { 0 } {
            if (fitted.plan.step / chosen_at).ln().abs() <= FAR {
                break;
            }
            chosen_at = fitted.plan.step;
            fitted = self.approach(plan_at(chosen_at)?)?;
        }
        Some(fitted)
    }

    /// A plan of the same stages whose estimate is near the target.
    fn approach(&self, mut fitted: Fitted) -> Option<Fitted> {
        let mut slope = Slope::default();
        for _ in 0..5 {
            let room = -f64::from(self.correction(&fitted)).log2();
            let next = slope.next(fitted.plan.step, room);
            let moved = (next / fitted.plan.step).ln().abs();
            if !next.is_normal() || moved.is_nan() || moved < 0.02 {
                break;
            }
            let plan = self.at_step(&fitted.plan, next);
            let look = Look::rough(self.options, self.values.len(), &plan);
            fitted = fit(plan, self.values, self.options, look)?;
        }
        Some(fitted)
    }

    /// The same stages at another step: tables are kept where it is near, else fitted.
    fn moved(&self, fitted: &Fitted, step: f32) -> Option<Fitted> {
        let near = (step / fitted.plan.step).ln().abs() < NEAR;
        let plan = self.at_step(&fitted.plan, step);
        if near {
            return Some(Fitted { plan, ..fitted.clone() });
        }
        fit(plan, self.values, self.options, Look::fine(self.options))
    }

    fn at_step(&self, plan: &Plan, step: f32) -> Plan {
        let mut plan = plan.clone();
        let ratio = f64::from(plan.step) / f64::from(step);
        let shift = (4.0 * ratio.log2()).round().clamp(-1e6, 1e6) as i32;
        for class in &mut plan.classes {
            *class = (*class + shift).clamp(-MAX_CLASS, MAX_CLASS);
        }
        let most = f64::from(MAX_MEAN);
        for mean in &mut plan.means {
            *mean = (f64::from(*mean) * ratio).round().clamp(-most, most) as i32;
        }
        plan.step = step;
        plan
    }

    /// By how much a step must change, as far as a fitted plan can tell.
    fn correction(&self, fitted: &Fitted) -> f32 {
        let octaves = match self.target {
            Rate::Bits(goal) => fitted.bits_per_value - 0.996 * goal,
            Rate::Nmse(goal) => {
                let mean_square = self.energy / self.values.len() as f64;
                0.5 * (goal * mean_square / fitted.error.max(f64::MIN_POSITIVE)).log2()
            }
            _ => 0.0,
        };
        octaves.clamp(-8.0, 8.0).exp2() as f32
    }

    /// The step at which Gaussian values with the magnitudes of some columns meet
    /// the target.
    fn first_step(&self, rows: usize, cols: usize) -> f32 {
        let magnitudes = magnitudes(self.values, rows, cols);
        if magnitudes.is_empty() {
            return f32::MIN_POSITIVE;
        }
        let energy: f64 = magnitudes.iter().map(|m| m * m).sum();
        // Two steps between the points of a quantizer.
        let snr = |magnitude: f64, step: f64| 1.0 + (5.17 * 0.5 * magnitude / step).powi(2);
        let above_target = |step: f64| match self.target {
            Rate::Bits(bits) => {
                // The logarithm of a product, which stays within double precision.
                let product = |some: &[f64]| some.iter().map(|&m| snr(m, step)).product::<f64>();
                let sum: f64 = magnitudes.chunks(TOGETHER).map(|some| 0.5 * product(some).log2()).sum();
                sum < bits * magnitudes.len() as f64
            }
            Rate::Nmse(goal) => magnitudes.iter().map(|&m| m * m / snr(m, step)).sum::<f64>() > goal * energy,
            _ => true,
        };
        let middle = (energy / magnitudes.len() as f64).sqrt().log2();
        let (mut low, mut high) = (middle - 24.0, middle + 8.0);
        for _ in 0..20 {
            let at = 0.5 * (low + high);
            if above_target(at.exp2()) { high = at } else { low = at }
        }
        low.exp2().max(f64::from(f32::MIN_POSITIVE)) as f32
    }
}

/// Mean magnitudes of up to 256 columns in up to 128 rows; those that are all
/// zeros are left out.
fn magnitudes(values: Values<'_>, rows: usize, cols: usize) -> Vec<f64> {
    let (row_step, col_step) = (rows.div_ceil(128), cols.div_ceil(256));
    let mut sums = vec![0.0; cols.div_ceil(col_step)];
    let looked_at = rows.div_ceil(row_step) as f64;
    // Row after row, as they lie in memory.
    for row in (0..rows).step_by(row_step) {
        for (sum, col) in sums.iter_mut().zip((0..cols).step_by(col_step)) {
            let value = values.at(row * cols + col);
            *sum += if value.is_finite() { f64::from(value.abs()) } else { 0.0 };
        }
    }
    let some: Vec<f64> = sums.into_iter().map(|sum| sum / looked_at).filter(|&mean| mean > 0.0).collect();
    if !some.is_empty() {
        return some;
    }
    // What was looked at says nothing: one number for all.
    let mean_square = energy(values) / values.len() as f64;
    if mean_square > 0.0 { vec![0.8 * mean_square.sqrt()] } else { Vec::new() }
}

/// The sum of the squares of what is finite.
fn energy(values: Values<'_>) -> f64 {
    let mut chunk = NOTHING;
    let of_chunk = |start: usize| {
        let chunk = &mut chunk[..NOTHING.len().min(values.len() - start)];
        values.copy_to(start, chunk);
        // Values against nothing.
        squared(chunk, &NOTHING[..chunk.len()])
    };
    (0..values.len()).step_by(NOTHING.len()).map(of_chunk).sum()
}
