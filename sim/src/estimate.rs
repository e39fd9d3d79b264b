//! The one question the crate answers: what does this job cost on this cluster?

use crate::compression::Compression;
use crate::energy;
use crate::hardware::Cluster;
use crate::job::{Job, Overlap, Parallelism, Phase, Schedule, Split};
use crate::memory;
use crate::outcome::{Breakdown, Estimate, Infeasible, MemoryByKind};
use crate::schedule::{self, OnGpu};

/// Time, energy, memory and area of `job` on `cluster`.
///
/// Pure and free of allocation. Fails when the job does not fit the cluster,
/// with the reason.
pub fn estimate(cluster: &Cluster, job: &Job) -> Result<Estimate, Infeasible> {
    Local::of(cluster, job)?.estimate(cluster, job)
}

/// What of an estimate hangs on one GPU and its share of the job, not on wires
/// and codecs. Neighbours in a sweep that differ only in those share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// Memory without the codec's staging.
    memory: MemoryByKind,
    /// `None` where memory does not suffice whatever the codec.
    on_gpu: Option<OnGpu>,
}

impl Local {
    /// The part of `job` on one GPU of `cluster`.
    pub(crate) fn of(cluster: &Cluster, job: &Job) -> Result<Self, Infeasible> {
        check(cluster, job)?;
        check_stages(job)?;
        let local = memory::local_parameters(job);
        let memory = memory::without_codec(cluster, job, &local);
        let fits = memory.total_bytes() <= cluster.gpu.usable_bytes();
        Ok(Self { memory, on_gpu: fits.then(|| OnGpu::of(cluster, job, local)) })
    }

    /// Time that the arithmetic of one iteration takes, whatever the wires;
    /// `None` where memory does not suffice.
    pub(crate) fn least_s(&self, job: &Job) -> Option<f64> {
        self.on_gpu.as_ref().map(|on_gpu| on_gpu.least_s(job))
    }

    /// What memory lacks.
    pub(crate) fn lacking(&self, cluster: &Cluster) -> Infeasible {
        lacking(cluster, &self.memory)
    }

    /// Whether two points have the same part on a GPU, so that one's serves
    /// the other: all of the job but what becomes of its traffic, the GPU, and
    /// how many there are.
    pub(crate) fn is_shared(a: (&Cluster, &Job), b: (&Cluster, &Job)) -> bool {
        let on_wires = |job: &Job| {
            let kept = &job.compression;
            let compression =
                Compression { weight_bits: kept.weight_bits, kv_bits: kept.kv_bits, ..Compression::NONE };
            Job { compression, overlap: Overlap::NONE, ..*job }
        };
        let machine = |c: &Cluster| (c.gpu, c.gpus, c.gpus_per_node, c.launch_s);
        on_wires(a.1) == on_wires(b.1) && machine(a.0) == machine(b.0)
    }

    /// The whole estimate, for a cluster and a job that share this part.
    pub(crate) fn estimate(&self, cluster: &Cluster, job: &Job) -> Result<Estimate, Infeasible> {
        check_network(cluster, job, &job.parallelism)?;
        if let Some(die) = &cluster.gpu.die {
            // It has to fit a reticle, codecs and all, and its PHYs the edge of the die.
            die.roofline.check(cluster.codecs_per_gpu * cluster.codec.area_mm2)?;
        }
        let memory =
            MemoryByKind { codec_staging_bytes: memory::codec_staging_bytes(cluster, job), ..self.memory };
        match &self.on_gpu {
            Some(on_gpu) if memory.total_bytes() <= cluster.gpu.usable_bytes() => {
                Ok(whole(cluster, job, on_gpu, memory))
            }
            _ => Err(lacking(cluster, &memory)),
        }
    }
}

fn lacking(cluster: &Cluster, memory: &MemoryByKind) -> Infeasible {
    Infeasible::Memory {
        needed_gb: memory.total_bytes() / 1e9,
        capacity_gb: cluster.gpu.usable_bytes() / 1e9,
        kind: memory.largest().0,
    }
}

/// Time, energy and area of a job that fits.
fn whole(cluster: &Cluster, job: &Job, on_gpu: &OnGpu, memory: MemoryByKind) -> Estimate {
    let (breakdown, traffic) = schedule::schedule(cluster, job, on_gpu);
    let iteration_s = breakdown.total_s();
    let energy = energy::energy(cluster, &breakdown, &traffic, iteration_s);
    let area = energy::area(cluster);
    let tokens = job.tokens();
    let model_flops_per_s = job.model_flops() / iteration_s / f64::from(cluster.gpus);
    Estimate {
        iteration_s,
        tokens_per_s: tokens / iteration_s,
        model_tflops_per_gpu: model_flops_per_s / 1e12,
        mfu: model_flops_per_s / cluster.gpu.peak_flops.of(job.precision.math),
        energy_j: energy.total_j(),
        energy_j_per_token: energy.total_j() / tokens,
        area_mm2: area.total_mm2(),
        memory,
        breakdown,
        energy,
        area,
        chosen: None,
    }
}

