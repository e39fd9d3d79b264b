//! A Karhunen–Loève transform that nobody sends.
//!
//! Groups of neighbouring columns are rotated so that their coefficients
//! decorrelate. Encoder and decoder learn the rotation from the rows both
//! already have: second moments are gathered in the current basis, and a few
//! Jacobi sweeps at a fixed schedule rotate the basis further. No bit of the
//! stream is spent on it, and no bit of the stream is parsed with it: it only
//! turns levels into values. Single precision, basic IEEE 754 operations in
//! the order written here, so every machine gets the same values.

mod angles;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;

use crate::stage::combine::{Outer, ROWS, WIDE, combine_rows};
use crate::stage::klt::angles::{Angles, MAX_SIDE, STRIP};
use trinity_numeric::simd::{self, Kernel};

/// Rows that share a basis: they are transformed together, and their moments
/// are summed before they are added to the rest.
pub const BATCH: usize = 16;
/// Squared correlations below this over the rows seen are taken for noise.
const NOISE: f32 = 1.0;

#[derive(Debug, Clone)]
pub struct Klt {
    cols: usize,
    groups: Vec<Group>,
    /// Rows seen, and rows of the tile.
    rows: usize,
    last: usize,
    next_update: usize,
}

#[derive(Debug, Clone)]
struct Group {
    first: usize,
    size: usize,
    /// Row `k` is basis vector `k`; zeros fill both sides up to a power of two.
    basis: Vec<f32>,
    /// The basis without those zeros, and transposed.
    synthesis: Vec<f32>,
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
        Self { cols, groups, rows: 0, last: rows, next_update: BATCH }
    }

    /// Coefficients of at most [`BATCH`] rows.
    pub fn forward(&self, rows: &[f32], coefficients: &mut [f32]) {
        for g in &self.groups {
            self.combine(g, &g.analysis, rows, coefficients);
        }
    }

    pub fn inverse(&self, coefficients: &[f32], rows: &mut [f32]) {
        for g in &self.groups {
            self.combine(g, &g.synthesis, coefficients, rows);
        }
    }

    fn combine(&self, group: &Group, matrix: &[f32], rows: &[f32], out: &mut [f32]) {
        let Group { first, size, .. } = *group;
        combine_rows(&rows[first..], matrix, size, self.cols, &mut out[first..]);
    }

    /// Learns from a batch of decoded rows; true when the basis has changed.
    /// A batch that is not full is the last one.
    pub fn learn(&mut self, coefficients: &[f32]) -> bool {
        self.rows += coefficients.len() / self.cols.max(1);
        for group in &mut self.groups {
            group.gather(coefficients, self.cols);
        }
        // A new basis must serve for a while to be worth its making.
        if self.rows < self.next_update || self.last.saturating_sub(self.rows) < self.rows / 8 {
            return false;
        }
        self.next_update = 2 * self.rows;
        let negligible = NOISE / self.rows as f32;
        for group in &mut self.groups {
            diagonalize(group, negligible);
        }
        true
    }
}

/// Jacobi sweeps after which principal axes have settled.
const SETTLED: usize = 8;

/// The principal axes of all rows, `group` columns at a time: one square matrix
/// after the other, whose row `k` is axis `k`.
pub fn principal_axes(values: &[f32], cols: usize, group: usize) -> Vec<f32> {
    let mut klt = Klt::new(0, cols, group);
    for own in &mut klt.groups {
        own.gather(values, cols);
        (0..SETTLED).for_each(|_| diagonalize(own, 0.0));
    }
    klt.groups.iter().flat_map(|own| own.synthesis.iter().copied()).collect()
}

/// Second moments of rows of `size` columns, a square matrix on and below its diagonal.
pub fn second_moments(values: &[f32], size: usize) -> Vec<f64> {
    let mut group = Group::identity(0, size);
    group.gather(values, size);
    let side = side(size);
    (0..size * size).map(|at| f64::from(group.moments[at % size * side + at / size])).collect()
}

