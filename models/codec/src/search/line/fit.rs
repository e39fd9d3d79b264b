//! Fitting tables to a plan: quantize a sample, count, cluster, and say what
//! the whole would cost.

use crate::entropy::line::coder::{Coder, point, polynomials};
use crate::entropy::line::table::{ESCAPE, MAGNITUDES, Table};
use crate::entropy::line::tile::{Parsed, TAIL, steps};
use crate::format::line::plan::{BASE_CLASSES, CLASSES, MAX_PAIRS, Plan, Tile, Transform, UNIT_CLASS};
use crate::format::line::stream::{each, gather};
use crate::format::line::values::Values;
use crate::search::line::options::{Effort, Options};
use crate::search::trial::gap;
use crate::stage::line::quantize::{levels_at_once, quantize, targets};
use crate::stage::line::quantizer::Quantizer;
use crate::stage::line::reconstruct::reconstruct_wide;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// A matrix of more values is looked at in two steps where no transform is in the way: what those gain
/// differs from place to place.
const MANY: usize = 1 << 19;

/// How closely values are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Values that are quantized, about.
    values: usize,
    /// How often tables are fitted to what they lead to.
    rounds: usize,
}

impl Look {
    /// Enough to find a step for so many values under a plan.
    pub(crate) fn rough(options: &Options, values: usize, plan: &Plan) -> Self {
        match options.effort {
            Effort::Fast => Self { values: 1 << 14, rounds: 1 },
            Effort::Best if values > MANY && plan.transform == Transform::None => {
                Self { values: 1 << 15, rounds: 1 }
            }
            Effort::Best => Self::fine(options),
        }
    }

    /// Enough to compare plans of so many values.
    pub(crate) fn ranking(options: &Options, values: usize, plans: &[Plan]) -> Self {
        let fine = Self::fine(options);
        let rough = plans.iter().all(|plan| Self::rough(options, values, plan) != fine);
        match options.effort {
            Effort::Fast => Self { values: 1 << 14, rounds: 1 },
            Effort::Best if rough => Self { rounds: 1, ..fine },
            Effort::Best => fine,
        }
    }

