//! Gates and SRAM bits, stage by stage.
//!
//! Counts come from open RTL (xk264, xk265) synthesized with yosys 0.23 and
//! abc, RAM macros left out: kGE = combinational transistors ÷ 4000 plus 6 GE
//! a flip-flop. No clock tree, no margin; commercial synthesis is typically
//! 1.3–1.5 times smaller. Hence [`reconcile`].

use crate::cost::{Cost, Error, InstanceRate};
use crate::table3::Table3Row;
use schemars::JsonSchema;
use serde::Deserialize;

/// A stage of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Intra,
    ModePreDecision,
    TransformQuantization,
    Cavlc,
    /// Binarizer, bin mix, bin sort and bit packing.
    CabacFrontEnd,
    /// Arithmetic core, four bins a cycle.
    CabacCore,
    Registers,
    IntegerMotion,
    FractionalMotion,
    MotionCompensation,
    MotionVectors,
    ReferenceFetch,
    Deblocking,
}

impl Stage {
    /// Every stage of any design, by the name used in configurations and reports.
    const NAMED: [(Self, &str); 13] = [
        (Self::Intra, "intra prediction"),
        (Self::ModePreDecision, "mode pre-decision"),
        (Self::TransformQuantization, "transform and quantization"),
        (Self::Cavlc, "CAVLC"),
        (Self::CabacFrontEnd, "CABAC front end"),
        (Self::CabacCore, "CABAC core"),
        (Self::Registers, "current-block registers"),
        (Self::IntegerMotion, "integer motion estimation"),
        (Self::FractionalMotion, "fractional motion estimation"),
        (Self::MotionCompensation, "motion compensation"),
        (Self::MotionVectors, "motion-vector difference"),
        (Self::ReferenceFetch, "reference fetch"),
        (Self::Deblocking, "deblocking"),
    ];

    /// Its name there.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    /// The stage of that name; `-` and a space are the same, and so are cases.
    pub fn named(name: &str) -> Option<Self> {
        let plain = |text: &str| text.to_lowercase().replace(' ', "-");
        Self::NAMED.into_iter().find(|(_, own)| plain(own) == plain(name)).map(|(stage, _)| stage)
    }

    /// Whether only video between frames needs it.
    pub fn is_inter(self) -> bool {
        matches!(
            self,
            Self::IntegerMotion
                | Self::FractionalMotion
                | Self::MotionCompensation
                | Self::MotionVectors
                | Self::ReferenceFetch
        )
    }
}

/// One stage of a design.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageCount {
    pub stage: Stage,
    /// `None` where the RTL did not synthesize: the sum then lacks it.
    pub gates_kge: Option<f64>,
    pub sram_bits: f64,
    /// Copies side by side.
    pub copies: f64,
}

const fn count(stage: Stage, gates_kge: f64, sram_bits: f64) -> StageCount {
    StageCount { stage, gates_kge: Some(gates_kge), sram_bits, copies: 1.0 }
}

/// xk264, H.264 Baseline encoder.
pub const XK264: [StageCount; 10] = [
    count(Stage::Intra, 77.5, 32_640.0),
    count(Stage::TransformQuantization, 168.4, 30_720.0),
    count(Stage::Cavlc, 20.9, 4_320.0),
    count(Stage::Registers, 81.6, 0.0),
    count(Stage::IntegerMotion, 370.3, 0.0),
    count(Stage::FractionalMotion, 185.0, 20_480.0),
    count(Stage::MotionCompensation, 88.1, 0.0),
    count(Stage::MotionVectors, 8.3, 8_256.0),
    count(Stage::ReferenceFetch, 12.8, 65_536.0),
    StageCount { stage: Stage::Deblocking, gates_kge: None, sram_bits: 14_464.0, copies: 1.0 },
];

