//! The bitshift trellis of QTIP: a state of 16 bits takes in the next bits at its end, and a hash of the state is the
//! value. The search for the path that comes nearest to given values (Viterbi).
//!
//! A state's cost is the least cost of its end one value ago, and what the value misses now; so only ends are kept,
//! the states' costs are never written, and all states that lead to sixteen ends are read in one go. The test has the
//! plain search, which finds the same paths. Knows values and codes; knows nothing of weights.

use trinity_numeric::simd::{Kernel, Width, with_width};

pub(super) const STATE_BITS: u32 = 16;
const STATES: usize = 1 << STATE_BITS;
/// Values through which the best path is sought at a time.
pub(super) const PIECE: usize = 512;
/// Ends that are worked on together: the widest registers' number of values.
const LANES: usize = 16;

/// The value of every state: four bytes of a product, which is nearly normal (1MAD, algorithm 1 of the paper).
pub(super) fn codebook() -> Vec<f32> {
    const MEAN: f32 = 510.0;
    // Four bytes, each evenly spread: 4 · (256² − 1) / 12.
    const SPREAD: f32 = 147.800_54;
    let value = |state: u32| {
        let word = state.wrapping_mul(34_038_481).wrapping_add(76_625_530);
        (word.to_le_bytes().iter().map(|&byte| f32::from(byte)).sum::<f32>() - MEAN) / SPREAD
    };
    (0..STATES as u32).map(value).collect()
}

pub(super) fn next(state: usize, code: u8, width: u32) -> usize {
    (state << width | usize::from(code)) & (STATES - 1)
}

/// Values of neighbouring ends, where a register finds them in one read.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Row([f32; LANES]);

/// Choices that share a byte.
const fn sharing(width: u32) -> usize {
    match width {
        1 => 8,
        2 => 4,
        _ => 2,
    }
}

/// The search for paths through the trellis.
#[derive(Debug)]
pub(super) struct Trellis {
    /// Bits of a code, 1 to 4.
    width: u32,
    /// By states.
    values: Vec<f32>,
    /// The same as they are read: for each row of ends, all that lead there.
    levels: Vec<Row>,
    /// The least cost of all states with the same end, one value ago and now.
    least: [Vec<Row>; 2],
    /// Which state it was, by values: its first bits, packed.
    taken: Vec<u8>,
    registers: Width,
}

impl Trellis {
    pub(super) fn new(width: u32) -> Self {
        let (values, ends) = (codebook(), STATES >> width);
        let row = |block: usize, from: usize| {
            Row(std::array::from_fn(|lane| values[(from << (STATE_BITS - width)) | (block * LANES + lane)]))
        };
        let rows = ends / LANES;
        let levels = (0..rows << width).map(|at| row(at >> width, at & ((1 << width) - 1))).collect();
        let least = || vec![Row([0.0; LANES]); rows];
        Self {
            width,
            levels,
            least: [least(), least()],
            taken: vec![0; PIECE * ends / sharing(width)],
            values,
            registers: Width::widest(),
        }
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    pub(super) fn value(&self, state: usize) -> f32 {
        self.values[state]
    }

    /// The codes that bring at most [`PIECE`] values nearest, from a state on; leaves the state they end in.
    pub(super) fn path(&mut self, values: &[f32], state: &mut usize) -> Vec<u8> {
        let (width, begun) = (self.width, *state);
        let Some(&last) = values.last() else { return Vec::new() };
        let stride = (STATES >> width) / sharing(width);
        let [before, after] = &mut self.least;
        before.fill(Row([f32::INFINITY; LANES]));
        let end = begun & ((STATES >> width) - 1);
        before[end / LANES].0[end % LANES] = 0.0;
        // What is taken for the first value is the state that it began in.
        for (&value, taken) in
            values.iter().zip(self.taken.chunks_exact_mut(stride).skip(1)).take(values.len() - 1)
        {
            let (levels, registers) = (&self.levels[..], self.registers);
            match width {
                1 => with_width(registers, Step::<1, 2> { value, levels, before, after, taken }),
                2 => with_width(registers, Step::<2, 4> { value, levels, before, after, taken }),
                3 => with_width(registers, Step::<3, 8> { value, levels, before, after, taken }),
                _ => with_width(registers, Step::<4, 16> { value, levels, before, after, taken }),
            }
            std::mem::swap(before, after);
        }
        let least = before.iter().flat_map(|row| row.0);
        let costs = self
            .values
            .chunks_exact(1 << width)
            .zip(least)
            .flat_map(|(levels, least)| levels.iter().map(move |level| least + (last - level).powi(2)));
        *state = costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(state, _)| state);
        self.back(values.len(), begun, *state)
    }

    /// The codes on the way back from a state.
    fn back(&self, count: usize, begun: usize, mut at: usize) -> Vec<u8> {
        let (width, shared) = (self.width, sharing(self.width));
        let stride = (STATES >> width) / shared;
        let mask = (1 << width) - 1;
        let mut codes = vec![0; count];
        for (step, code) in codes.iter_mut().enumerate().rev() {
            *code = (at & mask) as u8;
            let end = at >> width;
            let (row, lane) = (end / LANES, end % LANES);
            let from = if step == 0 {
                begun >> (STATE_BITS - width)
            } else {
                let byte = self.taken[step * stride + row / shared * LANES + lane];
                usize::from(byte >> (row % shared * (8 / shared))) & mask
            };
            at = from << (STATE_BITS - width) | end;
        }
        codes
    }
}

