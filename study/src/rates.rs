//! Codecs on a piece of a tensor: bits and error, without a clock.
//!
//! What `trinity compare` measures on whole tensors, for a front end that must
//! answer at once and may have no clock (a page in a browser). Also what each
//! stage makes of one block, for its picture.

use crate::Error;
use serde::Serialize;
use trinity_tensor::codec::ablate::{Histogram, show};
use trinity_tensor::codec::{Metrics, Rate, codec};
use trinity_tensor::compare::{Goal, column};
use trinity_tensor::{Class, Entry, Tensor, crop};

/// One codec at one rate on a piece of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PieceRate {
    pub tensor: String,
    pub class: Class,
    pub codec: String,
    /// As the column `target` of `compare.csv` has it; `own` for a codec of one rate.
    pub target: String,
    pub bits_per_value: Option<f64>,
    pub snr_db: Option<f64>,
    pub nmse: Option<f64>,
    /// Values that were coded.
    pub values: usize,
    /// Why the target cannot be met, where it cannot.
    pub missed: Option<String>,
}

/// A rectangle of values on its way: as it was, as one codec left it, and what
/// that lost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    pub rows: usize,
    pub columns: usize,
    pub original: Vec<f64>,
    pub decoded: Vec<f64>,
    pub bits_per_value: f64,
    pub snr_db: Option<f64>,
    /// What each stage chose, where the codec can say.
    pub stages: Vec<Stage>,
}

/// One stage of a codec on the piece.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    pub stage: &'static str,
    pub choice: String,
    pub bits_per_value: f64,
    pub operations_per_value: f64,
}

/// A window of a tensor on its way through the stages of H.265 (the paper's
/// Figures 3 and 4); rows of `columns` values, in parts of the largest magnitude.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
    pub prediction: Vec<f64>,
    pub residual: Vec<f64>,
    /// Quantized coefficients, each block where its values are.
    pub levels: Vec<f64>,
    /// The partitioning: column and row in the window, and side, of each block.
    pub blocks: Vec<(i64, i64, usize)>,
    /// Spreads of all values, then of the coefficients of their 8×8 blocks.
    pub spreads: [Spread; 2],
    pub bits_per_value: f64,
    pub nmse: f64,
}

/// How values are spread, in standard deviations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    pub counts: Vec<u64>,
    pub largest: f64,
    pub excess_kurtosis: f64,
}

impl From<Histogram> for Spread {
    fn from(histogram: Histogram) -> Self {
        let Histogram { counts, largest, excess_kurtosis } = histogram;
        Self { counts, largest, excess_kurtosis }
    }
}

/// A piece of at most `sample` values on its way through the stages of H.265 at
/// an error of `nmse`; nothing for zeros alone. Fails where the tensor cannot
/// be read, or no rate meets the error.
pub fn way(entry: &Entry, nmse: f64, sample: usize) -> Result<Option<Way>, Error> {
    let subject = |error| Error::Tensor { subject: entry.name().to_owned(), error };
    let piece = crop(entry, sample).map_err(subject)?;
    let shown = show(&piece, nmse).map_err(subject)?;
    // A block may begin before the window does.
    let within = |at: usize, from: usize| at as i64 - from as i64;
    Ok(shown.map(|shown| {
        let (top, left) = shown.origin;
        Way {
            rows: shown.values.rows,
            columns: shown.values.cols,
            values: shown.values.cells,
            prediction: shown.prediction.cells,
            residual: shown.residual.cells,
            levels: shown.levels.cells,
            blocks: shown
                .blocks
                .iter()
                .map(|block| (within(block.x, left), within(block.y, top), block.size))
                .collect(),
            spreads: shown.histograms.map(Spread::from),
            bits_per_value: shown.bits_per_value,
            nmse: shown.nmse,
        }
    }))
}

/// Codes a piece of at most `sample` values with one codec at each target; at
/// its own rate alone where it has but one. Fails where the codec is unknown or
/// the tensor cannot be read; a target out of reach is no error.
pub fn rates(entry: &Entry, name: &str, targets: &[Rate], sample: usize) -> Result<Vec<PieceRate>, Error> {
    let subject = |error| Error::Tensor { subject: entry.name().to_owned(), error };
    let goals = Goal::of(name, targets).map_err(|_| crate::tensors::unknown_codec(name))?;
    let piece = crop(entry, sample).map_err(subject)?;
    goals
        .into_iter()
        .map(|goal| {
            let (target, label) = match goal {
                Goal::Target(target) => (target, column(target)),
                Goal::OwnRate => (Rate::Bits(f64::INFINITY), "own".to_owned()),
            };
            let found = coded(&piece, name, target);
            let (bits, metrics, missed) = match found {
                Ok((bits, _, metrics)) => (Some(bits), Some(metrics), None),
                Err(error @ trinity_tensor::Error::Unreachable { .. }) => {
                    (None, None, Some(error.to_string()))
                }
                Err(error) => return Err(subject(error)),
            };
            Ok(PieceRate {
                tensor: entry.name().to_owned(),
                class: entry.class(),
                codec: name.to_owned(),
                target: label,
                bits_per_value: bits,
                snr_db: metrics.map(|metrics| metrics.snr_db).filter(|db| db.is_finite()),
                nmse: metrics.map(|metrics| metrics.nmse),
                values: piece.len(),
                missed,
            })
        })
        .collect()
}

/// What one codec makes of a piece of at most `sample` values at a target.
/// Fails where the codec is unknown, the target cannot be met, or the tensor
/// cannot be read.
pub fn block(entry: &Entry, name: &str, target: Rate, sample: usize) -> Result<Block, Error> {
    let subject = |error| Error::Tensor { subject: entry.name().to_owned(), error };
    let piece = crop(entry, sample).map_err(subject)?;
    let (bits_per_value, decoded, metrics) = coded(&piece, name, target).map_err(subject)?;
    let (rows, columns) = piece.matrix();
    let stages = codec(name).and_then(|codec| codec.stages(&piece, target)).map_err(subject)?;
    let stages = stages.into_iter().map(|cost| Stage {
        stage: cost.stage,
        choice: cost.choice,
        bits_per_value: cost.bits_per_value,
        operations_per_value: cost.operations_per_value,
    });
    Ok(Block {
        rows,
        columns,
        original: values(&piece),
        decoded: values(&decoded),
        bits_per_value,
        snr_db: Some(metrics.snr_db).filter(|db| db.is_finite()),
        stages: stages.collect(),
    })
}

fn coded(piece: &Tensor, name: &str, target: Rate) -> Result<(f64, Tensor, Metrics), trinity_tensor::Error> {
    let codec = codec(name)?;
    let encoded = codec.encode(piece, target)?;
    let decoded = codec.decode(&encoded)?;
    let metrics = Metrics::between(piece, &decoded);
    Ok((encoded.bits_per_value(), decoded, metrics))
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let mut values = vec![0.0; tensor.len()];
    tensor.dtype().to_f64(tensor.data(), &mut values);
    values
}
