//! A Karhunen–Loève transform that nobody sends.
//!
//! Groups of neighbouring columns are rotated so that their coefficients
//! decorrelate. Encoder and decoder learn the rotation from the rows both
//! already have: second moments are gathered in the current basis, and a few
//! Jacobi sweeps at a fixed schedule turn the basis further. No bit of the
//! stream is spent on it, and no bit of the stream is parsed with it: it only
//! turns levels into values. Single precision, basic IEEE 754 operations in
//! the order written here, so every machine gets the same values.

#[cfg(target_arch = "x86_64")]
mod avx2;

use std::marker::PhantomData;

use crate::combine::combine;
use crate::simd::{self, Kernel};

/// Rows after which the first basis is made.
const FIRST_UPDATE: usize = 16;
/// Jacobi sweeps of the first update; later ones find the basis nearly right
/// and take one.
const FIRST_SWEEPS: usize = 2;
/// Squared correlations below this over the rows seen are taken for noise.
const NOISE: f32 = 1.0;

/// Rows between updates, as a multiple of the rows seen.
const PATIENCE: usize = 1;
/// Decoded rows whose moments are summed before they are added to the rest.
const BATCH: usize = 16;
/// Moments that are summed side by side: the fewer, the less is summed twice.
const HALF: usize = 32;

/// The rotations of one tile.
#[derive(Debug, Clone)]
pub struct Klt {
    cols: usize,
    groups: Vec<Group>,
    /// Rows seen, and rows of the tile.
    rows: usize,
    last: usize,
    next_update: usize,
    /// Decoded rows that are not in the moments yet.
    batch: Vec<f32>,
}

/// One group of columns.
#[derive(Debug, Clone)]
struct Group {
    first: usize,
    size: usize,
    /// Row `k` is basis vector `k`; up to a power of two, more of zeros follow.
    basis: Vec<f32>,
    /// The same, transposed.
    analysis: Vec<f32>,
    /// Second moments of the coefficients so far, in the current basis.
    moments: Vec<f32>,
}

impl Klt {
    /// Groups of `group` columns; the last one takes what is left.
    pub fn new(rows: usize, cols: usize, group: usize) -> Self {
        let groups = (0..cols)
            .step_by(group.max(1))
            .map(|first| Group::identity(first, group.min(cols - first)))
            .collect();
        Self {
            cols,
            groups,
            rows: 0,
            last: rows,
            next_update: FIRST_UPDATE,
            batch: Vec::with_capacity(BATCH * cols),
        }
    }

    /// Coefficients of a row.
    pub fn forward(&self, row: &[f32], coefficients: &mut [f32]) {
        for g in &self.groups {
            let (weights, out) = (&row[g.first..][..g.size], &mut coefficients[g.first..][..g.size]);
            simd::widest(Combine { weights, rows: &g.analysis, out });
        }
    }

    /// The row of some coefficients.
    pub fn inverse(&self, coefficients: &[f32], row: &mut [f32]) {
        for g in &self.groups {
            let (weights, out) = (&coefficients[g.first..][..g.size], &mut row[g.first..][..g.size]);
            simd::widest(Combine { weights, rows: &g.basis, out });
        }
    }

    /// Learns from a decoded row; true when the basis has changed.
    pub fn learn(&mut self, coefficients: &[f32]) -> bool {
        self.batch.extend_from_slice(coefficients);
        self.rows += 1;
        // A new basis must serve for a while to be worth its making.
        let update = self.rows >= self.next_update && self.last.saturating_sub(self.rows) >= self.rows / 8;
        if update || self.batch.len() >= BATCH * self.cols {
            for group in &mut self.groups {
                simd::widest(Gather { group, batch: &self.batch, cols: self.cols });
            }
            self.batch.clear();
        }
        if !update {
            return false;
        }
        self.next_update = self.rows + (PATIENCE * self.rows).max(FIRST_UPDATE);
        let sweeps = if self.rows == FIRST_UPDATE { FIRST_SWEEPS } else { 1 };
        let negligible = NOISE / self.rows as f32;
        for group in &mut self.groups {
            diagonalize(group, sweeps, negligible);
        }
        true
    }
}

/// [`combine`] as a kernel.
struct Combine<'a> {
    weights: &'a [f32],
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        combine(self.weights, self.rows, self.out);
    }
}

/// Moments of a batch of rows.
struct Gather<'a> {
    group: &'a mut Group,
    batch: &'a [f32],
    cols: usize,
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.group.gather(self.batch, self.cols);
    }
}

/// A new basis.
struct Diagonalize<'a, C> {
    group: &'a mut Group,
    sweeps: usize,
    negligible: f32,
    columns: PhantomData<C>,
}

impl<C: Columns> Kernel for Diagonalize<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.group.diagonalize::<C>(self.sweeps, self.negligible);
    }
}

