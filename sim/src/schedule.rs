//! One iteration put together: layers into stages, stages into a pipeline,
//! communication beside or between them.
//!
//! Knows the order of things; asks [`crate::compute`] how long a layer takes and
//! [`crate::collective`] how long a transfer takes.

mod parts;

pub(crate) use parts::{Boundary, Parts, Reduce, parts};

use crate::collective::{self, Algorithm, Link};
use crate::compression::{Channel, Policy, Scope};
use crate::compute::{self, Kind, Passes, Shape, Work};
use crate::hardware::Cluster;
use crate::job::{Job, Phase, Recompute, Split, Tuning, Zero};
use crate::llm::Vocabulary;
use crate::memory::{self, LocalParameters};
use crate::outcome::{Breakdown, Exposed};
use crate::software::STALLED_NODES;

/// Transfers of one GPU: their time, and what they put on wires and through codecs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    time_s: f64,
    /// Bits this GPU sent between nodes.
    pub network_bits: f64,
    /// Energy of all bits this GPU sent, over any wire.
    pub wire_j: f64,
    pub encoded_values: f64,
    pub decoded_values: f64,
}

impl Traffic {
    fn times(self, factor: f64) -> Self {
        Self {
            time_s: self.time_s * factor,
            network_bits: self.network_bits * factor,
            wire_j: self.wire_j * factor,
            encoded_values: self.encoded_values * factor,
            decoded_values: self.decoded_values * factor,
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time_s: self.time_s + other.time_s,
            network_bits: self.network_bits + other.network_bits,
            wire_j: self.wire_j + other.wire_j,
            encoded_values: self.encoded_values + other.encoded_values,
            decoded_values: self.decoded_values + other.decoded_values,
        }
    }
}

/// The operations a job needs from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    AllReduce,
    ReduceScatter,
    AllGather,
    SendRecv,
}

impl Transfer {
    fn time_s(self, channel: &Channel, ranks: u32, values: f64) -> f64 {
        match self {
            Self::AllReduce => collective::all_reduce(channel, ranks, values),
            Self::ReduceScatter => collective::reduce_scatter(channel, ranks, values),
            Self::AllGather => collective::all_gather(channel, ranks, values),
            Self::SendRecv => collective::send_recv(channel, values),
        }
    }

    /// Values this rank sends, encodes and decodes, for `values` in the group.
    fn load(self, ranks: u32, values: f64) -> (f64, f64, f64) {
        let n = f64::from(ranks);
        let most = values * (n - 1.0) / n;
        match self {
            Self::AllReduce => (2.0 * most, most + values / n, 2.0 * most),
            Self::ReduceScatter => (most, most, most),
            Self::AllGather => (most, values / n, most),
            Self::SendRecv => (values, values, values),
        }
    }
}

/// A group of ranks and the class of values they exchange.
struct Group<'a> {
    cluster: &'a Cluster,
    job: &'a Job,
    size: u32,
    stride: u32,
    raw_bits: f64,
    coded_bits: Option<f64>,
}

impl<'a> Group<'a> {
    /// `size` ranks `stride` apart, whose values have `raw` bits, or `coded` ones.
    fn of(
        cluster: &'a Cluster,
        job: &'a Job,
        (size, stride): (u32, u32),
        (raw_bits, coded_bits): (f64, Option<f64>),
    ) -> Self {
        Self { cluster, job, size, stride, raw_bits, coded_bits }
    }

    /// The channel the values take, raw or coded, and its time.
    fn choose(&self, transfer: Transfer, values: f64) -> (Channel, f64) {
        let link = self.cluster.link(self.size, self.stride);
        let (near, nodes) = self.cluster.members(self.size, self.stride);
        let leaves = self.cluster.leaves_node(self.size, self.stride);
        if link.all_reduce == Algorithm::Hierarchical
            && transfer != Transfer::SendRecv
            && leaves
            && near > 1
            && nodes.fract() == 0.0
        {
            return self.hierarchical(transfer, near, nodes as u32, values);
        }
        self.faster(link, |channel| transfer.time_s(channel, self.size, values))
    }