    /// Enough for tables.
    pub(crate) fn fine(options: &Options) -> Self {
        // Levels of a uniform quantizer do not follow from tables.
        let rounds = if options.log2_states == 0 { 1 } else { 2 };
        match options.effort {
            Effort::Fast => Self { values: 1 << 16, rounds: 1 },
            Effort::Best => Self { values: 1 << 17, rounds },
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Fitted {
    pub plan: Plan,
    pub bits_per_value: f64,
    pub error: f64,
}

impl Fitted {
    pub(crate) fn score(&self) -> f64 {
        gap(self.bits_per_value, self.error)
    }
}

/// Counts of magnitudes by base class and quantizer.
type Counts = Vec<[[u64; MAGNITUDES]; 2]>;

/// What a sample of tiles holds.
struct Seen {
    counts: Counts,
    rows: [u64; MAGNITUDES],
    /// Raw bits, those of exceptions too, less those that the final states carry.
    beside: i64,
    squared: f64,
    values: usize,
    tiles: usize,
}

impl Default for Seen {
    fn default() -> Self {
        let counts = vec![[[0; MAGNITUDES]; 2]; BASE_CLASSES];
        Self { counts, rows: [0; MAGNITUDES], beside: 0, squared: 0.0, values: 0, tiles: 0 }
    }
}

impl Seen {
    fn joined(mut self, other: Self) -> Self {
        let others = other.counts.as_flattened().as_flattened();
        let counts = self.counts.as_flattened_mut().as_flattened_mut().iter_mut().zip(others);
        counts.chain(self.rows.iter_mut().zip(&other.rows)).for_each(|(sum, own)| *sum += own);
        self.beside += other.beside;
        self.squared += other.squared;
        self.values += other.values;
        self.tiles += other.tiles;
        self
    }
}

/// The plan with tables that suit the values.
pub(crate) fn fit(mut plan: Plan, values: Values<'_>, options: &Options, look: Look) -> Option<Fitted> {
    first_tables(&mut plan);
    improve(plan, values, options, look)
}

/// A fitted plan with tables after a closer look, where the first was rough.
pub(crate) fn improved(fitted: Fitted, values: Values<'_>, options: &Options) -> Option<Fitted> {
    let fine = Look::fine(options);
    if Look::rough(options, values.len(), &fitted.plan) == fine {
        return Some(fitted);
    }
    // Tables have been fitted once.
    improve(fitted.plan, values, options, Look { rounds: 1, ..fine })
}

fn improve(mut plan: Plan, values: Values<'_>, options: &Options, look: Look) -> Option<Fitted> {
    let mut fitted = None;
    for _ in 0..look.rounds {
        let coder = Coder::new(plan.clone()).ok()?;
        let quantizer = Quantizer::new(&coder, options.lambda, options.rounding)?;
        let quantizer = quantizer.with_analysis(&coder, options.fixed.analysis())?;
        let seen = look_at(&coder, &quantizer, values, look.values);
        cluster(&mut plan, &seen, if options.budgeted { MAX_PAIRS - 1 } else { MAX_PAIRS });
        if options.budgeted {
            reserve_zeros(&mut plan, &seen);
        }
        fitted = Some(price(&plan, &seen));
    }
    fitted
}

/// Quantizes a sample of tiles and counts.
fn look_at(coder: &Coder, quantizer: &Quantizer, values: Values<'_>, sample: usize) -> Seen {
    let plan = &coder.plan;
    let total = plan.tiles();
    let wanted = (sample / (plan.tile_rows * plan.tile_cols)).clamp(1, total);
    let parts = each(wanted, |i| {
        let place = plan.tile(spread(i, wanted, total));
        let original = gather(plan, &place, values);
        let parsed = levels_at_once(coder, quantizer, &place, &original).unwrap_or_else(|| {
            let (targets, exceptions) = targets(coder, quantizer, &place, &original);
            Parsed { exceptions, ..quantize(coder, quantizer, &place, &targets, 0) }
        });
        let mut back = vec![0.0; place.values()];
        reconstruct_wide(quantizer.width, coder, &place, &parsed, &mut back, place.cols);
        let squared = squared(&original, &back);
        count(coder, &place, &parsed, squared)
    });
    parts.into_iter().fold(Seen::default(), Seen::joined)
}

/// One of `total` tiles for each of `wanted` equal shares of them, near the middle of the first,
/// elsewhere in the next (by the golden ratio), so that tiles of all panels are seen.
fn spread(share: usize, wanted: usize, total: usize) -> usize {
    const GOLDEN: u32 = 0x9e37_79b9;
    let within = (1u32 << 31).wrapping_add((share as u32).wrapping_mul(GOLDEN));
    let at = ((share as u128) << 32 | u128::from(within)) * total as u128 / wanted as u128;
    (at >> 32) as usize
}

/// The squared error of what is finite, in eight sums.
pub(crate) fn squared(original: &[f32], back: &[f32]) -> f64 {
    let mut sums = [0f64; 8];
    for (original, back) in original.chunks(8).zip(back.chunks(8)) {
        for ((sum, &a), &b) in sums.iter_mut().zip(original).zip(back) {
            let error = if a.is_finite() { f64::from(a - b) } else { 0.0 };
            *sum += error * error;
        }
    }
    sums.iter().sum()
}

/// Lanes of nearly all plans.
const LANES: usize = 32;

/// Counts of magnitudes without raw bits, by class and quantizer: two of each, so that equal neighbours do not wait for
/// each other.
struct PlainCounts {
    counts: [Vec<u32>; 2],
    /// Where the values of a row are counted.
    places: Vec<u16>,
}

impl Default for PlainCounts {
    fn default() -> Self {
        let none = || vec![0; CLASSES * 2 * MAGNITUDES];
        Self { counts: [none(), none()], places: Vec::new() }
    }
}

impl PlainCounts {
    /// Adds whole steps of a row.
    fn add(
        &mut self,
        (levels, columns): (&[i16], &[i32]),
        row_class: i32,
        polynomials: (i32, i32),
        states: &mut [i32; LANES],
    ) {
        self.places.resize(levels.len(), 0);
        let places = &mut self.places[..];
        with_width(Width::widest(), Places { levels, columns, row_class, polynomials, states, places });
        let [even, odd] = &mut self.counts;
        for pair in self.places.as_chunks::<2>().0 {
            even[usize::from(pair[0])] += 1;
            odd[usize::from(pair[1])] += 1;
        }
    }

    fn join(&self, seen: &mut Seen) {
        let [even, odd] = &self.counts;
        let sums = even.iter().zip(odd).map(|(&even, &odd)| u64::from(even) + u64::from(odd));
        let counts = seen.counts.as_flattened_mut().as_flattened_mut();
        counts.iter_mut().zip(sums).for_each(|(count, sum)| *count += sum);
    }
}

/// Where values of whole steps are counted: class, quantizer, magnitude.
struct Places<'a> {
    levels: &'a [i16],
    columns: &'a [i32],
    row_class: i32,
    polynomials: (i32, i32),
    states: &'a mut [i32; LANES],
    places: &'a mut [u16],
}

impl Kernel for Places<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { levels, columns, row_class, polynomials, states, places } = self;
        let mut held = *states;
        let steps = levels.as_chunks::<LANES>().0.iter().zip(columns.as_chunks::<LANES>().0);
        for ((levels, columns), places) in steps.zip(places.as_chunks_mut::<LANES>().0) {
            for lane in 0..LANES {
                let level = i32::from(levels[lane]);
                let class = (UNIT_CLASS + columns[lane] + row_class).clamp(0, CLASSES as i32 - 1);
                let magnitude = level.abs().min(ESCAPE as i32);
                places[lane] = ((2 * class + (held[lane] & 1)) * MAGNITUDES as i32 + magnitude) as u16;
                (_, held[lane]) = point(held[lane], level, polynomials);
            }
        }
        *states = held;
    }
}

