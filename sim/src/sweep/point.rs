//! One point of a sweep, and the difference between two.
//!
//! An axis changes a few numbers of a point. Which numbers is found out once,
//! by reading the configuration with and without the change; from then on a
//! point costs a handful of stores, whatever field the axis named.

use crate::best::Ranked;
use crate::collective::{Algorithm, Topology};
use crate::compression::{Policy, Reduction, Scope};
use crate::die::Die;
use crate::estimate::Local;
use crate::layout::Search;
use crate::{
    AttentionKernel, Cluster, Codec, Estimate, Gpu, Infeasible, Job, Llm, Math, Phase, Recompute, Schedule,
    Split, Tuning, Zero, estimate,
};
use trinity_silicon::die::RowIndex;

/// A cluster and a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub cluster: Cluster,
    pub job: Job,
    /// The cluster has as many GPUs as the job uses.
    pub gpus_as_used: bool,
    /// Sequences of one data-parallel rank, where the batch grows with their
    /// number; zero where the batch is fixed.
    pub replica_batch: u32,
    /// The micro-batch is what a stage decodes together, however many
    /// sequences there are.
    pub microbatch_follows: bool,
    /// What of the job's layout is left to be chosen.
    pub search: Search,
}

impl Point {
    /// Follows the job with the batch and the number of GPUs, where nobody
    /// fixed them, and the parts of a GPU with its totals.
    pub fn settle(&mut self) {
        self.follow_job();
        self.cluster.settle();
    }

    /// The part of [`Point::settle`] that no GPU's parts decide.
    pub(super) fn follow_job(&mut self) {
        if self.replica_batch > 0 {
            self.job.global_batch = self.replica_batch.saturating_mul(self.job.parallelism.data);
        }
        if self.gpus_as_used {
            self.cluster.gpus = u32::try_from(self.job.parallelism.gpus()).unwrap_or(u32::MAX);
        }
        if self.microbatch_follows {
            self.job.microbatch = self.job.decoded_together();
        }
    }

    /// Whether one GPU does the same here and there: see [`Local::is_shared`].
    pub(super) fn shares_gpu_with(&self, other: &Self) -> bool {
        Local::is_shared((&self.cluster, &self.job), (&other.cluster, &other.job))
            && self.gpus_as_used == other.gpus_as_used
            && self.replica_batch == other.replica_batch
            && self.microbatch_follows == other.microbatch_follows
            && self.search == other.search
    }

    /// The point's estimate, with the best layout where that is left to be
    /// chosen. Fails when the point cannot run.
    pub fn estimate(&self) -> Result<Estimate, Infeasible> {
        if self.search.on {
            return self.layouts().best(&self.cluster, &self.job);
        }
        estimate(&self.cluster, &self.job)
    }

    /// The layouts that a choice is made from.
    pub(crate) fn layouts(&self) -> Ranked {
        Ranked::of(&self.cluster, &self.job, self.replica_batch, &self.search)
    }

    /// The point with its layout chosen, where that was left to be. Fails when
    /// no layout can run.
    pub fn chosen(&self) -> Result<Self, Infeasible> {
        if !self.search.on {
            return Ok(*self);
        }
        Ok(self.laid_out(&self.estimate()?))
    }

    /// The point with the layout that an estimate of it chose.
    pub(crate) fn laid_out(&self, estimate: &Estimate) -> Self {
        match estimate.chosen {
            Some(layout) => {
                let job = layout.apply(&self.job, self.replica_batch);
                Self { job, search: Search::OFF, microbatch_follows: false, ..*self }
            }
            None => *self,
        }
    }
}

/// A value that a slot can hold: any number or choice, as a float.
trait Slotted: Copy {
    fn store(self) -> f64;
    fn load(value: f64) -> Self;
}

impl Slotted for f64 {
    fn store(self) -> f64 {
        self
    }
    fn load(value: f64) -> Self {
        value
    }
}

impl Slotted for u32 {
    fn store(self) -> f64 {
        f64::from(self)
    }
    fn load(value: f64) -> Self {
        value as Self
    }
}

