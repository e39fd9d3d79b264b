//! A whole stream: header, tiles, and the matrix they make.
//!
//! ```text
//! magic  rows  cols | header | tile lengths | tiles
//! ```
//! Tiles are independent and are coded in parallel; the bytes do not depend
//! on how many threads there are.

use crate::Error;
use crate::basis::Basis;
use crate::bytes::{Reader, put_varint};
use crate::means::{MeanOf, Means};
use crate::plan::{Entropy, Header, Plan, Scalars, Tile, Tiling};
use crate::precondition::Preconditioning;
use crate::report::Bits;
use crate::simd::{self, Kernel};
use crate::tile::{Coded, Decision, TileDecoder, TileEncoder};
use crate::{binary_tile, raw_tile, static_tile};

/// First bytes of every stream; a byte of version and kind follows.
pub const MAGIC: [u8; 2] = *b"TC";
/// The version that this code writes and reads.
const VERSION: u8 = 2;

/// What follows the magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A matrix of values through the chain of stages.
    Matrix = 0,
    /// A matrix of words, exact.
    Words = 1,
    /// A picture whose planes are streams of their own.
    Picture = 2,
    /// Aligned values through H.264.
    Paper = 3,
}

/// Appends the magic and the kind.
pub fn put_magic(out: &mut Vec<u8>, kind: Kind) {
    out.extend_from_slice(&MAGIC);
    out.push(VERSION << 4 | kind as u8);
}

/// Bytes of magic and kind.
const HEAD: usize = 3;

/// Checks the magic and returns the kind.
pub fn read_magic(reader: &mut Reader<'_>) -> Result<Kind, Error> {
    let [t, c, version] = reader.array("magic")?;
    if [t, c] != MAGIC {
        return Err(Error::NotTrinity { what: format!("it begins with {t:#04x} {c:#04x}") });
    }
    let (version, kind) = (version >> 4, version & 15);
    if version != VERSION {
        return Err(Error::NotTrinity { what: format!("version {version}, this decoder knows {VERSION}") });
    }
    match kind {
        0 => Ok(Kind::Matrix),
        1 => Ok(Kind::Words),
        2 => Ok(Kind::Picture),
        3 => Ok(Kind::Paper),
        _ => Err(Error::NotTrinity { what: format!("kind {kind} is unknown") }),
    }
}

/// A matrix in row order.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    /// Rows become columns.
    pub fn transposed(&self) -> Self {
        let mut values = vec![0.0; self.values.len()];
        // Square blocks keep both sides in cache.
        const BLOCK: usize = 16;
        for first in (0..self.rows).step_by(BLOCK) {
            let rows = &self.values[first * self.cols..];
            let whole: [&[f32]; BLOCK] = std::array::from_fn(|y| rows.get(y * self.cols..).unwrap_or(&[]));
            let count = BLOCK.min(self.rows - first);
            for (x, out) in values.chunks_exact_mut(self.rows).enumerate() {
                for (out, row) in out[first..][..count].iter_mut().zip(whole) {
                    *out = row[x];
                }
            }
        }
        Self { rows: self.cols, cols: self.rows, values }
    }
}

/// What one pass over a matrix yields.
#[derive(Debug, Clone)]
pub struct Pass {
    pub bytes: Vec<u8>,
    /// In the orientation of the plan, normalized.
    pub recon: Matrix,
    pub squared_error: f64,
    pub bits: Bits,
    pub drift: [[(f64, u64); 3]; 2],
}

/// Runs `job` on every item, in parallel where threads are available, and
/// keeps the order.
#[cfg(feature = "threads")]
pub fn in_parallel<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    use rayon::prelude::*;
    if items.len() < 2 || rayon::current_num_threads() == 1 {
        return items.iter().map(job).collect();
    }
    items.par_iter().map(job).collect()
}

/// Runs `job` on every item, one after the other.
#[cfg(not(feature = "threads"))]
pub fn in_parallel<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    items.iter().map(job).collect()
}

/// Codes one tile of a matrix; the second result is its reconstruction.
pub fn encode_tile(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    matrix: &Matrix,
    tile: &Tile,
) -> (Coded, Vec<f32>) {
    simd::widest(EncodeTile { plan, scalars, decision, matrix, tile })
}

/// The work of [`encode_tile`].
#[derive(Clone, Copy)]
struct EncodeTile<'a> {
    plan: &'a Plan,
    scalars: &'a Scalars,
    decision: (Decision, f32),
    matrix: &'a Matrix,
    tile: &'a Tile,
}

