//! What the stages of a codec would cost in silicon.
//!
//! Joins what a codec did to a tensor (bits and operations, stage by stage)
//! with what such a stage came to in synthesis, where it is one that was built,
//! or with what operations cost at a node. Knows neither tensors' values nor
//! how many gates an adder has.

use crate::config::TechnologyFile;
use crate::{Error, Progress};
use serde::Serialize;
use trinity_config::Checked;
use trinity_silicon::operations::{Work, estimate};
use trinity_silicon::stages::Technology;
use trinity_silicon::synthesis::{PartCost, Synthesis};
use trinity_tensor::codec::{Rate, StageCost, codec};
use trinity_tensor::{Class, Entry, crop};

/// One stage of one tensor; the fields are the columns of `stages.csv`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PriceRow {
    pub tensor: String,
    pub class: Class,
    pub codec: String,
    pub target: String,
    pub stage: &'static str,
    pub choice: String,
    pub bits_per_value: f64,
    pub operations_per_value: f64,
    pub multiplications_per_value: f64,
    pub serial_values: usize,
    pub gates_kge: f64,
    pub sram_bits: f64,
    pub area_mm2: f64,
    /// Nothing where the power of the synthesized design is not known.
    pub pj_per_bit: Option<f64>,
    /// Where gates, bits, area and energy come from.
    pub silicon_from: SiliconFrom,
    /// What operations alone would say.
    pub estimate_mm2: f64,
    pub estimate_pj_per_bit: f64,
}

/// Where the silicon of a stage comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiliconFrom {
    /// RTL of that stage, on ASAP7.
    Synthesized,
    /// Operations of its algorithm.
    Estimate,
}

impl SiliconFrom {
    pub fn name(self) -> &'static str {
        match self {
            Self::Synthesized => "synthesized",
            Self::Estimate => "estimate",
        }
    }
}

/// Codecs whose encoder `models/silicon/rtl` is.
const IN_RTL: [&str; 10] = [
    "trinity-lite",
    "line",
    "line-fast",
    "line-uniform",
    "line-rtl",
    "line-rtl-4",
    "line-rtl-1",
    "line-rtl-hadamard",
    "line-rtl-dct",
    PICTURES,
];
/// The one whose encoder predicts from the row above, closed-loop: with a uniform quantizer.
const PICTURES: &str = "line-rtl-picture";

/// The part of a synthesized encoder that a stage of a codec is, with the design
/// that has it; nothing where no RTL does what was chosen.
fn built_as(codec: &str, cost: &StageCost) -> Option<(&'static str, &'static str)> {
    let plain = codec.split(':').next().unwrap_or(codec);
    if !IN_RTL.contains(&plain) {
        return None;
    }
    match (cost.stage, cost.choice.as_str()) {
        ("headers", _) => Some(("line_enc", "framing")),
        ("alignment", _) => Some(("line_enc", "alignment")),
        ("prediction", "column means") => Some(("line_enc", "prediction")),
        ("prediction", "above by column") if plain == PICTURES => Some(("line_enc_picture", "prediction")),
        ("transform", "hadamard-32") => Some(("line_hadamard", "transform")),
        ("transform", "dct-32") => Some(("line_dct", "transform")),
        ("quantization", "trellis-8") => Some(("line_enc", "quantization")),
        ("quantization", "trellis-4") => Some(("line_enc_4", "quantization")),
        ("quantization", "dead-zone") => Some(("line_enc_1", "quantization")),
        ("entropy", "stated") => Some(("line_enc", "entropy")),
        _ => None,
    }
}

/// What synthesis found of that stage, for `gbps` of 16-bit values.
fn synthesized(codec: &str, cost: &StageCost, gbps: f64) -> Option<PartCost> {
    let (design, part) = built_as(codec, cost)?;
    let file = Synthesis::asap7()?;
    file.parts(file.design(design)?, gbps).get(part).copied()
}

/// Codecs to take apart on tensors, and the silicon to price them in.
#[derive(Debug, Clone)]
pub struct PriceRequest<'a> {
    pub entries: &'a [Entry],
    /// Codecs that can say what their stages did.
    pub codecs: Vec<String>,
    pub targets: Vec<Rate>,
    /// Values to look at: a piece from a tensor's middle.
    pub sample: usize,
    pub technology: Technology,
    /// Values of 16 bits that must pass in a second.
    pub throughput_gbps: f64,
}