/// Where the time of one iteration would go, whether or not the job fits in
/// memory: what a run that is known to have finished is compared with. Fails
/// when the job makes no sense on the cluster.
pub fn time(cluster: &Cluster, job: &Job) -> Result<Breakdown, Infeasible> {
    check(cluster, job)?;
    check_network(cluster, job, &job.parallelism)?;
    let on_gpu = OnGpu::of(cluster, job, memory::local_parameters(job));
    Ok(schedule::schedule(cluster, job, &on_gpu).0)
}

/// Refuses what makes no sense on any network, before any time is computed.
fn check(cluster: &Cluster, job: &Job) -> Result<(), Infeasible> {
    check_quantities(cluster, job)?;
    let p = &job.parallelism;
    let llm = &job.llm;
    if p.gpus() != u64::from(cluster.gpus) {
        return Err(Infeasible::GpuCount { used: p.gpus(), gpus: cluster.gpus });
    }
    if !llm.heads.is_multiple_of(p.tensor) {
        return Err(Infeasible::Heads { tensor: p.tensor, heads: llm.heads });
    }
    if !llm.kv_heads.is_multiple_of(p.tensor) && !p.tensor.is_multiple_of(llm.kv_heads) {
        return Err(Infeasible::KvHeads { tensor: p.tensor, kv_heads: llm.kv_heads });
    }
    let chunks = p.schedule.chunks();
    // Embedding and loss may be chunks of their own (Llama 3).
    let most = if chunks > 1 { llm.layers.saturating_add(2) } else { llm.layers };
    if u64::from(p.pipeline) * u64::from(chunks) > u64::from(most) {
        return Err(Infeasible::Stages { stages: p.pipeline, chunks, layers: llm.layers });
    }
    if chunks > 1 && !deals_out(llm.layers, p.pipeline, chunks) {
        return Err(Infeasible::Chunks { stages: p.pipeline, chunks, layers: llm.layers });
    }
    let per_step = u64::from(p.data) * u64::from(job.microbatch);
    if !u64::from(job.global_batch).is_multiple_of(per_step) {
        return Err(Infeasible::Batch { batch: job.global_batch, data: p.data, microbatch: job.microbatch });
    }
    if chunks > 1 && (p.pipeline == 1 || !job.microbatches().is_multiple_of(p.pipeline)) {
        return Err(Infeasible::Interleave { stages: p.pipeline, microbatches: job.microbatches() });
    }
    let two_way = p.schedule == Schedule::DualPipe && p.pipeline > 1;
    if two_way && (!p.pipeline.is_multiple_of(2) || job.microbatches() < 2 * p.pipeline) {
        return Err(Infeasible::DualPipe { stages: p.pipeline, microbatches: job.microbatches() });
    }
    let experts = llm.moe.map_or(1, |moe| moe.experts);
    let ranks = p.tensor * p.context * p.data;
    let grouped = p.expert * p.expert_tensor;
    let whole = p.expert_tensor == 1 || p.expert_tensor == p.tensor;
    if !experts.is_multiple_of(p.expert) || !ranks.is_multiple_of(grouped.max(1)) || !whole {
        return Err(Infeasible::Experts { expert: p.expert, experts, data: p.data });
    }
    if !job.sequence.is_multiple_of(p.context) {
        return Err(Infeasible::Context { context: p.context, sequence: job.sequence });
    }
    if p.zero == crate::job::Zero::Parameters && p.pipeline > 1 {
        return Err(Infeasible::ZeroWithPipeline { stages: p.pipeline });
    }
    Ok(())
}

/// Whether layers fill the chunks of an interleaved pipeline evenly, but for one layer a stage, or for
/// embedding, loss and a next token's layer, which may stand where a layer is lacking (Llama 3 on 16
/// stages, DeepSeek-V3 on 8). The bubble shrinks by the number of chunks only where all are alike.
fn deals_out(layers: u32, stages: u32, chunks: u32) -> bool {
    let slots = u64::from(stages) * u64::from(chunks);
    let lacking = u64::from(layers).next_multiple_of(slots.max(1)) - u64::from(layers);
    lacking < u64::from(stages).max(4)
}

