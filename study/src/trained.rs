//! Training runs with coded communication, as values: what was sent, how fast it was coded, what the model lost.
//!
//! A run is a row of the committed recording (`validation/data/training/runs.csv`), a row of
//! another table of the same columns, or the `summary.json` that `python python/research/train`
//! leaves. Knows files and numbers; what a sweep makes of them it leaves to `config`.

use crate::Error;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use trinity_config::nearest;

const RECORDED: &str = include_str!("../../validation/data/training/runs.csv");
/// What messages call the committed recording.
pub const RECORDING: &str = "validation/data/training/runs.csv";

/// Rates of codecs count a value as bf16.
pub const VALUE_BITS: f64 = 16.0;
/// Bits per value of what is sent as it is.
pub const UNCODED_BITS: f64 = 32.0;

/// One training run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub name: String,
    pub seed: u64,
    /// Steps of the optimizer, where the table states them.
    pub steps: Option<f64>,
    /// What coded gradients between replicas, where the table states it: `trinity`, `h265`, `none`.
    pub method: Option<String>,
    /// Bits per value of weight gradients, as payloads had them; nothing in a pipeline.
    pub weight_gradient_bits: Option<f64>,
    /// Bits per value of activations; nothing between replicas.
    pub activation_bits: Option<f64>,
    /// Bits per value of activations' gradients; nothing between replicas.
    pub activation_gradient_bits: Option<f64>,
    /// Bits per byte of held-out text at the end.
    pub bits_per_byte: f64,
    /// The share of choices between continuations that were right.
    pub choices: f64,
    /// Values that the loop encoded and decoded in a second; nothing where that was not measured.
    pub encode_values_per_s: Option<f64>,
    pub decode_values_per_s: Option<f64>,
}

/// The runs that a name stands for: one for each seed, and where they were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    pub source: String,
    pub each: Vec<Run>,
}

/// Every run of the committed recording. Fails when the committed file is
/// damaged.
pub fn recorded() -> Result<Vec<Run>, Error> {
    parse(RECORDED, RECORDING)
}

/// The runs that `name` stands for: `NAME` of the recording, `TABLE.csv#NAME`, or a `summary.json`;
/// paths are seen from `folder`. Fails where a file cannot be read or has no
/// such run, saying which it has.
pub fn find(name: &str, folder: &Path) -> Result<Runs, Error> {
    if is_summary(Path::new(name)) {
        return read_summary(&folder.join(name));
    }
    let (all, file, wanted) = match name.split_once('#') {
        Some((table, wanted)) => {
            let path = folder.join(table);
            let text = read(&path)?;
            let file = path.display().to_string();
            (parse(&text, &file)?, file, wanted)
        }
        None => (recorded()?, RECORDING.to_owned(), name),
    };
    let each: Vec<Run> = all.iter().filter(|run| run.name == wanted).cloned().collect();
    if each.is_empty() {
        let mut names: Vec<&str> = all.iter().map(|run| run.name.as_str()).collect();
        names.dedup();
        let help = nearest(wanted, &names).map_or_else(
            || format!("one of: {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        return Err(Error::input(format_args!("`{file}` has no run `{wanted}`"), help));
    }
    Ok(Runs { source: format!("{file}, run {wanted}"), each })
}

/// Whether a path is that of a run's summary.
pub fn is_summary(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read `{}`: {error}", path.display());
        let help = "`python python/research/train RUN.toml` leaves summary.json in the folder \
                    that the run names as `out`";
        Error::input(message, help)
    })
}

/// What a summary says that is of use here.
#[derive(Deserialize)]
struct Summary {
    seed: u64,
    valid_bits_per_byte: f64,
    bits_per_value: f64,
    activation_bits: f64,
    gradient_bits: f64,
    #[serde(default)]
    encode_values_per_s: f64,
    #[serde(default)]
    decode_values_per_s: f64,
    choices: std::collections::BTreeMap<String, f64>,
}

/// The run that left a `summary.json`. Fails where it cannot be read or is no
/// summary, pointing at the line.
pub fn read_summary(path: &Path) -> Result<Runs, Error> {
    let said: Summary = serde_json::from_str(&read(path)?).map_err(|error| {
        let message = format!("{}:{}:{}: {error}", path.display(), error.line(), error.column());
        Error::input(message, "expected the summary.json of `python python/research/train`")
    })?;
    let run = Run {
        name: path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned(),
        seed: said.seed,
        steps: None,
        method: None,
        weight_gradient_bits: positive(said.bits_per_value),
        activation_bits: positive(said.activation_bits),
        activation_gradient_bits: positive(said.gradient_bits),
        bits_per_byte: said.valid_bits_per_byte,
        choices: said.choices.values().sum::<f64>() / said.choices.len().max(1) as f64,
        encode_values_per_s: positive(said.encode_values_per_s),
        decode_values_per_s: positive(said.decode_values_per_s),
    };
    Ok(Runs { source: path.display().to_string(), each: vec![run] })
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// A table of runs, as `python python/research/train` records them: columns go
/// by their names. Fails where a column is missing or a field is no number,
/// with the line.
pub fn parse(text: &str, file: &str) -> Result<Vec<Run>, Error> {
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = lines.next().map_or("", |(_, line)| line).split(',').collect();
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| TrainedRow { file, at, header: &header, line }.run())
        .collect()
}

/// One line of a table.
struct TrainedRow<'a> {
    file: &'a str,
    at: usize,
    header: &'a [&'a str],
    line: &'a str,
}

