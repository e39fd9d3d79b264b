//! The collective model against NCCL: each measured path has a link with
//! three constants; the protocols are the simulator's.

use crate::Error;
use crate::csv::{Problem, Row, Table};
use crate::score::Pair;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use trinity_config::{Checked, Complaint, Diagnostic, Document, Kind};
use trinity_sim::collective::{Algorithm, Link, Switching, Topology};
use trinity_sim::nccl;

/// How a file of links is checked.
const KIND: Kind = Kind::of::<Links>("links", "paths between GPUs as NCCL uses them");

/// Columns every table of collectives has.
const COLUMNS: [&str; 8] = ["source", "gpu", "fabric", "op", "n_gpus", "gpus_per_node", "bytes", "time_us"];

/// Three constants of one path.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkConstants {
    #[schemars(with = "trinity_config::Cited<f64>")]
    pub bandwidth_gb_per_s: f64,
    #[schemars(with = "trinity_config::Cited<f64>")]
    pub latency_us: f64,
    #[schemars(with = "trinity_config::Cited<f64>")]
    pub launch_us: f64,
}

/// The file of links.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    pub links: BTreeMap<String, LinkConstants>,
}

impl Checked for Links {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        for (name, link) in &self.links {
            let fields = [
                ("bandwidth-gb-per-s", link.bandwidth_gb_per_s, f64::MIN_POSITIVE),
                ("latency-us", link.latency_us, 0.0),
                ("launch-us", link.launch_us, 0.0),
            ];
            for (field, value, low) in fields {
                if !(value >= low && value.is_finite()) {
                    let complaint = Complaint::new("the constant is out of its range")
                        .expected("a number that is not negative");
                    return Err(document.complain(&format!("links.{name}.{field}"), &complaint));
                }
            }
        }
        Ok(())
    }
}

impl Links {
    /// The built-in links, changed by assignments that start with `links.`.
    ///
    /// # Errors
    ///
    /// When an assignment does not fit.
    pub fn load(assignments: &[String]) -> Result<Self, Error> {
        let mut document = Document::parse("validation/links.toml", include_str!("../links.toml"))?;
        for assignment in assignments.iter().filter(|assignment| assignment.starts_with("links.")) {
            document.set(assignment)?;
        }
        KIND.check(&document)?;
        Ok(document.read()?)
    }
}

/// The two operations that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    AllReduce,
    SendRecv,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub source: String,
    pub gpu: String,
    pub fabric: String,
    pub operation: Operation,
    pub ranks: u32,
    pub ranks_per_node: u32,
    pub bytes: f64,
    pub seconds: f64,
}

/// Measurements read from one table.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub measurements: Vec<Measurement>,
    pub malformed: Vec<Problem>,
}

impl Measurements {
    /// Reads a table of collectives.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or lacks a column.
    pub fn read(path: &Path) -> Result<Self, crate::csv::Error> {
        let table = Table::read(path, &COLUMNS)?;
        let mut all = Self { malformed: table.problems.clone(), ..Self::default() };
        for row in table.rows() {
            match measurement(&row) {
                Ok(measurement) => all.measurements.push(measurement),
                Err(problem) => all.malformed.push(problem),
            }
        }
        Ok(all)
    }
}

fn measurement(row: &Row<'_>) -> Result<Measurement, Problem> {
    let operation = match row.text("op") {
        "all_reduce" => Operation::AllReduce,
        "send_recv" => Operation::SendRecv,
        other => return Err(row.problem("op", format!("expected all_reduce or send_recv, found `{other}`"))),
    };
    let ranks = row.required_count("n_gpus")?;
    if ranks < 2 {
        return Err(row.problem("n_gpus", "a collective needs two GPUs"));
    }
    Ok(Measurement {
        source: row.text("source").to_owned(),
        gpu: row.text("gpu").to_owned(),
        fabric: row.text("fabric").to_owned(),
        operation,
        ranks,
        ranks_per_node: row.required_count("gpus_per_node")?,
        bytes: row.required("bytes")?,
        seconds: row.required("time_us")? * 1e-6,
    })
}

impl Measurement {
    /// The name of the path it was measured on.
    pub fn path(&self) -> String {
        let fabric = self.fabric.to_lowercase();
        if fabric.starts_with("nvswitch") {
            return "a100-nvswitch".to_owned();
        }
        if fabric.starts_with("nvlink node") {
            return "v100-nvlink".to_owned();
        }
        if fabric.starts_with("4x a100") {
            return "a100-fully-connected".to_owned();
        }
        let board = if fabric.contains("dgx") { "dgx" } else { "pairs" };
        let operation = match self.operation {
            Operation::AllReduce => "reduce",
            Operation::SendRecv => "send",
        };
        format!("{}-{board}-{operation}-{}x{}", self.gpu.to_lowercase(), self.ranks, self.ranks_per_node)
    }

