//! Published numbers beside what the models arrive at.
//!
//! Table 3 itself is an input of the silicon model, so holding its rows
//! against themselves would prove nothing: judged are only numbers that a
//! model derives by another way.

use crate::Error;
use crate::score::Pair;
use serde::Deserialize;
use trinity_config::Document;
use trinity_silicon::stages::{Design, Technology, XK264, reconcile};
use trinity_silicon::table3::{self, figure12};
use trinity_silicon::{EnergyColumn, InstanceRate, Node};
use trinity_sim::sweep::{Headline, evaluate, headline};
use trinity_study::config::{LlmFile, SweepFile};

const FACTS: &str = include_str!("../data/facts.toml");
const PEERS: &str = include_str!("../data/peers.toml");

/// One published number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    pub name: String,
    pub value: f64,
    pub source: String,
    /// The model that has to arrive at it.
    pub model: Option<String>,
}

#[derive(Deserialize)]
struct Facts {
    fact: Vec<Fact>,
}

/// Every published number the project carries.
pub fn facts() -> Result<Vec<Fact>, Error> {
    let facts: Facts =
        toml::from_str(FACTS).map_err(|e| Error::Data { file: "facts.toml", why: e.to_string() })?;
    Ok(facts.fact)
}

/// What peers reach, by set, as fractions.
#[derive(Clone, Debug, Deserialize)]
pub struct Peers {
    pub calculon: std::collections::BTreeMap<String, f64>,
    pub vtrain: std::collections::BTreeMap<String, f64>,
}

/// What other simulators reach on the same sets.
pub fn peers() -> Result<Peers, Error> {
    toml::from_str(PEERS).map_err(|e| Error::Data { file: "peers.toml", why: e.to_string() })
}

/// Pairs of the facts whose model starts with `family`.
///
/// # Errors
///
/// When a fact names a model that does not exist or arrives at no number: a
/// fact left out would look like a fact that holds.
pub fn score(facts: &[Fact], family: &str) -> Result<Vec<Pair>, Error> {
    let judged = facts.iter().filter_map(|fact| {
        let model = fact.model.as_deref().filter(|model| model.starts_with(family))?;
        Some((fact, model))
    });
    judged
        .map(|(fact, model)| {
            let what = format!("{} ({})", fact.name, fact.source);
            Ok(Pair { what, predicted: derive(model)?, measured: fact.value })
        })
        .collect()
}

/// What a model says.
fn derive(model: &str) -> Result<f64, Error> {
    let no_number = |why| Error::Model { model: model.into(), why };
    let energy = |column| {
        table3::headlines(&table3::THREE_IN_ONE_ENCODER, &table3::THREE_IN_ONE_DECODER, PAPER_RATIO, column)
    };
    let stages = || {
        reconcile(&Design::new(&XK264, InstanceRate::Paper4k60), &Technology::ASAP7, &table3::H264_ENCODER)
    };
    let study = || paper_study()?.ok_or_else(|| no_number("the sweep has no headline"));
    Ok(match model {
        "headline.communication.printed" => energy(EnergyColumn::Printed).communication_over_codec,
        "headline.compressed.printed" => energy(EnergyColumn::Printed).raw_over_compressed,
        "headline.communication.power" => energy(EnergyColumn::PowerOverThroughput).communication_over_codec,
        "headline.compressed.power" => energy(EnergyColumn::PowerOverThroughput).raw_over_compressed,
        "headline.kv.fp16" => kv_gib(16.0)?,
        "headline.kv.coded" => kv_gib(2.9)?,
        "headline.gpu-over-h264" => {
            let pair = table3::H264_ENCODER.area_mm2 + table3::H264_DECODER.area_mm2;
            // The paper rounds the pair up to two square millimetres.
            figure12::RTX3090_AT_7NM_MM2 / pair.ceil()
        }
        "silicon.rtx3090-at-7nm" => figure12::RTX3090_MM2 * Node::SAMSUNG_8.area_factor(&Node::TSMC_7),
        "silicon.cx5" => 12.14 * 13.98,
        "silicon.h264-encoder.area" => stages().model.area_mm2,
        "silicon.h264-encoder.power" => stages().model.power_w,
        "sweep.speedup" => study()?.speedup().ok_or_else(|| no_number("a front misses the budget"))?,
        "sweep.area-saving" => {
            study()?.saving().ok_or_else(|| no_number("a front misses the performance"))?
        }
        "torch.two-lanes" => torch::two_lanes(),
        "torch.gemm" => torch::gemm_s()? * 1e3,
        "torch.gemm-then-encode" => (torch::gemm_s()? + 64.0 * torch::ENCODE_S) * 1e3,
        _ => return Err(no_number("there is no such model")),
    })
}