fn count(coder: &Coder, place: &Tile, parsed: &Parsed, squared: f64) -> Seen {
    let lanes = coder.plan.lanes();
    let (per_row, total) = steps(place, lanes);
    let beside = 48 * parsed.exceptions.len() as i64;
    let mut seen = Seen { beside, squared, values: place.values(), tiles: 1, ..Seen::default() };
    let columns = &coder.plan.classes[place.col..][..place.cols];
    let largest = columns.iter().copied().max().unwrap_or(0);
    let mut states = [0i32; LANES];
    let mut plain = PlainCounts::default();
    let polynomials = polynomials(coder.plan.log2_states);
    let rows = parsed.levels.chunks_exact(place.cols).zip(&parsed.row_classes).enumerate();
    for (row, (levels, &row_class)) in rows {
        // Steps before the tail in which nothing has raw bits are counted side by side.
        let before_tail = (total.saturating_sub(TAIL)).saturating_sub(row * per_row).min(per_row);
        let is_plain = lanes == LANES && Coder::class(largest, row_class, 0) < BASE_CLASSES;
        let whole = if is_plain { before_tail.min(place.cols / LANES) * LANES } else { 0 };
        plain.add((&levels[..whole], &columns[..whole]), row_class, polynomials, &mut states);
        let rest = levels[whole..].chunks(lanes).zip(columns[whole..].chunks(lanes));
        for (step, (levels, columns)) in (whole / LANES..).zip(rest) {
            let in_tail = total - 1 - (row * per_row + step) < TAIL;
            for ((&level, &column), state) in levels.iter().zip(columns).zip(&mut states) {
                let class = Coder::class(column, row_class, 0);
                let raw_bits = usize::from(coder.raw_bits[class]);
                let symbol = (i32::from(level) + ((1 << raw_bits) >> 1)) >> raw_bits;
                let magnitude = (symbol.unsigned_abs() as usize).min(ESCAPE);
                seen.counts[class - 4 * raw_bits][(*state & 1) as usize][magnitude] += 1;
                seen.beside += raw_bits as i64 - i64::from(in_tail && (1..ESCAPE).contains(&magnitude));
                (_, *state) = point(*state, i32::from(level), polynomials);
            }
        }
    }
    plain.join(&mut seen);
    if coder.plan.row_table.is_some() {
        for &class in &parsed.row_classes {
            seen.rows[(class.unsigned_abs() as usize).min(ESCAPE)] += 1;
        }
    }
    seen
}