/// One value more: the least costs of all ends behind it, and where they come from.
struct Step<'a, const WIDTH: u32, const FROMS: usize> {
    /// The value before, which the states that lead to an end stand for.
    value: f32,
    levels: &'a [Row],
    before: &'a [Row],
    after: &'a mut [Row],
    taken: &'a mut [u8],
}

impl<const WIDTH: u32, const FROMS: usize> Kernel for Step<'_, WIDTH, FROMS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let shared = sharing(WIDTH);
        let (levels, _) = self.levels.as_chunks::<FROMS>();
        let (taken, _) = self.taken.as_chunks_mut::<LANES>();
        let groups = levels.chunks_exact(shared).zip(self.after.chunks_exact_mut(shared)).zip(taken);
        let mut costs = [Row([0.0; LANES]); FROMS];
        for (group, ((levels, after), taken)) in groups.enumerate() {
            let mut packed = [0u32; LANES];
            for (place, (levels, after)) in levels.iter().zip(after).enumerate() {
                // Neighbouring ends come from the same end: their states differ in the last code.
                let first = ((group * shared + place) * LANES) >> WIDTH;
                for (from, costs) in costs.iter_mut().enumerate() {
                    let at = (from << (STATE_BITS - 2 * WIDTH)) + first;
                    let own = &self.before[at / LANES].0[at % LANES..][..LANES >> WIDTH];
                    costs.0.chunks_exact_mut(1 << WIDTH).zip(own).for_each(|(alike, &cost)| alike.fill(cost));
                }
                let chosen = least_of(self.value, levels, &costs, after);
                packed
                    .iter_mut()
                    .zip(chosen)
                    .for_each(|(packed, own)| *packed |= own << (place * (8 / shared)));
            }
            taken.iter_mut().zip(packed).for_each(|(taken, packed)| *taken = packed as u8);
        }
    }
}

/// The least cost of each end, and the first of the states that have it. Lanes are indices, so that the compiler sees one
/// loop without branches.
#[inline(always)]
fn least_of<const FROMS: usize>(
    value: f32,
    levels: &[Row; FROMS],
    costs: &[Row; FROMS],
    least: &mut Row,
) -> [u32; LANES] {
    let mut chosen = [0u32; LANES];
    for lane in 0..LANES {
        let off = value - levels[0].0[lane];
        let (mut lowest, mut own) = (costs[0].0[lane] + off * off, 0);
        for from in 1..FROMS {
            let off = value - levels[from].0[lane];
            let cost = costs[from].0[lane] + off * off;
            let better = cost < lowest;
            lowest = if better { cost } else { lowest };
            own = if better { from as u32 } else { own };
        }
        least.0[lane] = lowest;
        chosen[lane] = own;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::tests::normal;
    use super::*;
    use std::time::Instant;

    /// The search as it is written down: the costs of all states, value by value.
    fn plain(width: u32, values: &[f32], state: &mut usize) -> Vec<u8> {
        let (levels, ends) = (codebook(), STATES >> width);
        let mut costs = vec![f32::INFINITY; STATES];
        costs[*state] = 0.0;
        let mut taken = Vec::new();
        for &value in values {
            let mut least = costs[..ends].to_vec();
            let mut own = vec![0u8; ends];
            for (from, costs) in costs.chunks_exact(ends).enumerate().skip(1) {
                for end in 0..ends {
                    if costs[end] < least[end] {
                        (least[end], own[end]) = (costs[end], from as u8);
                    }
                }
            }
            for state in 0..STATES {
                costs[state] = least[state >> width] + (value - levels[state]).powi(2);
            }
            taken.push(own);
        }
        let best = costs.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        let mut at = best.map_or(0, |(state, _)| state);
        *state = at;
        let mut codes = vec![0; values.len()];
        for (code, taken) in codes.iter_mut().zip(&taken).rev() {
            *code = (at & ((1 << width) - 1)) as u8;
            let end = at >> width;
            at = usize::from(taken[end]) << (STATE_BITS - width) | end;
        }
        codes
    }

    #[test]
    fn every_register_finds_the_paths_of_the_plain_search() {
        let ordinary = normal(40);
        let odd = [0.0, 0.0, 0.0, 3.9, -4.0, 1e20, f32::INFINITY, 0.5];
        for width in 1..=4 {
            for (values, begun) in
                [(&ordinary[..], 0), (&ordinary[..7], 51_966), (&odd, 9), (&odd[..1], 65_535), (&[], 3)]
            {
                let mut ended = begun;
                let wanted = plain(width, values, &mut ended);
                for registers in Width::available() {
                    let mut trellis = Trellis::new(width);
                    trellis.registers = registers;
                    // What an earlier path left must not matter.
                    trellis.path(&ordinary[..13], &mut 77);
                    let mut state = begun;
                    let found = trellis.path(values, &mut state);
                    assert_eq!(
                        (found, state),
                        (wanted.clone(), ended),
                        "{registers:?}, {width} bits, {values:?} from {begun}"
                    );
                }
            }
        }
    }

    #[test]
    #[ignore = "takes long: cargo xtask test --all"]
    fn the_wide_search_pays() {
        let values = normal(PIECE);
        for width in 1..=4 {
            let mut trellis = Trellis::new(width);
            let begun = Instant::now();
            let wide = (0..8).map(|_| trellis.path(&values, &mut 0).len()).sum::<usize>();
            let wide = begun.elapsed().as_secs_f64() / wide as f64;
            let begun = Instant::now();
            let plain = plain(width, &values, &mut 0).len() as f64;
            let plain = begun.elapsed().as_secs_f64() / plain;
            eprintln!("{width} bits: {:.1} times as fast as the plain search", plain / wide);
            assert!(plain > 2.0 * wide, "{width} bits: {plain} s and {wide} s a value");
        }
    }
}
