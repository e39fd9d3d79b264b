//! Synthesized figures in files: what a tool found of RTL. `cargo xtask silicon`
//! writes the one of our own.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Checked, Complaint, Diagnostic, Document};
use trinity_silicon::synthesis::Synthesis;

/// Cells, areas, paths and powers of designs and of their stages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SynthesisFile(pub Synthesis);

impl Checked for SynthesisFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let file = &self.0;
        let designs = file.design.iter().enumerate().flat_map(|(at, design)| {
            let positive = [
                ("logic-um2", design.logic_um2),
                ("area-mm2", design.area_mm2),
                ("clock-ghz", design.clock_ghz),
                ("gbps", design.gbps),
            ];
            let twin = file.design[..at].iter().any(|other| other.name == design.name).then(|| {
                let complaint = Complaint::new("two designs share this name").expected("a name of its own");
                Err(document.complain(&format!("design.{at}.name"), &complaint))
            });
            [super::bounds::positive(document, &format!("design.{at}."), &positive)].into_iter().chain(twin)
        });
        let known = || file.design.iter().map(|design| design.name.as_str()).collect::<Vec<_>>().join(", ");
        let stray = file.stage.iter().enumerate().filter(|(_, stage)| file.design(&stage.design).is_none());
        let stray = stray.map(|(at, stage)| {
            let complaint = Complaint::new(format_args!("there is no design `{}`", stage.design))
                .expected(format_args!("one of: {}", known()));
            Err(document.complain(&format!("stage.{at}.design"), &complaint))
        });
        let assumed = super::bounds::positive(
            document,
            "assumed.",
            &[("clock-ps", file.assumed.clock_ps), ("utilization", file.assumed.utilization)],
        );
        Diagnostic::gather(designs.chain(stray).chain([assumed]))
    }
}