/// xk265, H.265 encoder: the stages that were synthesized.
pub const XK265: [StageCount; 5] = [
    count(Stage::Intra, 122.6, 0.0),
    count(Stage::ModePreDecision, 80.4, 0.0),
    count(Stage::TransformQuantization, 137.2, 0.0),
    count(Stage::CabacFrontEnd, 13.7 + 9.8 + 22.5 + 8.7, 0.0),
    count(Stage::CabacCore, 8.4, 0.0),
];

/// What gates and bits cost at 7 nm.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Technology {
    /// One gate equivalent: a NAND gate of two inputs.
    pub gate_um2: f64,
    /// Share of a placed block that is cells.
    pub utilization: f64,
    /// A bit cell over the array's efficiency.
    pub sram_um2_per_bit: f64,
    pub clock_ghz: f64,
    /// Switching of one gate with its wire at 0.7 V, and the share of gates
    /// that switch in a cycle: round figures, which [`reconcile`] judges.
    pub gate_fj: f64,
    pub activity: f64,
    /// Energy of one SRAM bit accessed in each cycle, amortized over all bits.
    pub sram_fj_per_bit: f64,
    pub leakage_nw_per_gate: f64,
    /// A registered operator of 16 bits, as fitted to synthesized stages: an
    /// addition, comparison, selection or look-up, and a multiplication.
    pub addition_um2: f64,
    pub multiplication_um2: f64,
    /// Energy of logic and its flip-flops in a cycle, wires and clock tree included.
    pub logic_fj_per_um2: f64,
    /// The clock that those stages reach.
    pub pipeline_clock_ghz: f64,
}

impl Technology {
    /// 7 nm at 400 MHz, the clock that xk265's page states; the numbers are those of
    /// `configs/technologies/asap7.toml`, see `build.rs`.
    pub const ASAP7: Self = include!(concat!(env!("OUT_DIR"), "/asap7.rs"));

    /// Square millimetres and watts of gates and bits at full throughput.
    pub fn area_and_power(&self, gates: f64, sram_bits: f64) -> (f64, f64) {
        let cycles_per_s = self.clock_ghz * 1e9;
        let switching_w = gates * self.activity * self.gate_fj * 1e-15 * cycles_per_s;
        let sram_w = sram_bits * self.sram_fj_per_bit * 1e-15 * cycles_per_s;
        let leakage_w = gates * self.leakage_nw_per_gate * 1e-9;
        let area_mm2 = (gates * self.gate_um2 / self.utilization + sram_bits * self.sram_um2_per_bit) / 1e6;
        (area_mm2, switching_w + sram_w + leakage_w)
    }
}

/// An encoder as a list of stages, none held twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    stages: Vec<StageCount>,
    rate: InstanceRate,
}

impl Design {
    /// A design whose every stage, in one copy, keeps up with `rate`.
    pub fn new(stages: &[StageCount], rate: InstanceRate) -> Self {
        Self { stages: stages.to_vec(), rate }
    }

    /// Its stages.
    pub fn stages(&self) -> &[StageCount] {
        &self.stages
    }

    /// The design without a stage.
    #[must_use]
    pub fn without(mut self, stage: Stage) -> Self {
        self.stages.retain(|s| s.stage != stage);
        self
    }

    /// Only what tensors and images need.
    #[must_use]
    pub fn intra_only(mut self) -> Self {
        self.stages.retain(|s| !s.stage.is_inter() && s.stage != Stage::Deblocking);
        self
    }

    /// The design with `copies` of a stage side by side.
    ///
    /// # Errors
    ///
    /// When `copies` is not a positive number.
    pub fn with_copies(mut self, stage: Stage, copies: f64) -> Result<Self, Error> {
        if !(copies > 0.0 && copies.is_finite()) {
            return Err(Error::NotPositive { what: "the number of copies of a stage", value: copies });
        }
        for s in self.stages.iter_mut().filter(|s| s.stage == stage) {
            s.copies = copies;
        }
        Ok(self)
    }

    /// Gates, thousands, of the stages that were synthesized.
    pub fn gates_kge(&self) -> f64 {
        self.stages.iter().map(|s| s.gates_kge.unwrap_or(0.0) * s.copies).sum()
    }

