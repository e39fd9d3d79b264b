//! What each codec costs in silicon, and where the figure comes from.

use super::baseline_study::BaselineStudy;
use super::request::ExploreRequest;
use super::tensors;
use crate::config::{BlockFile, CandidateFile, CodecFile, ExplorationFile, OriginName};
use crate::{Error, Progress, price};
use serde::Serialize;
use std::collections::BTreeMap;
use trinity_config::{Complaint, Document};
use trinity_silicon::Node;
use trinity_tensor::codec::{Rate, TensorCodec, codec};
use trinity_tensor::{Entry, crop};

/// Values of each tensor that operations are counted on.
const SAMPLE: usize = 1 << 15;
/// What a codec without a file of its own has beside area, power and
/// throughput: latency, chunk and idle power of another that works in lanes.
const TEMPLATE: &str = "codecs/line-lanes";

/// An encoder or a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    pub area_mm2: f64,
    pub power_w: f64,
    pub throughput_gbps: f64,
    /// Of an uncompressed bit, by the column that the codec's file chooses.
    pub pj_per_bit: f64,
}

/// A codec in silicon.
#[derive(Debug, Clone, Serialize)]
pub struct Silicon {
    pub candidate: String,
    pub coder: String,
    pub origin: OriginName,
    /// The file or the count behind the figures.
    pub source: String,
    /// The node the figures are of.
    pub node: String,
    pub encoder: Block,
    pub decoder: Block,
    /// By how much, either way, the area may be wrong, where that is known.
    pub area_factor: Option<f64>,
    /// Share of the GPU that it occupies, where it is software.
    pub gpu_share: Option<f64>,
    /// What its scenario sets beside bits.
    #[serde(skip)]
    pub(super) sets: Vec<String>,
}

impl Silicon {
    /// A codec of two equal blocks, for tests of what is said of codecs.
    #[cfg(test)]
    pub(super) fn plain(candidate: &str, coder: &str, block: Block) -> Self {
        Self {
            candidate: candidate.to_owned(),
            coder: coder.to_owned(),
            origin: OriginName::Given,
            source: String::new(),
            node: String::new(),
            encoder: block,
            decoder: block,
            area_factor: None,
            gpu_share: None,
            sets: Vec::new(),
        }
    }

    /// Encoder and decoder together.
    pub fn area_mm2(&self) -> f64 {
        self.encoder.area_mm2 + self.decoder.area_mm2
    }

    /// How many a GPU can have where no area buys more: multiprocessors end with
    /// the GPU, engines that are on the die already at what the study `listed`.
    pub(super) fn most_per_gpu(&self, listed: Option<f64>) -> Option<f64> {
        match self.gpu_share {
            Some(share) if share > 0.0 => Some(1.0 / share),
            _ if self.area_mm2() == 0.0 => listed,
            _ => None,
        }
    }
}

/// Whether a codec can say what its stages did, so that operations price it.
pub(super) fn has_operations(codec: &dyn TensorCodec) -> bool {
    const FEW: usize = 4096;
    let Ok(input_tensors) = tensors::built_in() else { return false };
    let piece = input_tensors.first().and_then(|tensor| crop(&tensor.entry, FEW).ok());
    piece.is_some_and(|piece| codec.stages(&piece, Rate::Nmse(0.1)).is_ok_and(|stages| !stages.is_empty()))
}

/// Prices every candidate.
pub(super) fn price(
    request: &ExploreRequest<'_>,
    file: &ExplorationFile,
    candidates: &[&CandidateFile],
    baseline_study: &BaselineStudy,
    progress: &dyn Progress,
) -> Result<Vec<Silicon>, Error> {
    let counted = Counted::of(request, file, candidates, baseline_study, progress)?;
    candidates
        .iter()
        .map(|candidate| match &candidate.silicon {
            Some(silicon) => from_file(candidate, silicon, request.node.as_deref()),
            None => counted.silicon(candidate, file, request.node.as_deref()),
        })
        .collect()
}

/// The candidates that would be built and whose silicon a file states.
pub(crate) fn stated(candidates: &[CandidateFile]) -> Result<Vec<Silicon>, Error> {
    let built = |one: &&CandidateFile| {
        matches!(one.origin, OriginName::Table3 | OriginName::Synthesis | OriginName::OpenRtl)
    };
    let stated = candidates.iter().filter(built).filter_map(|one| Some((one, one.silicon.as_deref()?)));
    stated.map(|(candidate, silicon)| from_file(candidate, silicon, None)).collect()
}