impl Slotted for bool {
    fn store(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn load(value: f64) -> Self {
        value != 0.0
    }
}

/// Bits of a class that may be raw, or a choice that may be left open: nothing
/// is stored as a negative number.
impl<T: Slotted> Slotted for Option<T> {
    fn store(self) -> f64 {
        self.map_or(-1.0, Slotted::store)
    }
    fn load(value: f64) -> Self {
        (value >= 0.0).then(|| Slotted::load(value))
    }
}

impl Slotted for RowIndex {
    fn store(self) -> f64 {
        f64::from(self.0)
    }
    fn load(value: f64) -> Self {
        Self(value as u16)
    }
}

impl Slotted for Schedule {
    fn store(self) -> f64 {
        match self {
            Self::DualPipe => -1.0,
            other => f64::from(other.chunks()),
        }
    }
    fn load(value: f64) -> Self {
        match value {
            _ if value < 0.0 => Self::DualPipe,
            _ if value > 1.0 => Self::Interleaved(value as u32),
            _ => Self::OneFOneB,
        }
    }
}

macro_rules! slotted_choices {
    ($($choice:ty { $($variant:ident),+ })*) => {$(
        impl Slotted for $choice {
            fn store(self) -> f64 {
                const ALL: &[$choice] = &[$(<$choice>::$variant),+];
                ALL.iter().position(|one| *one == self).unwrap_or(0) as f64
            }
            fn load(value: f64) -> Self {
                const ALL: &[$choice] = &[$(<$choice>::$variant),+];
                ALL[(value as usize).min(ALL.len() - 1)]
            }
        }
    )*};
}

slotted_choices! {
    Topology { Ring, Switch, FullyConnected }
    Algorithm { Ring, HalvingDoubling, DoubleTree, Direct, Best, Nccl, Hierarchical, InNetwork }
    Split { Layers, Work }
    Math { Fp32, Fp16, Fp8, Fp4 }
    Tuning { All, Adapters }
    Phase { Training, Prefill, Decode }
    Recompute { None, Selective, Full }
    AttentionKernel { Materialized, Flash }
    Zero { None, Optimizer, Gradients, Parameters }
    Reduction { PerHop, Gather }
    Scope { BetweenNodes, Everywhere }
    Policy { Always, WhenFaster }
}

macro_rules! slots {
    (point: $($($field:ident).+),+; die: $($($part:ident).+),+ $(,)?) => {
        /// Every number and choice of a point, in a fixed order.
        const SLOTS: usize = [$(stringify!($($field).+)),+, $(stringify!($($part).+)),+].len();

        fn read(point: &Point) -> [f64; SLOTS] {
            let die = point.cluster.gpu.die.as_ref();
            [
                $(Slotted::store(point.$($field).+)),+,
                $(die.map_or(-1.0, |die| Slotted::store(die.$($part).+))),+
            ]
        }

        fn setters() -> [fn(&mut Point, f64); SLOTS] {
            [
                $(|point: &mut Point, value: f64| point.$($field).+ = Slotted::load(value)),+,
                $(|point: &mut Point, value: f64| {
                    if let Some(die) = point.cluster.gpu.die.as_mut() {
                        die.$($part).+ = Slotted::load(value);
                    }
                }),+
            ]
        }

        /// The same die with every number of `other`.
        fn with_numbers_of(mut die: Die, other: &Die) -> Die {
            $(die.$($part).+ = other.$($part).+;)+
            die.roofline = other.roofline;
            die
        }
    };
}

slots! {
    point:
    cluster.gpu.peak_flops.fp32, cluster.gpu.peak_flops.fp16, cluster.gpu.peak_flops.fp8, cluster.gpu.peak_flops.fp4,
    cluster.gpu.peak_flops.vector, cluster.gpu.memory_bytes, cluster.gpu.reserved_bytes,
    cluster.gpu.memory_bytes_per_s, cluster.gpu.area_mm2, cluster.gpu.power_w, cluster.gpu.idle_power_w,
    cluster.gpus, cluster.gpus_per_node,
    cluster.intra.bytes_per_s, cluster.intra.latency_s, cluster.intra.launch_s, cluster.intra.efficiency, cluster.intra.topology,
    cluster.intra.all_reduce, cluster.intra.idle_power_w, cluster.intra.energy_j_per_bit,
    cluster.nic.bytes_per_s, cluster.nic.latency_s, cluster.nic.area_mm2, cluster.nic.idle_power_w,
    cluster.nic.energy_j_per_bit,
    cluster.nics_per_gpu, cluster.inter_efficiency, cluster.inter_latency_s, cluster.inter_topology,
    cluster.inter_all_reduce,
    cluster.host.bytes_per_s, cluster.host.latency_s, cluster.host.launch_s, cluster.host.efficiency, cluster.host.topology,
    cluster.host.all_reduce, cluster.host.idle_power_w, cluster.host.energy_j_per_bit,
    cluster.levels.leaf.reach, cluster.levels.leaf.oversubscription, cluster.levels.leaf.latency_s,
    cluster.levels.leaf.port_bytes_per_s, cluster.levels.leaf.port_idle_w, cluster.levels.leaf.energy_j_per_bit,
    cluster.levels.spine.reach, cluster.levels.spine.oversubscription, cluster.levels.spine.latency_s,
    cluster.levels.spine.port_bytes_per_s, cluster.levels.spine.port_idle_w, cluster.levels.spine.energy_j_per_bit,
    cluster.levels.core.reach, cluster.levels.core.oversubscription, cluster.levels.core.latency_s,
    cluster.levels.core.port_bytes_per_s, cluster.levels.core.port_idle_w, cluster.levels.core.energy_j_per_bit,
    cluster.launch_s, cluster.layer_launch_s, cluster.exchange_s,
    cluster.codec.encode_values_per_s, cluster.codec.decode_values_per_s, cluster.codec.latency_s,
    cluster.codec.chunk_values, cluster.codec.encode_j_per_value, cluster.codec.decode_j_per_value,
    cluster.codec.idle_power_w, cluster.codec.area_mm2,
    cluster.codecs_per_gpu,
    job.phase, job.tuning, job.sequence, job.global_batch, job.microbatch, job.recompute, job.attention, job.kv_spill, job.kv_transfer, job.expert_imbalance,
    job.parallelism.tensor, job.parallelism.sequence_parallel, job.parallelism.pipeline,
    job.parallelism.schedule, job.parallelism.split, job.parallelism.data, job.parallelism.zero, job.parallelism.expert, job.parallelism.expert_tensor,
    job.parallelism.context,
    job.precision.math, job.precision.attention, job.precision.vocabulary, job.precision.weight_bits, job.precision.activation_bits,
    job.precision.gradient_bits, job.precision.gradient_reduce_bits, job.precision.kv_bits,
    job.precision.optimizer_bytes_per_parameter,
    job.overlap.tensor, job.overlap.pipeline, job.overlap.data, job.overlap.gather, job.overlap.expert, job.overlap.context,
    job.overlap.storage,
    job.compression.weight_bits, job.compression.weight_gradient_bits, job.compression.activation_bits,
    job.compression.activation_gradient_bits, job.compression.kv_bits, job.compression.reduction,
    job.compression.scope, job.compression.policy,
    gpus_as_used, replica_batch, microbatch_follows,
    search.on, search.recompute_alone, search.tensor, search.sequence_parallel, search.pipeline, search.interleave, search.data, search.zero,
    search.expert, search.expert_tensor, search.context, search.microbatch, search.recompute;
    die:
    process, sms, spare_sms, sm.fp32_lanes, sm.fp64_lanes, sm.matrix_fma, sm.register_kib, sm.shared_kib, sm.graphics,
    matrix_flop_per_clock.fp32, matrix_flop_per_clock.fp16, matrix_flop_per_clock.fp8, special_per_clock,
    sms_sharing_loads, clock_hz, matrix_clock_hz, nominal_hz, l2_mib, spare_l2_mib, l2_bytes_per_clock,
    memory, memory_units, spare_memory_units, memory_bits_per_s_per_pin, memory_bytes_per_unit,
    link, links, link_bytes_per_s, pcie_lanes, engines, dies, wafer.usd, wafer.defects_per_cm2, power_limit_w,
}

/// One store into a point.
// What is replaced whole lies elsewhere: an axis has a change for each of its values, and most are numbers.
#[derive(Clone, Debug)]
pub enum Change {
    Slot { set: fn(&mut Point, f64), value: f64 },
    // A curve or a shape is no single number: these are replaced whole.
    Gpu(Box<Gpu>),
    Llm(Box<Llm>),
    Codec(Box<Codec>),
}

impl Change {
    pub fn apply(&self, point: &mut Point) {
        match self {
            Self::Slot { set, value } => set(point, *value),
            Self::Gpu(gpu) => point.cluster.gpu = **gpu,
            Self::Llm(llm) => point.job.llm = **llm,
            Self::Codec(codec) => point.cluster.codec = **codec,
        }
    }
}

/// A point as what it differs in from another.
#[derive(Clone, Debug)]
pub struct Difference {
    llm: Option<Box<Llm>>,
    gpu: Option<Box<Gpu>>,
    codec: Option<Box<Codec>>,
    /// Slots that differ after the above, by their place.
    slots: Vec<(u16, f64)>,
}

impl Difference {
    /// What `point` differs in from `base`.
    pub fn of(point: &Point, base: &Point) -> Self {
        let mut own = Self { llm: None, gpu: None, codec: None, slots: Vec::new() };
        own.llm = (point.job.llm != base.job.llm).then(|| Box::new(point.job.llm));
        let other_gpu = !same_but_numbers(&point.cluster.gpu, &base.cluster.gpu);
        own.gpu = other_gpu.then(|| Box::new(point.cluster.gpu));
        let differs = |slots: [f64; SLOTS]| {
            let wanted = read(point);
            let places = (0..SLOTS).filter(move |&slot| wanted[slot].to_bits() != slots[slot].to_bits());
            places.map(|slot| (slot as u16, wanted[slot])).collect()
        };
        own.slots = differs(read(&own.point(base)));
        if own.point(base).cluster.codec != point.cluster.codec {
            own.codec = Some(Box::new(point.cluster.codec));
            own.slots = differs(read(&Self { slots: Vec::new(), ..own.clone() }.point(base)));
        }
        own
    }

