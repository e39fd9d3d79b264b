//! Codecs side by side: one row for each tensor, codec and target.
//!
//! Knows how to fill a table and how to sum it up; knows nothing of files to
//! write or of how a table looks.

use serde::{Deserialize, Deserializer, Serialize};

use std::sync::Arc;

use crate::codec::{
    MetricSums, Metrics, PcaBasis, PcaLearner, Precondition, Preconditioned, Rate, TensorCodec, VERSION,
    codec, device_of, order0,
};
use crate::memory::ContentHash;
use crate::pipeline::{each_slab, evaluate};
use crate::stats::gaussian_bound;
use crate::{Class, Entry, Error, LimitingFactor};

/// One measurement; the fields are the columns of `compare.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRow {
    /// The file that the tensor was read from, as it was named.
    pub file: String,
    pub tensor: String,
    pub class: Class,
    pub codec: String,
    pub precondition: String,
    /// Bits per value or NMSE asked for. A number format stands at the rate it
    /// has, rounded up to hundredths; a lossless codec at `lossless`.
    pub target: String,
    #[serde(deserialize_with = "number")]
    pub bits_per_value: f64,
    #[serde(deserialize_with = "number")]
    pub nmse: f64,
    #[serde(deserialize_with = "number")]
    pub snr_db: f64,
    #[serde(deserialize_with = "number")]
    pub mae: f64,
    #[serde(deserialize_with = "number")]
    pub max_abs_error: f64,
    #[serde(deserialize_with = "number")]
    pub encode_mb_s: f64,
    #[serde(deserialize_with = "number")]
    pub decode_mb_s: f64,
    /// Bits above the rate–distortion bound of independent Gaussian values at
    /// the same error; below zero where a codec exploits structure.
    #[serde(deserialize_with = "number")]
    pub gap_bits: f64,
    /// Why the target cannot be met, where it cannot; the numbers are then none.
    pub missed: Option<String>,
    /// What was in the way, then; rows of earlier versions do not say.
    #[serde(rename = "obstacle", default)]
    pub limiting_factor: Option<LimitingFactor>,
    /// Who coded: `cpu`, or `cuda` where a GPU did. Speeds depend on it, bytes do not.
    #[serde(default = "cpu")]
    pub device: String,
    /// A hash of all that the row follows from: the tensor's content, what was
    /// asked for, and the version of the codecs. A row of an earlier run answers
    /// a job with the same key, and no other.
    pub key: String,
}

fn cpu() -> String {
    "cpu".into()
}

/// Reads a number that JSON, which has neither NaN nor infinity, writes as null.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl ComparisonRow {
    /// The row as it was before JSON took its infinity: where nothing was lost, the SNR has no end.
    pub fn from_json(self) -> Self {
        let snr_db = if self.nmse == 0.0 { f64::INFINITY } else { self.snr_db };
        Self { snr_db, ..self }
    }
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

/// What a cell of the table asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    Target(Rate),
    /// Whatever rate a number format or a lossless codec has.
    OwnRate,
}

impl Goal {
    /// The goals of a codec where such targets are asked for: bit rates mean
    /// nothing to a codec that has but one.
    pub fn of(codec: &str, targets: &[Rate]) -> Result<Vec<Self>, Error> {
        let in_bits = targets.iter().all(|target| matches!(target, Rate::Bits(_)));
        let reference = codec == ORDER0 || codec == GAUSSIAN;
        if in_bits && !reference && self::codec(codec)?.has_one_rate() {
            return Ok(vec![Self::OwnRate]);
        }
        Ok(targets.iter().copied().map(Self::Target).collect())
    }
}

