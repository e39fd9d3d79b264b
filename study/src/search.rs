//! The design space of the chain: bits, silicon and energy of every
//! combination of stages, and those that no other beats in all three.
//!
//! Designs are tried on a small piece of each class first; who is beaten there
//! by a margin is dropped, the others are measured on a larger piece. Knows
//! profiles and what operations cost; nothing of clusters.

use crate::config::{Design, DesignsFile};
use crate::{Error, Progress, Quality, price};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trinity_codec::StageCost;
use trinity_config::Checked;
use trinity_silicon::operations::{Work, estimate};
use trinity_silicon::stages::Technology;
use trinity_tensor::codec::{Rate, VERSION};
use trinity_tensor::compare::InputTensor;
use trinity_tensor::{ContentHash, crop};

/// The design space where none is named.
pub const DESIGNS: &str = "designs/chain";

/// Values of each tensor in the first round, and in the second.
const ROUNDS: [usize; 2] = [2048, 16384];
/// Who is worse in bits by more than this, and no better in silicon, is
/// dropped after the first round: small pieces have their own noise.
const MARGIN: f64 = 0.04;

/// What to search, on what.
#[derive(Debug, Clone)]
pub struct SearchRequest<'a> {
    /// Tensors; the first of each class stands for it.
    pub input_tensors: &'a [InputTensor],
    pub quality: Quality,
    /// A file of `configs/designs` by name, or a path that ends in `.toml`.
    pub designs: String,
    pub technology: Technology,
    pub throughput_gbps: f64,
    /// Rows of an earlier run; a design among them is not measured again.
    pub earlier: &'a [SearchRow],
}

/// A design in one round; the fields are the columns of `designs.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRow {
    pub design: String,
    /// Values of each tensor that it was measured on.
    pub values: usize,
    /// Mean over the classes; none where the quality is out of its reach.
    pub bits_per_value: f64,
    pub area_mm2: f64,
    pub pj_per_bit: f64,
    /// Whether it went on from this round.
    pub kept: bool,
    /// A hash of all that the row follows from.
    pub key: String,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Every row, round by round.
    pub rows: Vec<SearchRow>,
    /// The designs that no other beats, fewest bits first.
    pub front: Vec<(SearchRow, Design)>,
    /// Designs that were tried.
    pub designs: usize,
}

/// A piece of a tensor, ready for the codec.
struct Piece {
    rows: usize,
    cols: usize,
    values: Vec<f32>,
    target: Rate,
}

/// Searches. `keep` sees each new row as it is found. Fails where the file is
/// wrong, a tensor cannot be read, no design reaches the quality, or the work
/// is no longer wanted.
pub fn search(
    request: &SearchRequest<'_>,
    keep: &(dyn Fn(&SearchRow) + Sync),
    progress: &dyn Progress,
) -> Result<Found, Error> {
    let file = DesignsFile::load(&request.designs)?;
    if request.quality.is_rate() {
        let message = "designs are held against each other at one error, not at one rate";
        return Err(Error::input(message, "give an --nmse"));
    }
    let mut designs = file.designs();
    let tried = designs.len();
    let mut rows: Vec<SearchRow> = Vec::new();
    let mut last: Vec<SearchRow> = Vec::new();
    for (round, values) in ROUNDS.into_iter().enumerate() {
        last = measured(request, &designs, values, keep, progress)?;
        let margin = if round + 1 < ROUNDS.len() { MARGIN } else { 0.0 };
        let stays: Vec<bool> = (0..last.len()).map(|at| !is_beaten(&last, at, margin)).collect();
        last.iter_mut().zip(&stays).for_each(|(row, stays)| row.kept = *stays);
        rows.extend(last.iter().cloned());
        let mut kept = stays.iter();
        designs.retain(|_| kept.next().copied().unwrap_or(false));
    }
    last.retain(|row| row.kept);
    let mut front: Vec<(SearchRow, Design)> = last.into_iter().zip(designs).collect();
    front.sort_by(|a, b| a.0.bits_per_value.total_cmp(&b.0.bits_per_value));
    if front.is_empty() {
        let message = format!("none of the {tried} designs reaches {}", request.quality);
        return Err(Error::input(message, "ask for a larger error or more bits"));
    }
    Ok(Found { rows, front, designs: tried })
}