impl Kernel for EncodeTile<'_> {
    type Output = (Coded, Vec<f32>);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { plan, scalars, decision, matrix, tile } = self;
        let (height, width) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let mut recon = vec![0.0; tile.rows * tile.cols];
        let step = scalars.step;
        let means = tile_means(plan, scalars, matrix, tile);
        if plan.entropy != Entropy::Adaptive {
            let mut all = vec![0.0; tile.rows.next_multiple_of(height) * width];
            for (i, buffer) in all.chunks_exact_mut(height * width).enumerate() {
                load(matrix, tile, i * height, width, scalars.offset, buffer);
                means.add(-1.0, i * height, width, step, buffer);
            }
            let coded = match plan.entropy {
                Entropy::Binary => binary_tile::encode(plan, scalars, tile.cols, &mut all),
                Entropy::Raw => raw_tile::encode(plan, scalars, tile.cols, &mut all),
                _ => static_tile::encode(plan, scalars, decision, tile.cols, &mut all),
            };
            means.add(1.0, 0, width, step, &mut all);
            keep(&all, &mut recon, tile, 0, width, scalars.offset);
            return (after(&means, coded), recon);
        }
        let mut encoder = TileEncoder::new(plan, scalars, decision, tile.rows.div_ceil(height), tile.cols);
        let batch = height * encoder.batch();
        let mut buffer = vec![0.0; batch * width];
        for first in (0..tile.rows).step_by(batch) {
            let rows = (tile.rows - first).min(batch).next_multiple_of(height);
            let buffer = &mut buffer[..rows * width];
            load(matrix, tile, first, width, scalars.offset, buffer);
            means.add(-1.0, first, width, step, buffer);
            encoder.rows(buffer);
            means.add(1.0, first, width, step, buffer);
            keep(buffer, &mut recon, tile, first, width, scalars.offset);
        }
        (after(&means, encoder.finish()), recon)
    }
}

/// The means that a plan predicts a tile's values with.
pub fn tile_means(plan: &Plan, scalars: &Scalars, matrix: &Matrix, tile: &Tile) -> Means {
    let of = plan.prediction.means;
    if of == MeanOf::default() {
        return Means::default();
    }
    let mut values = vec![0.0; tile.rows * tile.cols];
    load(matrix, tile, 0, tile.cols, scalars.offset, &mut values);
    Means::measure(of, &values, tile.cols, scalars.step)
}

/// A tile behind its means.
fn after(means: &Means, mut coded: Coded) -> Coded {
    let mut bytes = Vec::new();
    means.write(&mut bytes);
    coded.bits.prediction += 8.0 * bytes.len() as f64;
    bytes.append(&mut coded.bytes);
    Coded { bytes, ..coded }
}

/// Takes rows of a tile without the offset. Padding repeats the edge: what
/// lies beyond is free, so it is made as easy to code as can be.
pub fn load(matrix: &Matrix, tile: &Tile, first: usize, width: usize, offset: f32, buffer: &mut [f32]) {
    for (y, target) in buffer.chunks_exact_mut(width).enumerate() {
        let row = tile.row + (first + y).min(tile.rows - 1);
        let source = &matrix.values[row * matrix.cols + tile.col..][..tile.cols];
        target[..tile.cols].copy_from_slice(source);
        target[tile.cols..].fill(source[tile.cols - 1]);
        target.iter_mut().for_each(|v| *v -= offset);
    }
}

/// Copies what lies inside the tile and adds the offset.
fn keep(buffer: &[f32], recon: &mut [f32], tile: &Tile, first: usize, width: usize, offset: f32) {
    for (y, source) in buffer.chunks_exact(width).enumerate().take(tile.rows - first) {
        let target = &mut recon[(first + y) * tile.cols..][..tile.cols];
        target.iter_mut().zip(source).for_each(|(t, s)| *t = s + offset);
    }
}