    /// Inside nodes over their own wires, raw; between nodes each of the `near`
    /// members carries its share over its own adapter.
    fn hierarchical(&self, transfer: Transfer, near: u32, nodes: u32, values: f64) -> (Channel, f64) {
        let inside = Channel::raw(self.cluster.link(near, self.stride), self.raw_bits);
        let inside_s = |transfer: Transfer| transfer.time_s(&inside, near, values);
        let within_s = match transfer {
            Transfer::AllReduce => inside_s(Transfer::ReduceScatter) + inside_s(Transfer::AllGather),
            other => inside_s(other),
        };
        let between = self.cluster.link(nodes, self.stride * near);
        let share = values / f64::from(near);
        let (channel, between_s) = self.faster(between, |channel| transfer.time_s(channel, nodes, share));
        (channel, within_s + between_s)
    }

    fn flow(&self, transfer: Transfer, values: f64) -> Traffic {
        if self.size < 2 || values <= 0.0 {
            return Traffic::default();
        }
        let (chosen, time_s) = self.choose(transfer, values);
        let (mut sent, encoded, decoded) = transfer.load(self.size, values);
        let added_on_the_way = chosen.link.all_reduce == Algorithm::InNetwork && !chosen.is_coded();
        if added_on_the_way && transfer == Transfer::AllReduce {
            sent = values;
        }
        let bits = sent * chosen.wire_bits;
        let leaves = self.cluster.leaves_node(self.size, self.stride);
        let codes = if chosen.is_coded() { 1.0 } else { 0.0 };
        // Around a ring, a node sends out what one of its members would alone.
        let (near, _) = self.cluster.members(self.size, self.stride);
        let outside = if leaves { 1.0 / f64::from(near) } else { 1.0 };
        let inside_j = bits * (1.0 - outside) * self.cluster.intra.energy_j_per_bit;
        Traffic {
            time_s,
            network_bits: if leaves { bits * outside } else { 0.0 },
            wire_j: bits * outside * chosen.link.energy_j_per_bit + inside_j,
            encoded_values: codes * encoded,
            decoded_values: codes * decoded,
        }
    }

    /// `tokens` of `width` values, each to `copies` experts spread over the
    /// group: what stays in the node crosses its wires, what leaves crosses the
    /// sender's own NIC, at the same time.
    fn dispatch(&self, tokens: f64, width: f64, copies: u32) -> Traffic {
        if self.size < 2 || tokens <= 0.0 {
            return Traffic::default();
        }
        let n = f64::from(self.size);
        let copies = f64::from(copies);
        let (near, nodes) = self.cluster.members(self.size, self.stride);
        let near = f64::from(near);
        let inside = tokens * copies * width * (near - 1.0) / n;
        // A token's experts are on so many nodes; each gets it once, or once an expert.
        let crossings = if self.cluster.gpu.software.sends_once_per_node {
            let reached = nodes * (1.0 - (1.0 - 1.0 / nodes).powf(copies));
            let most = self.job.llm.moe.map_or(0, |moe| moe.most_nodes);
            let reached = if most > 0 { reached.min(f64::from(most)) } else { reached };
            reached * (nodes - 1.0) / nodes
        } else {
            copies * (n - near) / n
        };
        let outside = tokens * crossings * width;
        let part = |values: f64, link: Link, leaves: bool| {
            if values <= 0.0 {
                return Traffic::default();
            }
            let (channel, time_s) = self.faster(link, |channel| collective::exchange(channel, values));
            let bits = values * channel.wire_bits;
            let codes = if channel.is_coded() { values } else { 0.0 };
            Traffic {
                time_s,
                network_bits: if leaves { bits } else { 0.0 },
                wire_j: bits * channel.link.energy_j_per_bit,
                encoded_values: codes,
                decoded_values: codes,
            }
        };
        let within = part(inside, self.cluster.node_link(), false);
        let between = part(outside, self.cluster.nic_link(self.size, self.stride), true);
        Traffic { time_s: within.time_s.max(between.time_s), ..(within + between) }
    }

    /// The faster of a raw and a coded channel over `link`, or the coded one
    /// where the policy says so.
    fn faster(&self, link: Link, time_s: impl Fn(&Channel) -> f64) -> (Channel, f64) {
        let raw = Channel::raw(link, self.raw_bits);
        let raw_s = time_s(&raw);
        if let Some(coded) = self.coded(link) {
            let coded_s = time_s(&coded);
            if self.job.compression.policy == Policy::Always || coded_s <= raw_s {
                return (coded, coded_s);
            }
        }
        (raw, raw_s)
    }

