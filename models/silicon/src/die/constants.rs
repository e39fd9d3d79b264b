//! The constants of the die model, read from `constants.toml`, which carries
//! the meaning and the source of each. Knows no formula.

use super::error::Error;
use serde::{Deserialize, Deserializer};
use std::sync::OnceLock;

const TEXT: &str = include_str!("constants.toml");

/// A number with the place it was taken from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cited {
    value: f64,
    #[allow(dead_code)]
    source: String,
}

/// The number of a [`Cited`].
fn cited<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Cited::deserialize(deserializer).map(|cited| cited.value)
}

/// A constant that the dies decide.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    value: f64,
    /// What it returns to where the data say nothing.
    prior: f64,
    #[allow(dead_code)]
    meaning: String,
}

/// The regressed constants, in the order of [`Coefficients::NAMES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients(pub [f64; Coefficients::COUNT]);

impl Coefficients {
    pub const COUNT: usize = 8;
    pub const NAMES: [&'static str; Self::COUNT] = [
        "datapath",
        "sm-control-mm2",
        "sm-graphics-mm2",
        "sm-sram-overhead",
        "l2-sram-overhead",
        "l2-port-mm2-per-byte",
        "crossbar-mm2-per-mb2",
        "other-mm2",
    ];
}

/// Bare units at N7.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Units {
    #[serde(deserialize_with = "cited")]
    pub fp32_um2: f64,
    #[serde(deserialize_with = "cited")]
    pub fp64_um2: f64,
    #[serde(deserialize_with = "cited")]
    pub matrix_fma_um2: f64,
    #[serde(deserialize_with = "cited")]
    pub sm_port_bytes: f64,
    #[serde(deserialize_with = "cited")]
    pub engine_mm2: f64,
}

/// What a circuit becomes in a process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessRow {
    pub name: String,
    /// Area of logic over its area at N7.
    #[serde(deserialize_with = "cited")]
    pub logic: f64,
    #[serde(deserialize_with = "cited")]
    pub bitcell_um2: f64,
    #[serde(deserialize_with = "cited")]
    pub supply_v: f64,
    /// What GPUs reach at nominal supply.
    #[serde(deserialize_with = "cited")]
    pub clock_ghz: f64,
    #[serde(deserialize_with = "cited")]
    pub wafer_usd: f64,
}

/// An interface: one HBM stack, one 32-bit channel, one link.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceRow {
    pub name: String,
    /// The row that stands in for this one where its own die is left out.
    pub generic: Option<usize>,
    /// Data pins of one stack or channel; zero for links.
    pub bus_bits: f64,
    /// Does not shrink.
    pub phy_mm2: f64,
    /// Logic, at N7.
    pub controller_mm2: f64,
    pub edge_mm: f64,
    pub energy_pj_per_bit: f64,
    pub unit_usd: f64,
}

/// Energy at N7 and nominal supply.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Energy {
    #[serde(deserialize_with = "cited")]
    pub matrix_pj_per_flop: f64,
    #[serde(deserialize_with = "cited")]
    pub vector_pj_per_flop: f64,
    #[serde(deserialize_with = "cited")]
    pub sm_pj_per_byte: f64,
    #[serde(deserialize_with = "cited")]
    pub l2_pj_per_byte: f64,
    #[serde(deserialize_with = "cited")]
    pub leakage_w_per_mm2: f64,
    /// Supply at half the boost clock over supply at the boost clock.
    #[serde(deserialize_with = "cited")]
    pub voltage_at_half_clock: f64,
    /// Highest supply over the nominal one.
    #[serde(deserialize_with = "cited")]
    pub most_supply: f64,
}

/// Yield and cost: assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostRow {
    #[serde(deserialize_with = "cited")]
    pub wafer_mm: f64,
    #[serde(deserialize_with = "cited")]
    pub defects_per_cm2: f64,
    #[serde(deserialize_with = "cited")]
    pub clustering: f64,
    #[serde(deserialize_with = "cited")]
    pub packaging_usd_per_mm2: f64,
}

