//! Codecs in files: two blocks, what they cost, and the choices that decide
//! what a printed number means.

use super::names::EnergyName;
use super::setter::settable;
use super::stages::StagesFile;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{
    Area, At, Checked, DataRate, DataSize, Diagnostic, Duration, EnergyPerBit, Fraction, Power,
};
use trinity_silicon::synthesis::{self, Synthesis};
use trinity_silicon::{Cost, EnergyColumn, Node, partition};
use trinity_sim::Codec;

settable! {
    BlockFile { throughput, area, power, printed_energy, stages, synthesis }
    CodecFile { encoder, decoder, node, built_at, bits_per_value, energy, idle, latency, chunk, engine, gpu_share, video }
}

/// An encoder or a decoder: by its figures, as a list of stages, or as synthesized.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BlockFile {
    /// Uncompressed side.
    pub throughput: Option<DataRate>,
    pub area: Option<Area>,
    /// At full throughput.
    pub power: Option<Power>,
    /// Energy per bit as a table prints it, where that differs from power
    /// over throughput.
    pub printed_energy: Option<EnergyPerBit>,
    /// The stages it is made of; figures beside them win.
    pub stages: Option<StagesFile>,
    /// The design of `silicon/asap7` that it is; figures beside it win.
    pub synthesis: Option<String>,
}

/// Our RTL's design of that name.
fn synthesized(name: &str) -> Option<&'static synthesis::Design> {
    Synthesis::asap7().and_then(|file| file.design(name))
}

impl BlockFile {
    /// Area, power and throughput: the figures stated, else those of the synthesized
    /// design, else those of the stages.
    pub fn cost(&self) -> Cost {
        let nothing = Cost { area_mm2: 0.0, power_w: 0.0, throughput_gbps: 0.0 };
        let design = self.synthesis.as_deref().and_then(synthesized);
        let built = match design {
            // `check_at` has refused a design without power where none is stated.
            Some(design) => Cost {
                area_mm2: design.area_mm2,
                power_w: design.power_w.unwrap_or(0.0),
                throughput_gbps: design.gbps,
            },
            None => self.stages.as_ref().map_or(nothing, StagesFile::cost),
        };
        Cost {
            area_mm2: self.area.map_or(built.area_mm2, |area| area.mm2()),
            power_w: self.power.map_or(built.power_w, |power| power.w()),
            throughput_gbps: self.throughput.map_or(built.throughput_gbps, |rate| rate.gbit_per_s()),
        }
    }

    /// Energy of one uncompressed bit by the column chosen.
    pub(crate) fn pj_per_bit(&self, column: EnergyColumn) -> f64 {
        match (column, self.printed_energy) {
            (EnergyColumn::Printed, Some(energy)) => energy.pj_per_bit(),
            _ => self.cost().energy_pj_per_bit(),
        }
    }

    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if let Some(name) = &self.synthesis {
            return self.check_synthesis(name, at);
        }
        let Some(stages) = &self.stages else {
            let missing = [
                ("throughput", self.throughput.is_none()),
                ("area", self.area.is_none()),
                ("power", self.power.is_none()),
            ];
            let instead = "throughput, area and power, or `stages`, or `synthesis`";
            let missing = missing.into_iter().filter(|(_, missing)| *missing);
            let missing = missing.map(|(key, _)| at.refuse("", format_args!("`{key}` is missing"), instead));
            let rate = self.throughput.map(|rate| at.positive(&[("throughput", rate.gbit_per_s())]));
            return Diagnostic::gather(missing.chain(rate));
        };
        stages.check_at(&at.table("stages"))
    }

    /// Complains about a design that was not synthesized, or not whole.
    fn check_synthesis(&self, name: &str, at: &At<'_>) -> Result<(), Diagnostic> {
        let Some(design) = synthesized(name) else {
            let designs = Synthesis::asap7().map_or(&[][..], |file| &file.design);
            let names: Vec<&str> = designs.iter().map(|design| design.name.as_str()).collect();
            let known = format!("one of: {}", names.join(", "));
            return at.refuse("synthesis", format_args!("no design `{name}` was synthesized"), known);
        };
        if design.power_w.is_none() && self.power.is_none() {
            let what = format_args!("the power of `{name}` is not known");
            return at.refuse("synthesis", what, "`power` beside it");
        }
        Ok(())
    }
}

