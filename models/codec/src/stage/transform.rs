//! Fixed transforms: DCT-II, DST-VII and Hadamard of 4 to 32 points.
//!
//! Orthonormal, in single precision, along a row or along both sides of a
//! square block. A block's coefficients are dealt out by frequency, so that
//! neighbours in a coded row are the same frequency of neighbouring blocks.
//! Knows values; knows nothing of levels or bits.

use crate::stage::combine::combine;
use crate::stage::klt::{self, Klt};
use trinity_numeric::square::transposed;

/// cos(k·π/64) for k of 0 to 32; every DCT of 4 to 32 points is made of these.
#[allow(clippy::approx_constant)] // a table of cosines stays a table
const COSINES: [f64; 33] = [
    1.0,
    0.9987954562051724,
    0.9951847266721969,
    0.989176509964781,
    0.9807852804032304,
    0.970031253194544,
    0.9569403357322088,
    0.9415440651830208,
    0.9238795325112867,
    0.9039892931234433,
    0.881921264348355,
    0.8577286100002721,
    0.8314696123025452,
    0.8032075314806449,
    0.773010453362737,
    0.7409511253549591,
    0.7071067811865476,
    0.6715589548470183,
    0.6343932841636455,
    0.5956993044924335,
    0.5555702330196023,
    0.5141027441932217,
    0.4713967368259978,
    0.4275550934302822,
    0.38268343236508984,
    0.33688985339222005,
    0.29028467725446233,
    0.24298017990326398,
    0.19509032201612833,
    0.14673047445536175,
    0.09801714032956077,
    0.049067674327418126,
    0.0,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Dct,
    Dst,
    Hadamard,
}

const FAMILIES: [(&str, Family); 3] =
    [("dct", Family::Dct), ("dst", Family::Dst), ("hadamard", Family::Hadamard)];

/// What is done to values before they are quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(extend("pattern" = "^(none|klt-(4|8|16|32|64|128)|(dct|dst|hadamard)-(4|8|16|32|4x4|8x8|16x16|32x32))$"))]
pub enum Transform {
    None,
    /// Along the row, blocks of 2^`log2_size`.
    Row {
        family: Family,
        log2_size: u32,
    },
    /// Square blocks; a coded row holds 2^`log2_size` rows.
    Block {
        family: Family,
        log2_size: u32,
    },
    /// Learned from decoded rows, groups of 2^`log2_size` columns.
    Klt {
        log2_size: u32,
    },
}

impl std::fmt::Display for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |family: &Family| FAMILIES[*family as usize].0;
        match self {
            Self::None => f.pad("none"),
            Self::Klt { log2_size } => write!(f, "klt-{}", 1 << log2_size),
            Self::Row { family, log2_size } => write!(f, "{}-{}", name(family), 1 << log2_size),
            Self::Block { family, log2_size } => {
                write!(f, "{}-{size}x{size}", name(family), size = 1 << log2_size)
            }
        }
    }
}

impl From<Transform> for String {
    fn from(transform: Transform) -> Self {
        transform.to_string()
    }
}

impl TryFrom<String> for Transform {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::named(&text).ok_or_else(|| {
            format!(
                "unknown transform `{text}`: there are none, klt-4 to klt-128, and dct, dst and hadamard of 4 to 32 \
                 along rows (dct-8) or in square blocks (dct-8x8), by powers of two"
            )
        })
    }
}

impl Transform {
    /// `none`, or a family and a size: `klt-64`, `dct-8`, `dct-8x8`.
    fn named(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::None);
        }
        let (family, size) = text.split_once('-')?;
        let (size, square) = match size.split_once('x') {
            Some((width, height)) if width == height => (width, true),
            Some(_) => return None,
            None => (size, false),
        };
        let size = size.parse::<u32>().ok().filter(|size| size.is_power_of_two())?;
        let log2_size = size.ilog2();
        if family == "klt" {
            return (!square && (2..=7).contains(&log2_size)).then_some(Self::Klt { log2_size });
        }
        let (_, family) = *FAMILIES.iter().find(|(name, _)| *name == family)?;
        let fixed = if square { Self::Block { family, log2_size } } else { Self::Row { family, log2_size } };
        (2..=5).contains(&log2_size).then_some(fixed)
    }

    /// One byte of a header.
    pub fn code(self) -> u8 {
        let (kind, log2_size) = match self {
            Self::None => (0, 0),
            Self::Klt { log2_size } => (1, log2_size),
            Self::Row { family, log2_size } => (2 + family as u8, log2_size),
            Self::Block { family, log2_size } => (5 + family as u8, log2_size),
        };
        kind << 3 | log2_size as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        let log2_size = u32::from(code & 7);
        let family = |first: u8| FAMILIES[usize::from((code >> 3) - first)].1;
        match code >> 3 {
            0 if log2_size == 0 => Some(Self::None),
            1 if log2_size >= 2 => Some(Self::Klt { log2_size }),
            2..=4 if (2..=5).contains(&log2_size) => Some(Self::Row { family: family(2), log2_size }),
            5..=7 if (2..=5).contains(&log2_size) => Some(Self::Block { family: family(5), log2_size }),
            _ => None,
        }
    }

    /// Rows of the matrix that make one coded row.
    pub fn height(self) -> usize {
        match self {
            Self::Block { log2_size, .. } => 1 << log2_size,
            _ => 1,
        }
    }

    /// Columns are padded to a multiple of this.
    pub fn width(self) -> usize {
        match self {
            Self::Row { log2_size, .. } | Self::Block { log2_size, .. } => 1 << log2_size,
            _ => 1,
        }
    }
}

