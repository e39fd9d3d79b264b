//! GPUs that no run calibrates, from their datasheets alone: rates and sizes
//! are the datasheet's, what kernels and frameworks make of them is the
//! generation's before, and nothing is fitted. Scored apart, with no bar: the
//! error says what a prediction of unseen hardware is worth.

use crate::Error;
use crate::calibration::{Calibration, Calibrations, ClusterConstants};
use crate::runs::Run;
use crate::score::Pair;
use serde::Deserialize;
use std::collections::BTreeMap;
use trinity_sim::Cluster;

/// One datasheet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Datasheet {
    /// How GPUs of this type are called in tables of runs.
    prefix: String,
    /// The calibration whose efficiencies are taken.
    like: String,
    fp16_tflops: f64,
    fp8_tflops: f64,
    /// Where the tensor cores have such operands.
    fp4_tflops: Option<f64>,
    memory_gb: f64,
    memory_gb_per_s: f64,
    nvlink_gb_per_s: f64,
    gpus_per_node: u32,
    #[allow(dead_code)] // read by people, and required so that none is forgotten
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    gpu: Vec<Datasheet>,
}

/// Finished runs of GPUs without a calibration, by `datasheet NAME`.
///
/// # Errors
///
/// When the committed file is damaged.
pub fn score(calibrations: &Calibrations, runs: &[Run]) -> Result<BTreeMap<String, Vec<Pair>>, Error> {
    let damaged = |why: toml::de::Error| Error::Data { file: "datasheets.toml", why: why.to_string() };
    let file: File = toml::from_str(include_str!("../data/datasheets.toml")).map_err(damaged)?;
    let mut sets: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.gpu_type().is_none()) {
        let Some(sheet) = file.gpu.iter().find(|sheet| run.gpu.starts_with(&sheet.prefix)) else { continue };
        let (Some(calibration), Some(measured)) = (calibrations.of(&sheet.like), run.seconds) else {
            continue;
        };
        let Some(cluster) = calibration.clusters.get("default") else { continue };
        let machine = sheet.machine(calibration, cluster, run);
        // A configuration that the model refuses has no error to count.
        let Ok(breakdown) = trinity_sim::time(&machine, &run.job()) else { continue };
        let pair = Pair { what: run.describe(), predicted: breakdown.total_s(), measured };
        sets.entry(format!("datasheet {}", sheet.prefix)).or_default().push(pair);
    }
    Ok(sets)
}

impl Datasheet {
    fn machine(&self, like: &Calibration, cluster: &ClusterConstants, run: &Run) -> Cluster {
        let mut constants = like.clone();
        constants.gpu.peak_fp16_tflops = self.fp16_tflops;
        constants.gpu.memory_gb = self.memory_gb;
        constants.gpu.memory_gb_per_s = self.memory_gb_per_s;
        constants.gpu.nvlink_gb_per_s = self.nvlink_gb_per_s;
        let mut machine = constants.machine(cluster, run.gpus, self.gpus_per_node);
        machine.gpu.peak_flops.fp8 = 1e12 * self.fp8_tflops;
        if let (true, Some(fp4)) = (run.fp4, self.fp4_tflops) {
            // The simulator has no fp4: its fp8 units stand for them.
            machine.gpu.peak_flops.fp8 = 1e12 * fp4;
        }
        machine
    }
}
