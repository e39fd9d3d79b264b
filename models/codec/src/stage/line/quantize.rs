//! Values to levels: targets in integers, prediction, row classes, and the
//! trellis search.
//!
//! From the first integer on there is no floating point, and every choice
//! between equals is signalled: encoders elsewhere make the same levels.

use crate::entropy::line::coder::{Coder, UNITS, point, polynomials};
use crate::entropy::line::table::{ESCAPE, MAGNITUDES};
use crate::entropy::line::tile::{Exception, Parsed};
use crate::format::line::plan::Tile;
use crate::stage::line::matrix::analyse_whole;
use crate::stage::line::quantizer::{FAR, NEVER, Quantizer, reduced, round};
use crate::stage::line::trellis::{Scratch, Segment};
use trinity_numeric::simd::{Kernel, Width, with_width};

/// Targets of a tile in units, row by row, and what is kept exactly.
pub fn targets(
    coder: &Coder,
    quantizer: &Quantizer,
    tile: &Tile,
    values: &[f32],
) -> (Vec<i32>, Vec<Exception>) {
    with_width(quantizer.width, Targets { coder, quantizer, tile, values })
}

struct Targets<'a> {
    coder: &'a Coder,
    quantizer: &'a Quantizer,
    tile: &'a Tile,
    values: &'a [f32],
}

impl Kernel for Targets<'_> {
    type Output = (Vec<i32>, Vec<Exception>);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { coder, quantizer, tile, values } = self;
        let safe = Quantizer::safe(coder);
        let limit = coder.limit as f32;
        let mut exceptions = Vec::new();
        // NaN is not within anything.
        let within = |scaled: f32| scaled.abs() <= safe;
        let mut targets = vec![0i32; values.len()];
        let mut beyond = 0u32;
        if quantizer.analyses.is_empty() || !quantizer.whole.is_empty() {
            // Plain loops: iterators that collect are not copied for wide registers.
            for (target, &value) in targets.iter_mut().zip(values) {
                let scaled = value * quantizer.inverse;
                beyond |= u32::from(!within(scaled));
                *target = whole(scaled, limit);
            }
            if beyond != 0 {
                for (position, target) in targets.iter_mut().enumerate() {
                    if !within(values[position] * quantizer.inverse) {
                        let bits = values[position].to_bits();
                        exceptions.push(Exception { position: position as u16, bits });
                        *target = 0;
                    }
                }
            }
            if !quantizer.whole.is_empty() {
                targets
                    .chunks_exact_mut(tile.cols)
                    .for_each(|row| transform_whole(coder, quantizer, tile, row));
            }
            return (targets, exceptions);
        }
        let mut scaled = vec![0f32; values.len()];
        for (scaled, &value) in scaled.iter_mut().zip(values) {
            *scaled = value * quantizer.inverse;
            beyond |= u32::from(!within(*scaled));
        }
        if beyond != 0 {
            for (position, scaled) in scaled.iter_mut().enumerate() {
                if !within(*scaled) {
                    let bits = values[position].to_bits();
                    exceptions.push(Exception { position: position as u16, bits });
                    *scaled = 0.0;
                }
            }
        }
        scaled.chunks_exact_mut(tile.cols).for_each(|row| analyse(coder, quantizer, tile, row));
        for (target, &scaled) in targets.iter_mut().zip(&scaled) {
            *target = whole(scaled, limit);
        }
        (targets, exceptions)
    }
}

/// One row through the analysis matrices: sums from the first column up,
/// products and sums rounded one by one.
#[inline(always)]
fn analyse(coder: &Coder, quantizer: &Quantizer, tile: &Tile, row: &mut [f32]) {
    let size = coder.plan.transform.size();
    for (index, values) in row.chunks_exact_mut(size).enumerate() {
        let number = tile.col / size + index;
        if number >= coder.plan.group_count() {
            break;
        }
        let columns = &quantizer.by_column[if quantizer.by_column.len() == 1 { 0 } else { number }];
        match size {
            32 => multiply::<32>(columns, values),
            _ => multiply::<64>(columns, values),
        }
    }
}