/// cos(k·π/64) for any k.
fn cosine(k: usize) -> f64 {
    let k = k % 128;
    match k {
        0..=32 => COSINES[k],
        33..=64 => -COSINES[64 - k],
        65..=96 => -COSINES[k - 64],
        _ => COSINES[128 - k],
    }
}

/// Row `k` is basis function `k`.
fn basis(family: Family, log2_size: u32) -> Vec<f32> {
    let n = 1usize << log2_size;
    let mut matrix: Vec<f64> = match family {
        Family::Dct => (0..n * n).map(|i| cosine((2 * (i % n) + 1) * (i / n) * (32 >> log2_size))).collect(),
        Family::Hadamard => (0..n * n)
            .map(|i| if ((i / n) & (i % n)).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 })
            .collect(),
        Family::Dst => return dst_basis(n),
    };
    for row in matrix.chunks_exact_mut(n) {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
    matrix.into_iter().map(|x| x as f32).collect()
}

/// DST-VII by Gram–Schmidt on the powers of the second difference with its
/// boundary conditions would lose digits; sines come from a recurrence instead.
fn dst_basis(n: usize) -> Vec<f32> {
    let mut matrix = Vec::with_capacity(n * n);
    for k in 0..n {
        // sin((2k+1)(i+1)π/(2n+1)): sin((i+1)θ) = 2cosθ·sin(iθ) − sin((i−1)θ).
        let theta = (2 * k + 1) as f64 * std::f64::consts::PI / (2 * n + 1) as f64;
        let twice_cosine = 2.0 * taylor_cosine(theta);
        let (mut before, mut here) = (0.0, 1.0);
        let mut row: Vec<f64> = Vec::with_capacity(n);
        for _ in 0..n {
            row.push(here);
            (before, here) = (here, twice_cosine * here - before);
        }
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        matrix.extend(row.iter().map(|x| (x / norm) as f32));
    }
    matrix
}

/// cos x for 0 ≤ x ≤ π from basic operations, the same on every machine.
fn taylor_cosine(x: f64) -> f64 {
    let square = x * x;
    let mut sum = 1.0;
    for k in (1..=14).rev() {
        sum = 1.0 - sum * square / f64::from((2 * k - 1) * (2 * k));
    }
    sum
}

/// The transform of one tile, with whatever it has learned.
#[derive(Debug)]
pub enum Transformer {
    None,
    Fixed(Fixed),
    Klt(Klt),
}

impl Transformer {
    /// A transform for `rows` coded rows made of rows of `cols` columns.
    pub fn new(transform: Transform, rows: usize, cols: usize) -> Self {
        match transform {
            Transform::None => Self::None,
            Transform::Row { family, log2_size } => Self::Fixed(Fixed::new(family, log2_size, 1, cols)),
            Transform::Block { family, log2_size } => {
                Self::Fixed(Fixed::new(family, log2_size, 1 << log2_size, cols))
            }
            Transform::Klt { log2_size } => Self::Klt(Klt::new(rows, cols, 1 << log2_size)),
        }
    }

    /// Coded rows that are transformed together, at most: what was learned
    /// from the last of them serves the next.
    pub fn batch(&self) -> usize {
        match self {
            Self::Klt(_) => klt::BATCH,
            _ => 1,
        }
    }

    /// Coefficients of the values of at most a batch of coded rows.
    #[inline(always)]
    pub fn forward(&mut self, values: &[f32], coefficients: &mut [f32]) {
        match self {
            Self::None => coefficients.copy_from_slice(values),
            Self::Fixed(fixed) => fixed.forward(values, coefficients),
            Self::Klt(klt) => klt.forward(values, coefficients),
        }
    }

