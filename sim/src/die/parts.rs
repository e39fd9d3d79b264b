//! The parts of a die and the totals that they add up to: rates, memory, links,
//! area, power and cost. Kernels are timed elsewhere.

use super::roofline::Roofline;
use crate::flops::PeakFlops;
use trinity_silicon::die::{
    self, Activity, AreaByPart, Constants, DieCost, Parts, PowerByPart, RowIndex, Sm, Wafer,
};

/// FLOPs of one SM's matrix units in a clock, by number format; FP32 stands
/// for TF32 where there is such a thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixRates {
    pub fp32: f64,
    pub fp16: f64,
    pub fp8: f64,
}

/// A GPU's parts: those enabled, and those built and fused off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Die {
    pub constants: &'static Constants,
    /// The process, by its place in the constants.
    pub process: RowIndex,
    pub sms: f64,
    pub spare_sms: f64,
    /// As built: its lanes, registers and shared memory.
    pub sm: Sm,
    pub matrix_flop_per_clock: MatrixRates,
    /// Exponentials and other special functions of an SM in a clock.
    pub special_per_clock: f64,
    /// SMs that share what one of them loads (thread-block clusters).
    pub sms_sharing_loads: f64,
    /// Boost clock, which vector rates are stated at.
    pub clock_hz: f64,
    /// Clock that matrix rates are stated at.
    pub matrix_clock_hz: f64,
    /// Clock that the circuits were built for at nominal supply; zero where
    /// nobody says.
    pub nominal_hz: f64,
    pub l2_mib: f64,
    pub spare_l2_mib: f64,
    pub l2_bytes_per_clock: f64,
    /// The memory, by its place in the constants.
    pub memory: RowIndex,
    /// HBM stacks or 32-bit channels.
    pub memory_units: f64,
    pub spare_memory_units: f64,
    pub memory_bits_per_s_per_pin: f64,
    pub memory_bytes_per_unit: f64,
    /// The link, by its place in the constants.
    pub link: RowIndex,
    pub links: f64,
    /// One direction of one link.
    pub link_bytes_per_s: f64,
    pub pcie_lanes: f64,
    pub engines: f64,
    /// Dies in the package, which share the parts out evenly.
    pub dies: f64,
    /// What the study states of its wafers.
    pub wafer: Wafer,
    /// Board power that clocks give way to.
    pub power_limit_w: f64,
    /// Derived by [`Die::settle`], kept because every kernel asks for it.
    pub roofline: Roofline,
}

impl Die {
    /// The die as it is built, with `codec_mm2` of tensor codecs on it.
    pub fn parts(&self, codec_mm2: f64) -> Parts {
        Parts {
            process: self.process,
            sms: self.sms + self.spare_sms,
            sm: self.sm,
            l2_mib: self.l2_mib + self.spare_l2_mib,
            // Ports are fused off with the arrays behind them.
            l2_bytes_per_clock: self.l2_bytes_per_clock * (1.0 + self.spare_l2_mib / self.l2_mib),
            memory: self.memory,
            memory_units: self.memory_units + self.spare_memory_units,
            link: self.link,
            links: self.links,
            pcie_lanes: self.pcie_lanes,
            engines: self.engines,
            codec_mm2,
            dies: self.dies.max(1.0),
        }
    }

    pub fn area(&self, codec_mm2: f64) -> AreaByPart {
        die::area(self.constants, &self.parts(codec_mm2))
    }

    /// Dense peak rates.
    pub fn peak_flops(&self) -> PeakFlops {
        let matrix = |flop_per_clock: f64| self.sms * flop_per_clock * self.matrix_clock_hz;
        PeakFlops {
            fp32: matrix(self.matrix_flop_per_clock.fp32),
            fp16: matrix(self.matrix_flop_per_clock.fp16),
            fp8: matrix(self.matrix_flop_per_clock.fp8),
            // Parts state no FP4 rate: a die by its parts has none.
            fp4: 0.0,
            vector: self.sms * self.sm.fp32_lanes * 2.0 * self.clock_hz,
        }
    }

