//! Twelve well-known runs, published and predicted: the table of
//! `docs/training.md`.
//!
//! Rows are those of the committed tables; none has a constant of its own.

use crate::Error;
use crate::runs::{Run, Runs};
use crate::training;
use serde::Serialize;
use trinity_study::config::software::Calibrations;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WellKnown {
    pub run: String,
    pub published_tflops_per_gpu: f64,
    pub predicted_tflops_per_gpu: f64,
    /// Predicted over published speed, less one.
    pub error: f64,
    pub source: String,
}

/// Runs by source, model and GPUs, in the order of the table.
const RUNS: [(&str, &str, u32, u32); 12] = [
    ("Llama3-herd-T4", "Llama3-405B", 8192, 8192),
    ("Llama3-herd-T4", "Llama3-405B", 16384, 8192),
    ("Llama3-herd-T4", "Llama3-405B", 16384, 131_072),
    ("DeepSeek-V3 report", "DeepSeekV3", 2048, 4096),
    ("megatron-bridge", "DeepSeekV3", 256, 4096),
    ("mlperf-training", "LLAMA3.1_405B", 5120, 8192),
    ("mlperf-training", "LLAMA2_70B", 8, 8192),
    ("Megatron-Core-r0.8", "GPT-462B", 6144, 4096),
    ("Narayanan2021-T1", "GPT-1T", 3072, 2048),
    ("Korthikanti2022-T5", "GPT3-175B", 64, 2048),
    ("Korthikanti2022-T5", "Megatron-1T", 512, 2048),
    ("MT-NLG-2022", "MT-NLG-530B", 2240, 2048),
];

/// The table.
///
/// # Errors
///
/// When a committed row is missing or the model refuses it.
pub fn table(calibrations: &Calibrations) -> Result<Vec<WellKnown>, Error> {
    let published = include_str!("../data/published_runs.csv");
    let recent = include_str!("../data/well_known.csv");
    let mut rows = Runs::parse("validation/data/published_runs.csv", published, true)?.runs;
    rows.extend(Runs::parse_modern("validation/data/well_known.csv", recent)?.runs);
    RUNS.iter().map(|named| line(calibrations, &rows, named)).collect()
}

fn line(
    calibrations: &Calibrations,
    rows: &[Run],
    (source, model, gpus, sequence): &(&str, &str, u32, u32),
) -> Result<WellKnown, Error> {
    let missing = |why: String| Error::Data { file: "well_known.csv", why };
    let is_it = |run: &&Run| {
        run.source.starts_with(source)
            && run.model == *model
            && run.gpus == *gpus
            && run.sequence == *sequence
    };
    // Of several recomputations the last is the fastest, which is the one quoted.
    let run = rows.iter().rfind(is_it).ok_or_else(|| missing(format!("{source}, {model} on {gpus} GPUs")))?;
    let refused = |why: String| missing(format!("{}: {why}", run.describe()));
    let (_, job) = run.resolve(calibrations).map_err(|why| refused(why.to_string()))?;
    let predicted_s = training::predict(calibrations, run).map_err(|why| refused(why.to_string()))?;
    let published_s = run.seconds.ok_or_else(|| refused("no time".to_owned()))?;
    let tflops = |seconds: f64| job.model_flops() / seconds / f64::from(run.gpus) / 1e12;
    let long = if *sequence > 32_768 { ", sequences of 128 Ki" } else { "" };
    Ok(WellKnown {
        run: format!("{}{long} on {} {}", run.model, run.gpus, run.gpu),
        published_tflops_per_gpu: tflops(published_s),
        predicted_tflops_per_gpu: tflops(predicted_s),
        error: published_s / predicted_s - 1.0,
        source: run.source.clone(),
    })
}
