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

fn clamped(plane: &Plane, x: i32, y: i32) -> i32 {
    let column = x.clamp(0, plane.width as i32 - 1) as usize;
    let row = y.clamp(0, plane.height as i32 - 1) as usize;
    i32::from(plane.samples[row * plane.width + column])
}

/// The block of `size` at `(x, y)`, moved by `vector`, from `reference`; beyond its rim samples repeat.
pub fn compensate(
    reference: &Plane,
    (x, y): (usize, usize),
    size: usize,
    vector: Vector,
    depth: u32,
    out: &mut [u16],
) {
    let (left, top) = (x as i32 + (vector.0 >> 2), y as i32 + (vector.1 >> 2));
    let (across, down) = (&TAPS[(vector.0 & 3) as usize], &TAPS[(vector.1 & 3) as usize]);
    let largest = (1 << depth) - 1;
    let mut rows = [0i32; (32 + 7) * 32];
    for row in 0..size + 7 {
        for column in 0..size {
            let at = (left + column as i32 - 3, top + row as i32 - 3);
            rows[row * size + column] = if vector.0 & 3 == 0 {
                64 * clamped(reference, at.0 + 3, at.1)
            } else {
                (0..8).map(|tap| across[tap as usize] * clamped(reference, at.0 + tap, at.1)).sum()
            };
        }
    }
    for row in 0..size {
        for column in 0..size {
            let sum: i64 =
                (0..8).map(|tap| i64::from(down[tap]) * i64::from(rows[(row + tap) * size + column])).sum();
            out[row * size + column] = ((sum + 2048) >> 12).clamp(0, largest) as u16;
        }
    }
}

/// The vector of least cost: the sum of absolute differences plus `price` a bit. Whole samples around no motion and
/// around the guess, then halves, then quarters.
pub fn search(
    source: &Plane,
    reference: &Plane,
    (x, y): (usize, usize),
    size: usize,
    guess: Vector,
    (depth, price): (u32, f64),
) -> Vector {
    let mut block = [0u16; 32 * 32];
    let mut cost = |vector: Vector| {
        compensate_whole(reference, (x, y), size, vector, depth, &mut block);
        let difference: u64 = (0..size)
            .map(|row| {
                let own = &source.row(y + row)[x..x + size];
                let other = &block[row * size..][..size];
                own.iter().zip(other).map(|(&own, &other)| u64::from(own.abs_diff(other))).sum::<u64>()
            })
            .sum();
        difference as f64 + price * f64::from(vector_bits(vector, guess))
    };
    let mut best = (cost((0, 0)), (0, 0));
    let mut consider = |vector: Vector, best: &mut (f64, Vector)| {
        let found = cost(vector);
        if found < best.0 {
            *best = (found, vector);
        }
    };
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

/// [`compensate`], quickly where the vector is of whole samples and the block lies inside.
fn compensate_whole(
    reference: &Plane,
    (x, y): (usize, usize),
    size: usize,
    vector: Vector,
    depth: u32,
    out: &mut [u16],
) {
    let (left, top) = (x as i32 + (vector.0 >> 2), y as i32 + (vector.1 >> 2));
    let inside = left >= 0
        && top >= 0
        && left as usize + size <= reference.width
        && top as usize + size <= reference.height;
    if vector.0 & 3 != 0 || vector.1 & 3 != 0 || !inside {
        return compensate(reference, (x, y), size, vector, depth, out);
    }
    for row in 0..size {
        let from = &reference.row(top as usize + row)[left as usize..][..size];
        out[row * size..][..size].copy_from_slice(from);
    }
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
            let vector = search(&moved, &waves(0.0), (24, 24), 16, (0, 0), (12, 0.1));
            assert_eq!(vector, (quarters, 0));
            let mut block = [0; 256];
            compensate(&waves(0.0), (24, 24), 16, vector, 12, &mut block);
            let worst = (0..256).map(|at| block[at].abs_diff(moved.row(24 + at / 16)[24 + at % 16])).max();
            assert!(worst < Some(12), "{quarters} quarters: {worst:?}");
        }
    }

    #[test]
    fn beyond_the_rim_samples_repeat_and_a_whole_vector_copies() {
        let plane = waves(0.0);
        let mut block = [0; 64];
        compensate(&plane, (0, 0), 8, (-400, -400), 12, &mut block);
        assert!(block.iter().all(|&sample| sample == plane.samples[0]));
        let mut whole = [0; 64];
        compensate(&plane, (8, 16), 8, (12, -8), 12, &mut block);
        compensate_whole(&plane, (8, 16), 8, (12, -8), 12, &mut whole);
        assert_eq!(block, whole);
    }

    #[test]
    fn a_vector_costs_more_the_farther_it_is_from_its_guess() {
        assert_eq!(vector_bits((3, -2), (3, -2)), 2);
        assert!(vector_bits((3, -2), (0, 0)) > vector_bits((1, 0), (0, 0)));
    }
}
