//! Codecs side by side: one row for each tensor, codec and target.
//!
//! Knows how to fill a table and how to sum it up; knows nothing of files to
//! write or of how a table looks.

use serde::{Deserialize, Serialize};

use crate::codec::{Metrics, PcaBasis, Precondition, Preconditioned, Target, TensorCodec, codec, order0};
use crate::pipeline::evaluate;
use crate::stats::gaussian_bound;
use crate::{Class, Entry, Error, Tensor};

/// One measurement; the fields are the columns of `compare.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub tensor: String,
    pub class: Class,
    pub codec: String,
    pub precondition: String,
    pub target: String,
    pub bits_per_value: f64,
    pub nmse: f64,
    pub snr_db: f64,
    pub mae: f64,
    pub max_abs_error: f64,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
    /// Bits above the rate–distortion bound of independent Gaussian values at
    /// the same error; below zero where a codec exploits structure.
    pub gap_bits: f64,
}

/// What to turn a tensor by before coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    None,
    Hadamard,
    /// Principal components of the other tensors of the same class and width
    /// (leave one out), cut to a rank.
    Pca {
        rank: Option<usize>,
    },
}

impl std::str::FromStr for Turn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "hadamard" => Ok(Self::Hadamard),
            None if text == "pca" => Ok(Self::Pca { rank: None }),
            Some(("pca", rank)) => rank
                .parse()
                .map(|rank| Self::Pca { rank: Some(rank) })
                .map_err(|_| format!("`{rank}` is no rank")),
            _ => Err(format!("`{text}`: expected none, hadamard, pca or pca:RANK")),
        }
    }
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Hadamard => f.pad("hadamard"),
            Self::Pca { rank: None } => f.pad("pca"),
            Self::Pca { rank: Some(rank) } => f.pad(&format!("pca:{rank}")),
        }
    }
}

/// One cell of the table to fill.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    pub entry: &'a Entry,
    pub codec: String,
    pub turn: Turn,
    pub target: Target,
    /// Tensors a PCA basis may be learned from; the entry itself is left out.
    pub samples: &'a [&'a Entry],
}

/// Names of the two lines that are no codecs.
pub const ORDER0: &str = "order-0 entropy";
pub const GAUSSIAN: &str = "gaussian bound";

impl Job<'_> {
    /// What identifies a row, so that a stopped run can go on.
    pub fn key(&self) -> [String; 4] {
        [self.entry.name().to_owned(), self.codec.clone(), self.turn.to_string(), self.target.to_string()]
    }

    /// Encodes, decodes and measures.
    pub fn run(&self) -> Result<Row, Error> {
        if self.codec == ORDER0 || self.codec == GAUSSIAN {
            return self.reference();
        }
        let inner = codec(&self.codec)?;
        let codec: Box<dyn TensorCodec> = match self.turn {
            Turn::None => inner,
            Turn::Hadamard => Box::new(Preconditioned { precondition: Precondition::Hadamard, inner }),
            Turn::Pca { rank } => {
                Box::new(Preconditioned { precondition: Precondition::Pca(self.basis(rank)?), inner })
            }
        };
        let outcome = evaluate(self.entry, codec.as_ref(), self.target)?;
        Ok(self.row(outcome.bits_per_value, outcome.metrics, outcome.encode_mb_s, outcome.decode_mb_s))
    }

    fn row(&self, bits_per_value: f64, metrics: Metrics, encode_mb_s: f64, decode_mb_s: f64) -> Row {
        Row {
            tensor: self.entry.name().to_owned(),
            class: self.entry.class(),
            codec: self.codec.clone(),
            precondition: self.turn.to_string(),
            target: self.target.to_string(),
            bits_per_value,
            nmse: metrics.nmse,
            snr_db: metrics.snr_db,
            mae: metrics.mae,
            max_abs_error: metrics.max_abs_error,
            encode_mb_s,
            decode_mb_s,
            gap_bits: bits_per_value - gaussian_bound(1.0, metrics.nmse),
        }
    }

    /// The basis learned from the other tensors. Its own bits are a file's, not
    /// a tensor's: see [`basis_bits_per_value`].
    fn basis(&self, rank: Option<usize>) -> Result<PcaBasis, Error> {
        let others = self.samples.iter().filter(|entry| {
            entry.name() != self.entry.name()
                && entry.class() == self.entry.class()
                && entry.matrix().1 == self.entry.matrix().1
        });
        let tensors = others.map(|entry| entry.read()).collect::<Result<Vec<Tensor>, Error>>()?;
        if tensors.is_empty() {
            return Err(Error::Unreachable {
                name: self.entry.name().to_owned(),
                codec: self.codec.clone(),
                target: self.turn.to_string(),
                reason: "no other tensor of its class and width to learn a basis from".into(),
            });
        }
        PcaBasis::from_samples(&tensors.iter().collect::<Vec<_>>(), rank.unwrap_or(usize::MAX))
    }

    fn reference(&self) -> Result<Row, Error> {
        let tensor = self.entry.read()?;
        let (bits, metrics) = match (self.codec.as_str(), self.target) {
            (GAUSSIAN, Target::Bits(bits)) => (bits, Metrics::from_nmse(2f64.powf(-2.0 * bits))),
            (GAUSSIAN, Target::Nmse(nmse)) => (gaussian_bound(1.0, nmse), Metrics::from_nmse(nmse)),
            _ => order0(&tensor, self.target)?,
        };
        Ok(self.row(bits, metrics, f64::NAN, f64::NAN))
    }
}

