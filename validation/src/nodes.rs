//! The tier inside a node, as clusters use it, against measured collectives.
//!
//! `configs/calibrations/kernels` holds what NCCL took between two, four and
//! eight GPUs of a node; [`trinity_sim::Cluster::link`] is what every training
//! job is timed with. Nothing here was fitted to the other.

use crate::Error;
use crate::score::Pair;
use trinity_config::Document;
use trinity_sim::Cluster;
use trinity_sim::collective;
use trinity_sim::compression::Channel;
use trinity_sim::kernels::{Collective, CollectiveShape, Kernels};
use trinity_study::config::StudyFile;
use trinity_study::kernels;

/// Name of the set.
pub const TIERS: &str = "tier of a node";

/// Clusters whose GPU has curves.
const CLUSTERS: [(&str, &str); 7] = [
    ("dgx-a100", "a100"),
    ("dgx-h100", "h100"),
    ("dgx-h200", "h200"),
    ("dgx-b200", "b200"),
    ("dgx-b300", "b300"),
    ("gb200-nvl72", "gb200"),
    ("gb300-nvl72", "gb300"),
];

/// Messages of training: 1 MiB to 1 GiB.
const LOG2_BYTES: [i32; 6] = [20, 22, 24, 26, 28, 30];

/// Every collective of a node that lies inside what was measured.
pub fn pairs() -> Result<Vec<Pair>, Error> {
    let mut pairs = Vec::new();
    for (name, gpu) in CLUSTERS {
        let Some(curves) = kernels::of(gpu)? else { continue };
        let cluster = calibrated(name)?;
        for op in
            [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll]
        {
            for ranks in [2, 4, 8] {
                pairs.extend(LOG2_BYTES.iter().filter_map(|&log2| {
                    let bytes = 2f64.powi(log2);
                    Some(Pair {
                        what: format!("{} of {} MiB over {ranks} {gpu}", op.name(), bytes / 1_048_576.0),
                        predicted: model_s(&cluster, op, ranks, bytes)?,
                        measured: measured_s(curves, op, ranks, bytes)?,
                    })
                }));
            }
        }
    }
    Ok(pairs)
}

fn calibrated(name: &str) -> Result<Cluster, Error> {
    let text = format!(
        "[cluster]\nextends = \"clusters/{name}\"\ngpus = 8\n[job]\nphase = \"training\"\nsequence = 1024\n\
         llm = {{ extends = \"llms/llama-3-8b\" }}\n"
    );
    let file: StudyFile = Document::parse("a node", &text)?.read()?;
    Ok(file.resolve().0)
}

fn model_s(cluster: &Cluster, op: Collective, ranks: u32, bytes: f64) -> Option<f64> {
    let channel = Channel::raw(cluster.link(ranks, 1), 8.0);
    let direct = Channel::raw(cluster.node_link(), 8.0);
    let sent = bytes * f64::from(ranks - 1) / f64::from(ranks);
    match op {
        Collective::AllReduce => Some(collective::all_reduce(&channel, ranks, bytes)),
        Collective::AllGather => Some(collective::all_gather(&channel, ranks, bytes)),
        Collective::ReduceScatter => Some(collective::reduce_scatter(&channel, ranks, bytes)),
        Collective::AllToAll => Some(collective::exchange(&direct, sent)),
        _ => None,
    }
}

fn measured_s(curves: &Kernels, op: Collective, ranks: u32, bytes: f64) -> Option<f64> {
    let shape = CollectiveShape { op, bytes, ranks: f64::from(ranks) };
    curves.collective_s(&shape).ok().filter(|timed| !timed.extrapolated).map(|timed| timed.s)
}