/// A Jacobi sweep over a group of at most `N` columns.
struct Sweep<'a, C, const N: usize> {
    basis: &'a mut [[f32; N]],
    moments: &'a mut [[f32; N]],
    negligible: f32,
    columns: PhantomData<C>,
}

impl<C: Columns, const N: usize> Kernel for Sweep<'_, C, N> {
    type Output = ();

    /// Rotates every pair of basis vectors once, so that the moment between
    /// them vanishes, all pairs of a round at once: in round `r` vector `i`
    /// meets vector `i ^ r`.
    #[inline(always)]
    fn run(self) {
        for p in 0..N {
            for q in 0..p {
                self.moments[p][q] = self.moments[q][p];
            }
        }
        for round in 1..N {
            let angles = angles(self.moments, round, self.negligible);
            C::rotate_pairs(self.basis, self.moments, round, &angles);
        }
    }
}

impl Group {
    fn identity(first: usize, size: usize) -> Self {
        let side = side(size);
        let identity = |n: usize| {
            let mut matrix = vec![0.0; n * n];
            matrix.iter_mut().step_by(n + 1).for_each(|own| *own = 1.0);
            matrix
        };
        let (basis, synthesis, analysis) = (identity(side), identity(size), identity(size));
        Self { first, size, basis, synthesis, analysis, moments: vec![0.0; side * side] }
    }

    /// Adds the moments of some rows of `cols` columns, on and above the
    /// diagonal: those of the batch are summed first, row by row.
    fn gather(&mut self, batch: &[f32], cols: usize) {
        let (n, side) = (self.size, side(self.size));
        let whole = n / WIDE * WIDE;
        for p in (0..whole).step_by(ROWS) {
            for q in (p / WIDE * WIDE..whole).step_by(WIDE) {
                let outer = Outer {
                    count: batch.len() / cols,
                    tall: &batch[self.first + p..],
                    tall_step: cols,
                    tall_stride: 1,
                    wide: &batch[self.first + q..],
                    wide_step: cols,
                };
                for (i, sums) in outer.sums().iter().enumerate() {
                    let moments = &mut self.moments[(p + i) * side + q..][..WIDE];
                    moments.iter_mut().zip(sums).for_each(|(m, s)| *m += s);
                }
            }
        }
        for p in 0..n {
            for q in whole.max(p)..n {
                let products = batch.chunks_exact(cols).map(|row| row[self.first + p] * row[self.first + q]);
                self.moments[p * side + q] += products.sum::<f32>();
            }
        }
    }

    /// A Jacobi sweep; what follows from the basis follows it.
    fn diagonalize<C: Columns>(&mut self, negligible: f32) {
        match side(self.size) {
            8 => self.sweep::<C, 8>(negligible),
            16 => self.sweep::<C, 16>(negligible),
            32 => self.sweep::<C, 32>(negligible),
            64 => self.sweep::<C, 64>(negligible),
            _ => self.sweep::<C, MAX_SIDE>(negligible),
        }
        let (n, side) = (self.size, side(self.size));
        for i in 0..n {
            for k in 0..n {
                self.analysis[i * n + k] = self.basis[k * side + i];
                self.synthesis[i * n + k] = self.basis[i * side + k];
            }
        }
    }

    fn sweep<C: Columns, const N: usize>(&mut self, negligible: f32) {
        let (basis, moments) = (self.basis.as_chunks_mut().0, self.moments.as_chunks_mut().0);
        simd::widest(Sweep::<C, N> { basis, moments, negligible, columns: PhantomData });
    }
}