impl Group {
    fn identity(first: usize, size: usize) -> Self {
        let side = side(size);
        let mut basis = vec![0.0; side * size];
        basis.iter_mut().step_by(size + 1).take(size).for_each(|v| *v = 1.0);
        let analysis = basis[..size * size].to_vec();
        Self { first, size, analysis, basis, moments: vec![0.0; side * side] }
    }

    /// Adds the moments of some rows of `cols` columns: those of the batch are
    /// summed first, row by row. Below the diagonal blocks, what is above them
    /// is mirrored.
    #[inline(always)]
    fn gather(&mut self, batch: &[f32], cols: usize) {
        let (n, side) = (self.size, side(self.size));
        for p in 0..n {
            for block in p / HALF..n / HALF {
                let mut sums = [0.0; HALF];
                for row in batch.chunks_exact(cols) {
                    let group = &row[self.first..][..n];
                    if let Some(others) = group[block * HALF..].first_chunk::<HALF>() {
                        for (sum, &other) in sums.iter_mut().zip(others) {
                            *sum += group[p] * other;
                        }
                    }
                }
                let moments = &mut self.moments[p * side + block * HALF..][..HALF];
                moments.iter_mut().zip(sums).for_each(|(m, s)| *m += s);
            }
            for q in n / HALF * HALF..n {
                let products = batch.chunks_exact(cols).map(|row| row[self.first + p] * row[self.first + q]);
                self.moments[p * side + q] += products.sum::<f32>();
            }
        }
        for p in 0..n {
            for q in 0..p / HALF * HALF {
                self.moments[p * side + q] = self.moments[q * side + p];
            }
        }
    }

    /// Jacobi sweeps: rotates pairs of basis vectors until moments between them
    /// vanish. Afterwards the analysis follows the basis.
    #[inline(always)]
    fn diagonalize<C: Columns>(&mut self, sweeps: usize, negligible: f32) {
        for _ in 0..sweeps {
            self.sweep::<C>(negligible);
        }
        for i in 0..self.size {
            for k in 0..self.size {
                self.analysis[i * self.size + k] = self.basis[k * self.size + i];
            }
        }
    }

    /// Every pair once: in round `r` vector `i` meets vector `i ^ r`, all
    /// rotations of a round at once.
    #[inline(always)]
    fn sweep<C: Columns>(&mut self, negligible: f32) {
        for round in 1..side(self.size) {
            let angles = self.angles(round, negligible);
            self.turn::<C>(round, &angles);
        }
    }

    /// The rotations of a round.
    #[inline(always)]
    fn angles(&self, round: usize, negligible: f32) -> Angles {
        let side = side(self.size);
        let moment = |p: usize, q: usize| self.moments[p * side + q];
        let mut own = [[0.0; 2]; MAX_SIDE];
        let mut between = [0.0; MAX_SIDE];
        for i in 0..side {
            let (p, q) = (i.min(i ^ round), i.max(i ^ round));
            own[i] = [moment(p, p), moment(q, q)];
            between[i] = moment(p, q);
        }
        let mut angles = Angles { cosines: [1.0; MAX_SIDE], sines: [0.0; MAX_SIDE] };
        for i in 0..side {
            let (cosine, sine) = rotation(own[i][0], own[i][1], between[i], negligible);
            angles.cosines[i] = cosine;
            angles.sines[i] = if i < i ^ round { -sine } else { sine };
        }
        angles
    }

