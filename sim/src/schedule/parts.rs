//! The parts of an iteration, for playing it event by event.
//!
//! Durations and channels come from the same places as the closed forms';
//! how they are put together does not.

use super::{
    DataParallel, Group, Stage, StageFlows, Traffic, Transfer, boundary_group, boundary_values, exchange_s,
    expose, layers_per_stage, stage_compute, storage_flow, transfer_flow,
};
use crate::collective::Algorithm;
use crate::compression::{Channel, Reduction};
use crate::compute::{self, Passes, Shape};
use crate::hardware::Cluster;
use crate::job::{Job, Phase, Tuning, Zero};
use crate::memory;

/// What an event simulation needs to play one iteration: durations and
/// channels, without the closed forms that put them together.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// One micro-batch through the layers of a stage, with the communication
    /// that keeps it waiting there.
    pub forward_s: f64,
    pub backward_s: f64,
    /// What the last stage computes beside.
    pub loss_forward_s: f64,
    pub loss_backward_s: f64,
    pub forward_boundary: Option<Boundary>,
    pub backward_boundary: Option<Boundary>,
    /// One after the other, when the last micro-batch is done.
    pub reductions: Vec<Reduce>,
    pub optimizer_s: f64,
}

/// A message from stage to stage.
#[derive(Clone, Debug)]
pub(crate) struct Boundary {
    pub channel: Channel,
    pub values: f64,
    /// Its time in closed form.
    pub whole_s: f64,
    /// Share of the message that no compute hides.
    pub exposed_fraction: f64,
}

/// A collective at the end of the iteration.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub name: &'static str,
    /// Its time in closed form.
    pub whole_s: f64,
    /// Set where values pass through codecs around a ring.
    pub coded_ring: Option<CodedRing>,
    pub overlap: f64,
    /// Compute that may hide it.
    pub window_s: f64,
}

/// A ring whose every step passes through codecs.
#[derive(Clone, Debug)]
pub(crate) struct CodedRing {
    pub channel: Channel,
    pub ranks: u32,
    pub values: f64,
    /// Pieces are encoded once and forwarded, not decoded and added.
    pub gathers: bool,
}

pub(crate) fn parts(cluster: &Cluster, job: &Job) -> Parts {
    let shape = Shape::of(job);
    let stage = stage_compute(cluster, job, &shape);
    let flows = StageFlows::of(cluster, job, &shape);
    let training = job.phase == Phase::Training;
    let p = &job.parallelism;
    let chunks = f64::from(p.schedule.chunks());
    let body_s = if training { stage.body.time_s() } else { stage.body.forward.time_s };
    let share = |forward: Traffic, backward: Traffic, overlap: f64| {
        let total_s = forward.time_s + backward.time_s;
        let exposed = expose(total_s, overlap, body_s);
        let shown = if total_s > 0.0 { exposed.exposed_s / total_s } else { 0.0 };
        (forward.time_s * shown, backward.time_s * shown)
    };
    let tensor = share(flows.tensor_forward, flows.tensor_backward, job.overlap.tensor);
    let context = share(flows.context_forward, flows.context_backward, job.overlap.context);
    let expert = share(flows.expert_forward, flows.expert_backward, job.overlap.expert);
    let crossings = (flows.pipeline_forward + flows.pipeline_backward).times(chunks);
    let crossing = expose(crossings.time_s, job.overlap.pipeline, body_s);
    let exposed_fraction = if crossing.total_s > 0.0 { crossing.exposed_s / crossing.total_s } else { 0.0 };
    let boundary = |coded_bits| {
        if p.pipeline < 2 {
            return None;
        }
        let values = boundary_values(job, &shape);
        let (channel, whole_s) = boundary_group(cluster, job, coded_bits).choose(Transfer::SendRecv, values);
        Some(Boundary { channel, values, whole_s, exposed_fraction })
    };
    let at_rest = storage_flow(cluster, job, &shape) + transfer_flow(cluster, job, &shape);
    let at_rest = expose(at_rest.time_s, job.overlap.storage, body_s).exposed_s;
    let local = memory::local_parameters(job);
    let waiting_s = if training { exchange_s(cluster, job) } else { at_rest };
    let floor_s = layers_per_stage(job) * compute::launch_floor_s(cluster, job);
    let body = if training {
        stage.body.stretched(floor_s - body_s - tensor.0 - tensor.1 - expert.0 - expert.1)
    } else {
        stage.body
    };
    let stage = Stage { body, ..stage };
    let (mut gather_s, mut scatter_s, mut reductions) = (0.0, 0.0, Vec::new());
    if training && job.tuning == Tuning::All {
        let data = DataParallel { cluster, job, local: &local };
        let whole = stage.whole();
        if p.zero == Zero::Parameters {
            (gather_s, scatter_s) = data.sharded_exposed_s(&whole);
        }
        reductions = data.reductions(&whole);
    }
    let backward = body.recompute + body.backward;
    let half = if training { 0.5 } else { 1.0 };
    Parts {
        forward_s: body.forward.time_s + tensor.0 + context.0 + expert.0 + half * waiting_s + gather_s,
        backward_s: backward.time_s + tensor.1 + context.1 + expert.1 + half * waiting_s + scatter_s,
        loss_forward_s: stage.vocabulary.forward.time_s,
        loss_backward_s: stage.vocabulary.recompute.time_s + stage.vocabulary.backward.time_s,
        forward_boundary: boundary(job.compression.activation_bits),
        backward_boundary: boundary(job.compression.activation_gradient_bits),
        reductions,
        optimizer_s: match (training, job.tuning) {
            (true, Tuning::Adapters) => cluster.gpu.software.step_s,
            _ => {
                let owned = memory::sharded_parameters(job, &local, Zero::Optimizer);
                compute::optimizer(cluster, job, owned).time_s + cluster.gpu.software.step_s
            }
        },
    }
}

