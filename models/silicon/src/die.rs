//! A GPU die in parts: what each costs in area and draws in power.
//!
//! Area is bottom-up where there is a basis (arithmetic units, SRAM bits, PHYs
//! by link) and regressed where there is none; eight constants are fitted and
//! stand with their meaning in `constants.toml`. PHYs keep their size from
//! process to process, SRAM follows its bit cell, the rest follows logic.
//!
//! Knows counts and sizes; knows nothing of clocks, kernels or tokens.

mod constants;
mod cost;
mod error;
mod power;

pub use constants::{Coefficients, Constants, InterfaceRow, ProcessRow};
pub use cost::{DieCost, Wafer, die_cost};
pub use error::Error;
pub use power::{Activity, PowerByPart, energy_scale, most_clock_ratio, power, supply_ratio};

/// A row of one of the constants' tables, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowIndex(pub u16);

/// One SM or CU, as it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sm {
    pub fp32_lanes: f64,
    pub fp64_lanes: f64,
    /// FP16 multiply-adds of the matrix units in a clock.
    pub matrix_fma: f64,
    pub register_kib: f64,
    pub shared_kib: f64,
    /// Whether ray tracing, rasterizers and ROPs come with it.
    pub graphics: bool,
}

/// A die, all of it, before units are fused off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// The process, by its place in [`Constants::processes`].
    pub process: RowIndex,
    pub sms: f64,
    pub sm: Sm,
    pub l2_mib: f64,
    pub l2_bytes_per_clock: f64,
    /// The memory, by its place in [`Constants::memories`].
    pub memory: RowIndex,
    /// HBM stacks or 32-bit channels.
    pub memory_units: f64,
    /// The link, by its place in [`Constants::links`].
    pub link: RowIndex,
    pub links: f64,
    pub pcie_lanes: f64,
    /// NVDEC and NVENC engines.
    pub engines: f64,
    /// Tensor codecs, at this process.
    pub codec_mm2: f64,
    /// Dies that the parts are shared out to, evenly, in one package.
    pub dies: f64,
}

/// Square millimetres by part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AreaByPart {
    pub sms_mm2: f64,
    pub l2_mm2: f64,
    /// The crossbar between SMs and L2.
    pub network_mm2: f64,
    pub memory_phy_mm2: f64,
    pub memory_controllers_mm2: f64,
    pub link_phy_mm2: f64,
    pub link_controllers_mm2: f64,
    pub pcie_mm2: f64,
    pub engines_mm2: f64,
    pub codecs_mm2: f64,
    pub other_mm2: f64,
}

impl AreaByPart {
    /// All parts together.
    pub fn total_mm2(&self) -> f64 {
        self.named().iter().map(|(_, mm2)| mm2).sum()
    }

    /// The parts with the names they are shown by.
    pub fn named(&self) -> [(&'static str, f64); 11] {
        [
            ("SMs", self.sms_mm2),
            ("L2", self.l2_mm2),
            ("on-chip network", self.network_mm2),
            ("memory PHYs", self.memory_phy_mm2),
            ("memory controllers", self.memory_controllers_mm2),
            ("link PHYs", self.link_phy_mm2),
            ("link controllers", self.link_controllers_mm2),
            ("PCIe", self.pcie_mm2),
            ("video engines", self.engines_mm2),
            ("tensor codecs", self.codecs_mm2),
            ("other", self.other_mm2),
        ]
    }
}

impl Constants {
    /// The process of that name.
    pub fn process(&self, name: &str) -> Result<RowIndex, Error> {
        find(self.processes.iter().map(|row| row.name.as_str()), name)
            .map_err(|known| Error::Process { name: name.into(), known })
    }

    /// The memory interface of that name.
    pub fn memory(&self, name: &str) -> Result<RowIndex, Error> {
        find(self.memories.iter().map(|row| row.name.as_str()), name)
            .map_err(|known| Error::Memory { name: name.into(), known })
    }

    /// The link of that name.
    pub fn link(&self, name: &str) -> Result<RowIndex, Error> {
        find(self.links.iter().map(|row| row.name.as_str()), name)
            .map_err(|known| Error::Link { name: name.into(), known })
    }
}

/// The row of that name, or the names that are known.
fn find<'a>(names: impl Iterator<Item = &'a str>, name: &str) -> Result<RowIndex, String> {
    let known: Vec<&str> = names.collect();
    let at = known.iter().position(|known| *known == name).and_then(|at| u16::try_from(at).ok());
    at.map(RowIndex).ok_or_else(|| known.join(", "))
}

