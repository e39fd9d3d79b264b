//! One pass over a matrix: every tile with one plan and one step, behind the
//! header that says so. Knows nothing of targets.

use crate::bits::Bits;
use crate::format::trinity::bytes::put_varint;
use crate::format::trinity::plan::{Header, Plan, Scalars, Tile, Tiling};
use crate::format::trinity::stream::{HEAD, Kind, MAX_VALUES_PER_BYTE, put_magic};
use crate::format::trinity::tiles::code::{EncodeTile, joined};
use crate::matrix::Matrix;
use crate::stage::feedback::Feedback;
use crate::stage::row_scales::RowScales;
use crate::stage::signalled::Signalled;
use crate::stage::trellis::Decision;
use trinity_numeric::{simd, threads};

#[derive(Debug, Clone)]
pub struct Pass {
    pub bytes: Vec<u8>,
    /// What decodes, in the orientation of the plan, normalized.
    pub recon: Matrix,
    pub squared_error: f64,
    pub bits: Bits,
}

/// What a stream states of a matrix beside its plan, and what only its encoder knows.
#[derive(Default)]
pub struct Beside<'a> {
    /// What the matrix was rebased by.
    pub signalled: Option<&'a Signalled>,
    /// What rows were divided by.
    pub scales: Option<&'a RowScales>,
    /// The factors of the tiles that start at a row, for feedback from row to row of each.
    pub feedback: Option<&'a (dyn Fn(usize) -> &'a Feedback + Sync)>,
}

/// Codes a matrix (already in the plan's orientation, normalized by the
/// exponent of `scalars`) with one step.
pub fn encode_pass(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    matrix: &Matrix,
    tiling: Tiling,
    Beside { signalled, scales, feedback }: Beside<'_>,
) -> Pass {
    let tiles: Vec<Tile> = if scalars.step == 0.0 { Vec::new() } else { tiling.tiles().collect() };
    let coded = threads::map(&tiles, |tile| {
        let feedback = feedback.map(|of| of(tile.row));
        simd::widest(EncodeTile { plan, scalars, decision, matrix, tile, feedback, scales })
    });
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::Matrix);
    let (rows, cols) = if plan.transposed { (matrix.cols, matrix.rows) } else { (matrix.rows, matrix.cols) };
    put_varint(&mut bytes, rows as u64);
    put_varint(&mut bytes, cols as u64);
    let coded_as = (scalars.step != 0.0).then(|| (plan.clone(), tiling));
    let (signalled, scales) = (signalled.cloned(), scales.cloned());
    Header { scalars: *scalars, coded: coded_as, signalled, scales }.write(&mut bytes);
    if scalars.step != 0.0 {
        // The last tile ends with the stream.
        let lengths = coded.iter().rev().skip(1).rev().map(|(c, _)| c.bytes.len());
        lengths.for_each(|length| put_varint(&mut bytes, length as u64));
    } else {
        let least = (matrix.values.len() as u64).div_ceil(MAX_VALUES_PER_BYTE) as usize;
        bytes.resize(bytes.len().max(HEAD + least), 0);
    }
    let mut bits = Bits { headers: 8.0 * bytes.len() as f64, ..Bits::default() };
    let mut squared_error = 0.0;
    for (tile, (coded, recon)) in tiles.iter().zip(&coded) {
        bytes.extend_from_slice(&coded.bytes);
        squared_error += error_of(tile, recon, matrix);
        bits.add(&coded.bits);
    }
    // Lengths of blocks and bits that fill up bytes.
    bits.headers += 8.0 * bytes.len() as f64 - bits.total();
    let values = if tiles.is_empty() {
        squared_error = matrix.values.iter().map(|v| f64::from(v - scalars.offset).powi(2)).sum();
        vec![scalars.offset; matrix.values.len()]
    } else {
        joined(&tiles, coded.into_iter().map(|(_, recon)| recon).collect())
    };
    Pass { bytes, recon: Matrix { values, ..*matrix }, squared_error, bits }
}

/// The squared error of a tile: rows in single precision, their sum in double.
fn error_of(tile: &Tile, recon: &[f32], original: &Matrix) -> f64 {
    /// Rows side by side: one alone would wait for every addition.
    const BESIDE: usize = 4;
    let mut rows: Vec<f32> = Vec::with_capacity(tile.rows);
    let row_of = |y: usize| &original.values[(tile.row + y) * original.cols + tile.col..][..tile.cols];
    for (i, beside) in recon.chunks(BESIDE * tile.cols).enumerate() {
        let count = beside.len() / tile.cols;
        // The last stands in for those that are missing.
        let pairs: [(&[f32], &[f32]); BESIDE] = std::array::from_fn(|y| {
            let y = y.min(count - 1);
            (&beside[y * tile.cols..][..tile.cols], row_of(i * BESIDE + y))
        });
        let mut sums = [0.0f32; BESIDE];
        for x in 0..tile.cols {
            for (sum, (a, b)) in sums.iter_mut().zip(pairs) {
                *sum += (a[x] - b[x]) * (a[x] - b[x]);
            }
        }
        rows.extend(&sums[..count]);
    }
    rows.into_iter().map(f64::from).sum()
}