    fn point(&self, base: &Point) -> Point {
        let mut point = *base;
        if let Some(llm) = &self.llm {
            point.job.llm = **llm;
        }
        if let Some(gpu) = &self.gpu {
            point.cluster.gpu = **gpu;
        }
        if let Some(codec) = &self.codec {
            point.cluster.codec = **codec;
        }
        let setters = setters();
        for &(slot, value) in &self.slots {
            setters[usize::from(slot)](&mut point, value);
        }
        point
    }
}

/// For each of the points, the changes that lead to it from `base`. All lists
/// write the same places, so that one can follow another on the same point.
pub fn changes(base: &Point, points: &[Difference]) -> Vec<Vec<Change>> {
    let other_llm = points.iter().any(|point| point.llm.is_some());
    let other_gpu = points.iter().any(|point| point.gpu.is_some());
    let whole = |point: &Point| -> Vec<Change> {
        let llm = other_llm.then(|| Change::Llm(Box::new(point.job.llm)));
        let gpu = other_gpu.then(|| Change::Gpu(Box::new(point.cluster.gpu)));
        llm.into_iter().chain(gpu).collect()
    };
    let mut moved = [false; SLOTS];
    for point in points.iter().map(|point| point.point(base)) {
        let (wanted, reached) = (read(&point), read(&after(base, &whole(&point))));
        for (moved, (want, have)) in moved.iter_mut().zip(wanted.iter().zip(&reached)) {
            *moved |= want.to_bits() != have.to_bits();
        }
    }
    let setters = setters();
    let numbers = |point: &Point| -> Vec<Change> {
        let wanted = read(point);
        let slots = (0..SLOTS).filter(|&slot| moved[slot]);
        slots.map(|slot| Change::Slot { set: setters[slot], value: wanted[slot] }).collect()
    };
    let list = |point: &Point| [whole(point), numbers(point)].concat();
    let other_codec = points.iter().any(|point| {
        let point = point.point(base);
        after(base, &list(&point)).cluster.codec != point.cluster.codec
    });
    let lists = points.iter().map(|point| {
        let point = point.point(base);
        let codec = other_codec.then(|| Change::Codec(Box::new(point.cluster.codec)));
        let mut list = list(&point);
        list.extend(codec);
        // Lists are many, and stay.
        list.shrink_to_fit();
        list
    });
    lists.collect()
}

/// Whether two GPUs differ in nothing but what a slot can hold.
fn same_but_numbers(gpu: &Gpu, other: &Gpu) -> bool {
    Gpu {
        peak_flops: other.peak_flops,
        memory_bytes: other.memory_bytes,
        reserved_bytes: other.reserved_bytes,
        memory_bytes_per_s: other.memory_bytes_per_s,
        area_mm2: other.area_mm2,
        power_w: other.power_w,
        idle_power_w: other.idle_power_w,
        die: match (gpu.die, other.die) {
            (Some(die), Some(other)) => Some(with_numbers_of(die, &other)),
            (die, _) => die,
        },
        ..*gpu
    } == *other
}

fn after(base: &Point, changes: &[Change]) -> Point {
    let mut point = *base;
    for change in changes {
        change.apply(&mut point);
    }
    point
}