/// Bits of a PCA basis for each value of a tensor that uses it.
pub fn basis_bits_per_value(cols: usize, rank: usize, values: usize) -> f64 {
    8.0 * (12 + 4 * cols * (rank + 1)) as f64 / values.max(1) as f64
}

/// One line of the table by class: means over the class's tensors.
#[derive(Debug, Clone, Serialize)]
pub struct ClassLine {
    pub class: Class,
    pub codec: String,
    pub precondition: String,
    pub target: String,
    pub tensors: usize,
    pub bits_per_value: f64,
    pub nmse: f64,
    pub snr_db: f64,
    pub mae: f64,
    pub max_abs_error: f64,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
    pub gap_bits: f64,
}

/// Sums rows up by class, codec, precondition and target, in order of first
/// appearance within a class. Errors in decibels and gaps are plain means,
/// NMSE is the mean's decibels turned back, the largest error is the largest.
pub fn by_class(rows: &[Row]) -> Vec<ClassLine> {
    let mut lines: Vec<ClassLine> = Vec::new();
    for class in Class::ALL {
        let first = lines.len();
        for row in rows.iter().filter(|row| row.class == class) {
            let same = |line: &&mut ClassLine| {
                (&line.codec, &line.precondition, &line.target)
                    == (&row.codec, &row.precondition, &row.target)
            };
            match lines[first..].iter_mut().find(same) {
                Some(line) => {
                    line.tensors += 1;
                    line.bits_per_value += row.bits_per_value;
                    line.snr_db += row.snr_db;
                    line.mae += row.mae;
                    line.max_abs_error = line.max_abs_error.max(row.max_abs_error);
                    line.encode_mb_s += row.encode_mb_s;
                    line.decode_mb_s += row.decode_mb_s;
                    line.gap_bits += row.gap_bits;
                }
                None => lines.push(ClassLine {
                    class,
                    codec: row.codec.clone(),
                    precondition: row.precondition.clone(),
                    target: row.target.clone(),
                    tensors: 1,
                    bits_per_value: row.bits_per_value,
                    nmse: 0.0,
                    snr_db: row.snr_db,
                    mae: row.mae,
                    max_abs_error: row.max_abs_error,
                    encode_mb_s: row.encode_mb_s,
                    decode_mb_s: row.decode_mb_s,
                    gap_bits: row.gap_bits,
                }),
            }
        }
    }
    for line in &mut lines {
        let count = line.tensors as f64;
        for sum in [
            &mut line.bits_per_value,
            &mut line.snr_db,
            &mut line.mae,
            &mut line.encode_mb_s,
            &mut line.decode_mb_s,
            &mut line.gap_bits,
        ] {
            *sum /= count;
        }
        line.nmse = 10f64.powf(-line.snr_db / 10.0);
    }
    lines
}

/// Bjøntegaard's rate difference: by how many per cent the bits of `curve`
/// differ from those of `anchor` at the same quality, averaged over the
/// qualities both reach. Points are (bits, dB); interpolation is linear in the
/// logarithm of bits.
pub fn bd_rate(anchor: &[(f64, f64)], curve: &[(f64, f64)]) -> Option<f64> {
    let prepare = |points: &[(f64, f64)]| {
        let mut points: Vec<(f64, f64)> = points
            .iter()
            .filter(|(bits, db)| *bits > 0.0 && db.is_finite())
            .map(|&(bits, db)| (db, bits.ln()))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let (anchor, curve) = (prepare(anchor), prepare(curve));
    let low = anchor.first()?.0.max(curve.first()?.0);
    let high = anchor.last()?.0.min(curve.last()?.0);
    if high <= low {
        return None;
    }
    const STEPS: usize = 200;
    let mean = (0..=STEPS)
        .map(|step| low + (high - low) * step as f64 / STEPS as f64)
        .map(|db| interpolate(&curve, db) - interpolate(&anchor, db))
        .sum::<f64>()
        / (STEPS + 1) as f64;
    Some(100.0 * (mean.exp() - 1.0))
}

fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let above = points.partition_point(|point| point.0 < x).clamp(1, points.len().max(2) - 1);
    let ((x0, y0), (x1, y1)) = (points[above - 1], points[above.min(points.len() - 1)]);
    if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_ten_per_cent_more_bits_has_a_bd_rate_of_ten() {
        let anchor = [(2.0, 10.0), (3.0, 16.0), (4.0, 22.0)];
        let curve = anchor.map(|(bits, db)| (bits * 1.1, db));
        assert!((bd_rate(&anchor, &curve).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(bd_rate(&anchor, &[(2.0, 30.0)]), None);
    }

    #[test]
    fn turns_are_read_as_they_are_written() {
        for text in ["none", "hadamard", "pca", "pca:64"] {
            assert_eq!(text.parse::<Turn>().unwrap().to_string(), text);
        }
        assert!("fourier".parse::<Turn>().is_err());
    }
}