/// One row of targets through the analysis in integers. Coefficients stay within
/// limits: targets are within 2^13, and no matrix makes more than √64 times that of them.
fn transform_whole(coder: &Coder, quantizer: &Quantizer, tile: &Tile, row: &mut [i32]) {
    let size = coder.plan.transform.size();
    let first = tile.col / size;
    let groups = row.chunks_exact_mut(size).zip(first..coder.plan.group_count());
    for (targets, number) in groups {
        analyse_whole(&quantizer.whole[if quantizer.whole.len() == 1 { 0 } else { number }], targets);
    }
}

#[inline(always)]
fn multiply<const SIZE: usize>(columns: &[f32], values: &mut [f32]) {
    let mut sums = [0f32; SIZE];
    for (column, &value) in columns.as_chunks::<SIZE>().0.iter().zip(&*values) {
        for i in 0..SIZE {
            sums[i] += column[i] * value;
        }
    }
    values.copy_from_slice(&sums);
}

/// The levels of a tile for its values at once, where nothing stands between the two: no transform, no means, no
/// prediction and no trellis, and no value that is kept exactly. [`targets`] and [`quantize`] are the truth.
pub(crate) fn levels_at_once(
    coder: &Coder,
    quantizer: &Quantizer,
    tile: &Tile,
    values: &[f32],
) -> Option<Parsed> {
    let means = &coder.plan.means[tile.col..][..tile.cols];
    let stages = coder.plan.log2_states > 0 || coder.transformed || coder.predicts;
    if stages || quantizer.width == Width::Scalar || means.iter().any(|&mean| mean != 0) {
        return None;
    }
    let mut levels = vec![0; values.len()];
    let weights = coder.plan.row_table.as_ref().map(|_| &quantizer.weights[tile.col..][..tile.cols]);
    let cols = tile.cols;
    let job = LevelsAtOnce { coder, quantizer, cols, weights, values, levels: &mut levels };
    let row_classes = with_width(quantizer.width, job)?;
    Some(Parsed { gain: 0, exceptions: Vec::new(), row_classes, levels })
}

/// The work of [`levels_at_once`]: gives the classes of rows, unless a value is to be kept exactly.
struct LevelsAtOnce<'a> {
    coder: &'a Coder,
    quantizer: &'a Quantizer,
    cols: usize,
    /// Of columns, where rows have classes.
    weights: Option<&'a [u32]>,
    values: &'a [f32],
    levels: &'a mut [i16],
}

impl Kernel for LevelsAtOnce<'_> {
    type Output = Option<Vec<i32>>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { coder, quantizer, cols, weights, values, levels } = self;
        let (safe, limit) = (Quantizer::safe(coder), coder.limit as f32);
        let (inverse, rounding) = (quantizer.inverse, quantizer.rounding);
        // NaN is not within anything.
        let within = |scaled: f32| scaled.abs() <= safe;
        let mut beyond = 0u32;
        let mut row_classes = vec![0; values.len() / cols];
        let Some(weights) = weights else {
            for (level, &value) in levels.iter_mut().zip(values) {
                let scaled = value * inverse;
                beyond |= u32::from(!within(scaled));
                *level = round(whole(scaled, limit), rounding);
            }
            return (beyond == 0).then_some(row_classes);
        };
        let rows = levels.chunks_exact_mut(cols).zip(values.chunks_exact(cols)).zip(&mut row_classes);
        for ((levels, values), class) in rows {
            let mut sum = 0u64;
            for ((level, &value), &weight) in levels.iter_mut().zip(values).zip(weights) {
                let scaled = value * inverse;
                beyond |= u32::from(!within(scaled));
                let target = whole(scaled, limit);
                sum += u64::from(target.unsigned_abs()) * u64::from(weight);
                *level = round(target, rounding);
            }
            *class = class_of(sum, cols);
        }
        (beyond == 0).then_some(row_classes)
    }
}

/// The nearest whole number within a limit, which has 21 bits at most; anything where `scaled` is no number.
#[inline(always)]
fn whole(scaled: f32, limit: f32) -> i32 {
    // SAFETY: `max` and `min` leave no NaN, and a number of 21 bits at most.
    #[allow(unsafe_code)]
    unsafe {
        scaled.round_ties_even().max(-limit).min(limit).to_int_unchecked::<i32>()
    }
}