impl<'a> TrainedRow<'a> {
    fn wrong(&self, what: impl fmt::Display) -> Error {
        let message = format!("{}:{}: {what}", self.file, self.at + 1);
        Error::input(message, "expected a table as validation/data/training/runs.csv is one")
    }

    fn field(&self, column: &str) -> Option<&'a str> {
        let at = self.header.iter().position(|name| *name == column)?;
        self.line.split(',').nth(at)
    }

    fn text(&self, column: &str) -> Result<&'a str, Error> {
        self.field(column).ok_or_else(|| self.wrong(format_args!("no column `{column}`")))
    }

    fn number(&self, column: &str) -> Result<f64, Error> {
        let field = self.text(column)?;
        field.parse().map_err(|_| self.wrong(format_args!("`{field}` in column `{column}` is no number")))
    }

    /// A number that earlier recordings lack.
    fn later(&self, column: &str) -> Result<Option<f64>, Error> {
        match self.field(column) {
            None | Some("") => Ok(None),
            Some(_) => self.number(column).map(positive),
        }
    }

    fn run(&self) -> Result<Run, Error> {
        Ok(Run {
            name: self.text("run")?.to_owned(),
            seed: self.number("seed")? as u64,
            steps: self.later("steps")?,
            method: self.field("method").map(str::to_owned),
            weight_gradient_bits: positive(self.number("bits_per_value")?),
            activation_bits: positive(self.number("activation_bits")?),
            activation_gradient_bits: positive(self.number("gradient_bits")?),
            bits_per_byte: self.number("valid_bits_per_byte")?,
            choices: self.number("choices")?,
            encode_values_per_s: self.later("encode_values_per_s")?,
            decode_values_per_s: self.later("decode_values_per_s")?,
        })
    }
}

impl Runs {
    /// The mean of a number that every run has.
    pub fn mean(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let each: Option<Vec<f64>> = self.each.iter().map(of).collect();
        each.filter(|each| !each.is_empty()).map(|each| each.iter().sum::<f64>() / each.len() as f64)
    }

    /// Where they are from and how many there are, for reports.
    pub fn note(&self) -> String {
        match self.each.len() {
            1 => self.source.clone(),
            seeds => format!("{}, mean of {seeds} seeds", self.source),
        }
    }
}

/// The folder that paths in a file are seen from: the file's own, or where the command runs.
pub fn folder_of(source: &str) -> PathBuf {
    let path = Path::new(source);
    match path.extension() {
        Some(ending) if ending == "toml" => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        _ => PathBuf::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "run,seed,bits_per_value,activation_bits,gradient_bits,valid_bits_per_byte,choices";

    #[test]
    fn a_table_is_read_by_the_names_of_its_columns() {
        let text = format!(
            "{HEAD},encode_values_per_s,decode_values_per_s\na,1,1.4,0,0,1.7,0.5,2e9,4e9\npp,2,0,3,5,1.8,0.6,,\n"
        );
        let runs = parse(&text, "t.csv").unwrap();
        assert_eq!((runs[0].weight_gradient_bits, runs[0].activation_bits), (Some(1.4), None));
        assert_eq!((runs[0].encode_values_per_s, runs[0].decode_values_per_s), (Some(2e9), Some(4e9)));
        assert_eq!((runs[1].activation_bits, runs[1].activation_gradient_bits), (Some(3.0), Some(5.0)));
        assert_eq!(runs[1].encode_values_per_s, None);
    }

    #[test]
    fn a_damaged_row_is_an_error_with_its_line() {
        let wrong = parse(&format!("{HEAD}\na,1,1.4,0,0,1.7,0.5\nb,1,x,0,0,2,0.5\n"), "t.csv").unwrap_err();
        assert_eq!(wrong.to_string(), "t.csv:3: `x` in column `bits_per_value` is no number");
        let wrong = parse("run,seed\na,1\n", "t.csv").unwrap_err().to_string();
        assert!(wrong.contains("no column `bits_per_value`"), "{wrong}");
    }

    #[test]
    fn a_name_stands_for_all_seeds_and_a_wrong_one_is_told_the_nearest() {
        let found = find("t1.4-v", Path::new("")).unwrap();
        assert!(
            found.each.len() >= 3 && found.note().contains("runs.csv, run t1.4-v, mean of"),
            "{}",
            found.note()
        );
        assert_eq!(find("t1.4-w", Path::new("")).unwrap_err().help(), Some("did you mean `t1.4-v`?"));
        assert!(find("nowhere.csv#a", Path::new("")).unwrap_err().to_string().starts_with("cannot read"));
    }

    #[test]
    fn a_summary_is_read_and_a_damaged_one_points_at_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        let text = r#"{"seed": 3, "valid_bits_per_byte": 1.7, "bits_per_value": 1.25, "activation_bits": 0.0,
 "gradient_bits": 0.0, "encode_values_per_s": 2e9, "decode_values_per_s": 3e9, "choices": {"a": 0.5, "b": 0.7}}"#;
        std::fs::write(&path, text).unwrap();
        let found = find("summary.json", folder.path()).unwrap();
        assert_eq!(found.mean(|run| run.weight_gradient_bits), Some(1.25));
        assert_eq!(found.mean(|run| run.activation_bits), None);
        assert!((found.each[0].choices - 0.6).abs() < 1e-12);
        std::fs::write(&path, text.replace("1.25", "\"x\"")).unwrap();
        let wrong = find("summary.json", folder.path()).unwrap_err().to_string();
        assert!(wrong.contains("summary.json:1:"), "{wrong}");
    }
}
