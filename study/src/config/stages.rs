//! Encoders in files as lists of stages: leave one out, or put several side by
//! side, and area, power and throughput follow.

use super::names::{choices, names};
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use trinity_config::{At, Diagnostic};
use trinity_silicon::stages::{Design, Stage, StageCount, Technology, XK264, XK265, reconcile};
use trinity_silicon::table3::{self, THROUGHPUT_GBPS, Table3Row};
use trinity_silicon::{Cost, InstanceRate};

settable! {
    StagesFile { design, instance, instances, without, copies, scale }
}

names! {
    /// The open RTL whose stages were counted.
    DesignName {
        /// H.264 Baseline encoder.
        Xk264,
        /// H.265 encoder, the stages that were synthesized.
        Xk265,
    }

    /// Whose areas and powers count.
    ScaleName {
        /// Gates and bits as synthesized.
        AsCounted,
        /// Scaled so that the whole design is its row of Table 3.
        #[serde(rename = "table-3")]
        Table3,
    }
}

impl DesignName {
    fn stages(self) -> &'static [StageCount] {
        match self {
            Self::Xk264 => &XK264,
            Self::Xk265 => &XK265,
        }
    }

    fn row(self) -> &'static Table3Row {
        match self {
            Self::Xk264 => &table3::H264_ENCODER,
            Self::Xk265 => &table3::H265_ENCODER,
        }
    }
}

choices! {
    /// What one instance delivers with every stage once.
    RateName => InstanceRate {
        /// 4K60 with 4:2:0 chroma, as the paper counts.
        #[serde(rename = "4k60")]
        Paper4k60,
        /// The same, only luma carrying tensor values.
        #[serde(rename = "4k60-luma")]
        Luma4k60,
        /// What xk264's own page says.
        #[serde(rename = "xk264-1080p60")]
        Xk2641080p60,
        /// What xk265's own page says.
        #[serde(rename = "xk265-4k30")]
        Xk2654k30,
        #[serde(rename = "1080p60-luma")]
        Luma1080p60,
    }
}

/// An encoder made of stages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StagesFile {
    pub design: DesignName,
    pub instance: RateName,
    /// Instances side by side; as many as give 100 Gbit/s where it is not said.
    pub instances: Option<f64>,
    /// Stages left out.
    #[serde(default)]
    pub without: Vec<String>,
    /// Copies of a stage in each instance; one where it is not said. The stage
    /// with fewest sets the pace.
    #[serde(default)]
    pub copies: BTreeMap<String, f64>,
    pub scale: ScaleName,
}

impl StagesFile {
    /// Area, power and throughput of all instances at 7 nm.
    pub fn cost(&self) -> Cost {
        let rate = self.instance.resolve();
        let whole = Design::new(self.design.stages(), rate);
        let technology = Technology::ASAP7;
        let reconciled = reconcile(&whole, &technology, self.design.row());
        let mut design = whole;
        for stage in self.without.iter().filter_map(|name| Stage::named(name)) {
            design = design.without(stage);
        }
        for (name, &copies) in &self.copies {
            if let Some(stage) = Stage::named(name) {
                // `check_at` has refused what cannot be built.
                design = design.clone().with_copies(stage, copies).unwrap_or(design);
            }
        }
        let instances = self.instances.unwrap_or_else(|| rate.instances_for(THROUGHPUT_GBPS));
        let counted = design.cost(&technology).instances(instances);
        match self.scale {
            ScaleName::AsCounted => counted,
            ScaleName::Table3 => Cost {
                area_mm2: counted.area_mm2 / reconciled.area_ratio,
                power_w: counted.power_w / reconciled.power_ratio,
                ..counted
            },
        }
    }

    /// Complains about stages that the design lacks and counts that cannot be.
    pub(super) fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let known = |name: &str| {
            Stage::named(name).is_some_and(|stage| self.design.stages().iter().any(|s| s.stage == stage))
        };
        let stages = self.design.stages().iter();
        let names: Vec<String> = stages.map(|s| s.stage.name().to_lowercase().replace(' ', "-")).collect();
        let unknown = |key: String, name: &str| {
            let what = format_args!("the design has no stage `{name}`");
            at.refuse(key, what, format_args!("one of: {}", names.join(", ")))
        };
        let without = self.without.iter().enumerate().filter(|(_, name)| !known(name));
        let without = without.map(|(k, name)| unknown(format!("without.{k}"), name));
        let copies = self.copies.iter().map(|(name, &copies)| match format!("copies.{name}") {
            key if known(name) => at.positive(&[(key, copies)]),
            key => unknown(key, name),
        });
        let nothing = (self.without.len() >= self.design.stages().len())
            .then(|| at.refuse("without", "nothing is left of the design", "at least one stage"));
        let instances = at.positive(&[("instances", self.instances.unwrap_or(1.0))]);
        Diagnostic::gather(without.chain(copies).chain(nothing).chain([instances]))
    }
}