/// A framework that deals layers out by their share of the work gives the loss
/// all the stages it is worth; but it is only a few modules, so from three
/// stages on one of them has nothing to run and the job stops.
fn check_stages(job: &Job) -> Result<(), Infeasible> {
    if job.parallelism.split != Split::Work {
        return Ok(());
    }
    let layer = job.llm.attention_parameters() + job.llm.dense_mlp_parameters();
    let loss = job.llm.embedding_parameters() / layer;
    let stages = f64::from(job.parallelism.pipeline) * loss / (f64::from(job.llm.layers) + loss);
    if stages < 3.0 { Ok(()) } else { Err(Infeasible::EmptyStage { stages: job.parallelism.pipeline }) }
}

fn check_quantities(cluster: &Cluster, job: &Job) -> Result<(), Infeasible> {
    let p = &job.parallelism;
    let counts = [
        ("tensor parallelism", p.tensor),
        ("pipeline parallelism", p.pipeline),
        ("data parallelism", p.data),
        ("expert parallelism", p.expert),
        ("tensor parallelism of experts", p.expert_tensor),
        ("context parallelism", p.context),
        ("GPUs", cluster.gpus),
        ("GPUs a node", cluster.gpus_per_node),
        ("the micro-batch", job.microbatch),
        ("the batch", job.global_batch),
        ("the sequence", job.sequence),
        ("layers", job.llm.layers),
        ("the hidden size", job.llm.hidden),
        ("heads", job.llm.heads),
        ("KV heads", job.llm.kv_heads),
    ];
    for (name, count) in counts {
        if count == 0 {
            return Err(Infeasible::NotPositive { name, value: 0.0 });
        }
    }
    let gpu = &cluster.gpu;
    for math in [job.precision.math, job.precision.attention, job.precision.vocabulary] {
        if gpu.peak_flops.of(math) == 0.0 {
            return Err(Infeasible::NoFormat { format: math.name() });
        }
    }
    let rates = [
        ("matrix rate", gpu.peak_flops.of(job.precision.math)),
        ("GPU memory", gpu.memory_bytes),
        ("GPU memory bandwidth", gpu.memory_bytes_per_s),
        ("the imbalance of experts", job.expert_imbalance),
    ];
    for (name, value) in rates {
        check_rate(name, value)?;
    }
    Ok(())
}

fn check_rate(name: &'static str, value: f64) -> Result<(), Infeasible> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(Infeasible::NotPositive { name, value }) }
}

fn check_network(cluster: &Cluster, job: &Job, p: &Parallelism) -> Result<(), Infeasible> {
    check_rate("intra-node bandwidth", cluster.intra.bytes_per_s)?;
    let nic_rate = cluster.nic.bytes_per_s * cluster.nics_per_gpu;
    let groups = [
        ("tensor parallelism", p.tensor, 1),
        ("context parallelism", p.context, p.tensor),
        ("data parallelism", p.data, p.tensor * p.context),
        ("pipeline parallelism", p.pipeline, p.tensor * p.context * p.data),
    ];
    if nic_rate <= 0.0 {
        for (traffic, size, stride) in groups {
            if size > 1 && cluster.leaves_node(size, stride) {
                return Err(Infeasible::NoNic { traffic });
            }
        }
        if job.phase == Phase::Prefill && job.kv_transfer > 0.0 {
            return Err(Infeasible::NoNic { traffic: "the cache on its way to other workers" });
        }
    }
    let c = &job.compression;
    let at_rest = job.phase != Phase::Training && (c.weight_bits.is_some() || c.kv_bits.is_some());
    if at_rest && cluster.codecs_per_gpu <= 0.0 {
        return Err(Infeasible::NoCodec);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::deals_out;

    #[test]
    fn chunks_are_alike_but_for_what_is_no_layer() {
        // As runs that were measured have them: Llama 3 405B, DeepSeek-V3, Qwen3 235B, GPT-3.
        for (layers, stages, chunks) in
            [(126, 16, 8), (126, 8, 4), (61, 2, 8), (61, 8, 4), (94, 4, 12), (94, 8, 3), (96, 8, 6)]
        {
            assert!(deals_out(layers, stages, chunks), "{layers} {stages} {chunks}");
        }
        // Twelve chunks of twenty layers: some are twice as long, and the pipeline waits for those.
        for (layers, stages, chunks) in [(80, 4, 12), (32, 2, 12), (32, 2, 9), (80, 16, 2)] {
            assert!(!deals_out(layers, stages, chunks), "{layers} {stages} {chunks}");
        }
    }
}
