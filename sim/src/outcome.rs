//! What an estimate says: totals with the parts they are sums of, lines of an
//! explanation, and why a configuration cannot run.
//!
//! Plain data alone, so that every part of the model can share it.

use crate::layout::Layout;
use crate::reason::Reason;
use serde::Serialize;

/// What one configuration costs and yields. Every total is the sum of the
/// parts beside it, so an explanation can show where a number came from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// One optimizer step, one prompt, or one decoded token a sequence.
    pub iteration_s: f64,
    /// Tokens of the whole cluster in a second.
    pub tokens_per_s: f64,
    /// TFLOP/s of the model ([`crate::Job::model_flops`]) that each GPU sustains.
    pub model_tflops_per_gpu: f64,
    /// Model FLOPs over the GPU's peak in the format of the products.
    pub mfu: f64,
    /// One iteration of the whole cluster.
    pub energy_j: f64,
    pub energy_j_per_token: f64,
    pub area_mm2: f64,
    pub memory: MemoryByKind,
    pub breakdown: Breakdown,
    pub energy: EnergyByKind,
    pub area: AreaByKind,
    /// How the job was laid over the GPUs, where that was left to be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Layout>,
}

/// A communication: all of it, and the part no compute hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Exposed {
    pub total_s: f64,
    pub exposed_s: f64,
}

impl Exposed {
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { total_s: self.total_s * factor, exposed_s: self.exposed_s * factor }
    }
}

impl std::ops::Add for Exposed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { total_s: self.total_s + other.total_s, exposed_s: self.exposed_s + other.exposed_s }
    }
}

/// Where the time of one iteration goes; the exposed parts sum to the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Breakdown {
    pub forward_s: f64,
    pub recompute_s: f64,
    pub backward_s: f64,
    pub optimizer_s: f64,
    pub tensor: Exposed,
    pub context: Exposed,
    pub expert: Exposed,
    pub pipeline: Exposed,
    pub data: Exposed,
    /// Decoding compressed weights and KV at rest, and reading spilled KV.
    pub storage: Exposed,
    /// Stages waiting for the pipeline to fill and drain.
    pub bubble_s: f64,
    /// What the GPU's own work loses to a codec of multiprocessors.
    pub codec_s: f64,
    /// FLOPs of the matrix units of one GPU.
    pub flops: f64,
    /// Bytes of GPU memory traffic of one GPU.
    pub memory_bytes: f64,
}

impl Breakdown {
    /// The iteration.
    pub fn total_s(&self) -> f64 {
        self.forward_s
            + self.recompute_s
            + self.backward_s
            + self.optimizer_s
            + self.tensor.exposed_s
            + self.context.exposed_s
            + self.expert.exposed_s
            + self.pipeline.exposed_s
            + self.data.exposed_s
            + self.storage.exposed_s
            + self.bubble_s
            + self.codec_s
    }
}

/// Memory of the fullest GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryByKind {
    pub weights_bytes: f64,
    pub gradients_bytes: f64,
    pub optimizer_bytes: f64,
    pub activations_bytes: f64,
    pub kv_bytes: f64,
    pub buffers_bytes: f64,
    pub codec_staging_bytes: f64,
}

impl MemoryByKind {
    pub fn total_bytes(&self) -> f64 {
        self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.kv_bytes
            + self.buffers_bytes
            + self.codec_staging_bytes
    }

    /// The kind that takes most.
    pub fn largest(&self) -> (&'static str, f64) {
        [
            ("weights", self.weights_bytes),
            ("gradients", self.gradients_bytes),
            ("optimizer", self.optimizer_bytes),
            ("activations", self.activations_bytes),
            ("KV", self.kv_bytes),
            ("buffers", self.buffers_bytes),
            ("codec staging", self.codec_staging_bytes),
        ]
        .into_iter()
        .fold(("weights", f64::NEG_INFINITY), |most, kind| if kind.1 > most.1 { kind } else { most })
    }
}

/// Energy of one iteration of the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EnergyByKind {
    /// GPUs above idle, while they compute.
    pub compute_j: f64,
    /// GPUs at idle power for the whole iteration.
    pub gpu_idle_j: f64,
    /// Bits on NVLink, PCIe and the network, end to end.
    pub wire_j: f64,
    pub nic_idle_j: f64,
    /// Switches inside nodes and between them, without traffic.
    pub switch_idle_j: f64,
    pub codec_j: f64,
    pub codec_idle_j: f64,
}

impl EnergyByKind {
    pub fn total_j(&self) -> f64 {
        self.compute_j
            + self.gpu_idle_j
            + self.wire_j
            + self.nic_idle_j
            + self.switch_idle_j
            + self.codec_j
            + self.codec_idle_j
    }
}

/// Silicon of the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AreaByKind {
    pub gpu_mm2: f64,
    pub nic_mm2: f64,
    pub codec_mm2: f64,
}

impl AreaByKind {
    pub fn total_mm2(&self) -> f64 {
        self.gpu_mm2 + self.nic_mm2 + self.codec_mm2
    }
}