#[inline(always)]
fn angles<const N: usize>(moments: &[[f32; N]], round: usize, negligible: f32) -> Angles<N> {
    // The lesser of a pair lacks the first bit of the round: the others count.
    let first = 1 << round.ilog2();
    let lesser = |pair: usize| (pair & (first - 1)) | (pair & !(first - 1)) << 1;
    let mut own = [[0.0; MAX_SIDE / 2]; 2];
    let mut between = [0.0; MAX_SIDE / 2];
    for pair in 0..N / 2 {
        let p = lesser(pair) % N;
        let q = (p ^ round) % N;
        (own[0][pair], own[1][pair]) = (moments[p][p], moments[q][q]);
        between[pair] = moments[p][q];
    }
    let mut rotated = [[0.0; MAX_SIDE / 2]; 2];
    for pair in 0..N / 2 {
        let (cosine, sine) = rotation(own[0][pair], own[1][pair], between[pair], negligible);
        (rotated[0][pair], rotated[1][pair]) = (cosine, sine);
    }
    let mut angles = Angles { cosines: [1.0; N], sines: [0.0; N] };
    for pair in 0..N / 2 {
        let p = lesser(pair) % N;
        let q = (p ^ round) % N;
        (angles.cosines[p], angles.cosines[q]) = (rotated[0][pair], rotated[0][pair]);
        (angles.sines[p], angles.sines[q]) = (-rotated[1][pair], rotated[1][pair]);
    }
    angles
}

/// Rotates the basis vectors `p` and `p ^ round` against each other, and their
/// moments on both sides.
#[inline(always)]
fn rotate_pair<C: Columns, const N: usize>(
    basis: &mut [[f32; N]],
    moments: &mut [[f32; N]],
    p: usize,
    round: usize,
    angles: &Angles<N>,
) {
    let q = p ^ round;
    let (cosine, sine) = (angles.cosines[q], angles.sines[q]);
    let rotated = |a: &[f32; N], b: &[f32; N]| -> [[f32; N]; 2] {
        [
            std::array::from_fn(|i| cosine * a[i] - sine * b[i]),
            std::array::from_fn(|i| sine * a[i] + cosine * b[i]),
        ]
    };
    if let Ok([a, b]) = basis.get_disjoint_mut([p, q]) {
        [*a, *b] = rotated(a, b);
    }
    if let Ok([a, b]) = moments.get_disjoint_mut([p, q]) {
        let [upper, lower] = rotated(a, b);
        C::rotate(&upper, round, angles, a);
        C::rotate(&lower, round, angles, b);
    }
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
    // Nothing to rotate, or overflow of the squares.
    let rotates = mpq * mpq > negligible * mpp * mqq && tangent.is_finite();
    (if rotates { cosine } else { 1.0 }, if rotates { tangent * cosine } else { 0.0 })
}

/// How a round is made.
trait Columns: Sized {
    fn rotate<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]);

    /// Rotates every pair of basis vectors, and their moments.
    #[inline(always)]
    fn rotate_pairs<const N: usize>(
        basis: &mut [[f32; N]],
        moments: &mut [[f32; N]],
        round: usize,
        angles: &Angles<N>,
    ) {
        for p in (0..N).filter(|p| *p < p ^ round) {
            rotate_pair::<Self, N>(basis, moments, p, round, angles);
        }
    }
}

/// As every machine can.
struct Plain;

impl Columns for Plain {
    #[inline(always)]
    fn rotate<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]) {
        rotate_columns(row, round, angles, out);
    }
}

/// The products in AVX2, where [`simd::has_avx2`] has said so.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Columns for Avx2 {
    #[inline(always)]
    fn rotate<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]) {
        // SAFETY: this type is named in one place, after the processor was asked.
        #[allow(unsafe_code)]
        unsafe {
            avx2::rotate_columns(row, round, angles, out);
        }
    }
}

