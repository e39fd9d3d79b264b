//! Codecs side by side on tensors.
//!
//! Joins tensors, codecs, preconditions and targets into cells, fills them,
//! and sums them up by class. Knows nothing of files or of how a table looks.

mod verdicts;

pub use verdicts::verdicts;

use crate::{Error, Progress, Shard};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trinity_config::nearest;
use trinity_tensor::codec::Rate;
use trinity_tensor::codec::table;
use trinity_tensor::compare::{
    ClassLine, ComparisonRow, GAUSSIAN, Goal, InputTensor, Job, ORDER0, Turn, by_class, column,
};
use trinity_tensor::pipeline::first_non_finite;
use trinity_tensor::{Class, Entry, LimitingFactor, TensorFile};

/// Rates where none is named, bits per value.
pub const USUAL_BITS: [f64; 5] = [2.0, 2.5, 3.0, 3.5, 4.0];

/// The codecs compared where none is named: one of each kind that this project brings, and the
/// paper's eight baselines. Other programs' encoders and other profiles take longer than all of these.
pub fn usual_codecs() -> Vec<String> {
    table::listed(|listing| listing.usual)
}

/// Tensors and what to hold side by side on each.
#[derive(Debug, Clone)]
pub struct ComparisonRequest<'a> {
    /// Tensors; rows tell them apart by name.
    pub input_tensors: &'a [InputTensor],
    pub codecs: Vec<String>,
    pub turns: Vec<Turn>,
    pub targets: Vec<Rate>,
    /// Rows of an earlier run; a cell that follows from the same as one of them
    /// is not filled again.
    pub earlier: &'a [ComparisonRow],
    /// The cells to fill: part of them, where many machines share them out.
    pub part: Shard,
    /// Refuse to fill a cell that no earlier row stands for.
    pub only_earlier: bool,
}

/// Every row, and what could not be reached.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// A row for every cell, also where its target is out of reach.
    pub all: Vec<ComparisonRow>,
    /// The rows that met their target.
    pub rows: Vec<ComparisonRow>,
    /// Means over the tensors of a class.
    pub classes: Vec<ClassLine>,
    pub misses: Vec<Miss>,
}

/// A target that a codec did not reach, and on how many tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Miss {
    pub codec: String,
    pub target: String,
    /// What was in the way; a row of an earlier version does not say.
    #[serde(rename = "obstacle")]
    pub limiting_factor: Option<LimitingFactor>,
    pub tensors: usize,
}

/// Fills every cell. `keep` sees each new row as it is found. Fails where a
/// codec is unknown, a tensor cannot be read, or the work is no longer wanted;
/// a target out of reach is no error but a [`Miss`].
pub fn compare(
    request: &ComparisonRequest<'_>,
    keep: &(dyn Fn(&ComparisonRow) + Sync),
    progress: &dyn Progress,
) -> Result<Comparison, Error> {
    let jobs = request.jobs()?;
    progress.begin(jobs.len() as u64, "comparing");
    let earlier: HashMap<&str, &ComparisonRow> =
        request.earlier.iter().map(|row| (row.key.as_str(), row)).collect();
    let results = crate::parallel::map_apart(&jobs, |job| {
        progress.check()?;
        let failed = |error| Error::Tensor { subject: job.codec.clone(), error };
        let row = match earlier.get(job.key().map_err(failed)?.as_str()) {
            Some(row) => Ok(job.renamed(row)),
            None if request.only_earlier => {
                let (codec, tensor) = (&job.codec, job.input.entry.name());
                let message = format!("{codec} on `{tensor}` at {:?} is in none of the parts", job.goal);
                return Err(Error::input(message, "make all parts with the arguments that the merge has"));
            }
            None => job.run().inspect(|row| keep(row)),
        };
        progress.advance(1);
        row.map_err(failed)
    });
    progress.end();
    let all = results.into_iter().collect::<Result<Vec<ComparisonRow>, Error>>()?;
    let (rows, missed): (Vec<ComparisonRow>, Vec<ComparisonRow>) =
        all.iter().cloned().partition(|row| row.missed.is_none());
    let classes = by_class(&rows);
    Ok(Comparison { all, rows, classes, misses: misses(&missed) })
}

