//! What a die costs to make: dies of a wafer, yield, memory, package. Every
//! number behind it is an assumption, so nothing uses it unless asked.

use super::{Constants, Parts, rows};

/// What a study states of its wafers in place of the assumptions; zero where
/// it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wafer {
    pub usd: f64,
    pub defects_per_cm2: f64,
}

impl Wafer {
    /// Whether all of it is stated.
    pub fn is_stated(&self) -> bool {
        self.usd > 0.0 && self.defects_per_cm2 > 0.0
    }
}

/// Dollars of one package, and what they follow from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DieCost {
    pub dies_per_wafer: f64,
    /// Dies in the package.
    pub dies: f64,
    /// Share of dies without a defect in what is not spare.
    pub yield_fraction: f64,
    /// All good dies of the package.
    pub die_usd: f64,
    pub memory_usd: f64,
    pub packaging_usd: f64,
}

impl DieCost {
    /// Die, memory and package.
    pub fn total_usd(&self) -> f64 {
        self.die_usd + self.memory_usd + self.packaging_usd
    }
}

/// Cost of dies of `area_mm2` together, of which a defect spoils one in
/// `critical_mm2` only: what lies in spare units is fused off.
pub fn die_cost(
    constants: &Constants,
    parts: &Parts,
    area_mm2: f64,
    critical_mm2: f64,
    wafer: &Wafer,
) -> Option<DieCost> {
    let (process, memory, _) = rows(constants, parts)?;
    let stated = |value: f64, assumed: f64| if value > 0.0 { value } else { assumed };
    let wafer_usd = stated(wafer.usd, process.wafer_usd);
    let defects_per_cm2 = stated(wafer.defects_per_cm2, constants.cost.defects_per_cm2);
    let package_mm2 = area_mm2;
    let (area_mm2, critical_mm2) = (area_mm2 / parts.dies, critical_mm2 / parts.dies);
    let cost = &constants.cost;
    let radius = cost.wafer_mm / 2.0;
    // Whole dies of a disc: its area over theirs, less those the rim cuts.
    let dies_per_wafer = std::f64::consts::PI * radius * radius / area_mm2
        - std::f64::consts::PI * cost.wafer_mm / (2.0 * area_mm2).sqrt();
    let defects = defects_per_cm2 * critical_mm2 / 100.0;
    let yield_fraction = (1.0 + defects / cost.clustering).powf(-cost.clustering);
    if dies_per_wafer.is_nan() || dies_per_wafer < 1.0 {
        return None;
    }
    Some(DieCost {
        dies_per_wafer,
        dies: parts.dies,
        yield_fraction,
        die_usd: parts.dies * wafer_usd / (dies_per_wafer * yield_fraction),
        memory_usd: parts.memory_units * memory.unit_usd,
        packaging_usd: cost.packaging_usd_per_mm2 * package_mm2,
    })
}