    #[inline(always)]
    pub fn inverse(&mut self, coefficients: &[f32], values: &mut [f32]) {
        match self {
            Self::None => values.copy_from_slice(coefficients),
            Self::Fixed(fixed) => fixed.inverse(coefficients, values),
            Self::Klt(klt) => klt.inverse(coefficients, values),
        }
    }

    /// Learns from a batch of decoded coefficients; true when columns change
    /// meaning.
    #[inline(always)]
    pub fn learn(&mut self, coefficients: &[f32]) -> bool {
        match self {
            Self::Klt(klt) => klt.learn(coefficients),
            _ => false,
        }
    }
}

/// A fixed transform over blocks of `height` × `size`.
#[derive(Debug)]
pub struct Fixed {
    size: usize,
    height: usize,
    blocks: usize,
    basis: Vec<f32>,
    /// The matrix, transposed.
    analysis: Vec<f32>,
    /// One block, and the same half transformed.
    block: Vec<f32>,
    half: Vec<f32>,
}

impl Fixed {
    fn new(family: Family, log2_size: u32, height: usize, cols: usize) -> Self {
        let size = 1 << log2_size;
        let basis = basis(family, log2_size);
        Self {
            size,
            height,
            blocks: cols / size,
            analysis: transposed(&basis, size),
            basis,
            block: vec![0.0; size * height],
            half: vec![0.0; size * height],
        }
    }

    #[inline(always)]
    fn forward(&mut self, values: &[f32], coefficients: &mut [f32]) {
        let (n, blocks) = (self.size, self.blocks);
        let cols = n * blocks;
        for b in 0..blocks {
            for y in 0..self.height {
                let row = &values[y * cols + b * n..][..n];
                combine(row, &self.analysis, &mut self.half[y * n..][..n]);
            }
            if self.height > 1 {
                vertical(&self.basis, &self.half, &mut self.block, n);
                std::mem::swap(&mut self.half, &mut self.block);
            }
            for (i, &c) in self.half.iter().enumerate() {
                coefficients[i * blocks + b] = c;
            }
        }
    }

    #[inline(always)]
    fn inverse(&mut self, coefficients: &[f32], values: &mut [f32]) {
        let (n, blocks) = (self.size, self.blocks);
        let cols = n * blocks;
        for b in 0..blocks {
            for (i, c) in self.half.iter_mut().enumerate() {
                *c = coefficients[i * blocks + b];
            }
            if self.height > 1 {
                vertical(&self.analysis, &self.half, &mut self.block, n);
                std::mem::swap(&mut self.half, &mut self.block);
            }
            for y in 0..self.height {
                let row = &mut values[y * cols + b * n..][..n];
                combine(&self.half[y * n..][..n], &self.basis, row);
            }
        }
    }
}

#[inline(always)]
fn vertical(weights: &[f32], rows: &[f32], out: &mut [f32], n: usize) {
    for (weights, out) in weights.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        combine(weights, rows, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_basis_is_orthonormal() {
        for family in [Family::Dct, Family::Dst, Family::Hadamard] {
            for log2_size in 2..=5 {
                let n = 1 << log2_size;
                let b = basis(family, log2_size);
                for i in 0..n {
                    for j in 0..n {
                        let dot: f32 = (0..n).map(|k| b[i * n + k] * b[j * n + k]).sum();
                        let expected = if i == j { 1.0 } else { 0.0 };
                        assert!((dot - expected).abs() < 1e-5, "{family:?} {n}: ({i}, {j}) {dot}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_ramp_gathers_in_low_frequencies_and_comes_back() {
        for transform in [
            Transform::Row { family: Family::Dct, log2_size: 3 },
            Transform::Block { family: Family::Dct, log2_size: 3 },
            Transform::Block { family: Family::Dst, log2_size: 2 },
            Transform::Block { family: Family::Hadamard, log2_size: 4 },
        ] {
            let cols = 32;
            let values: Vec<f32> =
                (0..cols * transform.height()).map(|i| (i % cols) as f32 + 0.5 * (i / cols) as f32).collect();
            let mut transformer = Transformer::new(transform, 1, cols);
            let mut coefficients = vec![0.0; values.len()];
            let mut back = vec![0.0; values.len()];
            transformer.forward(&values, &mut coefficients);
            transformer.inverse(&coefficients, &mut back);
            let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{transform:?}: {worst}");
            let energy: f32 = coefficients.iter().map(|c| c * c).sum();
            let low: f32 = coefficients[..cols / transform.width() * 2].iter().map(|c| c * c).sum();
            assert!(low > 0.5 * energy, "{transform:?}: {low} of {energy}");
        }
    }
}
