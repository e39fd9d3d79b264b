//! Synthesized figures in files: what a tool found of RTL. `cargo xtask silicon`
//! writes the one of our own.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Diagnostic};
use trinity_silicon::synthesis::Synthesis;

/// Cells, areas, paths and powers of designs and of their stages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SynthesisFile(pub Synthesis);

impl Checked for SynthesisFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let file = &self.0;
        let designs = file.design.iter().enumerate().flat_map(|(k, design)| {
            let positive = [
                ("logic-um2", design.logic_um2),
                ("area-mm2", design.area_mm2),
                ("clock-ghz", design.clock_ghz),
                ("gbps", design.gbps),
            ];
            let here = at.table(format_args!("design.{k}"));
            let twin = file.design[..k].iter().any(|other| other.name == design.name);
            let twin = twin.then(|| here.refuse("name", "two designs share this name", "a name of its own"));
            [here.positive(&positive)].into_iter().chain(twin)
        });
        let known = || file.design.iter().map(|design| design.name.as_str()).collect::<Vec<_>>().join(", ");
        let stray = file.stage.iter().enumerate().filter(|(_, stage)| file.design(&stage.design).is_none());
        let stray = stray.map(|(k, stage)| {
            let what = format_args!("there is no design `{}`", stage.design);
            at.refuse(format_args!("stage.{k}.design"), what, format_args!("one of: {}", known()))
        });
        let assumed = &file.assumed;
        let assumed = at
            .table("assumed")
            .positive(&[("clock-ps", assumed.clock_ps), ("utilization", assumed.utilization)]);
        Diagnostic::gather(designs.chain(stray).chain([assumed]))
    }
}