/// Codes a matrix (already in the plan's orientation, normalized by the
/// exponent of `scalars`) with one step.
pub fn encode_pass(
    plan: &Plan,
    scalars: &Scalars,
    decision: (Decision, f32),
    matrix: &Matrix,
    tile_values: usize,
) -> Pass {
    let tiling = Tiling::new(matrix.rows, matrix.cols, tile_values);
    let tiles: Vec<Tile> = if scalars.step == 0.0 { Vec::new() } else { tiling.tiles().collect() };
    let coded = in_parallel(&tiles, |tile| encode_tile(plan, scalars, decision, matrix, tile));
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::Matrix);
    let (rows, cols) = if plan.transposed { (matrix.cols, matrix.rows) } else { (matrix.rows, matrix.cols) };
    put_varint(&mut bytes, rows as u64);
    put_varint(&mut bytes, cols as u64);
    let coded_as = (scalars.step != 0.0).then(|| (plan.clone(), tiling));
    Header { scalars: *scalars, coded: coded_as }.write(&mut bytes);
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
        drift: Default::default(),
        bytes,
    };
    for (tile, (coded, recon)) in tiles.iter().zip(coded) {
        pass.bytes.extend_from_slice(&coded.bytes);
        pass.squared_error += place(tile, &recon, &mut pass.recon, &matrix.values);
        pass.bits.add(&coded.bits);
        for (sum, one) in pass.drift.as_flattened_mut().iter_mut().zip(coded.drift.as_flattened()) {
            sum.0 += one.0;
            sum.1 += one.1;
        }
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

/// Values that a byte of stream may stand for at most: beyond this a header
/// announces more than its stream can hold. Generous: a tile spends at least
/// 1/1500 of a bit on every value, and constants are padded with zeros.
pub const MAX_VALUES_PER_BYTE: u64 = 1 << 14;

/// Multiplies by 2^`exponent` with one rounding, staying finite.
pub fn scale_by(values: &mut [f32], exponent: i32) {
    if exponent == 0 {
        return;
    }
    if (-126..=127).contains(&exponent) {
        // A power of two: one rounding here too, and only among subnormals.
        let factor = f32::from_bits(((127 + exponent) as u32) << 23);
        for v in values {
            *v = (*v * factor).clamp(f32::MIN, f32::MAX);
        }
    } else {
        let factor = f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52);
        for v in values {
            *v = (f64::from(*v) * factor).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        }
    }
}

/// Turns values back as a header says, by the basis it names if it names one.
fn turn_back(turned: Preconditioning, given: Option<&Basis>, matrix: &mut Matrix) -> Result<(), Error> {
    if let Preconditioning::Basis { hash: needed } = turned {
        let other = |given: String| Err(Error::OtherBasis { needed, given });
        match given {
            None => return other("none is given".into()),
            Some(basis) if basis.hash() != needed => return other(format!("{:016x} is given", basis.hash())),
            Some(basis) if basis.cols() != matrix.cols => {
                return Err(Error::Damaged { what: "the basis is for another number of columns" });
            }
            Some(_) => {}
        }
    }
    turned.inverse(&mut matrix.values, matrix.cols, given);
    Ok(())
}

/// Decodes what follows the magic of a matrix.
pub fn decode_matrix(mut reader: Reader<'_>, basis: Option<&Basis>) -> Result<Matrix, Error> {
    let size = reader.left() as u64;
    let (rows, cols) = (reader.varint("rows")?, reader.varint("columns")?);
    let count = rows.checked_mul(cols).filter(|&n| n <= size.saturating_mul(MAX_VALUES_PER_BYTE));
    let Some(count) = count else {
        return Err(Error::Damaged { what: "the matrix is larger than its stream can hold" });
    };
    let (rows, cols) = (rows as usize, cols as usize);
    let Header { scalars, coded } = Header::read(&mut reader, rows, cols)?;
    let mut matrix = Matrix { rows, cols, values: Vec::new() };
    let Some((plan, tiling)) = coded else {
        let padding =
            (count.div_ceil(MAX_VALUES_PER_BYTE) as usize).saturating_sub(size as usize - reader.left());
        if reader.rest() != vec![0; padding] {
            return Err(Error::Damaged { what: "a constant is not followed by its padding" });
        }
        matrix.values = vec![scalars.offset; count as usize];
        scale_by(&mut matrix.values, scalars.exponent);
        return Ok(matrix);
    };
    // No values are a constant; with a step they would be tiles of nothing, as many as the header likes.
    if count == 0 {
        return Err(Error::Damaged { what: "an empty matrix with a step" });
    }
    (matrix.rows, matrix.cols) = (tiling.rows, tiling.cols);
    let tiles = tiling.bounded_tiles(reader.left())?;
    let mut lengths =
        tiles[1..].iter().map(|_| reader.varint("tile length")).collect::<Result<Vec<_>, _>>()?;
    let stated = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
    lengths.push((reader.left() as u64).checked_sub(stated).ok_or(Error::Truncated { what: "tile" })?);
    let mut work = Vec::with_capacity(tiles.len());
    for (tile, length) in tiles.iter().zip(lengths) {
        work.push((*tile, reader.slice(length, "tile")?));
    }
    let mut decoded = in_parallel(&work, |(tile, bytes)| {
        simd::widest(DecodeTile { plan: &plan, scalars: &scalars, tile, bytes })
    });
    if let [only] = decoded.as_mut_slice() {
        matrix.values = std::mem::replace(only, Ok(Vec::new()))?;
        decoded.clear();
    } else {
        matrix.values = vec![0.0; count as usize];
    }
    for (tile, recon) in tiles.iter().zip(decoded) {
        let recon = recon?;
        for (y, source) in recon.chunks_exact(tile.cols).enumerate() {
            matrix.values[(tile.row + y) * matrix.cols + tile.col..][..tile.cols].copy_from_slice(source);
        }
    }
    if plan.transposed {
        matrix = matrix.transposed();
    }
    turn_back(plan.preconditioning, basis, &mut matrix)?;
    scale_by(&mut matrix.values, scalars.exponent);
    Ok(matrix)
}