/// The levels of a tile for its targets.
pub fn quantize(coder: &Coder, quantizer: &Quantizer, tile: &Tile, targets: &[i32], gain: u32) -> Parsed {
    let (cols, lanes) = (tile.cols, coder.plan.lanes());
    let mut parsed = Parsed {
        gain,
        exceptions: Vec::new(),
        row_classes: Vec::with_capacity(tile.rows),
        levels: vec![0; tile.values()],
    };
    // Prediction needs each row before the next; else paths run through the tile.
    let segment_rows = if coder.predicts { 1 } else { tile.rows };
    let above = &coder.plan.above[tile.col..][..cols];
    let means = &coder.plan.means[tile.col..][..cols];
    // Without either, residuals are the targets, which are within limits.
    let plain = !coder.predicts && means.iter().all(|&mean| mean == 0);
    let mut deviations = vec![0i32; cols];
    let mut residuals = vec![0i32; if plain { 0 } else { segment_rows * cols }];
    let mut states = vec![0u8; lanes];
    let wide = quantizer.width > Width::Scalar && lanes == 32;
    let mut scratch = Scratch::new(coder, quantizer, tile, gain);
    for first in (0..tile.rows).step_by(segment_rows) {
        let targets = &targets[first * cols..][..segment_rows * cols];
        let residuals = if plain {
            targets
        } else {
            let (limit, residuals, deviations) = (coder.limit, &mut residuals[..], &deviations[..]);
            with_width(quantizer.width, Residuals { limit, above, means, targets, deviations, residuals });
            &residuals[..]
        };
        row_classes(coder, quantizer, tile, residuals, &mut parsed.row_classes);
        let before = states.clone();
        let row_classes = &parsed.row_classes[first..];
        let levels = &mut parsed.levels[first * cols..][..segment_rows * cols];
        if wide {
            let (states, scratch) = (&mut states, &mut scratch);
            let segment =
                Segment { coder, quantizer, tile, gain, residuals, row_classes, states, levels, scratch };
            crate::stage::line::trellis::search(quantizer.width, segment);
        } else {
            search(coder, quantizer, tile, gain, residuals, row_classes, &mut states, levels);
        }
        let levels = &parsed.levels[first * cols..][..segment_rows * cols];
        if coder.predicts {
            let deviations = &mut deviations;
            with_width(quantizer.width, Advance { coder, gain, above, before: &before, levels, deviations });
        }
    }
    parsed
}

/// What is left of rows of targets after means and prediction.
struct Residuals<'a> {
    limit: i32,
    above: &'a [i32],
    means: &'a [i32],
    targets: &'a [i32],
    deviations: &'a [i32],
    residuals: &'a mut [i32],
}

impl Kernel for Residuals<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { limit, above, means, targets, deviations, residuals } = self;
        let cols = above.len();
        for (residuals, targets) in residuals.chunks_exact_mut(cols).zip(targets.chunks_exact(cols)) {
            for column in 0..cols {
                let predicted = means[column] * UNITS + predict(above[column], deviations[column]);
                residuals[column] = (targets[column] - predicted).clamp(-limit, limit);
            }
        }
    }
}

/// What the deviation above says of the one below.
#[inline(always)]
pub fn predict(above: i32, deviation: i32) -> i32 {
    (above.wrapping_mul(deviation)).wrapping_add(8) >> 4
}

/// Deviations from the means after a row of levels.
struct Advance<'a> {
    coder: &'a Coder,
    gain: u32,
    above: &'a [i32],
    before: &'a [u8],
    levels: &'a [i16],
    deviations: &'a mut [i32],
}

impl Kernel for Advance<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { coder, gain, above, before, levels, deviations } = self;
        let (lanes, limit) = (before.len(), coder.limit);
        let (factor, shift) = (4 * (4 + (gain as i32 & 3)), gain >> 2);
        let polynomials = polynomials(coder.plan.log2_states);
        let mut states = [0i32; 32];
        states.iter_mut().zip(before).for_each(|(state, &before)| *state = i32::from(before));
        let steps = deviations.chunks_mut(lanes).zip(above.chunks(lanes)).zip(levels.chunks(lanes));
        for ((deviations, above), levels) in steps {
            let lanes = deviations.iter_mut().zip(above).zip(levels).zip(&mut states);
            for (((deviation, &above), &level), state) in lanes {
                let (point, next) = point(*state, i32::from(level), polynomials);
                *state = next;
                let units = point.wrapping_mul(factor).wrapping_shl(shift);
                *deviation = units.wrapping_add(predict(above, *deviation)).clamp(-limit, limit);
            }
        }
    }
}