/// A target as the column of that name has it.
pub fn column(target: Rate) -> String {
    match target {
        Rate::Bits(number) | Rate::Nmse(number) | Rate::Qp(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// A tensor to compare codecs on.
#[derive(Debug, Clone)]
pub struct InputTensor {
    pub entry: Entry,
    /// The file it is from, as it was named.
    pub file: String,
    /// See [`Entry::content`].
    content: u64,
}

impl InputTensor {
    /// Reads the tensor once, to know its content.
    pub fn new(entry: Entry, file: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { content: entry.content()?, entry, file: file.into() })
    }

    /// Whether a basis learned from `other` may serve this tensor.
    fn is_taught_by(&self, other: &Self) -> bool {
        other.entry.name() != self.entry.name()
            && other.entry.class() == self.entry.class()
            && other.entry.matrix().1 == self.entry.matrix().1
    }
}

/// One cell of the table to fill.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    pub input: &'a InputTensor,
    pub codec: String,
    pub turn: Turn,
    pub goal: Goal,
    /// Tensors a PCA basis may be learned from; the input itself is left out.
    pub samples: &'a [InputTensor],
}

/// Names of the two lines that are no codecs.
pub const ORDER0: &str = "order-0 entropy";
pub const GAUSSIAN: &str = "gaussian bound";

impl Job<'_> {
    /// What the row of this cell follows from, as a hash.
    pub fn key(&self) -> Result<String, Error> {
        let mut hash = ContentHash::default();
        hash.add(VERSION.as_bytes());
        hash.add(&self.input.content.to_le_bytes());
        let asked = (self.input.entry.class(), &self.codec, self.turn.to_string(), self.goal);
        hash.add(format!("{asked:?}").as_bytes());
        // The profiles of others' making are part of the codec they make.
        for part in self.codec.split('/').filter(|part| part.ends_with(".toml")) {
            let path = &self.codec[self.codec.find(part).unwrap_or(0)..];
            let bytes = std::fs::read(path).or_else(|_| std::fs::read(&self.codec));
            hash.add(&bytes.map_err(Error::io("reading the profile"))?);
        }
        if let Turn::Pca { .. } = self.turn {
            for sample in self.samples.iter().filter(|sample| self.input.is_taught_by(sample)) {
                hash.add(&sample.content.to_le_bytes());
            }
        }
        Ok(format!("{:016x}", hash.finish()))
    }

    /// The row of an earlier run under the names that this run has for it.
    pub fn renamed(&self, row: &ComparisonRow) -> ComparisonRow {
        ComparisonRow {
            file: self.input.file.clone(),
            tensor: self.input.entry.name().to_owned(),
            ..row.clone()
        }
    }

    /// Encodes, decodes and measures; a target out of reach is a row that says
    /// so.
    pub fn run(&self) -> Result<ComparisonRow, Error> {
        match self.measured() {
            Err(Error::Unreachable { limiting_factor, reason, .. }) => {
                self.missed(limiting_factor, reason.into())
            }
            other => other,
        }
    }

    fn measured(&self) -> Result<ComparisonRow, Error> {
        if self.codec == ORDER0 || self.codec == GAUSSIAN {
            return self.reference();
        }
        let inner = codec(&self.codec)?;
        let precondition = match self.turn {
            Turn::None => None,
            Turn::Hadamard => Some(Precondition::Hadamard),
            Turn::Pca { rank } => Some(Precondition::Pca(Arc::new(self.basis(rank)?))),
        };
        let codec: Box<dyn TensorCodec> = match precondition {
            None => inner,
            Some(precondition) => Box::new(Preconditioned { precondition, inner }),
        };
        let outcome = evaluate(&self.input.entry, codec.as_ref(), self.target())?;
        self.row(outcome.bits_per_value, outcome.metrics, outcome.encode_mb_s, outcome.decode_mb_s)
    }

    fn target(&self) -> Rate {
        match self.goal {
            Goal::Target(target) => target,
            // More than any number takes in any format.
            Goal::OwnRate => Rate::Bits(128.0),
        }
    }

    fn row(
        &self,
        bits_per_value: f64,
        metrics: Metrics,
        encode_mb_s: f64,
        decode_mb_s: f64,
    ) -> Result<ComparisonRow, Error> {
        Ok(ComparisonRow {
            file: self.input.file.clone(),
            tensor: self.input.entry.name().to_owned(),
            class: self.input.entry.class(),
            codec: self.codec.clone(),
            precondition: self.turn.to_string(),
            target: match self.goal {
                Goal::Target(target) => column(target),
                Goal::OwnRate if metrics.nmse == 0.0 => column(Rate::Lossless),
                Goal::OwnRate => column(Rate::Bits((bits_per_value * 100.0).ceil() / 100.0)),
            },
            bits_per_value,
            nmse: metrics.nmse,
            snr_db: metrics.snr_db,
            mae: metrics.mae,
            max_abs_error: metrics.max_abs_error,
            encode_mb_s,
            decode_mb_s,
            gap_bits: bits_per_value - gaussian_bound(1.0, metrics.nmse),
            missed: None,
            limiting_factor: None,
            device: device_of(&self.codec).into(),
            key: self.key()?,
        })
    }

    /// The row of a target that the codec cannot meet.
    fn missed(&self, limiting_factor: LimitingFactor, reason: String) -> Result<ComparisonRow, Error> {
        let none = self.row(f64::NAN, Metrics::from_nmse(f64::NAN), f64::NAN, f64::NAN)?;
        Ok(ComparisonRow { missed: Some(reason), limiting_factor: Some(limiting_factor), ..none })
    }

    /// The basis learned from the other tensors. Its own bits are a file's, not
    /// a tensor's: see [`shared_bases`].
    fn basis(&self, rank: Option<usize>) -> Result<PcaBasis, Error> {
        let mut others = self.samples.iter().filter(|sample| self.input.is_taught_by(sample)).peekable();
        if others.peek().is_none() {
            let (name, codec) = (self.input.entry.name(), self.codec.clone());
            let reason = "no other tensor of its class and width to learn a basis from";
            return Err(Error::unreachable(name, codec, self.turn, LimitingFactor::Shape, reason));
        }
        learn(others.map(|sample| &sample.entry), self.input.entry.matrix().1, rank)
    }

    /// A line that is no codec. Tensors are taken slab by slab, as codecs take
    /// them, so that it says what one table for each slab would.
    fn reference(&self) -> Result<ComparisonRow, Error> {
        let (mut bits, mut values, mut sums) = (0.0, 0, MetricSums::default());
        let metrics = match (self.codec.as_str(), self.target()) {
            (GAUSSIAN, Rate::Bits(rate)) => {
                (bits, values) = (rate, 1);
                Metrics::from_nmse(2f64.powf(-2.0 * rate))
            }
            (GAUSSIAN, Rate::Nmse(nmse)) => {
                (bits, values) = (gaussian_bound(1.0, nmse), 1);
                Metrics::from_nmse(nmse)
            }
            (_, target) => {
                each_slab(&self.input.entry, |slab| {
                    let (rate, own) = order0(slab, target)?;
                    bits += rate * slab.len() as f64;
                    values += slab.len();
                    sums.merge(&own);
                    Ok(())
                })?;
                sums.finish()
            }
        };
        self.row(bits / values.max(1) as f64, metrics, f64::NAN, f64::NAN)
    }
}

