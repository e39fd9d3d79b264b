//! Prediction of a block from another frame: block matching, to a quarter of a
//! sample (H.265 clause 8.5.3.3).
//!
//! Knows frames and vectors; what a vector costs and whether it pays is the
//! coder's business.

use trinity_bits::Plane;

/// Quarters of a sample, right and down.
pub type Vector = (i32, i32);

/// Samples that a block may move, each way.
const RANGE: i32 = 16;

/// The luma filters of the standard, by quarters.
const TAPS: [[i32; 8]; 4] = [
    [0, 0, 0, 64, 0, 0, 0, 0],
    [-1, 4, -10, 58, 17, -5, 1, 0],
    [-1, 4, -11, 40, 40, -11, 4, -1],
    [0, 1, -5, 17, 58, -10, 4, -1],
];

/// Bits of a vector that differs by so much from its guess, each part as a sign and an Exp-Golomb code.
pub fn vector_bits((x, y): Vector, guess: Vector) -> u32 {
    let part = |difference: i32| match difference.unsigned_abs() {
        0 => 1,
        size => 2 * (size + 1).ilog2() + 2,
    };
    part(x - guess.0) + part(y - guess.1)
}

/// Samples that a reference is continued by on each side: a block, the reach of its filter and of a vector.
const MARGIN: usize = 48;
/// Samples of the filter before a place.
const BEFORE: usize = 3;
const LARGEST: usize = 32;

/// A decoded frame, its rim repeated all around, so that no place of a search lies outside.
#[derive(Debug)]
pub struct Reference {
    samples: Vec<u16>,
    stride: usize,
    rows: usize,
}

impl Reference {
    pub fn new(plane: &Plane) -> Self {
        let stride = plane.width + 2 * MARGIN;
        let rows = plane.height + 2 * MARGIN;
        let mut samples = Vec::with_capacity(stride * rows);
        for y in 0..rows {
            let row = plane.row(y.saturating_sub(MARGIN).min(plane.height - 1));
            samples.extend(std::iter::repeat_n(row[0], MARGIN));
            samples.extend_from_slice(row);
            samples.extend(std::iter::repeat_n(row[plane.width - 1], MARGIN));
        }
        Self { samples, stride, rows }
    }

    /// Column and row, here, of the block of `size` at `(x, y)` moved by whole samples. A block beyond the rim sees the
    /// same wherever it is, so it stays where its filter finds samples.
    fn place(&self, (x, y): (usize, usize), size: usize, vector: Vector) -> (usize, usize) {
        let at = |start: usize, moved: i32, end: usize| {
            let last = end - size - (TAPS[0].len() - BEFORE);
            ((start + MARGIN) as i64 + i64::from(moved >> 2)).clamp(BEFORE as i64, last as i64) as usize
        };
        (at(x, vector.0, self.stride), at(y, vector.1, self.rows))
    }

    fn row(&self, column: usize, row: usize, length: usize) -> &[u16] {
        &self.samples[row * self.stride + column..][..length]
    }
}

/// The block of `size` at `(x, y)`, moved by `vector`, from `reference`; beyond its rim samples repeat.
pub fn compensate(
    reference: &Reference,
    (x, y): (usize, usize),
    size: usize,
    vector: Vector,
    depth: u32,
    out: &mut [u16],
) {
    let (left, top) = reference.place((x, y), size, vector);
    let (across, down) = (&TAPS[(vector.0 & 3) as usize], &TAPS[(vector.1 & 3) as usize]);
    if vector.0 & 3 == 0 && vector.1 & 3 == 0 {
        for (row, out) in out.chunks_exact_mut(size).take(size).enumerate() {
            out.copy_from_slice(reference.row(left, top + row, size));
        }
        return;
    }
    let largest = (1 << depth) - 1;
    let taps = TAPS[0].len();
    let mut rows = [0i32; (LARGEST + 7) * LARGEST];
    for (row, sums) in rows.chunks_exact_mut(size).take(size + taps - 1).enumerate() {
        let from = reference.row(left - BEFORE, top + row - BEFORE, size + taps - 1);
        for (tap, &weight) in across.iter().enumerate() {
            sums.iter_mut().zip(&from[tap..]).for_each(|(sum, &sample)| *sum += weight * i32::from(sample));
        }
    }
    for (row, out) in out.chunks_exact_mut(size).take(size).enumerate() {
        let mut sums = [0i32; LARGEST];
        for (tap, &weight) in down.iter().enumerate() {
            let from = &rows[(row + tap) * size..][..size];
            sums.iter_mut().zip(from).for_each(|(sum, &part)| *sum += weight * part);
        }
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = ((sum + 2048) >> 12).clamp(0, largest) as u16;
        }
    }
}