/// Who is best on a class at one target, and by how much.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Winner {
    pub class: Class,
    pub target: String,
    pub codec: String,
    /// Means over the tensors on which the winner reached the target.
    pub bits_per_value: f64,
    pub snr_db: f64,
    /// Tensors on which the winner reached the target, out of the class's.
    pub tensors: usize,
    pub of: usize,
    /// Who comes nearest, where there is another.
    pub next: Option<String>,
    /// Tensors that both reached: the lead is of these alone.
    pub shared: usize,
    /// Decibels more at the same bits, or the share of bits saved at the same
    /// error; below zero where the other is better on what it reached.
    pub lead: Option<f64>,
}

/// The winner of each class at each of the targets: most decibels where bits
/// were asked for, fewest bits where an error was. Who reached more tensors
/// comes first; two codecs are compared on the tensors that both reached.
pub fn winners(rows: &[ComparisonRow], targets: &[Rate]) -> Vec<Winner> {
    let mut winners = Vec::new();
    for class in Class::ALL {
        let of = names(rows.iter().filter(|row| row.class == class)).len();
        for &target in targets {
            let (at, in_bits) = (column(target), matches!(target, Rate::Bits(_)));
            let own = rows.iter().filter(|row| row.class == class && row.target == at);
            let own: Vec<ComparisonRow> = own.filter(|row| !is_reference(&row.codec)).cloned().collect();
            let better = |a: &ClassLine, b: &ClassLine| match in_bits {
                true => b.snr_db.total_cmp(&a.snr_db),
                false => a.bits_per_value.total_cmp(&b.bits_per_value),
            };
            let mut lines = by_class(&own);
            lines.sort_by(|a, b| b.tensors.cmp(&a.tensors).then(better(a, b)));
            let Some((best, rest)) = lines.split_first() else { continue };
            let leads = rest.iter().filter_map(|other| {
                let (best, other) = on_shared(&own, best, other)?;
                let lead = match in_bits {
                    true => best.snr_db - other.snr_db,
                    false => 1.0 - best.bits_per_value / other.bits_per_value,
                };
                Some((other, lead))
            });
            let next = leads.min_by(|(_, a), (_, b)| a.total_cmp(b));
            winners.push(Winner {
                class,
                target: target.to_string(),
                codec: named(best),
                bits_per_value: best.bits_per_value,
                snr_db: best.snr_db,
                tensors: best.tensors,
                of,
                next: next.as_ref().map(|(other, _)| named(other)),
                shared: next.as_ref().map_or(0, |(other, _)| other.tensors),
                lead: next.map(|(_, lead)| lead),
            });
        }
    }
    winners
}

/// Whether a line is no codec, but something to hold codecs against.
fn is_reference(codec: &str) -> bool {
    [ORDER0, GAUSSIAN].contains(&codec)
}

/// The tensors of rows.
fn names<'a>(rows: impl Iterator<Item = &'a ComparisonRow>) -> BTreeSet<&'a str> {
    rows.map(|row| row.tensor.as_str()).collect()
}

/// The lines of two codecs over the tensors that both have; nothing where they
/// have none in common.
fn on_shared(rows: &[ComparisonRow], one: &ClassLine, other: &ClassLine) -> Option<(ClassLine, ClassLine)> {
    let is_of = |row: &&ComparisonRow, line: &ClassLine| {
        (&row.codec, &row.precondition) == (&line.codec, &line.precondition)
    };
    let [ones, others] = [one, other].map(|line| names(rows.iter().filter(|row| is_of(row, line))));
    let line_of = |line: &ClassLine| {
        let own = rows.iter().filter(|row| is_of(row, line));
        let shared: Vec<ComparisonRow> = own
            .filter(|row| ones.contains(row.tensor.as_str()) && others.contains(row.tensor.as_str()))
            .cloned()
            .collect();
        by_class(&shared).into_iter().next()
    };
    Some((line_of(one)?, line_of(other)?))
}

/// The rows of the tensors on which both codecs reached all targets that they
/// have at all: two curves over these are means of the same.
pub fn on_common_tensors(rows: &[ComparisonRow], codecs: [(&str, &str); 2]) -> Vec<ComparisonRow> {
    let own = |codec: (&str, &str)| {
        let own: Vec<&ComparisonRow> =
            rows.iter().filter(|row| (row.codec.as_str(), row.precondition.as_str()) == codec).collect();
        let targets: BTreeSet<&str> = own.iter().map(|row| row.target.as_str()).collect();
        let whole = |tensor: &&str| own.iter().filter(|row| row.tensor == **tensor).count() == targets.len();
        let tensors: BTreeSet<&str> = names(own.iter().copied()).into_iter().filter(whole).collect();
        (own, tensors)
    };
    let ((one, ones), (other, others)) = (own(codecs[0]), own(codecs[1]));
    let shared =
        |row: &&ComparisonRow| ones.contains(row.tensor.as_str()) && others.contains(row.tensor.as_str());
    one.into_iter().chain(other).filter(shared).cloned().collect()
}

