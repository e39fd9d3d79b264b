//! One pass over a matrix: every tile with one plan and one step, behind the
//! header that says so. Knows nothing of targets.

use crate::bits::Bits;
use crate::bytes::put_varint;
use crate::matrix::Matrix;
use crate::plan::{Header, Plan, Scalars, Tile, Tiling};
use crate::stages::feedback::Feedback;
use crate::stages::stated::Stated;
use crate::stages::trellis::Decision;
use crate::stream::{HEAD, Kind, MAX_VALUES_PER_BYTE, put_magic};
use crate::tiles::code::{encode_tile, encode_tile_with};
use crate::tiles::coded::Coded;
use trinity_coding::threads;

/// What one pass over a matrix yields.
#[derive(Debug, Clone)]
pub struct Pass {
    pub bytes: Vec<u8>,
    /// In the orientation of the plan, normalized.
    pub recon: Matrix,
    pub squared_error: f64,
    pub bits: Bits,
}

/// Codes a matrix (already in the plan's orientation, normalized by the
/// exponent of `scalars`) with one step; `stated` is what it was turned by.
pub fn encode_pass(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    stated: Option<&Stated>,
    matrix: &Matrix,
    tile_values: usize,
) -> Pass {
    let tiling = Tiling::new(matrix.rows, matrix.cols, tile_values);
    assemble(plan, scalars, stated, matrix, tiling, &|tile| {
        encode_tile(plan, scalars, decision, matrix, tile)
    })
}

/// As [`encode_pass`], with feedback from row to row of every tile;
/// `feedback` has the factors of the tiles that start at a row.
pub fn encode_pass_with<'f>(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    matrix: &Matrix,
    tiling: Tiling,
    feedback: &(dyn Fn(usize) -> &'f Feedback + Sync),
) -> Pass {
    let code = |tile: &Tile| {
        let feedback = feedback(tile.row);
        encode_tile_with(plan, scalars, decision, matrix, tile, feedback)
    };
    assemble(plan, scalars, None, matrix, tiling, &code)
}

/// Codes every tile and puts them behind the header.
fn assemble(
    plan: &Plan,
    scalars: &Scalars,
    stated: Option<&Stated>,
    matrix: &Matrix,
    tiling: Tiling,
    code: &(dyn Fn(&Tile) -> (Coded, Vec<f32>) + Sync),
) -> Pass {
    let tiles: Vec<Tile> = if scalars.step == 0.0 { Vec::new() } else { tiling.tiles().collect() };
    let coded = threads::map(&tiles, code);
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::Matrix);
    let (rows, cols) = if plan.transposed { (matrix.cols, matrix.rows) } else { (matrix.rows, matrix.cols) };
    put_varint(&mut bytes, rows as u64);
    put_varint(&mut bytes, cols as u64);
    let coded_as = (scalars.step != 0.0).then(|| (plan.clone(), tiling));
    Header { scalars: *scalars, coded: coded_as, stated: stated.cloned() }.write(&mut bytes);
    if scalars.step != 0.0 {
        // The last tile ends with the stream.
        let lengths = coded.iter().rev().skip(1).rev().map(|(c, _)| c.bytes.len());
        lengths.for_each(|length| put_varint(&mut bytes, length as u64));
    } else {
        let least = (matrix.values.len() as u64).div_ceil(MAX_VALUES_PER_BYTE) as usize;
        bytes.resize(bytes.len().max(HEAD + least), 0);
    }
    let mut pass = Pass {
        recon: Matrix {
            rows: matrix.rows,
            cols: matrix.cols,
            values: vec![scalars.offset; matrix.values.len()],
        },
        squared_error: 0.0,
        bits: Bits { headers: 8.0 * bytes.len() as f64, ..Bits::default() },
        bytes,
    };
    for (tile, (coded, recon)) in tiles.iter().zip(coded) {
        pass.bytes.extend_from_slice(&coded.bytes);
        pass.squared_error += place(tile, &recon, &mut pass.recon, &matrix.values);
        pass.bits.add(&coded.bits);
    }
    // Lengths of blocks and bits that fill up bytes.
    pass.bits.headers += 8.0 * pass.bytes.len() as f64 - pass.bits.total();
    if tiles.is_empty() {
        pass.squared_error = matrix.values.iter().map(|v| f64::from(v - scalars.offset).powi(2)).sum();
    }
    pass
}

/// Copies a tile into its matrix and returns its squared error.
fn place(tile: &Tile, recon: &[f32], matrix: &mut Matrix, original: &[f32]) -> f64 {
    let mut error = 0.0;
    for (y, source) in recon.chunks_exact(tile.cols).enumerate() {
        let first = (tile.row + y) * matrix.cols + tile.col;
        matrix.values[first..][..tile.cols].copy_from_slice(source);
        // A row in single precision, rows in double.
        error +=
            f64::from(source.iter().zip(&original[first..]).map(|(a, b)| (a - b) * (a - b)).sum::<f32>());
    }
    error
}