/// Tables for the first round: a geometric law for every octave or so in use.
fn first_tables(plan: &mut Plan) {
    let base = |class: i32| {
        let class = Coder::class(class, 0, 0);
        if class < BASE_CLASSES { class } else { 28 + class % 4 }
    };
    let used: Vec<usize> = plan.classes.iter().map(|&class| base(class)).collect();
    let least = used.iter().min().copied().unwrap_or(0);
    let most = used.iter().max().copied().unwrap_or(0).max(least);
    let count = (most - least + 1).min(MAX_PAIRS);
    plan.firsts =
        (0..count).map(|i| if i == 0 { 0 } else { (least + i * (most - least + 1) / count) as u8 }).collect();
    plan.tables.clear();
    for pair in 0..count {
        let low = least + pair * (most - least + 1) / count;
        let mean = ((low as f64 + 0.5 - 24.0) / 4.0).exp2();
        for quantizer in 0..plan.quantizers() {
            let mut counts = [0u64; MAGNITUDES];
            for (magnitude, count) in counts.iter_mut().enumerate() {
                // Between Laplace and Gauss; the zero of Q1 is narrower.
                let at = (magnitude as f64 - 0.25 * quantizer as f64).max(0.0) / mean;
                let sides = if magnitude == 0 { 1.0 - 0.4 * quantizer as f64 } else { 2.0 };
                *count = (1e6 * sides * (-0.75 * at.powf(1.4)).exp()) as u64 + 1;
            }
            counts[ESCAPE] = 200;
            plan.tables.push(Table::from_counts(&counts));
        }
    }
}

/// Bits of counts under the table made of them, with its header.
fn cost(pair: &[[u64; MAGNITUDES]; 2], quantizers: usize) -> f64 {
    let of_one = |counts: &[u64; MAGNITUDES]| {
        let table = Table::from_counts(counts);
        table.bits_of(counts) + f64::from(table.header_bits())
    };
    pair[..quantizers].iter().map(of_one).sum()
}

fn sum(a: &[[u64; MAGNITUDES]; 2], b: &[[u64; MAGNITUDES]; 2]) -> [[u64; MAGNITUDES]; 2] {
    std::array::from_fn(|q| std::array::from_fn(|m| a[q][m] + b[q][m]))
}