    fn coded(&self, link: Link) -> Option<Channel> {
        let coded_bits = self.coded_bits?;
        let compression = &self.job.compression;
        let in_scope =
            compression.scope == Scope::Everywhere || self.cluster.leaves_node(self.size, self.stride);
        let (codec, codecs) = (&self.cluster.codec, self.cluster.codecs_per_gpu);
        if !in_scope || codecs <= 0.0 {
            return None;
        }
        Some(Channel::coded(link, self.raw_bits, coded_bits, codec, codecs, compression.reduction))
    }
}

/// Splits a transfer into what `window_s` of compute hides and the rest.
fn expose(total_s: f64, overlap: f64, window_s: f64) -> Exposed {
    Exposed { total_s, exposed_s: total_s - (overlap * total_s).min(window_s) }
}

/// What one GPU computes, whatever wires and codecs it has.
#[derive(Clone, Copy, Debug)]
pub struct OnGpu {
    shape: Shape,
    stage: Stage,
    local: LocalParameters,
    optimizer: Work,
}

impl OnGpu {
    /// The work of one GPU that holds `local` parameters.
    pub fn of(cluster: &Cluster, job: &Job, local: LocalParameters) -> Self {
        let shape = Shape::of(job);
        let owned = match job.tuning {
            Tuning::All => memory::sharded_parameters(job, &local, Zero::Optimizer),
            Tuning::Adapters => 0.0,
        };
        Self {
            shape,
            stage: stage_compute(cluster, job, &shape),
            local,
            optimizer: compute::optimizer(cluster, job, owned),
        }
    }

    /// Time of the arithmetic of one iteration, bubbles included: what is left
    /// where no wire, launch or codec takes any.
    pub fn least_s(&self, job: &Job) -> f64 {
        let stages = f64::from(job.parallelism.pipeline);
        let microbatches = f64::from(job.microbatches());
        let body_s = self.stage.body.time_s();
        let mean_s = body_s + self.stage.vocabulary.time_s() / stages;
        let filling_s = match job.phase {
            Phase::Training => job.parallelism.schedule.filling_s(stages, self.stage.body.times_s(), 0.0),
            Phase::Prefill | Phase::Decode => 0.0,
        };
        microbatches * mean_s
            + filling_s
            + if job.phase == Phase::Training { self.optimizer.time_s } else { 0.0 }
    }
}

/// Time of one iteration by part, and one GPU's traffic.
pub fn schedule(cluster: &Cluster, job: &Job, on_gpu: &OnGpu) -> (Breakdown, Traffic) {
    let flows = StageFlows::of(cluster, job, &on_gpu.shape);
    let (mut breakdown, traffic) = match job.phase {
        Phase::Training => training(cluster, job, on_gpu, &flows),
        Phase::Prefill | Phase::Decode => inference(cluster, job, on_gpu, &flows),
    };
    // Codecs side by side share their work: the multiprocessor seconds stay the same.
    let codec = &cluster.codec;
    let codec_s = traffic.encoded_values / codec.encode_values_per_s
        + traffic.decoded_values / codec.decode_values_per_s;
    breakdown.codec_s = codec.gpu_share * codec_s;
    (breakdown, traffic)
}

/// One micro-batch through one stage.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Its layers.
    body: Passes,
    /// Output projection and loss, which only the last stage has.
    vocabulary: Passes,
}

impl Stage {
    /// Both, as one GPU without a pipeline runs them.
    fn whole(&self) -> Passes {
        self.body + self.vocabulary
    }
}

/// One micro-batch through the layers of a stage, and through the loss.
fn stage_compute(cluster: &Cluster, job: &Job, shape: &Shape) -> Stage {
    let stages = f64::from(job.parallelism.pipeline);
    let blocks = job.llm.blocks();
    let of = |kind: Kind, count: f64| {
        if count > 0.0 {
            compute::layer(cluster, job, shape, kind).times(count / stages)
        } else {
            Passes::default()
        }
    };
    let mut body = of(Kind::Dense, blocks.dense) + of(Kind::Attention, blocks.attention);
    if let Some(moe) = job.llm.moe {
        body = body + of(Kind::Sparse(moe), blocks.sparse) + of(Kind::Experts(moe), blocks.experts);
    }
    if let Some(mamba) = job.llm.mamba {
        body = body + of(Kind::Mamba(mamba), blocks.mamba);
    }
    let share = if job.parallelism.pipeline > 1 && job.parallelism.split == Split::Layers {
        cluster.gpu.software.loss_share
    } else {
        1.0
    };
    Stage { body, vocabulary: compute::vocabulary(cluster, job, shape).times(share) }
}