/// Decodes one tile.
#[derive(Clone, Copy)]
struct DecodeTile<'a> {
    plan: &'a Plan,
    scalars: &'a Scalars,
    tile: &'a Tile,
    bytes: &'a [u8],
}

impl Kernel for DecodeTile<'_> {
    type Output = Result<Vec<f32>, Error>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { plan, scalars, tile, bytes } = self;
        let mut reader = Reader::new(bytes);
        let means = Means::read(plan.prediction.means, tile.rows, tile.cols, &mut reader)?;
        let bytes = reader.rest();
        let (height, width) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let mut recon = vec![0.0; tile.rows * tile.cols];
        if plan.entropy != Entropy::Adaptive {
            let rows = tile.rows.div_ceil(height);
            let mut all = match plan.entropy {
                Entropy::Binary => binary_tile::decode(plan, scalars, tile.cols, rows, bytes)?,
                Entropy::Raw => raw_tile::decode(plan, scalars, tile.cols, rows, bytes)?,
                _ => static_tile::decode(plan, scalars, tile.cols, rows, bytes)?,
            };
            means.add(1.0, 0, width, scalars.step, &mut all);
            keep(&all, &mut recon, tile, 0, width, scalars.offset);
            return Ok(recon);
        }
        let mut decoder = TileDecoder::new(plan, scalars, tile.rows.div_ceil(height), tile.cols, bytes)?;
        let batch = height * decoder.batch();
        let mut buffer = vec![0.0; batch * width];
        for first in (0..tile.rows).step_by(batch) {
            let rows = (tile.rows - first).min(batch).next_multiple_of(height);
            let buffer = &mut buffer[..rows * width];
            decoder.rows(buffer)?;
            means.add(1.0, first, width, scalars.step, buffer);
            keep(buffer, &mut recon, tile, first, width, scalars.offset);
        }
        decoder.finish()?;
        Ok(recon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::trellis::Centroids;

    #[test]
    fn wide_and_narrow_copies_give_the_same_bits() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let (rows, cols) = (70, 150);
        let values = (0..rows * cols).map(|i| random() * (1.0 + (i % 9) as f32) + random()).collect();
        let matrix = Matrix { rows, cols, values };
        let tile = Tile { row: 0, col: 0, rows, cols };
        let scalars = Scalars { step: 0.05, exponent: 0, offset: 0.01, centroids: Centroids::default() };
        for name in ["trinity", "trinity-lite", "trinity-max"] {
            let profile = Profile::named(name).unwrap();
            let pictures = profile.for_pictures().candidates().unwrap();
            for plan in profile.candidates().unwrap().into_iter().chain(pictures) {
                let work = EncodeTile {
                    plan: &plan,
                    scalars: &scalars,
                    decision: (Decision::Rate, 0.3),
                    matrix: &matrix,
                    tile: &tile,
                };
                let ((wide, wide_recon), (narrow, narrow_recon)) = (simd::widest(work), work.run());
                assert_eq!(wide.bytes, narrow.bytes, "{plan:?}");
                assert_eq!(wide_recon, narrow_recon, "{plan:?}");
                let work = DecodeTile { plan: &plan, scalars: &scalars, tile: &tile, bytes: &wide.bytes };
                assert_eq!(simd::widest(work).unwrap(), wide_recon, "{plan:?}");
                assert_eq!(work.run().unwrap(), wide_recon, "{plan:?}");
            }
        }
    }
}
