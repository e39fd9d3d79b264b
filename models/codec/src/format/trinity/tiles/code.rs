//! A tile by its plan: the matrix's values in, less offset and means, through
//! the coder that the plan's entropy stage names; and back. Knows nothing of
//! headers.

use crate::Error;
use crate::format::trinity::bytes::Reader;
use crate::format::trinity::plan::{Entropy, Plan, Scalars, Tile};
use crate::format::trinity::tiles::adaptive::{TileDecoder, TileEncoder};
use crate::format::trinity::tiles::coded::Coded;
use crate::format::trinity::tiles::{binary, raw, static_tables};
use crate::matrix::Matrix;
use crate::stage::feedback::Feedback;
use crate::stage::means::{MeanOf, Means};
use crate::stage::row_scales::RowScales;
use crate::stage::trellis::Decision;
use trinity_numeric::simd::Kernel;

/// One tile of a matrix to be coded; the second result is its reconstruction.
#[derive(Clone, Copy)]
pub struct EncodeTile<'a> {
    pub plan: &'a Plan,
    pub scalars: &'a Scalars,
    pub decision: (Decision, f32),
    pub matrix: &'a Matrix,
    pub tile: &'a Tile,
    /// What each row is asked for after the rows before; the plan must then code one row of the matrix at a time.
    pub feedback: Option<&'a Feedback>,
    /// What rows were divided by.
    pub scales: Option<&'a RowScales>,
}

impl Kernel for EncodeTile<'_> {
    type Output = (Coded, Vec<f32>);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { plan, scalars, decision, matrix, tile, feedback, scales } = self;
        let (height, width) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let mut recon = Vec::with_capacity(tile.rows * tile.cols);
        let step = scalars.step;
        let means = tile_means(plan, scalars, matrix, tile);
        if plan.entropy != Entropy::Adaptive {
            let mut all = vec![0.0; tile.rows.next_multiple_of(height) * width];
            for (i, buffer) in all.chunks_exact_mut(height * width).enumerate() {
                load(matrix, tile, i * height, width, scalars.offset, buffer);
                means.add(-1.0, i * height, width, step, buffer);
            }
            let coded = match plan.entropy {
                Entropy::Binary => binary::encode(plan, scalars, tile.cols, &mut all),
                // No profile may ask for raw tiles.
                _ => static_tables::encode(plan, scalars, decision, tile.cols, &mut all),
            };
            means.add(1.0, 0, width, step, &mut all);
            keep(&all, &mut recon, tile, width, scalars.offset);
            return (after(&means, coded), recon);
        }
        let mut encoder = TileEncoder::new(plan, scalars, decision, tile.rows.div_ceil(height), tile.cols);
        let batch = height * encoder.state.batch();
        let mut buffer = vec![0.0; batch * width];
        // What became of the rows before, where it matters.
        let mut errors: Vec<f32> = Vec::new();
        for first in (0..tile.rows).step_by(batch) {
            let rows = (tile.rows - first).min(batch).next_multiple_of(height);
            let buffer = &mut buffer[..rows * width];
            load(matrix, tile, first, width, scalars.offset, buffer);
            if let Some(feedback) = feedback {
                errors.extend_from_slice(buffer);
                feedback.add(first, &errors[..first * width], buffer);
                encoder.weigh(decision.1 / feedback.weight(first).clamp(LEAST_WEIGHT, MOST_WEIGHT));
            }
            means.add(-1.0, first, width, step, buffer);
            if let Some(scales) = scales.filter(|_| first > 0) {
                encoder.state.louder(scales.louder(tile.row + first));
            }
            encoder.rows(buffer);
            means.add(1.0, first, width, step, buffer);
            if feedback.is_some() {
                errors[first * width..].iter_mut().zip(&*buffer).for_each(|(e, b)| *e -= b);
            }
            keep(buffer, &mut recon, tile, width, scalars.offset);
        }
        (after(&means, encoder.finish()), recon)
    }
}

/// How much more or less than the average the bits of a row may be worth:
/// beyond this the step itself would have to follow.
const LEAST_WEIGHT: f32 = 0.25;
const MOST_WEIGHT: f32 = 8.0;

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

/// Adds the next rows of what lies inside the tile, and the offset to them.
fn keep(buffer: &[f32], recon: &mut Vec<f32>, tile: &Tile, width: usize, offset: f32) {
    let left = tile.rows - recon.len() / tile.cols.max(1);
    for row in buffer.chunks_exact(width).take(left) {
        recon.extend(row[..tile.cols].iter().map(|value| value + offset));
    }
}