/// Layers of the mean stage, those that predict further tokens included.
fn layers_per_stage(job: &Job) -> f64 {
    f64::from(job.llm.layers + job.llm.next_token_layers) / f64::from(job.parallelism.pipeline)
}

/// Shares of the layers that attend, and that have experts.
fn attending(job: &Job) -> (f64, f64) {
    let blocks = job.llm.blocks();
    let layers = f64::from(job.llm.layers + job.llm.next_token_layers);
    let attend = blocks.dense + blocks.sparse + blocks.attention;
    (attend / layers, (blocks.sparse + blocks.experts) / layers)
}

/// Blocks of a mean layer whose sums tensor-parallel ranks exchange: two where
/// attention and a feed-forward block share a layer.
fn summed_blocks(job: &Job) -> f64 {
    let blocks = job.llm.blocks();
    let layers = f64::from(job.llm.layers + job.llm.next_token_layers);
    (2.0 * (blocks.dense + blocks.sparse) + blocks.attention + blocks.experts + blocks.mamba) / layers
}

/// Transfers of one micro-batch through one stage, forward and backward.
#[derive(Clone, Copy, Debug, Default)]
struct StageFlows {
    tensor_forward: Traffic,
    tensor_backward: Traffic,
    context_forward: Traffic,
    context_backward: Traffic,
    expert_forward: Traffic,
    expert_backward: Traffic,
    /// One boundary crossed once, in each direction.
    pipeline_forward: Traffic,
    pipeline_backward: Traffic,
}

impl StageFlows {
    fn of(cluster: &Cluster, job: &Job, shape: &Shape) -> Self {
        let p = &job.parallelism;
        let c = &job.compression;
        let layers = layers_per_stage(job);
        let (attend, sparse) = attending(job);
        let hidden = f64::from(job.llm.hidden);
        let stream = shape.tokens * hidden;
        let raw_bits = job.precision.activation_bits;
        let group = |size, stride, coded| Group::of(cluster, job, (size, stride), (raw_bits, coded));

        let tensor = |coded_bits| {
            tensor_flow(&group(p.tensor, 1, coded_bits), job, stream).times(summed_blocks(job) * layers)
        };
        let tensor_forward = tensor(c.activation_bits);
        // A full recompute repeats the forward sums before the backward ones.
        let again = if job.recompute == Recompute::Full { 1.0 } else { 0.0 };
        let tensor_backward = tensor(c.activation_gradient_bits) + tensor_forward.times(again);

        let kv =
            shape.tokens * job.llm.kv_values_per_token_layer() / f64::from(p.tensor.min(job.llm.kv_heads));
        let context_steps = f64::from(p.context - 1) * layers * attend;
        let context =
            |coded| group(p.context, p.tensor, coded).flow(Transfer::SendRecv, kv).times(context_steps);
        let context_forward = if p.context > 1 { context(c.activation_bits) } else { Traffic::default() };
        let context_backward = if p.context > 1 {
            context(c.activation_bits) + context(c.activation_gradient_bits)
        } else {
            Traffic::default()
        };

        let (expert_forward, expert_backward) = match job.llm.moe {
            None => (Traffic::default(), Traffic::default()),
            Some(moe) => {
                let share = if p.sequence_parallel { shape.tensor } else { 1.0 };
                // The others wait for the rank that most tokens go to.
                let tokens = shape.tokens / share * job.expert_imbalance;
                // Experts that are whole spread over the tensor-parallel ranks as well.
                let stride = if p.expert_tensor < p.tensor { 1 } else { p.tensor * p.context };
                let exchange = |coded| {
                    group(p.expert, stride, coded)
                        .dispatch(tokens, job.llm.routed_width(), moe.top_k)
                        .times(2.0 * sparse * layers)
                };
                let forward = exchange(c.activation_bits);
                (forward, exchange(c.activation_gradient_bits) + forward.times(again))
            }
        };

        let pipeline = |coded_bits| {
            if p.pipeline > 1 {
                boundary_group(cluster, job, coded_bits).flow(Transfer::SendRecv, boundary_values(job, shape))
            } else {
                Traffic::default()
            }
        };
        let training = job.phase == Phase::Training;
        let backward = |flow: Traffic| if training { flow } else { Traffic::default() };
        Self {
            tensor_forward,
            tensor_backward: backward(tensor_backward),
            context_forward,
            context_backward: backward(context_backward),
            expert_forward,
            expert_backward: backward(expert_backward),
            pipeline_forward: pipeline(c.activation_bits),
            pipeline_backward: backward(pipeline(c.activation_gradient_bits)),
        }
    }
}