/// How rows stand to their columns' classes, in quarter octaves; appended.
fn row_classes(coder: &Coder, quantizer: &Quantizer, tile: &Tile, residuals: &[i32], classes: &mut Vec<i32>) {
    let rows = residuals.len() / tile.cols;
    if coder.plan.row_table.is_none() {
        classes.resize(classes.len() + rows, 0);
        return;
    }
    let weights = &quantizer.weights[tile.col..][..tile.cols];
    for row in residuals.chunks_exact(tile.cols) {
        let sum = with_width(quantizer.width, Weighed { residuals: row, weights });
        classes.push(class_of(sum, tile.cols));
    }
}

/// The class of a row whose weighed magnitudes have that sum.
#[inline(always)]
fn class_of(sum: u64, cols: usize) -> i32 {
    // The mean is 2^14 times 32 units for a row of class 0.
    let mean = sum / cols as u64;
    quarter_log2(mean.max(1)) - 4 * 19
}

/// The sum of a row's magnitudes by their columns' weights.
struct Weighed<'a> {
    residuals: &'a [i32],
    weights: &'a [u32],
}

impl Kernel for Weighed<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let mut sum = 0u64;
        for (&residual, &weight) in self.residuals.iter().zip(self.weights) {
            sum += u64::from(residual.unsigned_abs()) * u64::from(weight);
        }
        sum
    }
}

/// Four times the binary logarithm, to the nearest.
#[inline(always)]
pub fn quarter_log2(value: u64) -> i32 {
    // 2^(1/8), 2^(3/8), 2^(5/8), 2^(7/8) in 16 bits of fraction.
    const BOUNDS: [u64; 4] = [71468, 84990, 101070, 120194];
    let octave = value.ilog2();
    let mantissa = if octave > 16 { value >> (octave - 16) } else { value << (16 - octave) };
    4 * octave as i32 + BOUNDS.iter().filter(|&&bound| mantissa >= bound).count() as i32
}

/// What the residuals become: every lane's best path from where it stands.
fn search(
    coder: &Coder,
    quantizer: &Quantizer,
    tile: &Tile,
    gain: u32,
    residuals: &[i32],
    row_classes: &[i32],
    states: &mut [u8],
    levels: &mut [i16],
) {
    let (cols, lanes) = (tile.cols, states.len());
    let mut path = Path::default();
    for (lane, state) in states.iter_mut().enumerate() {
        let columns = || (lane..cols).step_by(lanes);
        path.clear();
        for (row, &row_class) in row_classes.iter().enumerate() {
            for column in columns() {
                let class = Coder::class(coder.plan.classes[tile.col + column], row_class, gain);
                let (table, raw_bits) = (usize::from(coder.tables[class]), u32::from(coder.raw_bits[class]));
                let target = reduced(residuals[row * cols + column], gain);
                match coder.plan.log2_states {
                    0 => path.chosen.push(round(target, quantizer.rounding)),
                    _ => {
                        path.step(coder.plan.log2_states, *state, target, &quantizer.costs[table..], raw_bits)
                    }
                }
            }
        }
        *state = path.finish(coder.plan.log2_states, *state);
        let places = (0..row_classes.len()).flat_map(|row| columns().map(move |column| row * cols + column));
        for (place, &level) in places.zip(&path.chosen) {
            levels[place] = level;
        }
    }
}

#[derive(Debug, Default)]
struct Path {
    costs: Vec<i32>,
    /// For each step: the four candidates, and the parity each state was reached by.
    candidates: Vec<[i16; 4]>,
    decisions: Vec<u8>,
    chosen: Vec<i16>,
}

impl Path {
    fn clear(&mut self) {
        self.costs.clear();
        self.candidates.clear();
        self.decisions.clear();
        self.chosen.clear();
    }

