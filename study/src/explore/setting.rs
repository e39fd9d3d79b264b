//! The cluster and the job of an answer in one line, and how each scenario cuts
//! the job: who reads an answer should not have to ask what it is of.

use super::contest::Contest;
use crate::number::significant_grouped as significant;
use serde::Serialize;
use trinity_config::Document;
use trinity_sim::sweep::Point;
use trinity_sim::{Phase, Recompute};

/// What the question is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// All of it in one line.
    pub line: String,
    pub gpu: String,
    pub nic: String,
    pub llm: String,
    pub gpus: u32,
    pub nodes: u32,
}

/// The cluster as the baseline builds it, and the job.
pub(super) fn setting(contest: &Contest<'_>) -> Option<Setting> {
    let at = contest.baseline_at()?;
    let best = contest.optima[at].as_ref().or_else(|| contest.optima.iter().flatten().next())?;
    Some(setting_of(&contest.study.document, &best.point))
}

/// The cluster and the job of one point of a study.
pub fn setting_of(document: &Document, point: &Point) -> Setting {
    let gpu = named(document, "study.cluster.gpu.memory", "gpu");
    let nic = named(document, "study.cluster.nic.bandwidth", "nic");
    let llm = named(document, "study.job.llm.layers", "model");
    let (cluster, job) = (&point.cluster, &point.job);
    let gbit_per_s = cluster.nic.bytes_per_s * 8e-9;
    let batch = match (job.phase, point.replica_batch) {
        (Phase::Training, 0) => {
            format!("{} sequences of {} tokens in a step", job.global_batch, job.sequence)
        }
        (Phase::Training, each) => format!("{each} sequences of {} tokens a rank in a step", job.sequence),
        (Phase::Prefill, _) => format!("prompts of {} tokens, {} at a time", job.sequence, job.global_batch),
        (Phase::Decode, _) => {
            let s = if job.global_batch == 1 { "" } else { "s" };
            format!("decoding {} sequence{s} at {} tokens", job.global_batch, job.sequence)
        }
    };
    let nodes = cluster.nodes();
    let wires = match cluster.nics_per_gpu {
        0.0 => String::new(),
        nics => format!(", {} × {nic} ({} Gbit/s) a GPU", short(nics), short(gbit_per_s)),
    };
    let nodes_of = match (nodes, cluster.gpus_per_node) {
        (0 | 1, _) => "one node".to_owned(),
        (nodes, 1) => format!("{nodes} nodes"),
        (nodes, each) => format!("{nodes} nodes of {each}"),
    };
    let line = format!("{} × {gpu} in {nodes_of}{wires}; {llm}, {batch}", cluster.gpus);
    Setting { line, gpu, nic, llm, gpus: cluster.gpus, nodes }
}

/// How a point cuts its job and what each GPU has, in words.
pub(super) fn layout(point: &Point, coded: bool) -> String {
    let (job, cluster) = (&point.job, &point.cluster);
    let p = &job.parallelism;
    let ways = [("tensor", p.tensor), ("context", p.context), ("expert", p.expert), ("pipeline", p.pipeline)];
    let mut cut: Vec<String> =
        ways.into_iter().filter(|(_, ways)| *ways > 1).map(|(name, ways)| format!("{name} {ways}")).collect();
    cut.push(format!("data {}", p.data));
    let mut words = cut.join(" × ");
    if job.phase == Phase::Training {
        words += &format!(", micro-batches of {}", job.microbatch);
        if p.schedule.chunks() > 1 {
            words += &format!(", {} chunks a stage", p.schedule.chunks());
        }
        if job.recompute != Recompute::None {
            words += &format!(", {} recomputation", job.recompute.name());
        }
    }
    if cluster.gpus > cluster.gpus_per_node {
        words += &format!(", {} a GPU", counted(cluster.nics_per_gpu, "network card"));
    }
    if coded {
        words += &format!(", {} a GPU", counted(cluster.codecs_per_gpu, "codec"));
    }
    words
}

/// The file that a value of the study is from, as a name.
fn named(document: &Document, path: &str, otherwise: &str) -> String {
    let file = document.setting(path).map(|own| own.place.source.name.clone()).unwrap_or_default();
    let stem = file.rsplit(['/', '\\']).next().and_then(|file| file.strip_suffix(".toml"));
    stem.filter(|_| file.contains('/')).unwrap_or(otherwise).to_owned()
}

/// So many of something.
fn counted(count: f64, what: &str) -> String {
    format!("{} {what}{}", short(count), if count == 1.0 { "" } else { "s" })
}

/// A number without zeros that say nothing.
fn short(value: f64) -> String {
    let text = significant(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
