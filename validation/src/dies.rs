//! The die model against nine real dies, the photographs of two, and each die
//! against a model that has not seen it.
//!
//! The area is linear in its fitted constants, so a fit is one small system of
//! equations: relative errors of every total and of every photographed part
//! above [`LARGE_MM2`], with a ridge that pulls each constant to its prior.

use crate::Error;
use crate::score::Pair;
use serde::Deserialize;
use trinity_config::Document;
use trinity_silicon::die::{AreaByPart, Coefficients, Constants, InterfaceRow, Parts, RowIndex, Sm, area};
use trinity_study::config::GpuFile;

/// Names of the sets.
pub const DIES: &str = "GPU dies";
pub const LEFT_OUT: &str = "GPU dies, left out";
pub const PHOTOGRAPHS: &str = "GPU die photographs";
pub const DATASHEETS: &str = "GPU datasheets";

const TEXT: &str = include_str!("../data/dies.toml");
/// Parts smaller than this are not judged: a photograph shows them roughly.
pub const LARGE_MM2: f64 = 30.0;
/// Weight of a constant's relative distance from its prior.
const RIDGE: f64 = 0.02;

const COUNT: usize = Coefficients::COUNT;

#[derive(Deserialize)]
struct File {
    die: Vec<DieFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DieFile {
    name: String,
    area_mm2: f64,
    process: String,
    sms: f64,
    sm: SmFile,
    l2_mib: f64,
    l2_bytes_per_clock: f64,
    memory: MemoryFile,
    links: LinksFile,
    pcie_lanes: f64,
    engines: f64,
    photograph: Option<Photograph>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SmFile {
    fp32: f64,
    fp64: f64,
    matrix_fma: f64,
    register_kib: f64,
    shared_kib: f64,
    graphics: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    kind: String,
    units: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksFile {
    kind: String,
    count: f64,
}

/// Areas measured on a photograph.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Photograph {
    cores: f64,
    network: f64,
    l2: f64,
    memory_phy: f64,
    memory_controllers: f64,
    link_phy: f64,
    link_controllers: Option<f64>,
}

/// A part's name, what a photograph shows of it, and where the model has it.
type Shown = (&'static str, f64, fn(&AreaByPart) -> f64);

impl Photograph {
    /// The parts that are large enough to judge.
    fn parts(&self) -> Vec<Shown> {
        let mut parts: Vec<Shown> = vec![
            ("cores", self.cores, |area| area.sms_mm2),
            ("on-chip network", self.network, |area| area.network_mm2),
            ("L2", self.l2, |area| area.l2_mm2),
            ("memory PHYs", self.memory_phy, |area| area.memory_phy_mm2),
            ("memory controllers", self.memory_controllers, |area| area.memory_controllers_mm2),
            ("link PHYs", self.link_phy, |area| area.link_phy_mm2),
        ];
        if let Some(mm2) = self.link_controllers {
            parts.push(("link controllers", mm2, |area| area.link_controllers_mm2));
        }
        parts.retain(|(_, mm2, _)| *mm2 > LARGE_MM2);
        parts
    }
}

/// One real die.
#[derive(Clone, Debug)]
pub struct Die {
    pub name: String,
    pub area_mm2: f64,
    pub parts: Parts,
    pub photograph: Option<Photograph>,
}

/// The committed dies.
pub fn dies(constants: &Constants) -> Result<Vec<Die>, Error> {
    let damaged = |why: String| Error::Data { file: "dies.toml", why };
    let file: File = toml::from_str(TEXT).map_err(|e| damaged(e.to_string()))?;
    let resolve = |die: DieFile| {
        let known =
            |row: Result<RowIndex, trinity_silicon::die::Error>| row.map_err(|e| damaged(e.to_string()));
        Ok(Die {
            name: die.name,
            area_mm2: die.area_mm2,
            parts: Parts {
                process: known(constants.process(&die.process))?,
                sms: die.sms,
                sm: Sm {
                    fp32_lanes: die.sm.fp32,
                    fp64_lanes: die.sm.fp64,
                    matrix_fma: die.sm.matrix_fma,
                    register_kib: die.sm.register_kib,
                    shared_kib: die.sm.shared_kib,
                    graphics: die.sm.graphics,
                },
                l2_mib: die.l2_mib,
                l2_bytes_per_clock: die.l2_bytes_per_clock,
                memory: known(constants.memory(&die.memory.kind))?,
                memory_units: die.memory.units,
                link: known(constants.link(&die.links.kind))?,
                links: die.links.count,
                pcie_lanes: die.pcie_lanes,
                engines: die.engines,
                codec_mm2: 0.0,
                dies: 1.0,
            },
            photograph: die.photograph,
        })
    };
    file.die.into_iter().map(resolve).collect()
}

/// The committed constants, or the reason there are none.
pub fn constants() -> Result<&'static Constants, Error> {
    Constants::committed().map_err(|e| Error::Data { file: "constants.toml", why: e.to_string() })
}

/// One equation: the coefficients times these, over the measured area, is one.
type Equation = ([f64; COUNT], f64);

fn with(constants: &Constants, fitted: [f64; COUNT]) -> Constants {
    Constants { fitted: Coefficients(fitted), ..constants.clone() }
}

/// The equation of one measured area; the model is linear, so each factor is
/// what one coefficient adds.
fn equation(constants: &Constants, die: &Die, measured: f64, read: fn(&AreaByPart) -> f64) -> Equation {
    let at = |fitted| read(&area(&with(constants, fitted), &die.parts));
    let fixed = at([0.0; COUNT]);
    let mut factors = [0.0; COUNT];
    for (k, factor) in factors.iter_mut().enumerate() {
        let mut only = [0.0; COUNT];
        only[k] = 1.0;
        *factor = (at(only) - fixed) / measured;
    }
    (factors, (measured - fixed) / measured)
}

/// Fits the coefficients to `dies`.
pub fn fit(constants: &Constants, dies: &[&Die]) -> Coefficients {
    let mut equations = Vec::new();
    for die in dies {
        equations.push(equation(constants, die, die.area_mm2, AreaByPart::total_mm2));
        for (_, mm2, read) in die.photograph.iter().flat_map(Photograph::parts) {
            let (factors, rest) = equation(constants, die, mm2, read);
            // PHYs and controllers are given, not fitted.
            if factors.iter().any(|factor| *factor != 0.0) {
                equations.push((factors, rest));
            }
        }
    }
    let Coefficients(prior) = constants.priors;
    let mut normal = [[0.0; COUNT]; COUNT];
    let mut right = [0.0; COUNT];
    for (factors, rest) in &equations {
        let scaled: [f64; COUNT] = std::array::from_fn(|k| factors[k] * prior[k]);
        let residual = rest - scaled.iter().sum::<f64>();
        for i in 0..COUNT {
            right[i] += scaled[i] * residual;
            for j in 0..COUNT {
                normal[i][j] += scaled[i] * scaled[j];
            }
        }
    }
    for (k, row) in normal.iter_mut().enumerate() {
        row[k] += RIDGE;
    }
    let change = solve(normal, right);
    Coefficients(std::array::from_fn(|k| prior[k] * (1.0 + change[k])))
}

/// Solves a symmetric positive system by elimination; the ridge keeps every
/// pivot above zero.
fn solve(mut matrix: [[f64; COUNT]; COUNT], mut right: [f64; COUNT]) -> [f64; COUNT] {
    for pivot in 0..COUNT {
        for row in pivot + 1..COUNT {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            for column in pivot..COUNT {
                matrix[row][column] -= factor * matrix[pivot][column];
            }
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..COUNT).rev() {
        let known: f64 = (row + 1..COUNT).map(|column| matrix[row][column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

/// The model's total beside each die.
pub fn totals(constants: &Constants, dies: &[Die]) -> Vec<Pair> {
    let pair = |die: &Die| Pair {
        what: die.name.clone(),
        predicted: area(constants, &die.parts).total_mm2(),
        measured: die.area_mm2,
    };
    dies.iter().map(pair).collect()
}

/// Each die beside a model fitted on the others: its photograph is forgotten
/// with it, and interfaces that only its own photograph shows are taken to be
/// of the common kind.
pub fn left_out(constants: &Constants, dies: &[Die]) -> Vec<Pair> {
    let predict = |out: &Die| {
        let rest: Vec<&Die> = dies.iter().filter(|die| die.name != out.name).collect();
        let unseen = with(constants, fit(constants, &rest).0);
        let parts = Parts {
            memory: common(&constants.memories, out.parts.memory),
            link: common(&constants.links, out.parts.link),
            ..out.parts
        };
        Pair { what: out.name.clone(), predicted: area(&unseen, &parts).total_mm2(), measured: out.area_mm2 }
    };
    dies.iter().map(predict).collect()
}

fn common(rows: &[InterfaceRow], row: RowIndex) -> RowIndex {
    let generic = rows.get(usize::from(row.0)).and_then(|row| row.generic);
    generic.and_then(|at| u16::try_from(at).ok()).map_or(row, RowIndex)
}

/// The model's parts beside the photographs, those above [`LARGE_MM2`].
pub fn photographs(constants: &Constants, dies: &[Die]) -> Vec<Pair> {
    let of_die = |die: &Die| {
        let by_part = area(constants, &die.parts);
        let pair = |(part, measured, read): Shown| Pair {
            what: format!("{} {part}", die.name),
            predicted: read(&by_part),
            measured,
        };
        die.photograph.iter().flat_map(Photograph::parts).map(pair).collect::<Vec<_>>()
    };
    dies.iter().flat_map(of_die).collect()
}

/// GPUs whose file lists parts beside what the datasheet states.
pub const BY_PARTS: [&str; 10] =
    ["a100", "b200", "gb200", "h100", "h200", "mi210", "rtx3090", "rtx4090", "rtx5090", "v100"];

/// Rates, bandwidth and capacity that follow from parts, beside the datasheets'.
///
/// # Errors
///
/// When a GPU's file lacks its parts or a total.
pub fn datasheets() -> Result<Vec<Pair>, Error> {
    let mut pairs = Vec::new();
    for name in BY_PARTS {
        let missing = |what: &str| Error::Data { file: "configs/gpus", why: format!("{name} has no {what}") };
        let file: GpuFile = Document::load(&format!("gpus/{name}"))?.read()?;
        let die = file.die().ok_or_else(|| missing("parts"))?;
        let peak = die.peak_flops();
        let stated = [
            ("fp32", file.fp32.map(|rate| rate.flop_per_s()), peak.fp32),
            ("fp16", file.fp16.map(|rate| rate.flop_per_s()), peak.fp16),
            ("fp8", file.fp8.map(|rate| rate.flop_per_s()), peak.fp8),
            ("vector", file.vector.map(|rate| rate.flop_per_s()), peak.vector),
            ("memory", file.memory.map(|memory| memory.bytes()), die.memory_bytes()),
            (
                "memory-bandwidth",
                file.memory_bandwidth.map(|rate| rate.byte_per_s()),
                die.memory_bytes_per_s(),
            ),
        ];
        for (key, stated, predicted) in stated {
            // A format that neither has.
            if stated.is_none() && predicted == 0.0 {
                continue;
            }
            let measured = stated.ok_or_else(|| missing(key))?;
            pairs.push(Pair { what: format!("{name} {key}"), predicted, measured });
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Stats;

    #[test]
    fn the_committed_constants_are_those_the_dies_give() {
        let constants = constants().unwrap();
        let dies = dies(constants).unwrap();
        let fitted = fit(constants, &dies.iter().collect::<Vec<_>>());
        let pairs = Coefficients::NAMES.iter().zip(constants.fitted.0).zip(fitted.0);
        let wrong: Vec<String> = pairs
            .filter(|((_, committed), again)| (committed / again - 1.0).abs() >= 1e-3)
            .map(|((name, committed), again)| format!("{name}: {committed}, the dies give {again}"))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_system_is_solved() {
        let mut matrix = [[0.1; COUNT]; COUNT];
        for (k, row) in matrix.iter_mut().enumerate() {
            row[k] = 2.0 + k as f64;
        }
        let wanted: [f64; COUNT] = std::array::from_fn(|k| k as f64 - 3.0);
        let right = std::array::from_fn(|i| (0..COUNT).map(|j| matrix[i][j] * wanted[j]).sum::<f64>());
        for (found, wanted) in solve(matrix, right).iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-9);
        }
    }

    #[test]
    fn a_die_left_out_is_predicted_worse_than_one_that_was_seen() {
        let constants = constants().unwrap();
        let dies = dies(constants).unwrap();
        let mean = |pairs: Vec<Pair>| Stats::of_pairs(&pairs).unwrap().mape;
        assert!(mean(left_out(constants, &dies)) > mean(totals(constants, &dies)));
    }
}