/// The figures of a file of `configs/codecs`.
fn from_file(candidate: &CandidateFile, name: &str, node: Option<&str>) -> Result<Silicon, Error> {
    let document = Document::load(name)?;
    let file: CodecFile = document.checked()?;
    // What runs on a GPU's own SMs is not built again.
    let node = node.filter(|_| candidate.sms.is_none());
    let (area, energy) = factors(&file.node, node, &document)?;
    let column = file.energy.resolve();
    let block = |block: &BlockFile| {
        let cost = block.cost();
        Block {
            area_mm2: cost.area_mm2 * area,
            power_w: cost.power_w * energy,
            throughput_gbps: cost.throughput_gbps,
            pj_per_bit: block.pj_per_bit(column) * energy,
        }
    };
    let mut sets = vec![format!("cluster.codec.extends={name}")];
    sets.extend(node.map(|node| format!("cluster.codec.built-at={node}")));
    let mut silicon = Silicon {
        candidate: candidate.name.clone(),
        coder: candidate.coder.clone(),
        origin: candidate.origin,
        source: document.name().to_owned(),
        node: node.unwrap_or(&file.node).to_owned(),
        encoder: block(&file.encoder),
        decoder: block(&file.decoder),
        area_factor: candidate.area_factor,
        gpu_share: None,
        sets,
    };
    if let Some(sms) = candidate.sms {
        let share = file.gpu_share.ok_or_else(|| {
            let (name, file) = (&candidate.name, document.name());
            let message =
                format!("`{name}` runs on SMs, and `{file}` does not say what each of them costs the GPU");
            Error::input(message, "give the file a `gpu-share`, as codecs/line-h200 has it")
        })?;
        on_sms(&mut silicon, sms, share.get());
    }
    Ok(silicon)
}

/// Software of `sms` SMs, of which its file describes one: so many times the
/// rate and the power, and the share of the GPU's speed that all of them cost.
fn on_sms(silicon: &mut Silicon, sms: f64, share: f64) {
    silicon.gpu_share = Some(sms * share);
    silicon.source = format!("{}, {sms} SMs", silicon.source);
    for (which, block) in [("encoder", &mut silicon.encoder), ("decoder", &mut silicon.decoder)] {
        block.throughput_gbps *= sms;
        block.power_w *= sms;
        silicon.sets.push(format!("cluster.codec.{which}.throughput={} Gbit/s", block.throughput_gbps));
        silicon.sets.push(format!("cluster.codec.{which}.power={} W", block.power_w));
    }
    silicon.sets.push(format!("cluster.codec.gpu-share={}", sms * share));
}

fn factors(from: &str, to: Option<&str>, document: &Document) -> Result<(f64, f64), Error> {
    let Some(to) = to else { return Ok((1.0, 1.0)) };
    let known = || Node::ALL.map(|node| node.name).join(", ");
    let Some(to) = Node::named(to) else {
        let message = format!("`{to}` is no process node");
        let help = format!("one of: {}", known());
        return Err(Error::input(message, help));
    };
    let from = Node::named(from).ok_or_else(|| {
        document.complain(
            "node",
            &Complaint::new("unknown process node").expected(format_args!("one of: {}", known())),
        )
    })?;
    Ok((from.area_factor(&to), from.energy_factor(&to)))
}