/// A codec with what its tensors were turned by.
fn named(line: &ClassLine) -> String {
    match line.precondition.as_str() {
        "none" => line.codec.clone(),
        turn => format!("{} ({turn})", line.codec),
    }
}

/// The targets that were not met, each with the number of its tensors.
fn misses(missed: &[ComparisonRow]) -> Vec<Miss> {
    let mut counted = BTreeMap::<(&str, &str, Option<LimitingFactor>), usize>::new();
    for row in missed {
        *counted.entry((&row.codec, &row.target, row.limiting_factor)).or_default() += 1;
    }
    let named =
        |((codec, target, limiting_factor), tensors): ((&str, &str, Option<LimitingFactor>), usize)| Miss {
            codec: codec.to_owned(),
            target: target.to_owned(),
            limiting_factor,
            tensors,
        };
    counted.into_iter().map(named).collect()
}

impl std::fmt::Display for Miss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.codec, self.target)?;
        self.limiting_factor.map_or(Ok(()), |limiting_factor| write!(f, ": {limiting_factor}"))
    }
}

impl<'a> ComparisonRequest<'a> {
    fn jobs(&self) -> Result<Vec<Job<'a>>, Error> {
        let (mut jobs, mut seen) = (Vec::new(), 0);
        for input in self.input_tensors {
            for codec in self.codecs.iter().map(String::as_str).chain([ORDER0, GAUSSIAN]) {
                let plain = [Turn::None];
                let turns = if [ORDER0, GAUSSIAN].contains(&codec) { &plain[..] } else { &self.turns };
                let goals = Goal::of(codec, &self.targets)
                    .map_err(|error| Error::Tensor { subject: codec.into(), error })?;
                for (&turn, &goal) in turns.iter().flat_map(|turn| goals.iter().map(move |goal| (turn, goal)))
                {
                    seen += 1;
                    if !self.part.takes(seen - 1) {
                        continue;
                    }
                    jobs.push(Job { input, codec: codec.into(), turn, goal, samples: self.input_tensors });
                }
            }
        }
        Ok(jobs)
    }
}

/// The tensors of files, each file under what messages call it, whose names
/// contain `text`. Tensors of one name carry their file in front: rows tell
/// tensors apart by name alone. Fails where no tensor with values is left.
pub fn chosen(files: &[(String, TensorFile)], text: Option<&str>) -> Result<Vec<(String, Entry)>, Error> {
    let of = |(file, tensors): &(String, TensorFile)| -> Vec<(String, Entry)> {
        tensors.entries().iter().map(|entry| (file.clone(), entry.clone())).collect()
    };
    let mut entries: Vec<(String, Entry)> = files.iter().flat_map(of).collect();
    let names: Vec<String> = entries.iter().map(|(_, entry)| entry.name().to_owned()).collect();
    if let Some(text) = text {
        entries.retain(|(_, entry)| entry.name().contains(text));
        if entries.is_empty() && !names.is_empty() {
            let help = match nearest(text, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the names are: {}", listed(&names)),
            };
            return Err(Error::input(format_args!("no tensor's name contains `{text}`"), help));
        }
    }
    let without_values = entries.iter().filter(|(_, entry)| entry.is_empty());
    let empty: Vec<String> =
        without_values.map(|(_, entry)| format!("{} {:?}", entry.name(), entry.shape())).collect();
    entries.retain(|(_, entry)| !entry.is_empty());
    if entries.is_empty() {
        return Err(match empty.as_slice() {
            [] => Error::input(
                "the files hold no tensors",
                "`trinity tensors info FILE` lists what a file holds",
            ),
            empty => Error::input(
                format_args!("nothing to compare: no values in {}", listed(empty)),
                "a dimension of 0 leaves a tensor without values",
            ),
        });
    }
    Ok(distinct(entries))
}