/// The principal components of the rows of some tensors, a slab at a time.
fn learn<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    cols: usize,
    rank: Option<usize>,
) -> Result<PcaBasis, Error> {
    let mut learner = PcaLearner::new(cols)?;
    for entry in entries {
        each_slab(entry, |slab| learner.add(slab))?;
    }
    Ok(learner.finish(rank.unwrap_or(usize::MAX)))
}

/// A basis for all tensors of a class and width, as a user would ship it.
#[derive(Debug)]
pub struct SharedBasis {
    pub class: Class,
    pub basis: PcaBasis,
    /// Values of the tensors it serves.
    pub values: usize,
}

impl SharedBasis {
    /// What the basis adds to each of the values it serves.
    pub fn bits_per_value(&self) -> f64 {
        self.basis.bits() as f64 / self.values.max(1) as f64
    }
}

/// The bases that a PCA of these tensors takes, one for each class and width
/// that more than one tensor has.
pub fn shared_bases(entries: &[&Entry], rank: Option<usize>) -> Result<Vec<SharedBasis>, Error> {
    let mut groups: Vec<(Class, usize, Vec<&Entry>)> = Vec::new();
    for &entry in entries {
        let (class, cols) = (entry.class(), entry.matrix().1);
        match groups.iter_mut().find(|group| (group.0, group.1) == (class, cols)) {
            Some(group) => group.2.push(entry),
            None => groups.push((class, cols, vec![entry])),
        }
    }
    groups
        .into_iter()
        .filter(|(_, _, members)| members.len() > 1)
        .map(|(class, cols, members)| {
            let basis = learn(members.iter().copied(), cols, rank)?;
            Ok(SharedBasis { class, basis, values: members.iter().map(|entry| entry.len()).sum() })
        })
        .collect()
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

impl ClassLine {
    fn of(rows: &[&ComparisonRow]) -> Self {
        let first = rows[0];
        let mean =
            |of: fn(&ComparisonRow) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / rows.len() as f64;
        let snr_db = mean(|row| row.snr_db);
        Self {
            class: first.class,
            codec: first.codec.clone(),
            precondition: first.precondition.clone(),
            target: first.target.clone(),
            tensors: rows.len(),
            bits_per_value: mean(|row| row.bits_per_value),
            nmse: 10f64.powf(-snr_db / 10.0),
            snr_db,
            mae: mean(|row| row.mae),
            max_abs_error: rows.iter().map(|row| row.max_abs_error).fold(first.max_abs_error, f64::max),
            encode_mb_s: mean(|row| row.encode_mb_s),
            decode_mb_s: mean(|row| row.decode_mb_s),
            gap_bits: mean(|row| row.gap_bits),
        }
    }
}

/// Sums rows up by class, target, codec and precondition: rates rise within a
/// class, codecs come in order of first appearance. Errors in decibels and gaps are plain means,
/// NMSE is the mean's decibels turned back, the largest error is the largest.
pub fn by_class(rows: &[ComparisonRow]) -> Vec<ClassLine> {
    fn key(row: &ComparisonRow) -> (Class, [&str; 3]) {
        (row.class, [&row.codec, &row.precondition, &row.target])
    }
    let mut groups: Vec<Vec<&ComparisonRow>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let mut lines: Vec<ClassLine> = groups.iter().map(|group| ClassLine::of(group)).collect();
    let rate = |line: &ClassLine| line.target.parse().unwrap_or(f64::MAX);
    lines.sort_by(|a, b| a.class.cmp(&b.class).then(rate(a).total_cmp(&rate(b))));
    lines
}

/// A codec against an anchor at the mean absolute error that the anchor had.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtEqualMae {
    pub tensor: String,
    pub codec: String,
    pub mae: f64,
    pub anchor_bits: f64,
    pub codec_bits: f64,
}

