//! The collective model against NCCL: one fabric, one set of constants, for
//! every group size on it; algorithms and protocols are NCCL's own, and the
//! model is the simulator's ([`nccl`]).

use crate::Error;
use crate::csv::{CsvRow, Problem, Table};
use crate::score::Pair;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trinity_config::{At, Checked, Diagnostic, Document, Kind};
use trinity_sim::nccl::{self, Fabric, Network, Wire};

/// NCCL's buffer of a channel (NCCL 2.19, `NCCL_BUFFSIZE`: 4 MiB).
const NCCL_BUFFER_BYTES: f64 = 4_194_304.0;

/// Messages up to which two ranks of a node wait for each other no longer than
/// LL takes: read off Vidur's traces of four machines.
const PAIRS_WAIT_ABOVE_BYTES: f64 = 200e3;

/// How a file of links is checked.
const KIND: Kind = Kind::of::<Links>("links", "fabrics between GPUs as NCCL uses them");

/// Columns every table of collectives has.
const COLUMNS: &str = "source,gpu,fabric,op,n_gpus,gpus_per_node,bytes,time_us";

macro_rules! link_constants {
    (
        asked: { $($(#[$doc:meta])* $field:ident = $unseen:literal,)* }
        added: { $($(#[$added_doc:meta])* $added:ident = $added_unseen:literal,)* }
    ) => {
        /// Constants of one fabric; those that nothing on it asks for are left out.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct LinkConstants {
            $($(#[$doc])* pub $field: Option<f64>,)*
            $($(#[$added_doc])* pub $added: Option<f64>,)*
        }

        impl LinkConstants {
            /// Every constant that is there, by name.
            pub fn fields(&self) -> Vec<(&'static str, f64)> {
                let mut list = Vec::new();
                $(if let Some(value) = self.$field { list.push((stringify!($field), value)); })*
                $(if let Some(value) = self.$added { list.push((stringify!($added), value)); })*
                list
            }

            /// The constant called `name`, where it is there.
            pub fn field_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($field) => self.$field.as_mut(),)*
                    $(stringify!($added) => self.$added.as_mut(),)*
                    _ => None,
                }
            }

            /// These constants at what one would say without a measurement.
            fn unseen(&self) -> Self {
                Self {
                    $($field: self.$field.map(|_| $unseen),)*
                    $($added: self.$added.map(|_| $added_unseen),)*
                }
            }

            $(fn $field(&self) -> f64 { self.$field.unwrap_or($unseen) })*
        }
    };
}

link_constants! {
    // What a fabric without it is taken to have.
    asked: {
    /// Bus bandwidth of a large message inside the node.
    bandwidth_gb_per_s = 240.0,
    /// Starting a collective, beside NCCL's own base latency.
    launch_us = 10.0,
    /// Starting a send inside the node.
    send_launch_us = 8.0,
    /// What a send reaches inside the node: one direction, nothing to add up.
    send_gb_per_s = 300.0,
    /// Bus bandwidth of rings that cross PCIe.
    pcie_gb_per_s = 25.0,
    /// One NIC.
    network_gb_per_s = 20.0,
    network_launch_us = 20.0,
    /// Latency of a network hop over that of NCCL's table.
    network_hop = 2.0,
    /// A rank's share of a message for which half of the NICs are used.
    network_channel_kb = 250.0,
    }
    // What a fabric without it does not have.
    added: {
    /// What a send between nodes reaches beyond NCCL's buffer, where its proxy
    /// has to wait for the buffer to drain.
    network_long_gb_per_s = 5.0,
    /// In traces of kernels, how long more than two ranks wait for the last to
    /// launch: no all-reduce takes less.
    group_wait_us = 30.0,
    /// The same of two ranks, for messages beyond those of LL.
    pair_wait_us = 30.0,
    }
}

/// The file of links.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    pub links: BTreeMap<String, LinkConstants>,
}

impl Checked for Links {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        for (name, link) in &self.links {
            for (field, value) in link.fields() {
                if !(value > 0.0 && value.is_finite()) {
                    let key = format!("links.{name}.{}", field.replace('_', "-"));
                    return at.refuse(key, "the constant is out of its range", "a number above zero");
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
    pub fn of(table: &Table) -> Result<Self, crate::csv::Error> {
        table.require(COLUMNS)?;
        let (measurements, malformed) = table.each(measurement);
        Ok(Self { measurements, malformed })
    }
}

fn measurement(row: &CsvRow<'_>) -> Result<Measurement, Problem> {
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
    /// The name of the fabric it was measured on: one for every group size.
    pub fn path(&self) -> String {
        let fabric = self.fabric.to_lowercase();
        let known = [("nvswitch", "a100-nvswitch"), ("nvlink node", "v100-nvlink"), ("4x a100", "a100-quad")];
        if let Some((_, path)) = known.iter().find(|(start, _)| fabric.starts_with(start)) {
            return (*path).to_owned();
        }
        format!("{}-{}", self.gpu.to_lowercase(), if fabric.contains("dgx") { "dgx" } else { "pairs" })
    }

    /// Machine, operation and group size.
    fn group(&self) -> (&str, &str, Operation, u32, u32) {
        (&self.gpu, &self.fabric, self.operation, self.ranks, self.ranks_per_node)
    }

    fn leaves_node(&self) -> bool {
        self.ranks > self.ranks_per_node
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

    /// Whether it is the time of a kernel in a trace, in which a rank waits for
    /// the others; nccl-tests let all start together.
    pub fn is_traced(&self) -> bool {
        self.source.starts_with("Vidur")
    }

    fn seconds_on(&self, constants: &LinkConstants) -> f64 {
        match self.operation {
            Operation::SendRecv => self.send_s(constants),
            Operation::AllReduce => self.all_reduce_s(constants).max(self.wait_s(constants)),
        }
    }

    fn send_s(&self, constants: &LinkConstants) -> f64 {
        if !self.leaves_node() {
            let launch_s = constants.send_launch_us() * 1e-6;
            return nccl::send_s(constants.send_gb_per_s() * 1e9, launch_s, self.bytes);
        }
        let rate = constants.network_gb_per_s() * 1e9;
        let buffered = self.bytes.min(NCCL_BUFFER_BYTES);
        let beyond_rate = constants.network_long_gb_per_s.map_or(rate, |rate| rate * 1e9);
        nccl::send_s(rate, constants.network_launch_us() * 1e-6, buffered)
            + (self.bytes - buffered) / beyond_rate
    }

    /// A trace times a rank's kernel, which cannot end before the last rank's
    /// has begun; nccl-tests let all start together.
    fn wait_s(&self, constants: &LinkConstants) -> f64 {
        let wait_us = match self.ranks {
            _ if !self.is_traced() => None,
            2 if self.ranks_per_node < 2 || self.bytes <= PAIRS_WAIT_ABOVE_BYTES => None,
            2 => constants.pair_wait_us,
            _ => constants.group_wait_us,
        };
        wait_us.unwrap_or(0.0) * 1e-6
    }

    fn all_reduce_s(&self, constants: &LinkConstants) -> f64 {
        let (bandwidth, wire) = if self.gpu == "V100" {
            (constants.bandwidth_gb_per_s() * v100_rings(self.ranks), Wire::NvLinkMesh)
        } else if self.path().ends_with("pairs") && self.ranks > 2 {
            (constants.pcie_gb_per_s(), Wire::Pcie)
        } else {
            (constants.bandwidth_gb_per_s(), Wire::NvLink)
        };
        let fabric = Fabric {
            bytes_per_s: bandwidth * 1e9,
            ll_bytes_per_s: ll_gb_per_s(&self.gpu) * 1e9,
            launch_s: constants.launch_us() * 1e-6,
            hop: 1.0,
            wire,
        };
        let network = Network {
            bytes_per_s: constants.network_gb_per_s() * 1e9,
            hop: constants.network_hop(),
            channel_bytes: constants.network_channel_kb() * 1e3,
        };
        let network = self.leaves_node().then_some(&network);
        nccl::group_all_reduce_s(&fabric, network, self.ranks, self.ranks_per_node, self.bytes)
    }
}

/// What LL moves at most, by generation (NCCL 2.19, src/graph/tuning.cc, `llMaxBws`).
fn ll_gb_per_s(gpu: &str) -> f64 {
    match gpu.split('-').next() {
        Some("V100") => 39.0,
        Some("A100") => 87.7,
        _ => 141.0,
    }
}

/// Rings among the first GPUs of a hybrid cube mesh, in units of one NVLink2:
/// read off the bus bandwidth that the measured tables reach for large messages.
fn v100_rings(ranks: u32) -> f64 {
    match ranks {
        3 | 6 => 2.0,
        4 => 3.8,
        7 => 3.87,
        5 => 1.65,
        8 => 6.0,
        _ => 1.0,
    }
}

impl Links {
    /// The constants of a measurement's fabric, or of the first of the same
    /// GPU: a machine that nobody fitted is predicted all the same.
    pub fn nearest(&self, measurement: &Measurement) -> Option<&LinkConstants> {
        let family = measurement.gpu.to_lowercase();
        let family = family.split('-').next().unwrap_or_default().to_owned();
        self.links
            .get(&measurement.path())
            .or_else(|| self.links.iter().find(|(name, _)| name.starts_with(&family)).map(|(_, link)| link))
            .or_else(|| self.links.values().next())
    }

    /// These fabrics with constants that saw no measurement.
    fn unseen(&self) -> Self {
        Self { links: self.links.iter().map(|(name, link)| (name.clone(), link.unseen())).collect() }
    }
}

/// Every measurement beside its prediction, and how many of them are on
/// fabrics that have no constants of their own.
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

/// The links refitted on `measurements`, each fabric by itself.
pub fn refit(start: &Links, measurements: &[Measurement]) -> Links {
    let mut fitted = start.clone();
    for (path, constants) in &mut fitted.links {
        let own: Vec<&Measurement> = measurements.iter().filter(|m| m.path() == *path).collect();
        if !own.is_empty() {
            *constants = searched(*constants, &own);
        }
    }
    fitted
}

/// A pattern search from `constants`: each in turn a step up or down, with
/// smaller steps once none helps.
fn searched(mut constants: LinkConstants, own: &[&Measurement]) -> LinkConstants {
    let error = |trial: &LinkConstants| -> f64 {
        own.iter().map(|m| (m.seconds_on(trial) / m.seconds - 1.0).abs()).sum()
    };
    let mut least = error(&constants);
    let mut step = 0.4;
    while step > 0.01 {
        let before = least;
        for (name, _) in constants.fields() {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut trial = constants;
                if let Some(value) = trial.field_mut(name) {
                    *value *= factor;
                }
                let trial_error = error(&trial);
                if trial_error < least {
                    (constants, least) = (trial, trial_error);
                }
            }
        }
        if before - least < 1e-3 {
            step *= 0.6;
        }
    }
    constants
}

/// Errors on measurements that a fit did not see.
pub fn k_fold(start: &Links, measurements: &[Measurement], folds: usize) -> Vec<f64> {
    let mut errors = Vec::new();
    for fold in 0..folds {
        let part = |inside: bool| -> Vec<Measurement> {
            let own = |i: usize| (i % folds == fold) == inside;
            measurements.iter().enumerate().filter(|(i, _)| own(*i)).map(|(_, m)| m.clone()).collect()
        };
        let fitted = refit(&start.unseen(), &part(false));
        errors.extend(score(&fitted, &part(true)).0.iter().map(Pair::error));
    }
    errors
}

/// Errors on groups that a fit did not see: every combination of machine,
/// operation and group size is predicted with links fitted on all the others,
/// from constants that saw nothing.
pub fn leave_one_group_out(start: &Links, measurements: &[Measurement]) -> Vec<f64> {
    let groups: BTreeSet<_> = measurements.iter().map(Measurement::group).collect();
    let mut errors = Vec::new();
    for left_out in groups {
        let (held, rest): (Vec<Measurement>, Vec<Measurement>) =
            measurements.iter().cloned().partition(|m| m.group() == left_out);
        let own = held.first().map(Measurement::path);
        let near: Vec<Measurement> = rest.into_iter().filter(|m| Some(m.path()) == own).collect();
        errors.extend(score(&refit(&start.unseen(), &near), &held).0.iter().map(Pair::error));
    }
    errors
}

/// Mean error of every measurement against a straight line, both axes
/// logarithmic, between the sizes next to it in its own group.
pub fn between_neighbours(measurements: &[Measurement]) -> Option<f64> {
    let mut groups: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for m in measurements {
        groups.entry(m.group()).or_default().push((m.bytes, m.seconds));
    }
    let mut errors = Vec::new();
    for points in groups.values_mut() {
        points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        for three in points.windows(3).filter(|three| three[0].0 < three[1].0 && three[1].0 < three[2].0) {
            let share = (three[1].0 / three[0].0).ln() / (three[2].0 / three[0].0).ln();
            let between = three[0].1 * (three[2].1 / three[0].1).powf(share);
            errors.push((between / three[1].1 - 1.0).abs());
        }
    }
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "source,gpu,fabric,op,n_gpus,gpus_per_node,bytes,time_us\n";

    fn measurements(rows: &str) -> Measurements {
        let table = Table::parse("t.csv", format!("{HEAD}{rows}").as_bytes(), COLUMNS).unwrap();
        Measurements::of(&table).unwrap()
    }

    #[test]
    fn rows_that_are_no_collective_are_named_and_the_rest_is_read() {
        let found = measurements(
            "nccl-tests,A100-80GB,NVSwitch 600,all_reduce,8,8,1048576,40\n\
             nccl-tests,A100-80GB,NVSwitch 600,broadcast,8,8,1048576,40\n\
             nccl-tests,A100-80GB,NVSwitch 600,all_reduce,1,8,1048576,40\n\
             Vidur,H100,DGX H100,send_recv,2,8,4096,soon\n\
             Vidur,H100,DGX H100,send_recv,2,8,4096,11\n",
        );
        for (problem, (line, word)) in
            found.malformed.iter().zip([(3, "broadcast"), (4, "two GPUs"), (5, "soon")])
        {
            assert!(problem.line == line && problem.message.contains(word), "{problem}");
        }
        assert_eq!(found.malformed.len(), 3, "{:?}", found.malformed);
        let [switch, pair] = &found.measurements[..] else { panic!("{found:?}") };
        assert_eq!((switch.operation, switch.ranks, switch.bytes), (Operation::AllReduce, 8, 1_048_576.0));
        assert!((switch.seconds - 40e-6).abs() < 1e-18 && !switch.is_traced());
        assert_eq!((switch.path().as_str(), pair.path().as_str()), ("a100-nvswitch", "h100-dgx"));
        assert!(pair.is_traced() && pair.describe().starts_with("send/recv of 0.00 MiB over 2 H100"));
    }

    fn all_reduce(gpu: &str, fabric: &str, ranks: u32, bytes: f64, seconds: f64) -> Measurement {
        Measurement {
            source: "nccl-tests".into(),
            gpu: gpu.into(),
            fabric: fabric.into(),
            operation: Operation::AllReduce,
            ranks,
            ranks_per_node: 8,
            bytes,
            seconds,
        }
    }

    #[test]
    fn a_fabric_without_constants_borrows_those_of_its_gpu() {
        let links = Links::load(&[]).unwrap();
        let own = all_reduce("V100", "NVLink node", 8, 1e8, 1e-3);
        assert_eq!(links.nearest(&own), links.links.get("v100-nvlink"));
        let strange = all_reduce("A100-80GB", "something new", 8, 1e8, 1e-3);
        assert!(!links.links.contains_key(&strange.path()), "{}", strange.path());
        let borrowed = links.nearest(&strange).unwrap();
        assert!(links.links.iter().any(|(name, link)| name.starts_with("a100") && link == borrowed));
        let (pairs, without) = score(&links, &[own, strange]);
        assert_eq!((pairs.len(), without), (2, 1));
        // A ring moves 7/4 of a message at 240 GB/s or so: milliseconds for 100 MB, and ten times as long for ten.
        let of = |bytes| score(&links, &[all_reduce("V100", "NVLink node", 8, bytes, 1.0)]).0[0].predicted;
        assert!((5.0..12.0).contains(&(of(1e9) / of(1e8))) && of(1e8) > 1e-4, "{} {}", of(1e9), of(1e8));
    }

    #[test]
    fn a_fit_finds_constants_that_times_were_made_of() {
        let links = Links::load(&[]).unwrap();
        let made = Links::load(&["links.v100-nvlink.bandwidth-gb-per-s=31".into()]).unwrap();
        let constants = made.links["v100-nvlink"];
        let timed: Vec<Measurement> = [1e5, 1e6, 1e7, 1e8, 1e9]
            .into_iter()
            .flat_map(|bytes| [4, 8].map(|ranks| all_reduce("V100", "NVLink node", ranks, bytes, 1.0)))
            .map(|own| Measurement { seconds: own.seconds_on(&constants), ..own })
            .collect();
        let fitted = refit(&links, &timed);
        let found = fitted.links["v100-nvlink"].bandwidth_gb_per_s.unwrap();
        assert!((found / 31.0 - 1.0).abs() < 0.03, "{found}");
        assert_eq!(fitted.links["a100-dgx"], links.links["a100-dgx"], "another fabric stays");
        let worst =
            k_fold(&links, &timed, 5).into_iter().fold(0.0, |worst: f64, error| worst.max(error.abs()));
        assert!(worst < 0.1, "{worst}");
        assert!(leave_one_group_out(&links, &timed).iter().all(|error| error.abs() < 0.1));
    }

    #[test]
    fn a_line_between_neighbours_is_exact_on_powers() {
        let line: Vec<Measurement> = [1e6, 4e6, 2e6, 8e6]
            .map(|bytes| all_reduce("V100", "NVLink node", 8, bytes, 3e-9 * bytes))
            .into();
        assert!(between_neighbours(&line).unwrap() < 1e-12);
        let bent = Measurement { seconds: 2.0 * line[2].seconds, ..line[2].clone() };
        let off = between_neighbours(&[line[0].clone(), bent, line[1].clone()]).unwrap();
        assert!((off - 0.5).abs() < 1e-12, "{off}");
        assert_eq!(between_neighbours(&line[..2]), None);
    }

    #[test]
    fn an_assignment_of_a_link_has_its_range_and_name() {
        for (assignment, word) in [
            ("links.v100-nvlink.bandwidth-gb-per-s=-1", "above zero"),
            ("links.v100-nvlink.bandwith-gb-per-s=9", "bandwidth-gb-per-s"),
        ] {
            let said = Links::load(&[assignment.into()]).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        assert!(Links::load(&["a100.gpu.gemm-efficiency=0.5".into()]).is_ok(), "others' are others'");
    }
}