/// The sum of absolute differences of a block of the source and one of the reference; given up at `limit`.
fn difference<const SIZE: usize>(
    source: &Plane,
    (x, y): (usize, usize),
    reference: &Reference,
    (left, top): (usize, usize),
    limit: u64,
) -> u64 {
    let mut sum = 0;
    for row in 0..SIZE {
        let own = source.row(y + row)[x..].first_chunk::<SIZE>();
        let other = reference.row(left, top + row, SIZE).first_chunk::<SIZE>();
        let (Some(own), Some(other)) = (own, other) else { return u64::MAX };
        let differences = own.iter().zip(other).map(|(&own, &other)| u32::from(own.abs_diff(other)));
        sum += u64::from(differences.sum::<u32>());
        if sum >= limit {
            break;
        }
    }
    sum
}

/// The vector of least cost: the sum of absolute differences plus `price` a bit. Whole samples around no motion and
/// around the guess, then halves, then quarters.
pub fn search(
    source: &Plane,
    reference: &Reference,
    at: (usize, usize),
    size: usize,
    guess: Vector,
    (depth, price): (u32, f64),
) -> Vector {
    let mut best = (f64::MAX, (0, 0));
    let mut block = [0u16; LARGEST * LARGEST];
    let difference = match size {
        4 => difference::<4>,
        8 => difference::<8>,
        16 => difference::<16>,
        _ => difference::<LARGEST>,
    };
    let mut consider = |vector: Vector, best: &mut (f64, Vector)| {
        let bits = price * f64::from(vector_bits(vector, guess));
        // What is left for the difference if this is to be the best; none of it where the vector alone costs more.
        let limit = (best.0 - bits).max(0.0).ceil() as u64;
        let found = if vector.0 & 3 == 0 && vector.1 & 3 == 0 {
            difference(source, at, reference, reference.place(at, size, vector), limit)
        } else {
            compensate(reference, at, size, vector, depth, &mut block);
            let rows = block.chunks_exact(size).take(size).enumerate();
            let pairs =
                rows.flat_map(|(row, other)| source.row(at.1 + row)[at.0..][..size].iter().zip(other));
            pairs.map(|(&own, &other)| u64::from(own.abs_diff(other))).sum()
        };
        let cost = found as f64 + bits;
        if cost < best.0 {
            *best = (cost, vector);
        }
    };
    consider((0, 0), &mut best);
    consider(guess, &mut best);
    for down in -RANGE..=RANGE {
        for right in -RANGE..=RANGE {
            consider((4 * right, 4 * down), &mut best);
        }
    }
    for step in [2, 1] {
        let (right, down) = best.1;
        for (across, along) in [(-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1)] {
            consider((right + step * across, down + step * along), &mut best);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(shift: f64) -> Plane {
        let mut plane = Plane::filled(64, 64, 0);
        for y in 0..64 {
            for (x, sample) in plane.row_mut(y).iter_mut().enumerate() {
                let (x, y) = (x as f64 + shift, y as f64);
                *sample = (2048.0 + 700.0 * (0.31 * x).sin() + 600.0 * (0.23 * y + 0.1 * x).cos()) as u16;
            }
        }
        plane
    }

    #[test]
    fn a_picture_that_moved_is_found_where_it_went() {
        for quarters in [0, 4, 12, 2, 5] {
            let moved = waves(f64::from(quarters) / 4.0);
            let vector = search(&moved, &Reference::new(&waves(0.0)), (24, 24), 16, (0, 0), (12, 0.1));
            assert_eq!(vector, (quarters, 0));
            let mut block = [0; 256];
            compensate(&Reference::new(&waves(0.0)), (24, 24), 16, vector, 12, &mut block);
            let worst = (0..256).map(|at| block[at].abs_diff(moved.row(24 + at / 16)[24 + at % 16])).max();
            assert!(worst < Some(12), "{quarters} quarters: {worst:?}");
        }
    }

    /// The standard's words: every sample by itself, clamped to the frame.
    fn plain(plane: &Plane, (x, y): (usize, usize), vector: Vector, at: (usize, usize)) -> u16 {
        let clamped = |x: i32, y: i32| {
            let (column, row) = (x.clamp(0, plane.width as i32 - 1), y.clamp(0, plane.height as i32 - 1));
            i64::from(plane.row(row as usize)[column as usize])
        };
        let (left, top) = ((x + at.0) as i32 + (vector.0 >> 2), (y + at.1) as i32 + (vector.1 >> 2));
        let (across, down) = (TAPS[(vector.0 & 3) as usize], TAPS[(vector.1 & 3) as usize]);
        let mut sum = 0;
        for (row, &weight) in (-3..).zip(&down) {
            let line =
                (-3..).zip(&across).map(|(column, &tap)| i64::from(tap) * clamped(left + column, top + row));
            sum += i64::from(weight) * line.sum::<i64>();
        }
        ((sum + 2048) >> 12).clamp(0, 4095) as u16
    }

    #[test]
    fn a_block_is_what_the_filters_say_wherever_it_lies() {
        let plane = waves(0.3);
        let reference = Reference::new(&plane);
        for vector in [(0, 0), (12, -8), (1, 0), (0, 2), (3, 1), (-70, 66), (-400, -401), (399, 2), (-3, 400)]
        {
            for (at, size) in [((0, 0), 32), ((32, 32), 32), ((8, 16), 8), ((60, 60), 4), ((48, 0), 16)] {
                let mut block = [0; 32 * 32];
                compensate(&reference, at, size, vector, 12, &mut block);
                for (place, &sample) in block[..size * size].iter().enumerate() {
                    let own = plain(&plane, at, vector, (place % size, place / size));
                    assert_eq!(sample, own, "{vector:?} of {size} at {at:?}, sample {place}");
                }
            }
        }
    }

    #[test]
    fn giving_up_early_finds_the_same_vector() {
        let (moved, reference) = (waves(1.25), Reference::new(&waves(0.0)));
        for (at, size) in [((0, 0), 32), ((32, 0), 16), ((56, 56), 8), ((60, 4), 4)] {
            let cost = |vector: Vector| {
                let mut block = [0; 32 * 32];
                compensate(&reference, at, size, vector, 12, &mut block);
                let difference: u64 = (0..size * size)
                    .map(|k| u64::from(block[k].abs_diff(moved.row(at.1 + k / size)[at.0 + k % size])))
                    .sum();
                difference as f64 + 2.0 * f64::from(vector_bits(vector, (4, 4)))
            };
            let found = search(&moved, &reference, at, size, (4, 4), (12, 2.0));
            let whole = (-16..=16).flat_map(|y| (-16..=16).map(move |x| (4 * x, 4 * y)));
            let least = whole.map(cost).fold(f64::MAX, f64::min);
            assert!(cost(found) <= least, "{found:?} of {size} at {at:?}");
        }
    }

    #[test]
    fn a_vector_costs_more_the_farther_it_is_from_its_guess() {
        assert_eq!(vector_bits((3, -2), (3, -2)), 2);
        assert!(vector_bits((3, -2), (0, 0)) > vector_bits((1, 0), (0, 0)));
    }
}