/// A pair of neighbouring stages; they are a node apart when the whole
/// pipeline does not fit in one.
fn boundary_group<'a>(cluster: &'a Cluster, job: &'a Job, coded_bits: Option<f64>) -> Group<'a> {
    let p = &job.parallelism;
    let neighbours = p.tensor * p.context * p.data;
    let apart = cluster.leaves_node(p.pipeline, neighbours);
    let stride = if apart { neighbours.max(cluster.gpus_per_node) } else { neighbours };
    Group::of(cluster, job, (2, stride), (job.precision.activation_bits, coded_bits))
}

/// What one GPU hands to the next stage: tensor-parallel ranks share the work.
fn boundary_values(job: &Job, shape: &Shape) -> f64 {
    shape.tokens * f64::from(job.llm.hidden) / shape.tensor
}

/// One of the two sums of a tensor-parallel layer.
fn tensor_flow(group: &Group<'_>, job: &Job, stream: f64) -> Traffic {
    if job.parallelism.sequence_parallel {
        group.flow(Transfer::ReduceScatter, stream) + group.flow(Transfer::AllGather, stream)
    } else {
        group.flow(Transfer::AllReduce, stream)
    }
}

/// Work of one micro-batch on the stage that the others wait for, and the
/// time of the whole pipeline.
struct Pipeline {
    slowest: Passes,
    /// All micro-batches through all stages.
    total_s: f64,
}

impl Pipeline {
    /// `between_s` is what each micro-batch loses to communication on a stage,
    /// `hidden_s` what it would lose if nothing ran beside.
    fn of(job: &Job, stage: &Stage, between_s: f64, hidden_s: f64, microbatches: f64) -> Self {
        let p = &job.parallelism;
        let stages = f64::from(p.pipeline);
        match p.split {
            Split::Layers => {
                let slowest = stage.whole();
                let filling_s = p.schedule.filling_s(stages, stage.body.times_s(), between_s + hidden_s);
                Self { slowest, total_s: microbatches * (slowest.time_s() + between_s) + filling_s }
            }
            Split::Work => {
                let slowest = stage.body + stage.vocabulary.times(1.0 / stages);
                // The loss cannot be cut: it is at least a stage of its own.
                let longest_s = slowest.time_s().max(stage.vocabulary.time_s()) + between_s;
                let filling_s = p.schedule.filling_s(stages, (longest_s, 0.0, 0.0), hidden_s);
                Self { slowest, total_s: microbatches * longest_s + filling_s }
            }
        }
    }
}

/// Part of the messages that the slowest stage does not see: the last one
/// computes the loss but sends its activations nowhere, and the first of two
/// receives none.
fn spared_s(job: &Job, stage: &Stage, flows: &StageFlows, pipeline: &Exposed) -> f64 {
    if job.parallelism.split == Split::Work || pipeline.total_s <= 0.0 {
        return 0.0;
    }
    let shown = pipeline.exposed_s / pipeline.total_s * f64::from(job.parallelism.schedule.chunks());
    let (forward_s, backward_s) =
        (flows.pipeline_forward.time_s * shown, flows.pipeline_backward.time_s * shown);
    match job.parallelism.pipeline {
        2 => backward_s.min(stage.vocabulary.time_s() + forward_s),
        _ => backward_s.min(stage.vocabulary.time_s()),
    }
}

/// What each micro-batch loses to the host and the fabric, beside the wire.
fn exchange_s(cluster: &Cluster, job: &Job) -> f64 {
    let p = &job.parallelism;
    if cluster.gpus <= cluster.gpus_per_node {
        return 0.0;
    }
    // A stage in the middle waits for two neighbours, one at the end for one;
    // without a pipeline the replicas wait for each other.
    let exchanges = f64::from((p.pipeline - 1).clamp(1, 2) * p.schedule.chunks());
    exchanges * cluster.exchange_s * stalled_share(cluster)
}