/// Tensors ready to compare codecs on. One that no lossy codec can take is left
/// out with a remark, or refused where that is `strict`. Fails where a tensor
/// cannot be read, or none is left.
pub fn input_tensors(
    chosen: Vec<(String, Entry)>,
    strict: bool,
    progress: &dyn Progress,
) -> Result<Vec<InputTensor>, Error> {
    let mut input_tensors = Vec::new();
    for (file, entry) in chosen {
        let place = format!("{file}: tensor `{}`", entry.name().escape_debug());
        let unreadable = |error| Error::Tensor { subject: place.clone(), error };
        let left_out = match entry.carried() {
            Some(carried) => Some(format!("{} is carried as it is", carried.dtype)),
            None => first_non_finite(&entry)
                .map_err(unreadable)?
                .map(|(index, value)| format!("value {index} is {value}")),
        };
        match left_out {
            None => {
                let subject = entry.name().to_owned();
                let read = InputTensor::new(entry, file);
                input_tensors.push(read.map_err(|error| Error::Tensor { subject, error })?);
            }
            Some(why) if strict => {
                let help = "without --strict it is left out, and the others are compared";
                return Err(Error::input(format_args!("{place}: {why}"), help));
            }
            Some(why) => progress.remark(&format!("left out: {place}: {why}")),
        }
    }
    if input_tensors.is_empty() {
        let message = "no tensor is left that a lossy codec could take";
        return Err(Error::input(message, "`trinity encode --lossless` keeps them as they are"));
    }
    Ok(input_tensors)
}

/// A few names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// Tensors of one name in several files, such as a model and its tuned twin,
/// under names that differ.
fn distinct(entries: Vec<(String, Entry)>) -> Vec<(String, Entry)> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for (_, entry) in &entries {
        *times.entry(entry.name().to_owned()).or_default() += 1;
    }
    let renamed = |(file, entry): (String, Entry)| match times.get(entry.name()) {
        Some(2..) => {
            let name = format!("{file}:{}", entry.name());
            (file, entry.with_name(name))
        }
        _ => (file, entry),
    };
    entries.into_iter().map(renamed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tensor: &str, codec: &str, target: &str, bits: f64, snr_db: f64) -> ComparisonRow {
        ComparisonRow {
            file: "w.npy".into(),
            key: String::new(),
            missed: None,
            limiting_factor: None,
            device: "cpu".into(),
            tensor: tensor.into(),
            class: Class::Weight,
            codec: codec.into(),
            precondition: "none".into(),
            target: target.into(),
            bits_per_value: bits,
            nmse: 1e-4,
            snr_db,
            mae: 0.1,
            max_abs_error: 1.0,
            encode_mb_s: 1.0,
            decode_mb_s: 1.0,
            gap_bits: 0.0,
        }
    }

    #[test]
    fn codecs_are_compared_on_the_tensors_that_both_reached() {
        let at = column(Rate::Nmse(1e-4));
        // One easy tensor, which both reach, and two that only one does.
        let rows = [
            row("easy", "trinity", &at, 1.275, 40.0),
            row("hard", "trinity", &at, 6.5, 40.0),
            row("harder", "trinity", &at, 7.1, 40.0),
            row("easy", "nf4", &at, 4.3, 40.0),
        ];
        let [winner] = &winners(&rows, &[Rate::Nmse(1e-4)])[..] else { panic!("one class, one target") };
        assert_eq!((winner.codec.as_str(), winner.tensors, winner.of), ("trinity", 3, 3));
        assert_eq!((winner.next.as_deref(), winner.shared), (Some("nf4"), 1));
        assert!((winner.lead.unwrap() - (1.0 - 1.275 / 4.3)).abs() < 1e-12, "{winner:?}");
    }

    #[test]
    fn one_that_is_better_on_the_little_it_reached_is_said_to_be() {
        let rows = [
            row("a", "all", "3", 3.0, 20.0),
            row("b", "all", "3", 3.0, 10.0),
            row("a", "some", "3", 3.0, 21.0),
        ];
        let [winner] = &winners(&rows, &[Rate::Bits(3.0)])[..] else { panic!("one class, one target") };
        assert_eq!((winner.codec.as_str(), winner.shared), ("all", 1));
        assert!((winner.lead.unwrap() + 1.0).abs() < 1e-12, "{winner:?}");
    }

    #[test]
    fn curves_are_means_over_the_same_tensors() {
        let mut rows: Vec<ComparisonRow> = Vec::new();
        for (tensor, codec, targets) in [
            ("a", "x", &["2", "3"][..]),
            ("b", "x", &["2", "3"]),
            ("a", "y", &["2", "3"]),
            ("b", "y", &["3"]),
        ] {
            rows.extend(targets.iter().map(|target| row(tensor, codec, target, 3.0, 20.0)));
        }
        let common = on_common_tensors(&rows, [("x", "none"), ("y", "none")]);
        assert!(common.len() == 4 && common.iter().all(|row| row.tensor == "a"), "{common:?}");
    }
}