impl DataParallel<'_> {
    /// What sharing parameters adds to each micro-batch's passes.
    fn sharded_exposed_s(&self, stage: &Passes) -> (f64, f64) {
        let job = self.job;
        let efficiency = self.cluster.gpu.software.gather_efficiency;
        let gather_s =
            self.sum(Transfer::AllGather, job.precision.weight_bits, job.compression.weight_bits).time_s
                / efficiency;
        let scatter_s = self
            .sum(
                Transfer::ReduceScatter,
                job.precision.gradient_reduce_bits,
                job.compression.weight_gradient_bits,
            )
            .time_s
            / efficiency;
        (
            expose(gather_s, job.overlap.gather, stage.forward.time_s).exposed_s,
            self.sharded_backward(gather_s, scatter_s, stage).exposed_s,
        )
    }

    /// The collectives after the last micro-batch, in order.
    fn reductions(&self, stage: &Passes) -> Vec<Reduce> {
        let job = self.job;
        let precision = &job.precision;
        let gradients = (precision.gradient_reduce_bits, job.compression.weight_gradient_bits);
        let weights = (precision.weight_bits, job.compression.weight_bits);
        let (forward_s, backward_s) = (stage.forward.time_s, stage.backward.time_s);
        let mut reductions = match job.parallelism.zero {
            Zero::None => self.reduce("sum gradients", Transfer::AllReduce, gradients, backward_s),
            Zero::Optimizer | Zero::Gradients => {
                let mut both =
                    self.reduce("scatter gradients", Transfer::ReduceScatter, gradients, backward_s);
                both.extend(self.reduce("gather weights", Transfer::AllGather, weights, forward_s));
                both
            }
            Zero::Parameters => Vec::new(),
        };
        let tied_s = self.tied_embedding().time_s;
        if tied_s > 0.0 {
            let name = "sum tied embedding";
            reductions.push(Reduce { name, whole_s: tied_s, coded_ring: None, overlap: 0.0, window_s: 0.0 });
        }
        reductions
    }

    /// One collective over the dense parameters, split into its rings where a
    /// codec sits in them; experts follow in closed form.
    fn reduce(
        &self,
        name: &'static str,
        transfer: Transfer,
        (raw_bits, coded_bits): (f64, Option<f64>),
        window_s: f64,
    ) -> Vec<Reduce> {
        let whole_s = self.sum(transfer, raw_bits, coded_bits).time_s;
        let overlap = match transfer {
            Transfer::AllGather => self.job.overlap.gather,
            _ => self.job.overlap.data,
        };
        let p = &self.job.parallelism;
        let ranks = p.data * p.context;
        let plain = Reduce { name, whole_s, coded_ring: None, overlap, window_s };
        if ranks < 2 || self.local.experts > 0.0 {
            return vec![plain];
        }
        let group = Group::of(self.cluster, self.job, (ranks, p.tensor), (raw_bits, coded_bits));
        let (channel, _) = group.choose(transfer, self.local.dense);
        let ring = matches!(channel.link.all_reduce, Algorithm::Ring | Algorithm::Nccl);
        if !channel.is_coded() || channel.reduction == Reduction::Gather || !ring {
            return vec![plain];
        }
        let ring = |gathers| CodedRing { channel, ranks, values: self.local.dense, gathers };
        let rings = match transfer {
            Transfer::AllGather => vec![ring(true)],
            Transfer::ReduceScatter => vec![ring(false)],
            // The same values around twice; the window hides them together.
            _ => vec![ring(false), ring(true)],
        };
        let share = window_s / rings.len() as f64;
        rings
            .into_iter()
            .map(|ring| Reduce { coded_ring: Some(ring), window_s: share, ..plain.clone() })
            .collect()
    }
}