    /// A line that names it.
    pub fn describe(&self) -> String {
        let operation = match self.operation {
            Operation::AllReduce => "all-reduce",
            Operation::SendRecv => "send/recv",
        };
        format!(
            "{operation} of {:.2} MiB over {} {} ({} a node, {})",
            self.bytes / 1_048_576.0,
            self.ranks,
            self.gpu,
            self.ranks_per_node,
            self.fabric
        )
    }

    fn seconds_on(&self, constants: &LinkConstants) -> f64 {
        let rings = if self.gpu == "V100" { v100_rings(self.ranks) } else { 1.0 };
        let inside = self.ranks <= self.ranks_per_node && self.gpu != "V100";
        let used = match self.operation {
            Operation::AllReduce if inside => nccl::channels_used(self.ranks),
            _ => 1.0,
        };
        let link = Link {
            bytes_per_s: constants.bandwidth_gb_per_s * 1e9 * rings * used,
            latency_s: constants.latency_us * 1e-6,
            launch_s: constants.launch_us * 1e-6,
            topology: Topology::Switch,
            switching: Switching::CutThrough,
            all_reduce: Algorithm::Nccl,
            energy_j_per_bit: 0.0,
        };
        match self.operation {
            Operation::AllReduce => nccl::all_reduce_s(&link, self.ranks, self.bytes),
            Operation::SendRecv => nccl::send_recv_s(&link, self.bytes),
        }
    }
}

/// Rings among the first GPUs of a hybrid cube mesh, in units of one NVLink2:
/// read off the bus bandwidth that the measured tables reach for large messages.
fn v100_rings(ranks: u32) -> f64 {
    match ranks {
        3 | 6 => 2.0,
        4 | 7 => 4.0,
        5 => 1.65,
        8 => 6.0,
        _ => 1.0,
    }
}

/// Pairs, and measurements on paths without constants.
pub fn score(links: &Links, measurements: &[Measurement]) -> (Vec<Pair>, Vec<Measurement>) {
    let mut pairs = Vec::new();
    let mut unknown = Vec::new();
    for measurement in measurements {
        match links.links.get(&measurement.path()) {
            Some(constants) => pairs.push(Pair {
                what: measurement.describe(),
                predicted: measurement.seconds_on(constants),
                measured: measurement.seconds,
            }),
            None => unknown.push(measurement.clone()),
        }
    }
    (pairs, unknown)
}

/// The links refitted on `measurements`, each path by itself.
pub fn refit(start: &Links, measurements: &[Measurement]) -> Links {
    let mut fitted = start.clone();
    for (path, constants) in &mut fitted.links {
        let own: Vec<&Measurement> = measurements.iter().filter(|m| m.path() == *path).collect();
        if own.is_empty() {
            continue;
        }
        let error = |trial: &LinkConstants| -> f64 {
            own.iter().map(|m| (m.seconds_on(trial) / m.seconds - 1.0).abs()).sum()
        };
        let mut least = error(constants);
        let mut step = 0.2;
        while step > 1e-3 {
            let before = least;
            for field in 0..3 {
                for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                    let mut trial = *constants;
                    let value = match field {
                        0 => &mut trial.bandwidth_gb_per_s,
                        1 => &mut trial.latency_us,
                        _ => &mut trial.launch_us,
                    };
                    *value *= factor;
                    let trial_error = error(&trial);
                    if trial_error < least {
                        (*constants, least) = (trial, trial_error);
                    }
                }
            }
            if before - least < 1e-6 {
                step *= 0.6;
            }
        }
    }
    fitted
}

/// Errors on measurements that a fit did not see.
pub fn k_fold(start: &Links, measurements: &[Measurement], folds: usize) -> Vec<f64> {
    let mut errors = Vec::new();
    for fold in 0..folds {
        let rest: Vec<Measurement> = measurements
            .iter()
            .enumerate()
            .filter(|(i, _)| i % folds != fold)
            .map(|(_, m)| m.clone())
            .collect();
        let fitted = refit(start, &rest);
        let held: Vec<Measurement> = measurements
            .iter()
            .enumerate()
            .filter(|(i, _)| i % folds == fold)
            .map(|(_, m)| m.clone())
            .collect();
        errors.extend(score(&fitted, &held).0.iter().map(Pair::error));
    }
    errors
}