/// The work of each stage for a value, which waits once: in front of the stage
/// with the longest chain.
pub(crate) fn works(costs: &[StageCost]) -> Vec<Work> {
    let longest = costs.iter().map(|cost| cost.serial_values).max().unwrap_or(0);
    let waits = costs.iter().position(|cost| cost.serial_values == longest);
    let work = |(at, cost): (usize, &StageCost)| Work {
        additions_per_value: cost.operations_per_value - cost.multiplications_per_value,
        multiplications_per_value: cost.multiplications_per_value,
        serial_values: if waits == Some(at) { cost.serial_values as f64 } else { 1.0 },
    };
    costs.iter().enumerate().map(work).collect()
}

/// The technology of that name or in that file, such as `technologies/asap7`.
/// Fails where there is none, or it is wrong, pointing at it.
pub fn technology(name: &str) -> Result<Technology, Error> {
    Ok(TechnologyFile::load(name)?.0)
}

/// Every stage of every codec on every tensor at every target. Fails where a
/// tensor cannot be read, a target cannot be reached, or none of the codecs can
/// say what its stages did.
pub fn stages(request: &PriceRequest<'_>, progress: &dyn Progress) -> Result<Vec<PriceRow>, Error> {
    let mut jobs = Vec::new();
    for entry in request.entries {
        for name in &request.codecs {
            jobs.extend(request.targets.iter().map(|&target| (entry, name.as_str(), target)));
        }
    }
    progress.begin(jobs.len() as u64, "taking apart");
    let results = crate::parallel::map(&jobs, |&(entry, name, target)| {
        progress.check()?;
        let rows = request.rows(entry, name, target);
        progress.advance(1);
        rows.map_err(|error| Error::Tensor { subject: entry.name().to_owned(), error })
    });
    progress.end();
    let mut rows = Vec::new();
    for result in results {
        rows.extend(result?);
    }
    if rows.is_empty() {
        let message = "none of these codecs can say what its stages did";
        let help = "--stages takes trinity, trinity-lite, trinity-max or a profile as FILE.toml";
        return Err(Error::input(message, help));
    }
    Ok(rows)
}

impl PriceRequest<'_> {
    fn rows(&self, entry: &Entry, name: &str, target: Rate) -> Result<Vec<PriceRow>, trinity_tensor::Error> {
        let codec = codec(name)?;
        let costs = codec.stages(&crop(entry, self.sample)?, target)?;
        let (codec, target) = (codec.name(), target.to_string());
        let works = works(&costs);
        let row = |(cost, work)| self.row(entry, &codec, &target, cost, work);
        Ok(costs.into_iter().zip(&works).map(row).collect())
    }

    fn row(&self, entry: &Entry, codec: &str, target: &str, cost: StageCost, work: &Work) -> PriceRow {
        let estimated = estimate(work, self.throughput_gbps, &self.technology);
        let (estimate_mm2, estimate_pj_per_bit) =
            (estimated.cost.area_mm2, estimated.cost.energy_pj_per_bit());
        let built = synthesized(codec, &cost, self.throughput_gbps);
        PriceRow {
            tensor: entry.name().to_owned(),
            class: entry.class(),
            codec: codec.to_owned(),
            target: target.to_owned(),
            stage: cost.stage,
            choice: cost.choice,
            bits_per_value: cost.bits_per_value,
            operations_per_value: cost.operations_per_value,
            multiplications_per_value: cost.multiplications_per_value,
            serial_values: cost.serial_values,
            gates_kge: built
                .map_or(estimated.gates_kge, |part| part.logic_um2 / self.technology.gate_um2 / 1e3),
            sram_bits: built.map_or(estimated.sram_bits, |part| part.sram_bits),
            area_mm2: built.map_or(estimate_mm2, |part| part.area_mm2),
            pj_per_bit: built.map_or(Some(estimate_pj_per_bit), |part| part.pj_per_bit),
            silicon_from: if built.is_some() { SiliconFrom::Synthesized } else { SiliconFrom::Estimate },
            estimate_mm2,
            estimate_pj_per_bit,
        }
    }
}
