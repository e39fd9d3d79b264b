//! A Karhunen–Loève transform that nobody sends.
//!
//! Groups of neighbouring columns are rotated so that their coefficients
//! decorrelate. Encoder and decoder learn the rotation from the rows both
//! already have: second moments are gathered in the current basis, and a few
//! Jacobi sweeps at a fixed schedule turn the basis further. No bit of the
//! stream is spent on it, and no bit of the stream is parsed with it: it only
//! turns levels into values. Single precision, basic IEEE 754 operations in
//! the order written here, so every machine gets the same values.

/// Rows after which the first basis is made.
const FIRST_UPDATE: usize = 16;
/// Jacobi sweeps of the first update; later ones find the basis nearly right
/// and take one.
const FIRST_SWEEPS: usize = 2;

/// The rotations of one tile.
#[derive(Debug, Clone)]
pub struct Klt {
    groups: Vec<Group>,
    rows: usize,
    next_update: usize,
}

/// One group of columns.
#[derive(Debug, Clone)]
struct Group {
    first: usize,
    size: usize,
    /// Row `k` is basis vector `k`.
    basis: Vec<f32>,
    /// The same, transposed.
    analysis: Vec<f32>,
    /// Second moments of the coefficients so far, in the current basis.
    moments: Vec<f32>,
}

impl Klt {
    /// Groups of `group` columns; the last one takes what is left.
    pub fn new(cols: usize, group: usize) -> Self {
        let groups = (0..cols)
            .step_by(group.max(1))
            .map(|first| Group::identity(first, group.min(cols - first)))
            .collect();
        Self { groups, rows: 0, next_update: FIRST_UPDATE }
    }

    /// Coefficients of a row.
    pub fn forward(&self, row: &[f32], coefficients: &mut [f32]) {
        for g in &self.groups {
            combine(&row[g.first..][..g.size], &g.analysis, &mut coefficients[g.first..][..g.size]);
        }
    }

    /// The row of some coefficients.
    pub fn inverse(&self, coefficients: &[f32], row: &mut [f32]) {
        for g in &self.groups {
            combine(&coefficients[g.first..][..g.size], &g.basis, &mut row[g.first..][..g.size]);
        }
    }

    /// Learns from a decoded row; true when the basis has changed.
    pub fn learn(&mut self, coefficients: &[f32]) -> bool {
        for g in &mut self.groups {
            g.gather(&coefficients[g.first..][..g.size]);
        }
        self.rows += 1;
        if self.rows < self.next_update {
            return false;
        }
        self.next_update = self.rows + (self.rows / 2).max(FIRST_UPDATE);
        let sweeps = if self.rows == FIRST_UPDATE { FIRST_SWEEPS } else { 1 };
        // A squared correlation below one over the rows seen is as likely noise.
        let negligible = 1.0 / self.rows as f32;
        self.groups.iter_mut().for_each(|g| g.diagonalize(sweeps, negligible));
        true
    }
}

/// `out = Σ weights[i] · rows[i]`, summed in the order of `i`.
fn combine(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (&weight, row) in weights.iter().zip(rows.chunks_exact(weights.len())) {
        // Most coefficients are zero at low rates, and a zero adds nothing.
        if weight != 0.0 {
            for (o, &r) in out.iter_mut().zip(row) {
                *o += weight * r;
            }
        }
    }
}

impl Group {
    fn identity(first: usize, size: usize) -> Self {
        let mut basis = vec![0.0; size * size];
        basis.iter_mut().step_by(size + 1).for_each(|v| *v = 1.0);
        Self { first, size, analysis: basis.clone(), basis, moments: vec![0.0; size * size] }
    }

    fn gather(&mut self, coefficients: &[f32]) {
        for (&c, row) in coefficients.iter().zip(self.moments.chunks_exact_mut(self.size)) {
            if c != 0.0 {
                for (m, &d) in row.iter_mut().zip(coefficients) {
                    *m += c * d;
                }
            }
        }
    }

    /// Cyclic Jacobi: rotates pairs of basis vectors until moments between
    /// them vanish, larger moments first.
    fn diagonalize(&mut self, sweeps: usize, negligible: f32) {
        for _ in 0..sweeps {
            for p in 0..self.size {
                for q in p + 1..self.size {
                    self.rotate(p, q, negligible);
                }
            }
        }
        for i in 0..self.size {
            for k in 0..self.size {
                self.analysis[i * self.size + k] = self.basis[k * self.size + i];
            }
        }
    }

    fn rotate(&mut self, p: usize, q: usize, negligible: f32) {
        let n = self.size;
        let (mpp, mqq, mpq) = (self.moments[p * n + p], self.moments[q * n + q], self.moments[p * n + q]);
        if mpq * mpq <= negligible * mpp * mqq {
            return;
        }
        let tau = (mqq - mpp) / (2.0 * mpq);
        let root = (1.0 + tau * tau).sqrt();
        let small = if tau >= 0.0 { 1.0 / (tau + root) } else { -1.0 / (root - tau) };
        // Of the two angles that decorrelate, the one that leaves the larger
        // moment first.
        let tangent = if mqq > mpp { -1.0 / small } else { small };
        // Overflow of the squares, or nothing to turn.
        if !tangent.is_finite() {
            return;
        }
        let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
        let sine = tangent * cosine;
        turn(&mut self.basis, n, p, q, cosine, sine);
        turn(&mut self.moments, n, p, q, cosine, sine);
        self.moments[p * n + p] = mpp - tangent * mpq;
        self.moments[q * n + q] = mqq + tangent * mpq;
        self.moments[p * n + q] = 0.0;
        self.moments[q * n + p] = 0.0;
        for k in (0..n).filter(|&k| k != p && k != q) {
            self.moments[k * n + p] = self.moments[p * n + k];
            self.moments[k * n + q] = self.moments[q * n + k];
        }
    }
}

/// Rotates rows `p` < `q` of an n × n matrix.
fn turn(matrix: &mut [f32], n: usize, p: usize, q: usize, cosine: f32, sine: f32) {
    let (upper, lower) = matrix.split_at_mut(q * n);
    for (a, b) in upper[p * n..][..n].iter_mut().zip(&mut lower[..n]) {
        let (x, y) = (*a, *b);
        *a = cosine * x - sine * y;
        *b = sine * x + cosine * y;
    }
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
        let mut klt = Klt::new(cols, 32);
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

    #[test]
    fn zero_and_huge_rows_do_no_harm() {
        let mut klt = Klt::new(5, 4);
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
