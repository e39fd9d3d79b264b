//! What synthesis found of RTL, block by block and stage by stage.
//!
//! The figures of our own RTL stand in `configs/silicon/asap7.toml`, which
//! `cargo xtask silicon` writes; those of open encoders in
//! `configs/silicon/xk264.toml`. Here are the types of such a file and what
//! follows from it. Knows nothing of how a figure was made.

use crate::cost::Cost;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

static ASAP7: &str = include_str!("../../../configs/silicon/asap7.toml");
static XK264: &str = include_str!("../../../configs/silicon/xk264.toml");

/// A file of synthesized figures.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Synthesis {
    pub source: Option<String>,
    pub run: Run,
    pub assumed: Assumed,
    #[serde(default)]
    pub design: Vec<Design>,
    #[serde(default)]
    pub stage: Vec<Stage>,
}

/// How the figures were made.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    pub source: Option<String>,
    pub date: Option<String>,
    pub command: Option<String>,
    pub yosys: String,
    pub opensta: String,
    pub verilator: Option<String>,
    pub abc_script: Option<String>,
    /// What switched the netlist whose power is stated.
    pub switching_from: String,
}

/// What no tool says.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Assumed {
    pub source: Option<String>,
    /// The clock that power is given at.
    pub clock_ps: f64,
    /// Share of a placed block that is cells.
    pub utilization: f64,
    pub sram_um2_per_bit: f64,
    /// Area of a bit in arrays below `small_sram_bits`.
    pub small_sram_um2_per_bit: Option<f64>,
    pub small_sram_bits: Option<f64>,
    pub sram_setup_ps: Option<f64>,
    pub sram_access_ps: Option<f64>,
    pub sram_access_fj_per_bit: Option<f64>,
    /// What wires multiply the critical path and the logic's power by.
    pub wire_delay: Option<f64>,
    pub wire_power: Option<f64>,
    /// What a clock tree adds to the flip-flops' power, as a share of it.
    pub clock_tree_power: Option<f64>,
}

/// A whole encoder or decoder.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Design {
    pub source: Option<String>,
    pub name: String,
    pub what: String,
    pub cells: Option<u64>,
    pub flip_flops: Option<u64>,
    pub logic_um2: f64,
    pub sram_bits: u64,
    pub sram_um2: f64,
    /// Placed, with SRAM.
    pub area_mm2: f64,
    pub critical_ps: f64,
    /// The clock that is met with wires.
    pub clock_ghz: f64,
    /// While every stage is at work, on captured tensors.
    pub values_per_cycle: Option<f64>,
    /// Uncompressed side, at that clock.
    pub gbps: f64,
    pub sram_w: Option<f64>,
    /// Share of flip-flops whose switching a simulation gave.
    pub annotated: Option<f64>,
    pub simulated_cycles: Option<u64>,
    pub simulated_values: Option<u64>,
    /// Flip-flops and logic at [`Assumed::clock_ps`], without wires and clock tree.
    pub sequential_w: Option<f64>,
    pub logic_w: Option<f64>,
    /// Everything, at the design's own clock; none where no tool gave it.
    pub power_w: Option<f64>,
    pub pj_per_bit: Option<f64>,
}

/// One module of a design, without those below it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stage {
    pub source: Option<String>,
    pub design: String,
    pub name: String,
    /// What the software calls the stage that the module is part of.
    pub part: String,
    pub copies: u64,
    pub cells: Option<u64>,
    pub flip_flops: Option<u64>,
    /// Logic of one copy, as are bits and µm² of SRAM.
    pub logic_um2: f64,
    pub sram_bits: u64,
    pub sram_um2: f64,
    pub critical_ps: f64,
    /// Logic and flip-flops of all copies at [`Assumed::clock_ps`].
    pub power_w: Option<f64>,
}

/// One part of a design, wide enough for a throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartCost {
    pub logic_um2: f64,
    pub sram_bits: f64,
    pub area_mm2: f64,
    /// None where the design's power is not known.
    pub pj_per_bit: Option<f64>,
}

impl Design {
    /// Area, power and throughput of one copy; none where its power is not known.
    pub fn cost(&self) -> Option<Cost> {
        let power_w = self.power_w?;
        Some(Cost { area_mm2: self.area_mm2, power_w, throughput_gbps: self.gbps })
    }

    /// Copies that together deliver `gbps`, not rounded.
    pub fn copies_for(&self, gbps: f64) -> f64 {
        gbps / self.gbps
    }
}