/// Share of exchanges that meet a stalled link: one bad link of a fabric is in
/// the way of almost every large job and of few small ones.
fn stalled_share(cluster: &Cluster) -> f64 {
    let exponent = cluster.gpu.software.stall_exponent;
    if exponent == 0.0 {
        return 1.0;
    }
    (f64::from(cluster.nodes()) / STALLED_NODES).min(1.0).powf(exponent)
}

fn training(cluster: &Cluster, job: &Job, on_gpu: &OnGpu, flows: &StageFlows) -> (Breakdown, Traffic) {
    let p = &job.parallelism;
    let OnGpu { stage, local, optimizer, .. } = on_gpu;
    let microbatches = f64::from(job.microbatches());
    let chunks = f64::from(p.schedule.chunks());
    let mut traffic = Traffic::default();

    let body_s = stage.body.time_s();
    let tensor = flows.tensor_forward + flows.tensor_backward;
    let context = flows.context_forward + flows.context_backward;
    let expert = flows.expert_forward + flows.expert_backward;
    let pipeline = (flows.pipeline_forward + flows.pipeline_backward).times(chunks);
    let tensor_e = expose(tensor.time_s, job.overlap.tensor, body_s);
    let context_e = expose(context.time_s, job.overlap.context, body_s);
    let expert_e = expose(expert.time_s, job.overlap.expert, body_s);
    let mut pipeline_e = expose(pipeline.time_s, job.overlap.pipeline, body_s);
    // While the pipeline fills and drains nothing runs beside a message.
    let hidden_s = pipeline_e.total_s - pipeline_e.exposed_s;
    pipeline_e.exposed_s -= spared_s(job, stage, flows, &pipeline_e);
    let waiting_s = exchange_s(cluster, job);
    pipeline_e = pipeline_e + Exposed { total_s: waiting_s, exposed_s: waiting_s };
    let floor_s = layers_per_stage(job) * compute::launch_floor_s(cluster, job);
    let busy_s = body_s + tensor_e.exposed_s + expert_e.exposed_s;
    let launched = Stage { body: stage.body.stretched(floor_s - busy_s), ..*stage };
    let between_s = tensor_e.exposed_s + context_e.exposed_s + expert_e.exposed_s + pipeline_e.exposed_s;
    let pipeline_time = Pipeline::of(job, &launched, between_s, hidden_s, microbatches);
    let slowest = &pipeline_time.slowest;
    for flow in [tensor, context, expert, pipeline] {
        traffic = traffic + flow.times(microbatches);
    }

    let data = DataParallel { cluster, job, local };
    let (data_flow, data_e) = data.exposed(slowest, microbatches);
    traffic = traffic + data_flow;

    let breakdown = Breakdown {
        forward_s: slowest.forward.time_s * microbatches,
        recompute_s: slowest.recompute.time_s * microbatches,
        backward_s: slowest.backward.time_s * microbatches,
        optimizer_s: optimizer.time_s + cluster.gpu.software.step_s,
        tensor: tensor_e.times(microbatches),
        context: context_e.times(microbatches),
        expert: expert_e.times(microbatches),
        pipeline: pipeline_e.times(microbatches),
        data: data_e,
        storage: Exposed::default(),
        bubble_s: (pipeline_time.total_s - microbatches * (slowest.time_s() + between_s)).max(0.0),
        codec_s: 0.0,
        flops: microbatches * (slowest.forward.flops + slowest.recompute.flops + slowest.backward.flops),
        memory_bytes: microbatches
            * (slowest.forward.bytes + slowest.recompute.bytes + slowest.backward.bytes)
            + optimizer.bytes,
    };
    (breakdown, traffic)
}

/// Gradients and shared parameters over the data-parallel ranks.
struct DataParallel<'a> {
    cluster: &'a Cluster,
    job: &'a Job,
    local: &'a LocalParameters,
}