/// The values of all tiles of a matrix, row after row of it.
pub fn joined<T: Copy>(tiles: &[Tile], mut of_tiles: Vec<Vec<T>>) -> Vec<T> {
    if of_tiles.len() == 1 {
        return of_tiles.remove(0);
    }
    let mut values = Vec::with_capacity(of_tiles.iter().map(Vec::len).sum());
    let mut of_tiles = of_tiles.iter();
    // Tiles beside each other share their rows.
    for band in tiles.chunk_by(|a, b| a.row == b.row) {
        let beside = band.iter().zip(&mut of_tiles);
        let mut rows: Vec<_> = beside.map(|(tile, own)| own.chunks_exact(tile.cols)).collect();
        for _ in 0..band[0].rows {
            rows.iter_mut().filter_map(Iterator::next).for_each(|row| values.extend_from_slice(row));
        }
    }
    values
}

/// One tile to be decoded, of rows that were divided by `scales` and are left so.
#[derive(Clone, Copy)]
pub struct DecodeTile<'a> {
    pub plan: &'a Plan,
    pub scalars: &'a Scalars,
    pub scales: Option<&'a RowScales>,
    pub tile: &'a Tile,
    pub bytes: &'a [u8],
}

impl Kernel for DecodeTile<'_> {
    type Output = Result<Vec<f32>, Error>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { plan, scalars, scales, tile, bytes } = self;
        let mut reader = Reader::new(bytes);
        let means = Means::read(plan.prediction.means, tile.rows, tile.cols, &mut reader)?;
        let bytes = reader.rest();
        let (height, width) = (plan.transform.height(), tile.cols.next_multiple_of(plan.transform.width()));
        let mut recon = Vec::with_capacity(tile.rows * tile.cols);
        if plan.entropy != Entropy::Adaptive {
            let rows = tile.rows.div_ceil(height);
            let mut all = match plan.entropy {
                Entropy::Binary => binary::decode(plan, scalars, tile.cols, rows, bytes)?,
                Entropy::Raw => raw::decode(plan, scalars, tile.cols, rows, bytes)?,
                _ => static_tables::decode(plan, scalars, tile.cols, rows, bytes)?,
            };
            means.add(1.0, 0, width, scalars.step, &mut all);
            keep(&all, &mut recon, tile, width, scalars.offset);
            return Ok(recon);
        }
        let mut decoder = TileDecoder::new(plan, scalars, tile.rows.div_ceil(height), tile.cols, bytes)?;
        let batch = height * decoder.state.batch();
        let mut buffer = vec![0.0; batch * width];
        for first in (0..tile.rows).step_by(batch) {
            let rows = (tile.rows - first).min(batch).next_multiple_of(height);
            let buffer = &mut buffer[..rows * width];
            if let Some(scales) = scales.filter(|_| first > 0) {
                decoder.state.louder(scales.louder(tile.row + first));
            }
            decoder.rows(buffer)?;
            means.add(1.0, first, width, scalars.step, buffer);
            keep(buffer, &mut recon, tile, width, scalars.offset);
        }
        decoder.finish()?;
        Ok(recon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::profile::Profile;
    use crate::stage::trellis::Centroids;
    use trinity_numeric::random::Lcg;
    use trinity_numeric::simd;

    #[test]
    fn wide_and_narrow_copies_give_the_same_bits() {
        let mut lcg = Lcg(1);
        let mut random = move || lcg.uniform() - 0.5;
        // More than a block of rows, and than a group of columns.
        let all = std::env::var_os("TRINITY_TEST_ALL").is_some();
        let (rows, cols) = if all { (70, 150) } else { (34, 75) };
        let values = (0..rows * cols).map(|i| random() * (1.0 + (i % 9) as f32) + random()).collect();
        let matrix = Matrix { rows, cols, values };
        let tile = Tile { row: 0, col: 0, rows, cols };
        let scalars = Scalars { step: 0.05, exponent: 0, offset: 0.01, centroids: Centroids::default() };
        for name in ["trinity", "trinity-static", "trinity-max"] {
            let profile = Profile::named(name).unwrap();
            let pictures = profile.for_pictures().candidates().unwrap();
            for plan in profile.candidates().unwrap().into_iter().chain(pictures) {
                let work = EncodeTile {
                    plan: &plan,
                    scalars: &scalars,
                    decision: (Decision::Rate, 0.3),
                    matrix: &matrix,
                    tile: &tile,
                    feedback: None,
                    scales: None,
                };
                let ((wide, wide_recon), (narrow, narrow_recon)) = (simd::widest(work), simd::narrow(work));
                assert_eq!(wide.bytes, narrow.bytes, "{plan:?}");
                assert_eq!(wide_recon, narrow_recon, "{plan:?}");
                let bytes = &wide.bytes;
                let work = DecodeTile { plan: &plan, scalars: &scalars, scales: None, tile: &tile, bytes };
                assert_eq!(simd::widest(work).unwrap(), wide_recon, "{plan:?}");
                assert_eq!(simd::narrow(work).unwrap(), wide_recon, "{plan:?}");
            }
        }
    }
}