    /// Turns basis vectors, and moments on both sides.
    #[inline(always)]
    fn turn<C: Columns>(&mut self, round: usize, angles: &Angles) {
        let (n, side) = (self.size, side(self.size));
        let (mut upper, mut lower) = ([0.0; MAX_SIDE], [0.0; MAX_SIDE]);
        for p in (0..side).filter(|p| *p < p ^ round) {
            let q = p ^ round;
            let (cosine, sine) = (angles.cosines[q], angles.sines[q]);
            let (head, tail) = self.basis.split_at_mut(q * n);
            for (a, b) in head[p * n..][..n].iter_mut().zip(&mut tail[..n]) {
                (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
            }
            let (head, tail) = self.moments.split_at_mut(q * side);
            let (row_p, row_q) = (&mut head[p * side..][..side], &mut tail[..side]);
            for (((&x, &y), a), b) in row_p.iter().zip(&*row_q).zip(&mut upper).zip(&mut lower) {
                *a = cosine * x - sine * y;
                *b = sine * x + cosine * y;
            }
            C::turn(&upper, round, angles, row_p);
            C::turn(&lower, round, angles, row_q);
        }
    }
}

/// Elements that are exchanged within a register.
const STRIP: usize = 8;
/// Basis vectors of the largest group.
const MAX_SIDE: usize = 128;

/// What a round does to every vector: cosine times itself plus sine times the
/// one it meets.
struct Angles {
    cosines: [f32; MAX_SIDE],
    sines: [f32; MAX_SIDE],
}

/// Basis vectors of a group of `size`: a power of two, those beyond the group
/// staying zero.
fn side(size: usize) -> usize {
    size.next_power_of_two().max(STRIP)
}

/// Cosine and sine of the rotation that takes the moment `mpq` between p and
/// q away and leaves the larger of their own moments to p.
#[inline(always)]
fn rotation(mpp: f32, mqq: f32, mpq: f32, negligible: f32) -> (f32, f32) {
    let tau = (mqq - mpp) / (2.0 * mpq);
    let root = (1.0 + tau * tau).sqrt();
    let small = 1.0 / (tau + if tau >= 0.0 { root } else { -root });
    let tangent = if mqq > mpp { -1.0 / small } else { small };
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    // Nothing to turn, or overflow of the squares.
    let turns = mpq * mpq > negligible * mpp * mqq && tangent.is_finite();
    (if turns { cosine } else { 1.0 }, if turns { tangent * cosine } else { 0.0 })
}

/// How the elements of a row are turned.
trait Columns {
    fn turn(row: &[f32; MAX_SIDE], round: usize, angles: &Angles, out: &mut [f32]);
}

/// As every machine can.
struct Plain;

impl Columns for Plain {
    #[inline(always)]
    fn turn(row: &[f32; MAX_SIDE], round: usize, angles: &Angles, out: &mut [f32]) {
        turn_columns(row, round, angles, out);
    }
}

/// Where [`simd::has_avx2`] has said so.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Columns for Avx2 {
    #[inline(always)]
    fn turn(row: &[f32; MAX_SIDE], round: usize, angles: &Angles, out: &mut [f32]) {
        // SAFETY: this type is named in one place, after the processor was asked.
        #[allow(unsafe_code)]
        unsafe {
            avx2::turn_columns(row, round, angles, out);
        }
    }
}

/// Rotates the elements of a row, each against the one it meets.
#[inline(always)]
fn turn_columns(row: &[f32; MAX_SIDE], round: usize, angles: &Angles, out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = angles.cosines[i] * row[i] + angles.sines[i] * row[i ^ round];
    }
}

/// A new basis from the moments.
fn diagonalize(group: &mut Group, sweeps: usize, negligible: f32) {
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() {
        return simd::widest(Diagonalize::<Avx2> { group, sweeps, negligible, columns: PhantomData });
    }
    simd::widest(Diagonalize::<Plain> { group, sweeps, negligible, columns: PhantomData });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows whose columns are noisy copies of few hidden sources.
    fn rows(count: usize, cols: usize) -> Vec<Vec<f32>> {
        let mut state = 7u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count)
            .map(|_| {
                let sources = [uniform(), uniform(), uniform()];
                (0..cols).map(|c| sources[c % 3] * (1.0 + c as f32 / 10.0) + 0.05 * uniform()).collect()
            })
            .collect()
    }

    #[test]
    fn energy_moves_into_few_coefficients_and_rows_come_back() {
        let cols = 40;
        let mut klt = Klt::new(300, cols, 32);
        let mut coefficients = vec![0.0; cols];
        let mut back = vec![0.0; cols];
        for (r, row) in rows(300, cols).iter().enumerate() {
            klt.forward(row, &mut coefficients);
            klt.inverse(&coefficients, &mut back);
            let energy: f32 = row.iter().map(|x| x * x).sum();
            let error: f32 = row.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum();
            assert!(error < 1e-9 * energy, "row {r}: {error} of {energy}");
            if r > 200 {
                let first: f32 = coefficients[..3].iter().chain(&coefficients[32..35]).map(|x| x * x).sum();
                assert!(first > 0.95 * energy, "row {r}: {first} of {energy}");
            }
            klt.learn(&coefficients);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_arrays_turn_alike() {
        if !simd::has_avx2() {
            eprintln!("no AVX2 here: nothing to compare");
            return;
        }
        let mut klt = Klt::new(50, 100, 64);
        for row in rows(15, 100) {
            klt.learn(&row);
        }
        for group in &mut klt.groups {
            simd::widest(Gather { group, batch: &klt.batch, cols: 100 });
            let mut plain = group.clone();
            plain.diagonalize::<Plain>(2, 0.01);
            group.diagonalize::<Avx2>(2, 0.01);
            assert!(plain.basis == group.basis && plain.moments == group.moments);
        }
    }

    #[test]
    fn zero_and_huge_rows_do_no_harm() {
        let mut klt = Klt::new(200, 5, 4);
        for scale in [0.0, 1e30, 1e-30, 1.0] {
            for _ in 0..40 {
                let row: Vec<f32> = (0..5).map(|i| scale * (i as f32 - 1.5)).collect();
                let mut coefficients = vec![0.0; 5];
                klt.forward(&row, &mut coefficients);
                klt.learn(&coefficients);
            }
        }
        assert!(klt.groups.iter().all(|g| g.basis.iter().all(|v| v.is_finite())));
    }
}