/// The products in AVX-512, where [`simd::has_avx512`] has said so too.
#[cfg(target_arch = "x86_64")]
struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Columns for Avx512 {
    #[inline(always)]
    fn rotate<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]) {
        Avx2::rotate(row, round, angles, out);
    }

    #[inline(always)]
    fn rotate_pairs<const N: usize>(
        basis: &mut [[f32; N]],
        moments: &mut [[f32; N]],
        round: usize,
        angles: &Angles<N>,
    ) {
        if N.is_multiple_of(avx512::STRIP) {
            // SAFETY: this type is named in one place, after the processor was asked.
            #[allow(unsafe_code)]
            unsafe {
                avx512::rotate_pairs(basis, moments, round, angles);
            }
        } else {
            Avx2::rotate_pairs(basis, moments, round, angles);
        }
    }
}

/// Rotates the elements of a row, each against the one it meets.
#[inline(always)]
fn rotate_columns<const N: usize>(row: &[f32; N], round: usize, angles: &Angles<N>, out: &mut [f32; N]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = angles.cosines[i] * row[i] + angles.sines[i] * row[(i ^ round) % N];
    }
}

fn diagonalize(group: &mut Group, negligible: f32) {
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() && simd::has_avx512() {
        return group.diagonalize::<Avx512>(negligible);
    } else if simd::has_avx2() {
        return group.diagonalize::<Avx2>(negligible);
    }
    group.diagonalize::<Plain>(negligible);
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::random::Lcg;

    /// Rows whose columns are noisy copies of few hidden sources.
    fn rows(count: usize, cols: usize) -> Vec<Vec<f32>> {
        let mut lcg = Lcg(7);
        let mut uniform = move || lcg.uniform() - 0.5;
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
        let mut klt = Klt::new(304, cols, 32);
        let mut coefficients = vec![0.0; BATCH * cols];
        let mut back = vec![0.0; BATCH * cols];
        for (r, batch) in rows(304, cols).chunks(BATCH).enumerate() {
            let batch = batch.concat();
            klt.forward(&batch, &mut coefficients);
            klt.inverse(&coefficients, &mut back);
            let energy: f32 = batch.iter().map(|x| x * x).sum();
            let error: f32 = batch.iter().zip(&back).map(|(a, b)| (a - b) * (a - b)).sum();
            assert!(error < 1e-9 * energy, "batch {r}: {error} of {energy}");
            if r > 12 {
                let first: f32 = coefficients
                    .chunks(cols)
                    .flat_map(|row| row[..3].iter().chain(&row[32..35]))
                    .map(|x| x * x)
                    .sum();
                assert!(first > 0.95 * energy, "batch {r}: {first} of {energy}");
            }
            klt.learn(&coefficients);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_arrays_rotate_alike() {
        if !simd::has_avx2() {
            eprintln!("no AVX2 here: nothing to compare");
            return;
        }
        let mut klt = Klt::new(50, 100, 64);
        let batch = rows(BATCH, 100).concat();
        for group in &mut klt.groups {
            group.gather(&batch, 100);
            let (mut plain, mut wide) = (group.clone(), group.clone());
            plain.diagonalize::<Plain>(0.01);
            group.diagonalize::<Avx2>(0.01);
            assert!(plain.basis == group.basis && plain.moments == group.moments);
            if simd::has_avx512() {
                wide.diagonalize::<Avx512>(0.01);
                assert!(plain.basis == wide.basis && plain.moments == wide.moments);
            }
        }
    }

    #[test]
    fn zero_and_huge_rows_do_no_harm() {
        let mut klt = Klt::new(200, 5, 4);
        for scale in [0.0, 1e30, 1e-30, 1.0] {
            for _ in 0..3 {
                let batch: Vec<f32> = (0..5 * BATCH).map(|i| scale * ((i % 5) as f32 - 1.5)).collect();
                let mut coefficients = vec![0.0; 5 * BATCH];
                klt.forward(&batch, &mut coefficients);
                klt.learn(&coefficients);
            }
        }
        assert!(klt.groups.iter().all(|g| g.basis.iter().all(|v| v.is_finite())));
    }
}