const UM2_PER_MM2: f64 = 1e6;
const BITS_PER_KIB: f64 = 8192.0;

/// The rows that a die's parts stand on; free of bounds to trip over.
fn rows<'c>(
    constants: &'c Constants,
    parts: &Parts,
) -> Option<(&'c ProcessRow, &'c InterfaceRow, &'c InterfaceRow)> {
    Some((
        constants.processes.get(usize::from(parts.process.0))?,
        constants.memories.get(usize::from(parts.memory.0))?,
        constants.links.get(usize::from(parts.link.0))?,
    ))
}

/// Area by part. Rows that the constants do not have count nothing: take them
/// from [`Constants::process`] and its siblings.
pub fn area(constants: &Constants, parts: &Parts) -> AreaByPart {
    let Some((process, memory, link)) = rows(constants, parts) else { return AreaByPart::default() };
    let Coefficients([datapath, control, graphics, sm_sram, l2_sram, l2_port, crossbar, other]) =
        constants.fitted;
    let units = &constants.units;
    let sm = &parts.sm;
    let bare_mm2 = (units.fp32_um2 * sm.fp32_lanes
        + units.fp64_um2 * sm.fp64_lanes
        + units.matrix_fma_um2 * sm.matrix_fma)
        / UM2_PER_MM2;
    let graphics = if sm.graphics { graphics } else { 0.0 };
    let sm_bits = (sm.register_kib + sm.shared_kib) * BITS_PER_KIB;
    let sm_mm2 = process.logic * (datapath * bare_mm2 + control + graphics)
        + sm_sram * sm_bits * process.bitcell_um2 / UM2_PER_MM2;
    let l2_bits = parts.l2_mib * 1024.0 * BITS_PER_KIB;
    let sm_side = parts.sms * units.sm_port_bytes;
    AreaByPart {
        sms_mm2: parts.sms * sm_mm2,
        l2_mm2: l2_sram * l2_bits * process.bitcell_um2 / UM2_PER_MM2
            + process.logic * l2_port * parts.l2_bytes_per_clock,
        // Each die has a crossbar of its own, between its SMs and its L2.
        network_mm2: process.logic * crossbar * sm_side * parts.l2_bytes_per_clock / parts.dies / 1e6,
        memory_phy_mm2: parts.memory_units * memory.phy_mm2,
        memory_controllers_mm2: parts.memory_units * memory.controller_mm2 * process.logic,
        link_phy_mm2: parts.links * link.phy_mm2,
        link_controllers_mm2: parts.links * link.controller_mm2 * process.logic,
        pcie_mm2: parts.pcie_lanes * constants.pcie_phy_mm2_per_lane,
        engines_mm2: parts.engines * units.engine_mm2 * process.logic,
        codecs_mm2: parts.codec_mm2,
        other_mm2: parts.dies * (other + joint_mm2(constants, parts)),
    }
}

/// What joins a die to the others of its package.
fn joint_mm2(constants: &Constants, parts: &Parts) -> f64 {
    if parts.dies > 1.0 { constants.die_to_die_mm2 } else { 0.0 }
}

/// Rim that a die of `area_mm2` has for PHYs, mm: one side of it is taken where
/// another die lies beside it.
pub fn rim_mm(constants: &Constants, dies: f64, area_mm2: f64) -> f64 {
    let sides = if dies > 1.0 { 3.0 } else { 4.0 };
    sides * area_mm2.sqrt() * constants.shoreline
}

/// Edge that the PHYs take, mm.
pub fn edge_mm(constants: &Constants, parts: &Parts) -> f64 {
    let Some((_, memory, link)) = rows(constants, parts) else { return 0.0 };
    parts.memory_units * memory.edge_mm
        + parts.links * link.edge_mm
        + parts.pcie_lanes * constants.pcie_edge_mm_per_lane
}

/// Whether dies of `area_mm2` together can be made of these parts: each within
/// one reticle, and with its PHYs side by side at the rim of a square die.
///
/// # Errors
///
/// When it cannot.
pub fn buildable(constants: &Constants, parts: &Parts, area_mm2: f64) -> Result<(), Error> {
    let area_mm2 = area_mm2 / parts.dies;
    if area_mm2 > constants.reticle_mm2 {
        return Err(Error::Reticle { area_mm2, reticle_mm2: constants.reticle_mm2 });
    }
    let needed_mm = edge_mm(constants, parts) / parts.dies;
    let edge_mm = rim_mm(constants, parts.dies, area_mm2);
    if needed_mm > edge_mm {
        return Err(Error::Shoreline { needed_mm, edge_mm, area_mm2 });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
