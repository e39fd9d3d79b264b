//! Silicon of a stage for which there is no RTL: from what its algorithm does
//! to a value to gates and SRAM bits.
//!
//! Coarser than [`stages`](crate::stages): one operator for every operation a
//! cycle, and a buffer for every value that waits. What an operator takes was
//! fitted to the synthesized stages of our own RTL, and `trinity validate` prints
//! how far each of those is from a fit that had not seen it (set "silicon stages,
//! left out"). Good for orders of magnitude and for telling which stage is the
//! dear one.

use crate::cost::Cost;
use crate::stages::Technology;

/// What a stage does to each value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Additions, comparisons, selections and table look-ups.
    pub additions_per_value: f64,
    pub multiplications_per_value: f64,
    /// Longest chain of values each of which waits for the one before.
    pub serial_values: f64,
}

/// Width of an operand: what the alignment unit hands on.
const BITS: f64 = 16.0;

impl Work {
    /// Cells of a stage that takes `values_per_cycle`, µm².
    pub fn logic_um2(&self, values_per_cycle: f64, technology: &Technology) -> f64 {
        values_per_cycle
            * (self.additions_per_value * technology.addition_um2
                + self.multiplications_per_value * technology.multiplication_um2)
    }
}

/// Gates and bits of one stage at a throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub gates_kge: f64,
    /// Values that wait for others of their chain: as many chains in flight as
    /// values enter in a cycle.
    pub sram_bits: f64,
    pub cost: Cost,
}

/// The stage, wide enough for `throughput_gbps` of values of 16 bits.
pub fn estimate(work: &Work, throughput_gbps: f64, technology: &Technology) -> Estimate {
    let cycles_per_s = technology.pipeline_clock_ghz * 1e9;
    let values_per_cycle = throughput_gbps * 1e9 / BITS / cycles_per_s;
    let logic_um2 = work.logic_um2(values_per_cycle, technology);
    let waiting = if work.serial_values > 1.0 { values_per_cycle.ceil() * work.serial_values } else { 0.0 };
    let sram_bits = waiting * BITS;
    let area_mm2 = (logic_um2 / technology.utilization + sram_bits * technology.sram_um2_per_bit) / 1e6;
    let cycle_fj = logic_um2 * technology.logic_fj_per_um2 + sram_bits * technology.sram_fj_per_bit;
    let cost = Cost { area_mm2, power_w: cycle_fj * 1e-15 * cycles_per_s, throughput_gbps };
    Estimate { gates_kge: logic_um2 / technology.gate_um2 / 1e3, sram_bits, cost }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSFORM: Work =
        Work { additions_per_value: 32.0, multiplications_per_value: 32.0, serial_values: 32.0 };

    #[test]
    fn twice_the_throughput_takes_twice_the_gates() {
        let at = |gbps| estimate(&TRANSFORM, gbps, &Technology::ASAP7);
        assert!((at(200.0).gates_kge / at(100.0).gates_kge - 2.0).abs() < 1e-12);
        assert!(at(200.0).cost.area_mm2 > at(100.0).cost.area_mm2);
    }

    #[test]
    fn a_long_chain_costs_memory_and_nothing_else() {
        let short = estimate(&TRANSFORM, 100.0, &Technology::ASAP7);
        let long = estimate(&Work { serial_values: 1e6, ..TRANSFORM }, 100.0, &Technology::ASAP7);
        assert_eq!(short.gates_kge, long.gates_kge);
        assert!(long.sram_bits > 1e8 && long.cost.area_mm2 > 5.0, "{long:?}");
    }

    #[test]
    fn a_trellis_step_is_of_the_order_of_the_synthesized_one() {
        // The reference block: eight states, one value in a cycle, 290 um2. Two sums,
        // a comparison and a selection for each state.
        let step = Work { additions_per_value: 32.0, multiplications_per_value: 0.0, serial_values: 1.0 };
        let found = step.logic_um2(1.0, &Technology::ASAP7);
        assert!((290.0 / 2.0..290.0 * 2.0).contains(&found), "{found} um2 against 290");
    }
}