/// Whether another design is as good in everything and better in something:
/// in bits by more than `margin`, where there is one. Who missed the quality is
/// beaten by anybody.
fn is_beaten(rows: &[SearchRow], at: usize, margin: f64) -> bool {
    let own = &rows[at];
    if !own.bits_per_value.is_finite() {
        return true;
    }
    rows.iter().enumerate().any(|(other_at, other)| {
        let no_worse = other.bits_per_value * (1.0 + margin) <= own.bits_per_value
            && other.area_mm2 <= own.area_mm2
            && other.pj_per_bit <= own.pj_per_bit;
        let better = other.bits_per_value < own.bits_per_value
            || other.area_mm2 < own.area_mm2
            || other.pj_per_bit < own.pj_per_bit;
        // Of equals the first stays.
        no_worse && (better || other_at < at)
    })
}

fn measured(
    request: &SearchRequest<'_>,
    designs: &[Design],
    values: usize,
    keep: &(dyn Fn(&SearchRow) + Sync),
    progress: &dyn Progress,
) -> Result<Vec<SearchRow>, Error> {
    let pieces = pieces(request, values)?;
    let base = content(&pieces, request);
    progress.begin(designs.len() as u64, "searching designs");
    let rows = crate::parallel::map(designs, |design| {
        progress.check()?;
        let mut hash = ContentHash::default();
        hash.add(&base.to_le_bytes());
        hash.add(design.text.as_bytes());
        let key = format!("{:016x}", hash.finish());
        let row = match request.earlier.iter().find(|row| row.key == key) {
            Some(known) => known.clone(),
            None => {
                let row = request.row(design, &pieces, values, key);
                keep(&row);
                row
            }
        };
        progress.advance(1);
        Ok(row)
    });
    progress.end();
    rows.into_iter().collect()
}

/// The first tensor of each class, at a scale the codec is at home in.
fn pieces(request: &SearchRequest<'_>, values: usize) -> Result<Vec<Piece>, Error> {
    let mut classes = Vec::new();
    let mut pieces = Vec::new();
    for tensor in request.input_tensors {
        let class = tensor.entry.class();
        if classes.contains(&class) {
            continue;
        }
        classes.push(class);
        let failed = |error| Error::Tensor { subject: tensor.entry.name().to_owned(), error };
        let piece = crop(&tensor.entry, values).map_err(failed)?;
        let (rows, cols) = piece.matrix();
        let mut values = vec![0.0f32; piece.len()];
        piece.dtype().to_f32(piece.data(), &mut values);
        let energy: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
        let rms = (energy / values.len().max(1) as f64).sqrt();
        if rms > 0.0 && rms.is_finite() {
            values.iter_mut().for_each(|value| *value = (f64::from(*value) / rms) as f32);
            pieces.push(Piece { rows, cols, values, target: request.quality.of(class) });
        }
    }
    Ok(pieces)
}

/// What rows follow from beside the design.
fn content(pieces: &[Piece], request: &SearchRequest<'_>) -> u64 {
    let mut hash = ContentHash::default();
    hash.add(VERSION.as_bytes());
    hash.add(format!("{:?} {}", request.technology, request.throughput_gbps).as_bytes());
    for piece in pieces {
        hash.add(format!("{:?}", piece.target).as_bytes());
        hash.add(&piece.cols.to_le_bytes());
        piece.values.iter().for_each(|value| hash.add(&value.to_le_bytes()));
    }
    hash.finish()
}