/// Makes pairs of tables out of neighbouring base classes: merges what costs
/// least, until there are few enough and merging saves no more.
fn cluster(plan: &mut Plan, seen: &Seen, most: usize) {
    let quantizers = plan.quantizers();
    // The header is paid once, for all values; the sample stands for them.
    let scale = ((plan.rows * plan.cols) as f64 / seen.values.max(1) as f64).max(1.0);
    let scaled = |counts: &[[u64; MAGNITUDES]; 2]| counts.map(|q| q.map(|c| (c as f64 * scale) as u64));
    let mut pairs: Vec<(usize, [[u64; MAGNITUDES]; 2], f64)> = Vec::new();
    for (base, counts) in seen.counts.iter().enumerate() {
        if counts.iter().flatten().any(|&c| c > 0) {
            let counts = scaled(counts);
            pairs.push((base, counts, cost(&counts, quantizers)));
        }
    }
    while pairs.len() > 1 {
        let merged = pairs.windows(2).enumerate().map(|(at, w)| {
            let counts = sum(&w[0].1, &w[1].1);
            let together = cost(&counts, quantizers);
            (at, counts, together, together - w[0].2 - w[1].2)
        });
        let Some((at, counts, together, more)) = merged.min_by(|a, b| a.3.total_cmp(&b.3)) else { break };
        if more > 0.0 && pairs.len() <= most {
            break;
        }
        pairs[at] = (pairs[at].0, counts, together);
        pairs.remove(at + 1);
    }
    if pairs.is_empty() {
        return;
    }
    plan.firsts = pairs.iter().enumerate().map(|(i, p)| if i == 0 { 0 } else { p.0 as u8 }).collect();
    plan.tables = pairs.iter().flat_map(|p| p.1[..quantizers].iter().map(Table::from_counts)).collect();
    if plan.row_table.is_some() {
        plan.row_table = Some(Table::from_counts(&seen.rows));
    }
}

/// A pair below all that is in use, by which a tile whose steps must grow comes
/// down to next to nothing.
fn reserve_zeros(plan: &mut Plan, seen: &Seen) {
    let least = seen.counts.iter().position(|counts| counts.iter().flatten().any(|&c| c > 0));
    let Some(least) = least.filter(|&least| least > 0) else { return };
    let mut counts = [0; MAGNITUDES];
    (counts[0], counts[1], counts[2], counts[ESCAPE]) = (4000, 20, 2, 1);
    let zeros = Table::from_counts(&counts);
    plan.firsts[0] = (least as u8).saturating_sub(4).max(1);
    plan.firsts.insert(0, 0);
    plan.tables.splice(0..0, std::iter::repeat_n(zeros, plan.quantizers()));
}

/// What the whole takes if the sample stands for it.
fn price(plan: &Plan, seen: &Seen) -> Fitted {
    let mut bits = seen.beside as f64;
    for class in 0..BASE_CLASSES {
        let (pair, _) = plan.pair_of(class);
        for quantizer in 0..plan.quantizers() {
            let table = &plan.tables[pair * plan.quantizers() + quantizer];
            bits += table.bits_of(&seen.counts[class][quantizer]);
        }
    }
    bits += plan.row_table.as_ref().map_or(0.0, |table| table.bits_of(&seen.rows));
    // First word, directory; a state is 24 bits more than it says.
    bits += seen.tiles as f64 * (48.0 + 24.0 * plan.lanes() as f64);
    let values = (plan.rows * plan.cols) as f64;
    let sampled = seen.values.max(1) as f64;
    Fitted {
        plan: plan.clone(),
        bits_per_value: bits / sampled + 8.0 * plan.written_bytes() as f64 / values,
        error: seen.squared / sampled,
    }
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_sample_sees_one_tile_of_every_share_and_tiles_of_all_panels() {
        for (wanted, total) in [(1, 1), (1, 9), (8, 16), (8, 32), (5, 7), (16, 16)] {
            let seen: Vec<usize> = (0..wanted).map(|share| spread(share, wanted, total)).collect();
            for (share, &tile) in seen.iter().enumerate() {
                let shares = share * total / wanted..=((share + 1) * total - 1) / wanted;
                assert!(shares.contains(&tile), "share {share} of {wanted}: {tile} of {total}");
            }
        }
        // Eight of sixteen tiles in four panels: not the odd ones alone.
        let panels = |panels: usize| {
            let mut seen: Vec<usize> = (0..8).map(|share| spread(share, 8, 16) % panels).collect();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        assert_eq!((panels(2), panels(4)), (2, 4));
    }
}
