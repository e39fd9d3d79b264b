//! The paper's three-in-one: H.264 intra behind an alignment unit.
//!
//! Rows are scaled to eight-bit samples by their largest magnitude (two bytes
//! a row, counted), tiled into pictures and handed to the H.264 encoder:
//! CAVLC as in the RTL the paper's codec was built from, or CABAC. Knows
//! alignment and tiling; H.264 itself lives in its own crate.

use trinity_bits::{Chroma, Frame, Plane};
use trinity_h264::{Params, Rate};

use crate::Error;
use crate::bits::Bits;
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::format::trinity::plan::Tiling;
use crate::format::trinity::stream::{Kind, put_magic};
use crate::matrix::{Matrix, largest};
use crate::search::profile::{Paper, PaperEntropy, Profile};
use crate::search::report::{Encoded, Report};

/// Side of the pictures that larger matrices are cut into.
const PICTURE: usize = 1024;
/// Passes of the search for an error target.
const PASSES: usize = 8;

/// A row's scale: the top half of a single-precision number, rounded up so
/// that the largest magnitude still fits.
fn row_scale(row: &[f32]) -> u16 {
    let bits = largest(row).to_bits();
    ((bits >> 16) + u32::from(bits & 0xffff != 0)).min(0x7f7f) as u16
}

fn unit(scale: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(scale) << 16)) / 127.0
}

/// Samples of a matrix: 128 stands for zero.
fn align(matrix: &Matrix, scales: &[u16], tiling: &Tiling) -> Vec<Frame> {
    tiling
        .tiles()
        .map(|tile| {
            let mut plane = Plane::filled(tiling.tile_cols, tiling.tile_rows, 128);
            for y in 0..tiling.tile_rows {
                // The edge repeated costs least and is cropped again.
                let row = tile.row + y.min(tile.rows - 1);
                let inverse = if scales[row] == 0 { 0.0 } else { 1.0 / unit(scales[row]) };
                for x in 0..tiling.tile_cols {
                    let value = matrix.values[row * matrix.cols + tile.col + x.min(tile.cols - 1)];
                    let sample = (f64::from(value) * inverse).round() as i32 + 128;
                    plane.samples[y * tiling.tile_cols + x] = sample.clamp(0, 255) as u16;
                }
            }
            Frame { chroma: Chroma::C400, depth: 8, chroma_depth: 8, planes: vec![plane] }
        })
        .collect()
}

fn dealign(frames: &[Frame], scales: &[u16], tiling: &Tiling) -> Vec<f32> {
    let mut values = vec![0.0; tiling.rows * tiling.cols];
    for (tile, frame) in tiling.tiles().zip(frames) {
        for y in 0..tile.rows {
            let unit = unit(scales[tile.row + y]);
            let target = &mut values[(tile.row + y) * tiling.cols + tile.col..][..tile.cols];
            for (value, &sample) in target.iter_mut().zip(frame.planes[0].row(y)) {
                *value = (f64::from(i32::from(sample) - 128) * unit) as f32;
            }
        }
    }
    values
}

fn tiling(rows: usize, cols: usize) -> Tiling {
    Tiling { rows, cols, tile_rows: rows.clamp(1, PICTURE), tile_cols: cols.clamp(1, PICTURE) }
}

pub fn params(paper: Paper, rate: Rate) -> Params {
    let entropy = match paper.entropy {
        PaperEntropy::Cavlc => trinity_h264::Entropy::Cavlc,
        PaperEntropy::Cabac => trinity_h264::Entropy::Cabac,
    };
    Params { rate, entropy, preset: trinity_h264::Preset::Slow, ..Params::default() }
}

struct Attempt {
    stream: Vec<u8>,
    recon: Vec<f32>,
    nmse: f64,
}

pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Rate,
) -> Result<Encoded, Error> {
    let matrix = Matrix::finite(values, rows, cols)?;
    let scales: Vec<u16> = values.chunks(cols.max(1)).map(row_scale).collect();
    let mut head = Vec::new();
    put_magic(&mut head, Kind::Paper);
    put_varint(&mut head, rows as u64);
    put_varint(&mut head, cols as u64);
    scales.iter().for_each(|s| head.extend_from_slice(&s.to_le_bytes()));
    let tiling = tiling(rows, cols);
    let frames = if values.is_empty() { Vec::new() } else { align(&matrix, &scales, &tiling) };
    let energy: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
    let attempt = |rate: Rate| -> Result<Attempt, Error> {
        if frames.is_empty() {
            return Ok(Attempt { stream: Vec::new(), recon: Vec::new(), nmse: 0.0 });
        }
        let coded = trinity_h264::encode(&frames, &params(profile.paper, rate)).map_err(h264_error)?;
        let recon = dealign(&coded.recon, &scales, &tiling);
        let error: f64 = recon.iter().zip(values).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        Ok(Attempt { stream: coded.stream, recon, nmse: if energy > 0.0 { error / energy } else { 0.0 } })
    };
    let samples = (frames.len() * tiling.tile_rows * tiling.tile_cols) as f64;
    let best = match target {
        Rate::Bits(bits) => {
            let left = bits * values.len() as f64 - 8.0 * head.len() as f64;
            let spent = |a: &Attempt| 8.0 * (a.stream.len() + head.len()) as f64 / values.len() as f64;
            // The frame codec may end a little above what it was asked for.
            let tries = [1.0, 0.997, 0.99, 0.98].map(|factor| factor * left / samples);
            let found = tries
                .iter()
                .filter(|_| left > 0.0)
                .filter_map(|&rate| attempt(Rate::Bits(rate)).ok())
                .find(|a| spent(a) <= bits);
            match found {
                Some(found) => found,
                None => {
                    let least = spent(&attempt(Rate::Qp(51.0))?);
                    return Err(Error::RateUnreachable { target: bits, least });
                }
            }
        }
        Rate::Nmse(nmse) if nmse > 0.0 => meet_error(nmse, &attempt)?,
        Rate::Step(step) if step > 0.0 => {
            let coarsest = scales.iter().map(|&s| unit(s)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
            attempt(Rate::Qp((4.0 + 6.0 * (step / coarsest).log2()).round().clamp(0.0, 51.0)))?
        }
        _ => {
            return Err(Error::BadTarget {
                what: format!("{target} is none: bits, an error or a step above zero"),
            });
        }
    };
    let report = Report {
        values: values.len(),
        nmse: best.nmse,
        passes: 1,
        bits: Bits {
            headers: 8.0 * (head.len() - 2 * scales.len()) as f64,
            side: 16.0 * scales.len() as f64,
            symbols: 8.0 * best.stream.len() as f64,
            ..Bits::default()
        },
        ..Report::default()
    };
    head.extend_from_slice(&best.stream);
    Ok(Encoded { bytes: head, recon: best.recon, report })
}

/// Searches the error of the samples that gives the error of the values.
fn meet_error(nmse: f64, attempt: &impl Fn(Rate) -> Result<Attempt, Error>) -> Result<Attempt, Error> {
    let finest = attempt(Rate::Qp(0.0))?;
    if finest.nmse > nmse {
        return Err(Error::ErrorUnreachable { target: nmse, least: finest.nmse });
    }
    let (mut low, mut high) = (0, 51);
    let mut best = finest;
    while high - low > 1 {
        let middle = (low + high) / 2;
        let found = attempt(Rate::Qp(middle.into()))?;
        if found.nmse <= nmse {
            (low, best) = (middle, found);
        } else {
            high = middle;
        }
    }
    // Between two QPs: a mean squared error of the samples, by proportion.
    let mut mse = 2f64.powf((f64::from(low) - 4.0) / 3.0) / 12.0;
    for _ in 0..PASSES {
        let Ok(found) = attempt(Rate::Mse(mse)) else { break };
        let ratio = nmse / found.nmse;
        if found.nmse <= nmse && found.nmse > best.nmse {
            best = found;
        }
        if (1.0..1.02).contains(&ratio) {
            break;
        }
        mse *= ratio * 0.995;
    }
    Ok(best)
}

pub fn decode(mut reader: Reader<'_>) -> Result<Matrix, Error> {
    let (rows, cols) = (reader.varint("rows")?, reader.varint("columns")?);
    if rows.checked_mul(2).is_none_or(|bytes| bytes > reader.left() as u64)
        || rows.checked_mul(cols).is_none()
    {
        return Err(Error::Truncated { what: "row scales" });
    }
    let scales = reader.slice(2 * rows, "row scales")?.as_chunks().0.iter();
    let scales: Vec<u16> = scales.map(|&scale| u16::from_le_bytes(scale)).collect();
    let (rows, cols) =
        (rows as usize, usize::try_from(cols).map_err(|_| Error::Truncated { what: "columns" })?);
    if rows * cols == 0 {
        return Ok(Matrix { rows, cols, values: Vec::new() });
    }
    let tiling = tiling(rows, cols);
    let frames = trinity_h264::decode(reader.rest()).map_err(h264_error)?;
    let expected = rows.div_ceil(tiling.tile_rows) * cols.div_ceil(tiling.tile_cols);
    let fits = |f: &Frame| {
        f.depth == 8
            && f.planes.first().is_some_and(|p| p.width == tiling.tile_cols && p.height == tiling.tile_rows)
    };
    if frames.len() != expected || !frames.iter().all(fits) {
        return Err(Error::Damaged { what: "the pictures do not make the matrix" });
    }
    Ok(Matrix { rows, cols, values: dealign(&frames, &scales, &tiling) })
}

/// What H.264 complains about, said as ours.
pub fn h264_error(error: trinity_h264::Error) -> Error {
    Error::H264 { what: error.to_string() }
}
