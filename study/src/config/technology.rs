//! Technologies in files: what gates and bits cost at a node.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Checked, Cited, Diagnostic, Document};
use trinity_silicon::stages::Technology;

/// What gates and bits cost. Plain numbers whose unit is in their key, so that
/// a figure of femtojoules stays the figure that was written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TechnologyFile {
    /// One gate equivalent.
    #[schemars(with = "Cited<f64>")]
    pub gate_um2: f64,
    /// Share of a placed block that is cells.
    #[schemars(with = "Cited<f64>")]
    pub utilization: f64,
    #[schemars(with = "Cited<f64>")]
    pub sram_um2_per_bit: f64,
    #[schemars(with = "Cited<f64>")]
    pub clock_ghz: f64,
    /// Switching of one gate with its wire.
    #[schemars(with = "Cited<f64>")]
    pub gate_fj: f64,
    /// Share of gates that switch in a cycle.
    #[schemars(with = "Cited<f64>")]
    pub activity: f64,
    /// One SRAM bit in each cycle, amortized over all bits.
    #[schemars(with = "Cited<f64>")]
    pub sram_fj_per_bit: f64,
    #[schemars(with = "Cited<f64>")]
    pub leakage_nw_per_gate: f64,
    /// A registered addition, comparison, selection or look-up of 16 bits.
    #[schemars(with = "Cited<f64>")]
    pub addition_um2: f64,
    /// A registered multiplication of 16 by 16 bits.
    #[schemars(with = "Cited<f64>")]
    pub multiplication_um2: f64,
    /// Logic and its flip-flops in a cycle, wires and clock tree included.
    #[schemars(with = "Cited<f64>")]
    pub logic_fj_per_um2: f64,
    /// The clock that a pipeline of such operators reaches.
    #[schemars(with = "Cited<f64>")]
    pub pipeline_clock_ghz: f64,
}

impl TechnologyFile {
    pub fn resolve(&self) -> Technology {
        Technology {
            gate_um2: self.gate_um2,
            utilization: self.utilization,
            sram_um2_per_bit: self.sram_um2_per_bit,
            clock_ghz: self.clock_ghz,
            gate_fj: self.gate_fj,
            activity: self.activity,
            sram_fj_per_bit: self.sram_fj_per_bit,
            leakage_nw_per_gate: self.leakage_nw_per_gate,
            addition_um2: self.addition_um2,
            multiplication_um2: self.multiplication_um2,
            logic_fj_per_um2: self.logic_fj_per_um2,
            pipeline_clock_ghz: self.pipeline_clock_ghz,
        }
    }
}

impl Checked for TechnologyFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let positive = [
            ("gate-um2", self.gate_um2),
            ("utilization", self.utilization),
            ("sram-um2-per-bit", self.sram_um2_per_bit),
            ("clock-ghz", self.clock_ghz),
            ("pipeline-clock-ghz", self.pipeline_clock_ghz),
        ];
        super::bounds::positive(document, "", &positive)
    }
}