/// Everything the die model knows beside its formulas.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    pub fitted: Coefficients,
    pub priors: Coefficients,
    pub units: Units,
    pub processes: Vec<ProcessRow>,
    pub memories: Vec<InterfaceRow>,
    pub links: Vec<InterfaceRow>,
    pub pcie_phy_mm2_per_lane: f64,
    pub pcie_edge_mm_per_lane: f64,
    pub energy: Energy,
    pub cost: CostRow,
    pub reticle_mm2: f64,
    /// Share of a square die's rim that PHYs may take.
    pub shoreline: f64,
    /// Of each die of a package of several: its side of the link between them.
    pub die_to_die_mm2: f64,
}

impl Constants {
    /// The committed constants, read once.
    pub fn committed() -> Result<&'static Self, Error> {
        static READ: OnceLock<Result<Constants, Error>> = OnceLock::new();
        READ.get_or_init(|| Self::parse(TEXT)).as_ref().map_err(Clone::clone)
    }

    /// Reads a table of constants.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|e| Error::Constants { why: e.to_string() })?;
        file.resolve()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    fitted: std::collections::BTreeMap<String, Fitted>,
    unit: Units,
    process: Vec<ProcessRow>,
    memory: Vec<InterfaceFile>,
    link: Vec<InterfaceFile>,
    pcie: PcieFile,
    energy: Energy,
    cost: CostRow,
    rules: RulesFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct InterfaceFile {
    name: String,
    generic: Option<String>,
    #[serde(default)]
    bus_bits: f64,
    phy_mm2: Cited,
    controller_mm2: Cited,
    edge_mm: Cited,
    energy_pj_per_bit: Cited,
    unit_usd: Option<Cited>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PcieFile {
    phy_mm2_per_lane: Cited,
    edge_mm_per_lane: Cited,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RulesFile {
    reticle_mm2: Cited,
    shoreline: Cited,
    die_to_die_mm2: Cited,
}

impl File {
    fn resolve(self) -> Result<Constants, Error> {
        let (mut fitted, mut priors) = ([0.0; Coefficients::COUNT], [0.0; Coefficients::COUNT]);
        for ((value, prior), name) in fitted.iter_mut().zip(&mut priors).zip(Coefficients::NAMES) {
            let row = self
                .fitted
                .get(name)
                .ok_or_else(|| Error::Constants { why: format!("`fitted.{name}` is missing") })?;
            (*value, *prior) = (row.value, row.prior);
        }
        Ok(Constants {
            fitted: Coefficients(fitted),
            priors: Coefficients(priors),
            units: self.unit,
            processes: self.process,
            memories: interfaces(self.memory)?,
            links: interfaces(self.link)?,
            pcie_phy_mm2_per_lane: self.pcie.phy_mm2_per_lane.value,
            pcie_edge_mm_per_lane: self.pcie.edge_mm_per_lane.value,
            energy: self.energy,
            cost: self.cost,
            reticle_mm2: self.rules.reticle_mm2.value,
            shoreline: self.rules.shoreline.value,
            die_to_die_mm2: self.rules.die_to_die_mm2.value,
        })
    }
}

fn interfaces(rows: Vec<InterfaceFile>) -> Result<Vec<InterfaceRow>, Error> {
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let resolve = |row: InterfaceFile| {
        let generic = match &row.generic {
            None => None,
            Some(name) => Some(names.iter().position(|known| known == name).ok_or_else(|| {
                Error::Constants { why: format!("`{}` stands for an unknown `{name}`", row.name) }
            })?),
        };
        Ok(InterfaceRow {
            name: row.name,
            generic,
            bus_bits: row.bus_bits,
            phy_mm2: row.phy_mm2.value,
            controller_mm2: row.controller_mm2.value,
            edge_mm: row.edge_mm.value,
            energy_pj_per_bit: row.energy_pj_per_bit.value,
            unit_usd: row.unit_usd.map_or(0.0, |usd| usd.value),
        })
    };
    rows.into_iter().map(resolve).collect()
}