/// Area and power of each coder by the operations it counts, stage by stage.
struct Counted {
    /// Of each stage of each coder, the tensor that asks most of it.
    stages: BTreeMap<(String, &'static str), (f64, f64)>,
    throughput_gbps: f64,
    /// How far such counts are from the one codec that has both.
    area_factor: Option<f64>,
}

impl Counted {
    fn of(
        request: &ExploreRequest<'_>,
        file: &ExplorationFile,
        candidates: &[&CandidateFile],
        baseline_study: &BaselineStudy,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let asked = |candidate: &&&CandidateFile| candidate.silicon.is_none();
        let mut coders: Vec<String> = candidates.iter().filter(asked).map(|one| one.coder.clone()).collect();
        let throughput_gbps = file.throughput.gbit_per_s();
        let mut counted = Self { stages: BTreeMap::new(), throughput_gbps, area_factor: None };
        if coders.is_empty() {
            return Ok(counted);
        }
        let yardstick = file
            .candidates
            .iter()
            .find(|one| one.origin == OriginName::Synthesis)
            .and_then(|one| one.silicon.as_deref().map(|silicon| (one, silicon)));
        if let Some((candidate, _)) = yardstick.filter(|(one, _)| !coders.contains(&one.coder)) {
            coders.push(candidate.coder.clone());
        }
        for (target, classes) in request.quality.targets(&baseline_study.needs) {
            let has = |entry: &&Entry| classes.contains(&entry.class());
            let entries = request.input_tensors.iter().map(|tensor| &tensor.entry).filter(has);
            let entries: Vec<Entry> = entries.cloned().collect();
            let asked = price::PriceRequest {
                entries: &entries,
                codecs: coders.clone(),
                targets: vec![target],
                sample: SAMPLE,
                technology: price::technology(&file.technology)?,
                throughput_gbps,
            };
            for row in price::stages(&asked, progress)? {
                let most = counted.stages.entry((row.codec, row.stage)).or_default();
                *most = (most.0.max(row.estimate_mm2), most.1.max(row.estimate_pj_per_bit));
            }
        }
        if let Some((candidate, silicon)) = yardstick {
            let built = from_file(candidate, silicon, None)?;
            let (area, _) = counted.sums(&candidate.coder)?;
            let copies = throughput_gbps / built.encoder.throughput_gbps;
            let ratio = area / (built.encoder.area_mm2 * copies);
            counted.area_factor = (ratio > 0.0).then(|| ratio.max(1.0 / ratio));
        }
        Ok(counted)
    }

    /// Area and energy of an encoder that has every stage once.
    fn sums(&self, coder: &str) -> Result<(f64, f64), Error> {
        // Rows go by the name that a codec has, which for a profile is not its file's.
        let named = codec(coder).map_err(|error| Error::Tensor { subject: coder.to_owned(), error })?.name();
        let own = self.stages.iter().filter(|((codec, _), _)| *codec == named);
        let sums = own.fold((0.0, 0.0), |sum, (_, stage)| (sum.0 + stage.0, sum.1 + stage.1));
        if sums.0 > 0.0 {
            return Ok(sums);
        }
        let message =
            format!("`{coder}` counts no operations on these tensors: its silicon cannot be priced");
        let help = "leave it out with --codecs, or give it the silicon of a file, as CODER=CODEC";
        Err(Error::input(message, help))
    }

    fn silicon(
        &self,
        candidate: &CandidateFile,
        file: &ExplorationFile,
        node: Option<&str>,
    ) -> Result<Silicon, Error> {
        let (area, pj_per_bit) = self.sums(&candidate.coder)?;
        let document = Document::load(TEMPLATE)?;
        let template: CodecFile = document.read()?;
        let (area_factor, energy_factor) = factors(&template.node, node, &document)?;
        let (area_mm2, pj_per_bit) = (area * area_factor, pj_per_bit * energy_factor);
        let power_w = pj_per_bit * 1e-12 * self.throughput_gbps * 1e9;
        // What a decoder does is not counted; it undoes each stage and searches nothing.
        let block = Block { area_mm2, power_w, throughput_gbps: self.throughput_gbps, pj_per_bit };
        let mut sets = vec![format!("cluster.codec.extends={TEMPLATE}")];
        for which in ["encoder", "decoder"] {
            sets.push(format!("cluster.codec.{which}.throughput={} Gbit/s", self.throughput_gbps));
            sets.push(format!("cluster.codec.{which}.area={area_mm2} mm2"));
            sets.push(format!("cluster.codec.{which}.power={power_w} W"));
        }
        Ok(Silicon {
            candidate: candidate.name.clone(),
            coder: candidate.coder.clone(),
            origin: candidate.origin,
            source: format!(
                "operations of each stage at {}; the decoder as large as the encoder",
                file.technology
            ),
            node: node.unwrap_or(&template.node).to_owned(),
            encoder: block,
            decoder: block,
            area_factor: self.area_factor,
            gpu_share: None,
            sets,
        })
    }
}