impl Stage {
    /// All copies, placed.
    pub fn area_mm2(&self, assumed: &Assumed) -> f64 {
        self.copies as f64 * (self.logic_um2 / assumed.utilization + self.sram_um2) / 1e6
    }

    /// Logic of all copies.
    pub fn all_logic_um2(&self) -> f64 {
        self.copies as f64 * self.logic_um2
    }
}

impl Synthesis {
    /// Our RTL on ASAP7; nothing where the embedded file is damaged, which a test
    /// of this crate refuses.
    pub fn asap7() -> Option<&'static Self> {
        static READ: OnceLock<Option<Synthesis>> = OnceLock::new();
        READ.get_or_init(|| toml::from_str(ASAP7).ok()).as_ref()
    }

    /// The open H.264 encoder on the same library.
    pub fn xk264() -> Option<&'static Self> {
        static READ: OnceLock<Option<Synthesis>> = OnceLock::new();
        READ.get_or_init(|| toml::from_str(XK264).ok()).as_ref()
    }

    /// The design of that name.
    pub fn design(&self, name: &str) -> Option<&Design> {
        self.design.iter().find(|design| design.name == name)
    }

    /// Stages of a design.
    pub fn stages<'a>(&'a self, design: &'a str) -> impl Iterator<Item = &'a Stage> {
        self.stage.iter().filter(move |stage| stage.design == design)
    }

    /// A design by its parts, in copies that deliver `gbps`. Power is shared out as
    /// the stages' logic draws it, that of SRAM by area, so that the parts' energies
    /// add up to the design's.
    pub fn parts<'a>(&'a self, design: &'a Design, gbps: f64) -> BTreeMap<&'a str, PartCost> {
        let copies = design.copies_for(gbps);
        let all = || self.stages(&design.name);
        let drawn: f64 = all().filter_map(|stage| stage.power_w).sum();
        let sram_um2: f64 = all().map(|stage| stage.copies as f64 * stage.sram_um2).sum();
        let sram_w = design.sram_w.unwrap_or(0.0);
        let mut parts: BTreeMap<&str, PartCost> = BTreeMap::new();
        for stage in all() {
            let part = parts.entry(stage.part.as_str()).or_default();
            part.logic_um2 += copies * stage.all_logic_um2();
            part.sram_bits += copies * stage.copies as f64 * stage.sram_bits as f64;
            part.area_mm2 += copies * stage.area_mm2(&self.assumed);
            if let Some(power_w) = design.power_w.filter(|_| drawn > 0.0) {
                let logic = stage.power_w.unwrap_or(0.0) / drawn * (power_w - sram_w);
                let sram = stage.copies as f64 * stage.sram_um2 / sram_um2.max(1e-9) * sram_w;
                *part.pj_per_bit.get_or_insert(0.0) += (logic + sram) / design.gbps * 1e3;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_files_read() {
        let parse = |text| toml::from_str::<Synthesis>(text).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(parse(ASAP7), Ok(()));
        assert_eq!(parse(XK264), Ok(()));
        assert!(Synthesis::asap7().is_some() && Synthesis::xk264().is_some());
    }

    #[test]
    fn a_design_is_the_sum_of_its_stages() {
        for file in [Synthesis::asap7().unwrap(), Synthesis::xk264().unwrap()] {
            for design in &file.design {
                let near = |found: f64, stated: f64, what: &str| {
                    assert!((found / stated - 1.0).abs() < 2e-3, "{} {what}: {found} {stated}", design.name);
                };
                let logic: f64 = file.stages(&design.name).map(Stage::all_logic_um2).sum();
                near(logic, design.logic_um2, "logic");
                let area: f64 = file.stages(&design.name).map(|stage| stage.area_mm2(&file.assumed)).sum();
                near(area, design.area_mm2, "area");
                let parts = file.parts(design, design.gbps);
                near(parts.values().map(|part| part.area_mm2).sum(), design.area_mm2, "parts");
                if let Some(cost) = design.cost() {
                    let energy: f64 = parts.values().filter_map(|part| part.pj_per_bit).sum();
                    near(energy, cost.energy_pj_per_bit(), "energy");
                }
            }
        }
    }

    #[test]
    fn twice_the_rate_takes_twice_the_copies() {
        let file = Synthesis::asap7().unwrap();
        let design = file.design("line_dec").unwrap();
        let (one, two) = (file.parts(design, 100.0), file.parts(design, 200.0));
        for (name, part) in &one {
            assert!((two[name].area_mm2 / part.area_mm2 - 2.0).abs() < 1e-12, "{name}");
            assert_eq!(two[name].pj_per_bit, part.pj_per_bit);
        }
    }
}