    pub fn memory_bytes(&self) -> f64 {
        self.memory_units * self.memory_bytes_per_unit
    }

    /// Peak bandwidth of the memory.
    pub fn memory_bytes_per_s(&self) -> f64 {
        let bits = self.constants.memories.get(usize::from(self.memory.0)).map_or(0.0, |row| row.bus_bits);
        self.memory_units * bits * self.memory_bits_per_s_per_pin / 8.0
    }

    /// Whether a kind of links is stated, be their count zero.
    pub fn has_link_kind(&self) -> bool {
        let row = self.constants.links.get(usize::from(self.link.0));
        row.is_some_and(|row| row.name != "none")
    }

    /// All links, one direction.
    pub fn links_bytes_per_s(&self) -> f64 {
        self.links * self.link_bytes_per_s
    }

    /// Peak bandwidth of the L2 at the boost clock.
    pub fn l2_bytes_per_s(&self) -> f64 {
        self.l2_bytes_per_clock * self.clock_hz
    }

    /// The clock at nominal supply: what the circuits were built for, or else the
    /// die's own boost clock, as far as its process has GPUs that fast. What is
    /// clocked higher takes more supply.
    pub fn nominal_clock_hz(&self) -> f64 {
        let built_for = if self.nominal_hz > 0.0 { self.nominal_hz } else { self.clock_hz };
        let process = self.constants.processes.get(usize::from(self.process.0));
        process.map_or(built_for, |row| built_for.min(row.clock_ghz * 1e9))
    }

    /// The clock at the highest supply, whatever the power.
    pub fn most_clock_hz(&self) -> f64 {
        let process = self.constants.processes.get(usize::from(self.process.0));
        process.map_or(self.clock_hz, |row| row.clock_ghz * 1e9 * die::most_clock_ratio(self.constants))
    }

    /// Power by part at a clock, when the parts do what `activity` says.
    pub fn power(&self, codec_mm2: f64, activity: &Activity, clock_hz: f64) -> PowerByPart {
        let area = self.area(codec_mm2);
        let ratio = clock_hz / self.nominal_clock_hz();
        die::power(self.constants, &self.parts(codec_mm2), &area, activity, ratio)
    }

    /// Cost of the package, assumed where the study states no wafer. Half of the SMs' and L2's area
    /// tolerates a defect where there are spares of them.
    pub fn cost(&self, codec_mm2: f64) -> Option<DieCost> {
        let area = self.area(codec_mm2);
        let spared = |mm2: f64, spare: f64| if spare > 0.0 { mm2 } else { 0.0 };
        let tolerant = spared(area.sms_mm2, self.spare_sms) + spared(area.l2_mm2, self.spare_l2_mib);
        let (parts, total_mm2) = (self.parts(codec_mm2), area.total_mm2());
        die::die_cost(self.constants, &parts, total_mm2, total_mm2 - tolerant / 2.0, &self.wafer)
    }

    /// Whether the die can be made with `codec_mm2` of codecs on it. Fails when
    /// it is larger than a reticle, has more PHYs than edge, is clocked beyond
    /// its process, or may not even idle under its power limit.
    pub fn buildable(&self, codec_mm2: f64) -> Result<(), die::Error> {
        let parts = self.parts(codec_mm2);
        die::buildable(self.constants, &parts, die::area(self.constants, &parts).total_mm2())?;
        let (clock_hz, most_hz) = (self.clock_hz.max(self.matrix_clock_hz), self.most_clock_hz());
        if clock_hz > most_hz {
            return Err(die::Error::Clock { clock_ghz: clock_hz / 1e9, most_ghz: most_hz / 1e9 });
        }
        let (limit_w, idle_w) = (self.power_limit_w, self.roofline.idle_power_w);
        if limit_w < idle_w {
            return Err(die::Error::Power { limit_w, idle_w });
        }
        Ok(())
    }
}