impl DataParallel<'_> {
    /// Dense parameters are copied over data × context ranks, experts over
    /// those that hold the same ones.
    fn sum(&self, transfer: Transfer, raw_bits: f64, coded_bits: Option<f64>) -> Traffic {
        let p = &self.job.parallelism;
        let (cluster, job) = (self.cluster, self.job);
        let held = p.schedule.stages_held();
        let group = |size, stride| Group::of(cluster, job, (size, stride), (raw_bits, coded_bits));
        let apart = p.expert * if p.expert_tensor < p.tensor { 1 } else { p.tensor * p.context };
        group(p.data * p.context, p.tensor).flow(transfer, self.local.dense * held)
            + group(p.expert_copies(), apart).flow(transfer, self.local.experts * held)
    }

    fn exposed(&self, stage: &Passes, microbatches: f64) -> (Traffic, Exposed) {
        let job = self.job;
        if job.tuning == Tuning::Adapters {
            // Gradients of adapters are a thousandth of the weights'.
            return (Traffic::default(), Exposed::default());
        }
        let (overlap, gathers) = (job.overlap.data, job.overlap.gather);
        let gradient_bits = job.precision.gradient_reduce_bits;
        let gradient_coded = job.compression.weight_gradient_bits;
        let weight_bits = job.precision.weight_bits;
        let weight_coded = job.compression.weight_bits;
        let (flow, exposed) = match job.parallelism.zero {
            Zero::None => {
                let sum = self.sum(Transfer::AllReduce, gradient_bits, gradient_coded);
                (sum, expose(sum.time_s, overlap, stage.backward.time_s))
            }
            Zero::Optimizer | Zero::Gradients => {
                let scatter = self.sum(Transfer::ReduceScatter, gradient_bits, gradient_coded);
                let gather = self.sum(Transfer::AllGather, weight_bits, weight_coded);
                let s = expose(scatter.time_s, overlap, stage.backward.time_s);
                let g = expose(gather.time_s, gathers, stage.forward.time_s);
                (scatter + gather, s + g)
            }
            Zero::Parameters => {
                let efficiency = self.cluster.gpu.software.gather_efficiency;
                let mut gather = self.sum(Transfer::AllGather, weight_bits, weight_coded);
                let mut scatter = self.sum(Transfer::ReduceScatter, gradient_bits, gradient_coded);
                gather.time_s /= efficiency;
                scatter.time_s /= efficiency;
                // Gathered for the forward and again for the backward pass.
                let forward = expose(gather.time_s, gathers, stage.forward.time_s);
                let backward = self.sharded_backward(gather.time_s, scatter.time_s, stage);
                let flow = (gather.times(2.0) + scatter).times(microbatches);
                (flow, (forward + backward).times(microbatches))
            }
        };
        let tied = self.tied_embedding();
        (flow + tied, exposed + Exposed { total_s: tied.time_s, exposed_s: tied.time_s })
    }

    /// Weights gathered again and gradients scattered, beside the backward pass.
    fn sharded_backward(&self, gather_s: f64, scatter_s: f64, stage: &Passes) -> Exposed {
        let overlap = &self.job.overlap;
        let total_s = gather_s + scatter_s;
        let hidden = if total_s > 0.0 {
            (overlap.gather * gather_s + overlap.data * scatter_s) / total_s
        } else {
            0.0
        };
        expose(total_s, hidden, stage.recompute.time_s + stage.backward.time_s)
    }

    /// First and last stage hold the same matrix and add its gradients.
    fn tied_embedding(&self) -> Traffic {
        let Self { cluster, job, .. } = *self;
        if job.llm.vocabulary == Vocabulary::Untied || job.parallelism.pipeline == 1 {
            return Traffic::default();
        }
        let group = Group {
            raw_bits: job.precision.gradient_reduce_bits,
            ..boundary_group(cluster, job, job.compression.weight_gradient_bits)
        };
        let values = job.llm.embedding_parameters() / f64::from(job.parallelism.tensor);
        group.flow(Transfer::AllReduce, values)
    }
}

