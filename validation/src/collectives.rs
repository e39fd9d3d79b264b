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
    /// The name of the path it was measured on. Group sizes share a path where
    /// one law covers them; kernel traces of A100 and of boards with bridged
    /// pairs differ by more than that between a pair, a quad and a node.
    pub fn path(&self) -> String {
        let fabric = self.fabric.to_lowercase();
        if fabric.starts_with("nvswitch") {
            return "a100-nvswitch-reduce".to_owned();
        }
        if fabric.starts_with("nvlink node") {
            return "v100-nvlink-reduce".to_owned();
        }
        if fabric.starts_with("4x a100") {
            return "a100-quad-reduce".to_owned();
        }
        let gpu = self.gpu.to_lowercase();
        let board = if fabric.contains("dgx") { "dgx" } else { "pairs" };
        match (self.operation, self.leaves_node()) {
            (Operation::AllReduce, true) => format!("{gpu}-{board}-reduce-between"),
            (Operation::SendRecv, true) => format!("{gpu}-{board}-send-between"),
            (Operation::SendRecv, false) => format!("{gpu}-{board}-send"),
            (Operation::AllReduce, false) if gpu == "h100" => format!("{gpu}-{board}-reduce"),
            (Operation::AllReduce, false) => format!("{gpu}-{board}-reduce-{}", self.ranks),
        }
    }

    fn leaves_node(&self) -> bool {
        self.ranks > self.ranks_per_node
    }

    /// How little a link has in common with this measurement's path: whether
    /// it leaves the node weighs most, then the operation, the GPU and the
    /// board, and last the group size.
    fn distance(&self, link: &str) -> u32 {
        let own = self.path();
        let has = |part: &str| link.split('-').any(|word| word == part);
        let gpu = self.gpu.to_lowercase();
        let family = gpu.split('-').next().unwrap_or_default();
        let operation = match self.operation {
            Operation::AllReduce => "reduce",
            Operation::SendRecv => "send",
        };
        let ranks = link.rsplit('-').next().and_then(|last| last.parse::<u32>().ok());
        let sizes_apart = ranks.map_or(1, |ranks| ranks.ilog2().abs_diff(self.ranks.ilog2()));
        let board = own.split('-').nth(gpu.split('-').count());
        1000 * u32::from(has("between") != self.leaves_node())
            + 400 * u32::from(!has(operation))
            + 200 * u32::from(!has(family))
            + 100 * u32::from(!link.starts_with(&format!("{gpu}-")))
            + 50 * u32::from(!board.is_some_and(has))
            + sizes_apart
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
            Operation::AllReduce if self.leaves_node() => nccl::rails_used(self.ranks_per_node),
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

impl Links {
    /// The constants of a measurement's path, or of the link that has most in
    /// common with it: a group size or a machine that nobody fitted is
    /// predicted all the same.
    pub fn nearest(&self, measurement: &Measurement) -> Option<&LinkConstants> {
        self.links.get(&measurement.path()).or_else(|| {
            self.links.iter().min_by_key(|(name, _)| measurement.distance(name)).map(|(_, link)| link)
        })
    }
}

/// Every measurement beside its prediction, and how many of them are on paths
/// that have no constants of their own.
pub fn score(links: &Links, measurements: &[Measurement]) -> (Vec<Pair>, usize) {
    let borrowed = measurements.iter().filter(|m| !links.links.contains_key(&m.path())).count();
    let pairs = measurements
        .iter()
        .filter_map(|measurement| {
            let constants = links.nearest(measurement)?;
            Some(Pair {
                what: measurement.describe(),
                predicted: measurement.seconds_on(constants),
                measured: measurement.seconds,
            })
        })
        .collect();
    (pairs, borrowed)
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

/// Errors on groups that a fit did not see: every combination of machine,
/// operation and group size is predicted with links fitted on all the others.
pub fn leave_one_group_out(start: &Links, measurements: &[Measurement]) -> Vec<f64> {
    let group = |m: &Measurement| (m.gpu.clone(), m.fabric.clone(), m.operation, m.ranks, m.ranks_per_node);
    let mut groups: Vec<_> = measurements.iter().map(group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut errors = Vec::new();
    for left_out in groups {
        let (held, rest): (Vec<Measurement>, Vec<Measurement>) =
            measurements.iter().cloned().partition(|m| group(m) == left_out);
        let mut links = start.clone();
        links.links.retain(|path, _| rest.iter().any(|m| m.path() == *path));
        let own = held.first().map(Measurement::path);
        let near: Vec<Measurement> = rest.into_iter().filter(|m| Some(m.path()) == own).collect();
        errors.extend(score(&refit(&links, &near), &held).0.iter().map(Pair::error));
    }
    errors
}