/// The paper's LLaMA-7B study, swept and read off its fronts.
fn paper_study() -> Result<Option<Headline>, Error> {
    let document = Document::load("sweeps/llama-7b")?;
    let file: SweepFile = document.read()?;
    let plan = file.plan(&document, 0)?;
    let tally = evaluate(&plan, 0..plan.space.len(), |_, _, _, _| ());
    Ok(file.question().and_then(|question| headline(&plan, &tally, &question)))
}

/// What torch-nvenc-compress measured on an RTX 5090, from our models and its
/// own other figures.
mod torch {
    use crate::Error;
    use trinity_config::Document;
    use trinity_study::config::GpuFile;

    /// One engine on a 256 × 256 picture.
    pub const ENCODE_S: f64 = 0.243e-3;

    /// Its slow wires: raw time over (compressed time + a round trip of the
    /// codec). Two wires give that round trip in units of the raw time at
    /// 100 Mb/s. At 1 Gb/s raw and compressed pieces travel side by side, the
    /// compressed ones at the pace of the slower of encoder and decoder.
    pub fn two_lanes() -> f64 {
        let (at_100, at_50) = (3.13, 5.29);
        let round_trip = 2.0 * (1.0 / at_100 - 1.0 / at_50);
        let (encode_ms, decode_ms) = (0.180, 0.262);
        let slower = round_trip * decode_ms / (encode_ms + decode_ms);
        1.0 + 0.1 / slower
    }

    /// 30 products of 4096 × 4096 by the GPU's file.
    pub fn gemm_s() -> Result<f64, Error> {
        let file: GpuFile = Document::load("gpus/rtx5090")?.read()?;
        let gpu = file.resolve();
        let flops = 2.0 * 4096f64.powi(3);
        Ok(30.0 * flops / (gpu.peak_flops.fp16 * gpu.gemm_efficiency.at(flops)))
    }
}

/// Ratio at which the paper states its energy headlines (section 7.3).
const PAPER_RATIO: f64 = 5.0;

/// LLaMA-3-70B's cache of 128k tokens at `bits` a value.
fn kv_gib(bits: f64) -> Result<f64, Error> {
    let file: LlmFile = Document::load("llms/llama-3-70b")?.read()?;
    let llm = file.resolve();
    let values = f64::from(llm.layers) * llm.kv_values_per_token_layer() * 131_072.0;
    Ok(values * bits / 8.0 / 1_073_741_824.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_source_and_every_model_named_says_a_number() {
        let facts = facts().unwrap();
        assert!(facts.iter().all(|fact| !fact.source.is_empty()));
        let named = facts.iter().filter(|fact| fact.model.is_some()).count();
        let scored = score(&facts, "").unwrap();
        assert_eq!(scored.len(), named);
        assert!(scored.iter().all(|pair| pair.predicted.is_finite()));
    }

    #[test]
    fn a_fact_whose_model_is_missing_is_an_error_not_an_omission() {
        let mut facts = facts().unwrap();
        facts[0].model = Some("headline.of-nothing".into());
        let error = score(&facts, "headline.").unwrap_err().to_string();
        assert!(error.contains("headline.of-nothing"), "{error}");
    }
}
