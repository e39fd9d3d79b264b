//! What a die draws, by part: leakage, energy of operations and of bytes.
//!
//! Dynamic energy goes with the square of the supply, and the supply follows
//! the clock; [`supply_ratio`] is that curve.

use super::{AreaByPart, Constants, Parts, rows};

/// What the parts do in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity {
    pub matrix_flop_per_s: f64,
    pub vector_flop_per_s: f64,
    /// Between L2 and SMs.
    pub l2_bytes_per_s: f64,
    pub memory_bytes_per_s: f64,
    pub link_bytes_per_s: f64,
    pub codec_w: f64,
}

/// Watts by part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PowerByPart {
    pub leakage_w: f64,
    pub matrix_w: f64,
    pub vector_w: f64,
    /// L2 and the network to it.
    pub l2_w: f64,
    pub memory_w: f64,
    pub links_w: f64,
    pub codecs_w: f64,
}

impl PowerByPart {
    /// All parts together.
    pub fn total_w(&self) -> f64 {
        self.named().iter().map(|(_, w)| w).sum()
    }

    /// The parts with the names they are shown by.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("leakage", self.leakage_w),
            ("matrix units", self.matrix_w),
            ("vector units", self.vector_w),
            ("L2 and network", self.l2_w),
            ("memory", self.memory_w),
            ("links", self.links_w),
            ("tensor codecs", self.codecs_w),
        ]
    }
}

/// Energy of an operation at a process over that at N7: capacitance goes with
/// the linear dimension, and with it goes the square of the supply.
pub fn energy_scale(constants: &Constants, parts: &Parts) -> f64 {
    const N7_SUPPLY_V: f64 = 0.75;
    rows(constants, parts).map_or(1.0, |(process, ..)| {
        let supply = process.supply_v / N7_SUPPLY_V;
        process.logic.sqrt() * supply * supply
    })
}

/// Supply at a clock over the nominal one: a line through one, and
/// never below the supply at half the clock, where a chip stops saving.
pub fn supply_ratio(constants: &Constants, clock_ratio: f64) -> f64 {
    let half = constants.energy.voltage_at_half_clock;
    (half + (1.0 - half) * (2.0 * clock_ratio - 1.0)).max(half)
}

/// The highest clock over the one at nominal supply: where [`supply_ratio`]
/// meets the highest supply.
pub fn most_clock_ratio(constants: &Constants) -> f64 {
    let half = constants.energy.voltage_at_half_clock;
    0.5 * (1.0 + (constants.energy.most_supply - half) / (1.0 - half))
}

/// Power by part; `clock_ratio` is the clock over the one at nominal supply.
pub fn power(
    constants: &Constants,
    parts: &Parts,
    area: &AreaByPart,
    activity: &Activity,
    clock_ratio: f64,
) -> PowerByPart {
    let Some((_, memory, link)) = rows(constants, parts) else { return PowerByPart::default() };
    let energy = &constants.energy;
    let supply = supply_ratio(constants, clock_ratio);
    let dynamic = energy_scale(constants, parts) * supply * supply * 1e-12;
    let silicon_mm2 =
        area.total_mm2() - area.memory_phy_mm2 - area.link_phy_mm2 - area.pcie_mm2 - area.codecs_mm2;
    PowerByPart {
        leakage_w: energy.leakage_w_per_mm2 * silicon_mm2 * supply,
        matrix_w: energy.matrix_pj_per_flop * dynamic * activity.matrix_flop_per_s,
        vector_w: energy.vector_pj_per_flop * dynamic * activity.vector_flop_per_s,
        l2_w: (energy.l2_pj_per_byte + energy.sm_pj_per_byte) * dynamic * activity.l2_bytes_per_s,
        memory_w: memory.energy_pj_per_bit * 8e-12 * activity.memory_bytes_per_s,
        links_w: link.energy_pj_per_bit * 8e-12 * activity.link_bytes_per_s,
        codecs_w: activity.codec_w,
    }
}