/// A codec on a GPU.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CodecFile {
    pub encoder: BlockFile,
    pub decoder: BlockFile,
    /// Node the areas and powers are given at.
    pub node: String,
    /// Node to build it at, if another.
    pub built_at: Option<String>,
    /// Bits of throughput that one tensor value takes: 8 where values enter
    /// as 8-bit samples, 16 where the rate counts FP16.
    pub bits_per_value: f64,
    /// Which energy is used: `printed` or `power-over-throughput`.
    pub energy: EnergyName,
    /// Share of full power drawn when idle.
    pub idle: Fraction,
    /// Encoder and decoder pipelines together.
    pub latency: Duration,
    /// Tensor bytes handed from stage to stage at a time, in FP16.
    pub chunk: DataSize,
    /// The standard, `h264` or `hevc`, of an engine that GPUs bring along: what
    /// was measured of it may replace this file's values.
    pub engine: Option<String>,
    /// For a codec of multiprocessors: the share of a matrix product's speed that
    /// each of them costs while it codes.
    pub gpu_share: Option<Fraction>,
    /// Video served beside tensors; it comes first on a shared pipeline.
    pub video: Option<DataRate>,
}

impl CodecFile {
    pub fn resolve(&self) -> Codec {
        let left = |block: &BlockFile| {
            let video = self.video.map_or(0.0, |video| video.gbit_per_s());
            (1.0 - video / block.cost().throughput_gbps).max(0.0)
        };
        let (area_factor, energy_factor) = self.scaling();
        let column = self.energy.resolve();
        let (encoder, decoder) = (self.encoder.cost(), self.decoder.cost());
        let energy =
            |block: &BlockFile| block.pj_per_bit(column) * 1e-12 * self.bits_per_value * energy_factor;
        Codec {
            encode_values_per_s: encoder.throughput_gbps * 1e9 * left(&self.encoder) / self.bits_per_value,
            decode_values_per_s: decoder.throughput_gbps * 1e9 * left(&self.decoder) / self.bits_per_value,
            latency_s: self.latency.s(),
            chunk_values: self.chunk.bytes() / 2.0,
            encode_j_per_value: energy(&self.encoder),
            decode_j_per_value: energy(&self.decoder),
            idle_power_w: self.idle.get() * (encoder.power_w + decoder.power_w) * energy_factor,
            area_mm2: (encoder.area_mm2 + decoder.area_mm2) * area_factor,
            gpu_share: self.gpu_share.map_or(0.0, |share| share.get()),
        }
    }

    fn scaling(&self) -> (f64, f64) {
        match (Node::named(&self.node), self.built_at.as_deref().and_then(Node::named)) {
            (Some(from), Some(to)) => (from.area_factor(&to), from.energy_factor(&to)),
            _ => (1.0, 1.0),
        }
    }
}

impl Checked for CodecFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let nodes = [("node", Some(&self.node)), ("built-at", self.built_at.as_ref())];
        let nodes =
            nodes.into_iter().filter(|(_, name)| name.is_some_and(|name| Node::named(name).is_none()));
        let known = format!("one of: {}", Node::ALL.map(|node| node.name).join(", "));
        let nodes = nodes.map(|(key, _)| at.refuse(key, "unknown process node", &known));
        let positive = [("bits-per-value", self.bits_per_value), ("chunk", self.chunk.bytes())];
        let parts = [
            self.encoder.check_at(&at.table("encoder")),
            self.decoder.check_at(&at.table("decoder")),
            at.positive(&positive),
        ];
        let engine = self.engine.as_deref().filter(|name| !matches!(*name, "h264" | "hevc"));
        let engine = engine.map(|_| at.refuse("engine", "no standard that engines decode", "h264 or hevc"));
        let capacity = partition::video_capacity_gbps();
        let video = self.video.filter(|video| video.gbit_per_s() > capacity * (1.0 + 1e-9)).map(|_| {
            let most = format_args!("at most {capacity:.1} Gbit/s, one 8K60 stream");
            at.refuse("video", "more video than the video pipeline is built for", most)
        });
        Diagnostic::gather(nodes.chain(parts).chain(engine).chain(video))
    }
}