/// A prompt or one decoded token; micro-batches follow each other through
/// the stages, and a token waits for the one before it.
fn inference(cluster: &Cluster, job: &Job, on_gpu: &OnGpu, flows: &StageFlows) -> (Breakdown, Traffic) {
    let p = &job.parallelism;
    let OnGpu { shape, stage, .. } = on_gpu;
    let microbatches = f64::from(job.microbatches());
    let slowest = stage.whole();
    let compute_s = stage.body.forward.time_s;
    let tensor = expose(flows.tensor_forward.time_s, job.overlap.tensor, compute_s);
    let context = expose(flows.context_forward.time_s, job.overlap.context, compute_s);
    let expert = expose(flows.expert_forward.time_s, job.overlap.expert, compute_s);
    let pipeline = expose(flows.pipeline_forward.time_s, job.overlap.pipeline, compute_s);
    let at_rest = storage_flow(cluster, job, shape) + transfer_flow(cluster, job, shape);
    let storage = expose(at_rest.time_s, job.overlap.storage, compute_s);
    let microbatch_s = compute_s
        + tensor.exposed_s
        + context.exposed_s
        + expert.exposed_s
        + pipeline.exposed_s
        + storage.exposed_s;
    let stages = f64::from(p.pipeline);
    let hidden_s = pipeline.total_s - pipeline.exposed_s;
    let all_s = microbatches * (microbatch_s + stage.vocabulary.forward.time_s);
    let bubble_s = match job.phase {
        // The next token follows the last, so stages never drain; but a token
        // takes as long as the way through all of them.
        Phase::Decode => {
            let way_s = stages * microbatch_s + (stages - 1.0) * hidden_s + stage.vocabulary.forward.time_s;
            (way_s - pipeline.exposed_s - all_s).max(0.0)
        }
        // The first micro-batch crosses one boundary less than it has stages.
        _ if p.pipeline > 1 => (stages - 1.0) * (microbatch_s + hidden_s) - pipeline.exposed_s,
        _ => 0.0,
    };
    let all = flows.tensor_forward
        + flows.context_forward
        + flows.expert_forward
        + flows.pipeline_forward
        + at_rest;
    let breakdown = Breakdown {
        forward_s: slowest.forward.time_s * microbatches,
        tensor: tensor.times(microbatches),
        context: context.times(microbatches),
        expert: expert.times(microbatches),
        pipeline: pipeline.times(microbatches),
        storage: storage.times(microbatches),
        bubble_s,
        flops: microbatches * slowest.forward.flops,
        memory_bytes: microbatches * slowest.forward.bytes,
        ..Breakdown::default()
    };
    (breakdown, all.times(microbatches))
}

/// A prompt's cache on its way to workers that decode: every rank sends the
/// part it computed to a peer in another node, layer by layer, over its own
/// adapter. The peer's decoder is counted here: it is part of the price.
fn transfer_flow(cluster: &Cluster, job: &Job, shape: &Shape) -> Traffic {
    if job.phase != Phase::Prefill || job.kv_transfer <= 0.0 {
        return Traffic::default();
    }
    let (attend, _) = attending(job);
    let layers = layers_per_stage(job) * attend;
    let sharing = f64::from(job.parallelism.tensor.min(job.llm.kv_heads));
    let values = shape.tokens * layers * job.llm.kv_values_per_token_layer() / sharing * job.kv_transfer;
    let bits = (job.precision.kv_bits, job.compression.kv_bits);
    Group::of(cluster, job, (2, cluster.gpus_per_node), bits).flow(Transfer::SendRecv, values)
}

/// Weights and KV that rest compressed are decoded for each pass; spilled KV
/// comes over the host's wire.
fn storage_flow(cluster: &Cluster, job: &Job, shape: &Shape) -> Traffic {
    let layers = f64::from(memory::layers_per_stage(job));
    let decoders = cluster.codec.decode_values_per_s * cluster.codecs_per_gpu;
    let weights = match job.compression.weight_bits {
        Some(_) => {
            let local = memory::local_parameters(job);
            local.dense + local.experts
        }
        None => 0.0,
    };
    let cached = match job.phase {
        Phase::Decode => {
            shape.sequences * shape.context * layers * job.llm.kv_values_per_token_layer()
                / f64::from(job.parallelism.tensor.min(job.llm.kv_heads))
        }
        _ => 0.0,
    };
    let coded_kv = if job.compression.kv_bits.is_some() { cached } else { 0.0 };
    let decode_s = if weights + coded_kv > 0.0 { (weights + coded_kv) / decoders } else { 0.0 };
    let spilled_bits = cached * job.kv_spill * shape.kv_bytes * 8.0;
    let host = &cluster.host;
    let wire_s = if spilled_bits > 0.0 {
        host.latency_s + spilled_bits / 8.0 / (host.bytes_per_s * host.efficiency)
    } else {
        0.0
    };
    Traffic {
        // The decoder works on what has arrived while the rest is on the wire.
        time_s: decode_s.max(wire_s),
        network_bits: 0.0,
        wire_j: spilled_bits * host.energy_j_per_bit,
        encoded_values: 0.0,
        decoded_values: weights + coded_kv,
    }
}
