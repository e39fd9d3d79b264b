//! Technologies in files: what gates and bits cost at a node.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Diagnostic};
use trinity_silicon::stages::Technology;

/// What gates and bits cost. Plain numbers whose unit is in their key, so that
/// a figure of femtojoules stays the figure that was written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TechnologyFile(pub Technology);

impl Checked for TechnologyFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let Technology { gate_um2, utilization, sram_um2_per_bit, clock_ghz, pipeline_clock_ghz, .. } =
            self.0;
        at.positive(&[
            ("gate-um2", gate_um2),
            ("utilization", utilization),
            ("sram-um2-per-bit", sram_um2_per_bit),
            ("clock-ghz", clock_ghz),
            ("pipeline-clock-ghz", pipeline_clock_ghz),
        ])
    }
}