    /// SRAM, bits.
    pub fn sram_bits(&self) -> f64 {
        self.stages.iter().map(|s| s.sram_bits * s.copies).sum()
    }

    /// Area, power and throughput of one instance. A pipeline runs at the
    /// pace of its slowest stage, so doubling one stage alone costs area and
    /// buys nothing until the others follow.
    pub fn cost(&self, technology: &Technology) -> Cost {
        let (area_mm2, power_w) = technology.area_and_power(self.gates_kge() * 1e3, self.sram_bits());
        let slowest = self.stages.iter().map(|s| s.copies).fold(f64::INFINITY, f64::min);
        Cost {
            area_mm2,
            power_w,
            throughput_gbps: if slowest.is_finite() { self.rate.gbps() * slowest } else { 0.0 },
        }
    }
}

/// The stage model's sum beside Table 3, both for 100 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reconciliation {
    pub model: Cost,
    pub table: Cost,
    /// Model over table.
    pub area_ratio: f64,
    pub power_ratio: f64,
}

/// Holds a design against the row of Table 3 that it should add up to.
pub fn reconcile(design: &Design, technology: &Technology, row: &Table3Row) -> Reconciliation {
    let one = design.cost(technology);
    let table = row.cost();
    let model = one.instances(table.throughput_gbps / one.throughput_gbps);
    Reconciliation {
        model,
        table,
        area_ratio: model.area_mm2 / table.area_mm2,
        power_ratio: model.power_w / table.power_w,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table3;

    fn xk264() -> Design {
        Design::new(&XK264, InstanceRate::Paper4k60)
    }

    #[test]
    fn the_sum_is_the_anchors_1013_kge_and_a_third_of_it_is_intra() {
        let all = xk264();
        assert!((all.gates_kge() - 1013.0).abs() < 0.5, "{}", all.gates_kge());
        assert_eq!(all.sram_bits(), 176_416.0);
        let intra = all.clone().intra_only();
        assert!((intra.gates_kge() - 348.0).abs() < 1.0, "{}", intra.gates_kge());
        assert!((intra.gates_kge() / all.gates_kge() - 0.34).abs() < 0.01);
        let unknown = all.stages().iter().filter(|s| s.gates_kge.is_none()).map(|s| s.stage);
        assert_eq!(unknown.collect::<Vec<_>>(), [Stage::Deblocking]);
    }

    #[test]
    fn the_sum_is_of_the_order_of_table_3() {
        let r = reconcile(&xk264(), &Technology::ASAP7, &table3::H264_ENCODER);
        assert!((1.0..3.0).contains(&r.area_ratio), "{r:?}");
        assert!((0.5..2.0).contains(&r.power_ratio), "{r:?}");
    }

    #[test]
    fn leaving_a_stage_out_saves_its_area_and_power() {
        let whole = xk264().cost(&Technology::ASAP7);
        let less = xk264().without(Stage::IntegerMotion).cost(&Technology::ASAP7);
        assert!(less.area_mm2 < 0.7 * whole.area_mm2 && less.power_w < 0.7 * whole.power_w);
        assert_eq!(less.throughput_gbps, whole.throughput_gbps);
    }

    #[test]
    fn doubling_every_stage_doubles_the_instance() {
        let one = xk264().intra_only();
        let before = one.cost(&Technology::ASAP7);
        let mut two = one.clone();
        for s in one.stages() {
            two = two.with_copies(s.stage, 2.0).unwrap();
        }
        let after = two.cost(&Technology::ASAP7);
        for (a, b) in [
            (after.area_mm2, before.area_mm2),
            (after.power_w, before.power_w),
            (after.throughput_gbps, before.throughput_gbps),
        ] {
            assert!((a / b - 2.0).abs() < 1e-12);
        }
        let lone = one.with_copies(Stage::Intra, 2.0).unwrap().cost(&Technology::ASAP7);
        assert_eq!(lone.throughput_gbps, before.throughput_gbps);
        assert!(xk264().with_copies(Stage::Intra, 0.0).is_err());
    }
}