    fn step(&mut self, log2_states: u32, start: u8, target: i32, costs: &[[i32; MAGNITUDES]], raw_bits: u32) {
        let count = 1usize << log2_states;
        if self.costs.is_empty() {
            self.costs = (0..count).map(|s| if s == usize::from(start) { 0 } else { NEVER }).collect();
        }
        let (subset_costs, levels) = candidates(target, costs, raw_bits);
        // A state's predecessors share a quantizer: even states lead to the lower
        // half. Odd levels win where they cost less.
        let (mut next, mut decisions) = ([0; 8], 0);
        let half = count / 2;
        let (h0, h1) = polynomials(log2_states);
        for t in 0..count {
            let (quantizer, base) = if t < half { (0, t) } else { (1, t ^ h0 as usize) };
            let even = self.costs[2 * base + quantizer] + subset_costs[2 * quantizer];
            let odd = self.costs[2 * (base ^ h1 as usize) + quantizer] + subset_costs[2 * quantizer + 1];
            decisions |= u8::from(odd < even) << t;
            next[t] = even.min(odd);
        }
        let least = next[..count].iter().copied().min().unwrap_or(0);
        for (cost, next) in self.costs.iter_mut().zip(next) {
            *cost = (next - least).min(NEVER);
        }
        self.candidates.push(levels);
        self.decisions.push(decisions);
    }

    /// Walks the best path back; the state it ends in.
    fn finish(&mut self, log2_states: u32, start: u8) -> u8 {
        if self.costs.is_empty() {
            return start;
        }
        let end = (0..self.costs.len()).min_by_key(|&s| self.costs[s]).unwrap_or(0);
        let (mut state, half) = (end, self.costs.len() / 2);
        let (h0, h1) = polynomials(log2_states);
        self.chosen.resize(self.candidates.len(), 0);
        for step in (0..self.candidates.len()).rev() {
            let odd = usize::from(self.decisions[step] >> state & 1);
            let (quantizer, base) = if state < half { (0, state) } else { (1, state ^ h0 as usize) };
            self.chosen[step] = self.candidates[step][2 * quantizer + odd];
            state = 2 * (base ^ if odd == 1 { h1 as usize } else { 0 }) + quantizer;
        }
        debug_assert_eq!(state, usize::from(start));
        end as u8
    }
}

/// For each quantizer and parity the nearest level, or zero where that costs
/// less, and what it costs.
#[inline(always)]
pub(crate) fn candidates(target: i32, costs: &[[i32; MAGNITUDES]], raw_bits: u32) -> ([i32; 4], [i16; 4]) {
    let magnitude = target.abs();
    let square = |distance: i32| {
        let near = distance.abs().min(FAR);
        near * near
    };
    let half = (1 << raw_bits) >> 1;
    let rate = |quantizer: usize, level: i32| {
        costs[quantizer][(((level + half) >> raw_bits).unsigned_abs() as usize).min(ESCAPE)]
    };
    let (mut cost, mut chosen) = ([0; 4], [0i16; 4]);
    for subset in 0..4 {
        let (quantizer, parity) = (subset >> 1, subset as i32 & 1);
        let level = 2 * ((magnitude - 32 * parity + 16 * quantizer as i32 + 32) >> 6) + parity;
        let point = if level == 0 { 0 } else { 32 * level - 16 * quantizer as i32 };
        let signed = if target < 0 { -level } else { level };
        let best = square(magnitude - point) + rate(quantizer, signed);
        let zero = square(magnitude) + rate(quantizer, 0);
        (cost[subset], chosen[subset]) =
            if parity == 0 && zero < best { (zero, 0) } else { (best, signed as i16) };
    }
    (cost, chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::line::quantizer::class_weight;

    #[test]
    fn quarter_octaves_are_counted_to_the_nearest() {
        for value in 1..100_000u64 {
            let exact = (4.0 * (value as f64).log2()).round() as i32;
            assert!((quarter_log2(value) - exact).abs() <= 1, "{value}");
        }
        for exponent in 0..60 {
            assert_eq!(quarter_log2(1 << exponent), 4 * exponent);
        }
        assert_eq!(class_weight(0), 1 << 14);
        assert_eq!(class_weight(4), 1 << 13);
        assert_eq!(class_weight(-8), 1 << 16);
    }

    #[test]
    fn a_gain_divides_what_units_multiply() {
        for gain in 0..=crate::entropy::line::tile::MAX_GAIN {
            let whole = crate::entropy::line::coder::units(8, 0, gain);
            assert_eq!(reduced(whole, gain), 8 * 32, "{gain}");
            assert_eq!(reduced(-whole, gain), -8 * 32, "{gain}");
        }
    }
}