impl SearchRequest<'_> {
    /// Bits, area and energy of a design: the mean over the classes, and of
    /// each stage what the class that asks most of it needs.
    fn row(&self, design: &Design, pieces: &[Piece], values: usize, key: String) -> SearchRow {
        let mut bits = 0.0;
        let mut stages: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
        for piece in pieces {
            let coded =
                trinity_codec::encode(&piece.values, piece.rows, piece.cols, &design.profile, piece.target);
            let Ok(coded) = coded else {
                bits = f64::NAN;
                break;
            };
            bits += coded.report.bits_per_value();
            let costs = coded.report.stages(design.profile.parallel.tile_values);
            for (stage, area_mm2, pj_per_bit) in self.priced(&costs) {
                let most = stages.entry(stage).or_default();
                *most = (most.0.max(area_mm2), most.1.max(pj_per_bit));
            }
        }
        let bits = bits / pieces.len().max(1) as f64;
        let sum = |of: fn(&(f64, f64)) -> f64| stages.values().map(of).sum();
        SearchRow {
            design: design.name.clone(),
            values,
            bits_per_value: bits,
            area_mm2: sum(|stage| stage.0),
            pj_per_bit: sum(|stage| stage.1),
            kept: false,
            key,
        }
    }

    /// Each stage with its area and energy, as `price` has them.
    fn priced(&self, costs: &[StageCost]) -> Vec<(&'static str, f64, f64)> {
        let price = |(cost, work): (&StageCost, Work)| {
            let silicon = estimate(&work, self.throughput_gbps, &self.technology).cost;
            (cost.stage, silicon.area_mm2, silicon.energy_pj_per_bit())
        };
        costs.iter().zip(price::works(costs)).map(price).collect()
    }
}

/// A few designs that span the front: the one of fewest bits, then at most
/// `most - 1` others, each with fewer mm² than the one before by the largest
/// steps.
pub fn spread(front: &[(SearchRow, Design)], most: usize) -> Vec<&(SearchRow, Design)> {
    let mut steps: Vec<&(SearchRow, Design)> = Vec::new();
    for pair in front {
        if steps.last().is_none_or(|last| pair.0.area_mm2 < last.0.area_mm2 * 0.9) {
            steps.push(pair);
        }
    }
    if steps.len() <= most || most < 2 {
        steps.truncate(most.max(1));
        return steps;
    }
    let last = steps.len() - 1;
    (0..most).map(|at| steps[at * last / (most - 1)]).collect()
}

/// The technology and rate that explorations price designs at. Fails where the
/// technology's file is wrong.
pub fn usual_silicon(file: &crate::config::ExplorationFile) -> Result<(Technology, f64), Error> {
    Ok((price::technology(&file.technology)?, file.throughput.gbit_per_s()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bits: f64, area_mm2: f64, pj_per_bit: f64) -> SearchRow {
        SearchRow {
            design: String::new(),
            values: 1,
            bits_per_value: bits,
            area_mm2,
            pj_per_bit,
            kept: false,
            key: String::new(),
        }
    }

    #[test]
    fn who_is_worse_in_everything_is_beaten_and_nobody_else() {
        let rows = [
            row(3.0, 1.0, 1.0),
            row(3.1, 1.1, 1.0),
            row(2.9, 2.0, 1.0),
            row(3.5, 0.5, 1.0),
            row(3.0, 1.0, 1.0),
        ];
        let beaten: Vec<bool> = (0..rows.len()).map(|at| is_beaten(&rows, at, 0.0)).collect();
        assert_eq!(beaten, [false, true, false, false, true], "of equals the first stays");
        // With a margin, what is nearly as good goes on.
        assert!(!is_beaten(&rows, 1, 0.04));
        assert!(is_beaten(&[row(3.0, 1.0, 1.0), row(3.5, 1.0, 1.0)], 1, 0.04));
        assert!(is_beaten(&[row(f64::NAN, 0.1, 0.1), row(3.0, 1.0, 1.0)], 0, 0.0), "it missed the quality");
    }
}