/// Why a configuration cannot run.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Infeasible {
    #[error("{name} is {value}, but must be positive and finite")]
    NotPositive { name: &'static str, value: f64 },
    #[error("the parallelism uses {used} GPUs, the cluster has {gpus}")]
    GpuCount { used: u64, gpus: u32 },
    #[error("tensor parallelism {tensor} does not divide the {heads} heads")]
    Heads { tensor: u32, heads: u32 },
    #[error("tensor parallelism {tensor} and the {kv_heads} KV heads do not divide each other")]
    KvHeads { tensor: u32, kv_heads: u32 },
    #[error("{stages} pipeline stages × {chunks} chunks, but only {layers} layers")]
    Stages { stages: u32, chunks: u32, layers: u32 },
    #[error(
        "{layers} layers do not deal out to {stages} pipeline stages × {chunks} chunks of as many layers"
    )]
    Chunks { stages: u32, chunks: u32, layers: u32 },
    #[error(
        "of {stages} stages dealt out by work the loss gets three or more, and one of those has nothing to run"
    )]
    EmptyStage { stages: u32 },
    #[error("interleaving needs a multiple of {stages} micro-batches, there are {microbatches}")]
    Interleave { stages: u32, microbatches: u32 },
    #[error(
        "DualPipe needs an even number of stages and twice as many micro-batches, there are {stages} and {microbatches}"
    )]
    DualPipe { stages: u32, microbatches: u32 },
    #[error("a pipeline that runs both ways (DualPipe) is known in closed form alone: it has no timeline")]
    NotPlayed,
    #[error(
        "the batch of {batch} does not divide into {data} data-parallel ranks × micro-batches of {microbatch}"
    )]
    Batch { batch: u32, data: u32, microbatch: u32 },
    #[error(
        "expert parallelism {expert} must divide the {experts} experts and the {data} data-parallel ranks"
    )]
    Experts { expert: u32, experts: u32, data: u32 },
    #[error("context parallelism {context} does not divide the sequence of {sequence}")]
    Context { context: u32, sequence: u32 },
    #[error("{traffic} leaves the node, but the GPUs have no NIC")]
    NoNic { traffic: &'static str },
    #[error("compression is asked for, but the GPUs have no codec")]
    NoCodec,
    #[error("ZeRO shares parameters, which a pipeline of {stages} stages does not support")]
    ZeroWithPipeline { stages: u32 },
    #[error(
        "the parts of the GPU take {area_mm2:.0} mm2 with their codecs, a reticle holds {reticle_mm2:.0}"
    )]
    Reticle { area_mm2: f64, reticle_mm2: f64 },
    #[error("the GPU's PHYs take {needed_mm:.0} mm of its edge, which has {edge_mm:.0}")]
    Shoreline { needed_mm: f64, edge_mm: f64 },
    #[error("the GPU is clocked at {clock_ghz:.2} GHz, its process ends at {most_ghz:.2} GHz")]
    Clock { clock_ghz: f64, most_ghz: f64 },
    #[error("the GPU may draw {limit_w:.0} W, but takes {idle_w:.0} W while it does nothing")]
    Power { limit_w: f64, idle_w: f64 },
    #[error("the matrix units of the GPU have no {format}; a GPU that does states its rate")]
    NoFormat { format: &'static str },
    #[error("needs {needed_gb:.1} GB a GPU of {capacity_gb:.1} GB, {kind} being the largest part")]
    Memory { needed_gb: f64, capacity_gb: f64, kind: &'static str },
    #[error(
        "no layout over {gpus} GPUs fits in memory: the smallest needs {needed_gb:.1} GB a GPU of {capacity_gb:.1} GB, {kind} being the largest part"
    )]
    NoLayout { gpus: u32, needed_gb: f64, capacity_gb: f64, kind: &'static str },
    #[error("no layout puts a batch of {batch} on {gpus} GPUs: none divides batch, heads and layers")]
    NoCut { gpus: u32, batch: u32 },
}

impl Infeasible {
    /// What kind of reason it is.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotPositive { .. } => Reason::NotPositive,
            Self::NoFormat { .. } => Reason::NoFormat,
            Self::GpuCount { .. } => Reason::GpuCount,
            Self::Heads { .. } => Reason::Heads,
            Self::KvHeads { .. } => Reason::KvHeads,
            Self::Stages { .. } | Self::Chunks { .. } | Self::EmptyStage { .. } => Reason::Stages,
            Self::Interleave { .. } | Self::DualPipe { .. } | Self::NotPlayed => Reason::Interleave,
            Self::Batch { .. } => Reason::Batch,
            Self::Experts { .. } => Reason::Experts,
            Self::Context { .. } => Reason::Context,
            Self::NoNic { .. } => Reason::NoNic,
            Self::NoCodec => Reason::NoCodec,
            Self::ZeroWithPipeline { .. } => Reason::ZeroWithPipeline,
            Self::Reticle { .. } => Reason::Reticle,
            Self::Shoreline { .. } => Reason::DieEdge,
            Self::Clock { .. } => Reason::Clock,
            Self::Power { .. } => Reason::Power,
            Self::Memory { .. } | Self::NoLayout { .. } => Reason::Memory,
            Self::NoCut { .. } => Reason::Batch,
        }
    }

    /// Whether another way to cut the job over the GPUs may help.
    pub(crate) fn is_about_the_cut(&self) -> bool {
        matches!(
            self.reason(),
            Reason::GpuCount
                | Reason::Heads
                | Reason::KvHeads
                | Reason::Stages
                | Reason::Interleave
                | Reason::Batch
                | Reason::Experts
                | Reason::Context
                | Reason::ZeroWithPipeline
                | Reason::Memory
        )
    }
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// `time`, `memory`, `energy`, `area`, `result`; `layout` where that was
    /// chosen; `die`, `cost`, `power`, `kernel` and `one more` for a GPU given by its parts.
    #[serde(rename = "part")]
    pub group: &'static str,
    #[serde(rename = "line")]
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// How the value comes about, with the point's own numbers.
    pub formula: String,
}

impl Line {
    pub(crate) fn of(
        group: &'static str,
        name: &'static str,
        (value, unit): (f64, &'static str),
        formula: impl Into<String>,
    ) -> Self {
        Self { group, name, value, unit, formula: formula.into() }
    }
}