/// Every codec's bits at the errors of `anchor`, tensor by tensor, where its
/// own rows reach them: between two rows, bits are linear in the logarithm of
/// the error. A codec whose coarsest row is both smaller and nearer than the
/// anchor's needs no more than that row's bits, and stands with them.
pub fn at_equal_mae(rows: &[ComparisonRow], anchor: &str) -> Vec<AtEqualMae> {
    let plain = |row: &&ComparisonRow| row.precondition == "none" && row.mae > 0.0 && row.mae.is_finite();
    let mut found = Vec::new();
    for own in rows.iter().filter(plain).filter(|row| row.codec == anchor) {
        let others = rows.iter().filter(plain).filter(|row| row.tensor == own.tensor && row.codec != anchor);
        let mut curves: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
        for row in others {
            let point = (-row.mae.ln(), row.bits_per_value);
            match curves.iter_mut().find(|(codec, _)| *codec == row.codec) {
                Some((_, points)) => points.push(point),
                None => curves.push((&row.codec, vec![point])),
            }
        }
        for (codec, mut points) in curves {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (wanted, low, high) = (-own.mae.ln(), points[0].0, points[points.len() - 1].0);
            let beyond = wanted < low && points[0].1 <= own.bits_per_value;
            if beyond || (low..=high).contains(&wanted) {
                found.push(AtEqualMae {
                    tensor: own.tensor.clone(),
                    codec: codec.to_owned(),
                    mae: own.mae,
                    anchor_bits: own.bits_per_value,
                    codec_bits: if low < high && !beyond {
                        interpolate(&points, wanted)
                    } else {
                        points[0].1
                    },
                });
            }
        }
    }
    found
}

/// Whether a row exceeds no target: the bits, or the error.
fn within(target: Rate, row: &ComparisonRow) -> bool {
    match target {
        Rate::Bits(bits) => row.bits_per_value <= bits,
        // The sums of a comparison round in another order than a codec's own.
        Rate::Nmse(nmse) => row.nmse <= nmse * (1.0 + 1e-9),
        _ => true,
    }
}

