//! Silicon of a stage for which there is no RTL: from what its algorithm does
//! to a value to gates and SRAM bits.
//!
//! Coarser than [`stages`](crate::stages): one operator for every operation a
//! cycle, and a buffer for every value that waits. Good for orders of
//! magnitude and for telling which stage is the dear one.

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
/// Estimate: a full adder in a static CMOS library.
const FULL_ADDER_GE: f64 = 7.0;
/// As in the counts of the open RTL.
const FLIP_FLOP_GE: f64 = 6.0;

/// A registered adder of 16 bits, gates.
const ADDER_GE: f64 = BITS * (FULL_ADDER_GE + FLIP_FLOP_GE);
/// A registered array multiplier of 16 × 16 bits, gates.
const MULTIPLIER_GE: f64 = BITS * BITS * FULL_ADDER_GE + 2.0 * BITS * FLIP_FLOP_GE;

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
    let values_per_cycle = throughput_gbps / BITS / technology.clock_ghz;
    let gates = values_per_cycle
        * (work.additions_per_value * ADDER_GE + work.multiplications_per_value * MULTIPLIER_GE);
    let waiting = if work.serial_values > 1.0 { values_per_cycle.ceil() * work.serial_values } else { 0.0 };
    let sram_bits = waiting * BITS;
    let (area_mm2, power_w) = technology.area_and_power(gates, sram_bits);
    Estimate { gates_kge: gates / 1e3, sram_bits, cost: Cost { area_mm2, power_w, throughput_gbps } }
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
        assert!(long.sram_bits > 1e8 && long.cost.area_mm2 > 10.0, "{long:?}");
    }

    #[test]
    fn a_transform_of_32_points_is_of_the_order_of_the_synthesized_one() {
        // xk264's transform, quantization and reconstruction serve 4K60.
        let per_4k60 = 100.0 / crate::InstanceRate::Paper4k60.instances_for(100.0);
        let small = Work { additions_per_value: 8.0, multiplications_per_value: 3.0, serial_values: 16.0 };
        let found = estimate(&small, 2.0 * per_4k60, &Technology::ASAP7).gates_kge;
        assert!((168.4 / 30.0..168.4).contains(&found), "{found} kGE against 168.4 counted");
    }
}