/// Rows that exceed their target, or stay more than a per cent below its bits
/// or above its decibels.
pub fn off_target<'a>(rows: &'a [ComparisonRow], targets: &[Rate]) -> Vec<&'a ComparisonRow> {
    let met = |row: &ComparisonRow, target: Rate| {
        within(target, row)
            && match target {
                Rate::Bits(bits) => row.bits_per_value >= 0.99 * bits,
                Rate::Nmse(nmse) => 0.99 * row.snr_db <= -10.0 * nmse.log10(),
                _ => true,
            }
    };
    let off = |row: &&ComparisonRow| {
        let target = targets.iter().find(|&&target| column(target) == row.target);
        target.is_some_and(|&target| !met(row, target))
    };
    rows.iter().filter(off).collect()
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

    fn row(codec: &str, target: &str, bits: f64, mae: f64) -> ComparisonRow {
        ComparisonRow {
            file: "g.npy".into(),
            key: String::new(),
            missed: None,
            limiting_factor: None,
            device: cpu(),
            tensor: "g".into(),
            class: Class::WeightGradient,
            codec: codec.into(),
            precondition: "none".into(),
            target: target.into(),
            bits_per_value: bits,
            nmse: 0.01,
            snr_db: 20.0,
            mae,
            max_abs_error: 1.0,
            encode_mb_s: 1.0,
            decode_mb_s: 1.0,
            gap_bits: 0.0,
        }
    }

    #[test]
    fn bits_are_compared_at_the_anchors_error() {
        let rows = [
            row("h265", "3", 3.0, 0.1),
            row("int+lz4", "3", 3.0, 0.2),
            row("int+lz4", "4", 4.0, 0.05),
            row("nf4", "4.25", 4.25, 0.02),
        ];
        let [found] = &at_equal_mae(&rows, "h265")[..] else { panic!("one codec reaches the error") };
        assert_eq!((found.codec.as_str(), found.anchor_bits), ("int+lz4", 3.0));
        // Half way between 0.2 and 0.05, in logarithms.
        assert!((found.codec_bits - 3.5).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_codec_that_is_better_in_both_is_not_left_out() {
        // Its one row has fewer bits and less error: it wins, though their errors never meet.
        let rows = [row("h265", "3", 3.0, 0.1), row("int+lz4", "2.9", 2.9, 0.05)];
        let [found] = &at_equal_mae(&rows, "h265")[..] else { panic!("it must be found") };
        assert!(found.codec_bits <= found.anchor_bits, "{found:?}");
    }

    #[test]
    fn a_rate_missed_by_more_than_a_per_cent_is_found() {
        let rows = [
            row("a", "3", 2.98, 0.1),
            row("b", "3", 2.9, 0.1),
            row("c", "3", 3.001, 0.1),
            row("d", "2.9", 2.9, 0.1),
        ];
        let names: Vec<&str> =
            off_target(&rows, &[Rate::Bits(3.0)]).iter().map(|row| row.codec.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        // Rows of 20 dB.
        for (nmse, off) in [(0.0101, 0), (0.011, 1), (0.0099, 1)] {
            let rows = [row("e", &column(Rate::Nmse(nmse)), 3.0, 0.1)];
            assert_eq!(off_target(&rows, &[Rate::Nmse(nmse)]).len(), off, "{nmse}");
        }
    }

    #[test]
    fn a_basis_is_shared_by_tensors_of_one_class_and_width() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../validation/data/captured/sample.safetensors");
        let file = crate::TensorFile::open(std::path::Path::new(path)).unwrap().with_class(Class::Activation);
        let entries: Vec<&Entry> = file.entries().iter().collect();
        let [shared] = &shared_bases(&entries, Some(4)).unwrap()[..] else { panic!("all have 768 columns") };
        assert_eq!((shared.basis.cols, shared.basis.rank), (768, 4));
        assert_eq!(shared.basis.bits(), 8 * (12 + 4 * 768 * 5));
        assert!(shared.bits_per_value() < 0.1, "{}", shared.bits_per_value());
    }

    #[test]
    fn turns_are_read_as_they_are_written() {
        for text in ["none", "hadamard", "pca", "pca:64"] {
            assert_eq!(text.parse::<Turn>().unwrap().to_string(), text);
        }
        assert!("fourier".parse::<Turn>().is_err());
    }
}
