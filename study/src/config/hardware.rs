//! GPUs, NICs and clusters in files.

use super::codec::CodecFile;
use super::curves;
use super::framework::FrameworkFile;
use super::names::{AlgorithmName, TopologyName, names};
use super::network::{Draw, NetworkFile, NicFile};
use super::parts::{GpuModelName, PartsFile};
use super::setter::settable;
use super::software::{BUILT_IN, Calibration, Calibrations, Host};
use super::sustained::SustainedFile;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{
    Area, At, Checked, Complaint, DataRate, DataSize, Diagnostic, Duration, EnergyPerBit, FlopRate, Fraction,
    Power, Ratio,
};
use trinity_sim::die::Die;
use trinity_sim::{Cluster, Codec, Curve, Gpu, MeasuredKernels, PeakFlops, Software, Tier};

settable! {
    GpuFile { model, parts, calibration, kernels, sustained, fp32, fp16, fp8, fp4, vector, memory, memory_bandwidth, reserved, area, power, idle_power, gemm_efficiency, attention_efficiency, memory_efficiency, efficiency_factor }
    TierFile { bandwidth, latency, efficiency, topology, all_reduce, idle_power, active_power, energy }
    ClusterFile { gpu, site, cpu, gpus, gpus_per_node, intra, nic, nics_per_gpu, network, host, launch, codec, codecs_per_gpu }
}

names! {
    /// The CPU that launches kernels.
    CpuName { X86, Grace }
}

/// The name that stands for no calibration.
const UNCALIBRATED: &str = "none";

/// A GPU, by its totals or by its parts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuFile {
    /// Whether totals or parts decide; totals where a file states any.
    pub model: Option<GpuModelName>,
    /// What it is made of; decides where `model` is `parts`.
    pub parts: Option<PartsFile>,
    /// The calibration (`configs/calibrations`) that training jobs take; kernels by
    /// the curves below where there is none, or `none`.
    pub calibration: Option<String>,
    /// Curves of its measured kernels (`configs/calibrations/kernels`).
    pub kernels: Option<String>,
    /// What measured kernels reach, which a calibration may be relative to.
    pub sustained: Option<SustainedFile>,
    /// Dense rate of the matrix units in FP32 or TF32.
    pub fp32: Option<FlopRate>,
    /// Dense rate in FP16 or BF16 with FP32 accumulation.
    pub fp16: Option<FlopRate>,
    /// Dense rate in FP8, where the matrix units have it.
    pub fp8: Option<FlopRate>,
    /// Dense rate in FP4, where the matrix units have it.
    pub fp4: Option<FlopRate>,
    /// FP32 rate of the vector units.
    pub vector: Option<FlopRate>,
    pub memory: Option<DataSize>,
    pub memory_bandwidth: Option<DataRate>,
    /// What driver, runtime and fragmentation keep.
    pub reserved: DataSize,
    /// Die area, at the node that comparisons are made at.
    pub area: Option<Area>,
    pub power: Power,
    pub idle_power: Option<Power>,
    /// Fraction of peak over the FLOPs of one matrix product: pairs, rising.
    #[serde(default)]
    pub gemm_efficiency: Vec<(f64, f64)>,
    /// Fraction of peak over the FLOPs of one attention kernel.
    #[serde(default)]
    pub attention_efficiency: Vec<(f64, f64)>,
    /// Fraction of memory bandwidth over the bytes of one kernel.
    #[serde(default)]
    pub memory_efficiency: Vec<(f64, f64)>,
    /// All efficiencies times this: the knob for how far software is from the curves.
    #[serde(default = "one")]
    pub efficiency_factor: Ratio,
}

fn one() -> Ratio {
    Ratio::new(1.0)
}

impl GpuFile {
    /// Whether the parts decide.
    pub fn by_parts(&self) -> bool {
        match self.model {
            Some(model) => model == GpuModelName::Parts,
            None => self.fp16.is_none() && self.parts.is_some(),
        }
    }

    /// The die that the parts make, if the file lists any it knows.
    pub fn die(&self) -> Option<Die> {
        self.parts.as_ref().and_then(|parts| parts.resolve(self.power.w()).ok())
    }

    pub fn resolve(&self) -> Gpu {
        let curve = |points: &[(f64, f64)]| {
            Curve::through(points).unwrap_or(Curve::constant(0.5)).scaled(self.efficiency_factor.get())
        };
        let rate = |rate: Option<FlopRate>| rate.map_or(0.0, |rate| rate.flop_per_s());
        let die = if self.by_parts() { self.die() } else { None };
        let mut gpu = Gpu {
            die,
            software: Software::PLAIN,
            kernels: None,
            peak_flops: PeakFlops {
                fp32: rate(self.fp32),
                fp16: rate(self.fp16),
                fp8: rate(self.fp8),
                fp4: rate(self.fp4),
                vector: rate(self.vector),
            },
            memory_bytes: self.memory.map_or(0.0, |memory| memory.bytes()),
            reserved_bytes: self.reserved.bytes(),
            memory_bytes_per_s: self.memory_bandwidth.map_or(0.0, |rate| rate.byte_per_s()),
            gemm_efficiency: curve(&self.gemm_efficiency),
            attention_efficiency: curve(&self.attention_efficiency),
            memory_efficiency: curve(&self.memory_efficiency),
            area_mm2: self.area.map_or(0.0, |area| area.mm2()),
            power_w: self.power.w(),
            idle_power_w: self.idle_power.map_or(0.0, |power| power.w()),
        };
        if let Some(die) = die {
            gpu.total(&die);
        }
        gpu
    }

    /// Complains about curves that are none, parts that no die can be made of,
    /// and totals that are missing. Whether totals
    /// follow from the parts is `trinity validate`'s question: a study may well
    /// state another memory or another rate.
    pub(super) fn check_totals(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if let Some(name) = self.calibration.as_deref().filter(|name| *name != UNCALIBRATED) {
            Calibrations::check(name, at, &format!("{}, none", BUILT_IN.join(", ")))?;
        }
        if let Some(name) = self.kernels.as_deref().filter(|name| !curves::GPUS.contains(name)) {
            let what = format_args!("no kernels of `{name}` were measured");
            return at.refuse("kernels", what, format_args!("one of {}", curves::GPUS.join(", ")));
        }
        let power_w = self.power.w();
        let parts = self.parts.as_ref().map(|parts| parts.check_at(&at.table("parts"), power_w));
        let die = parts.transpose()?;
        if self.by_parts() {
            return match die {
                Some(_) => at.positive(&[("power", power_w)]),
                None => at.refuse("model", "a GPU by its parts, but there is no `parts`", "a table `parts`"),
            };
        }
        let curves = [
            ("gemm-efficiency", &self.gemm_efficiency),
            ("attention-efficiency", &self.attention_efficiency),
            ("memory-efficiency", &self.memory_efficiency),
        ];
        let unsound = |points: &[(f64, f64)]| {
            !points.iter().all(|&(_, y)| y > 0.0 && y <= 1.0) || Curve::through(points).is_none()
        };
        let curve = "one to eight pairs [x, fraction], x positive and rising, fraction from 0 to 1";
        let curves = curves.into_iter().filter(|(_, points)| unsound(points));
        Diagnostic::gather(
            curves.map(|(key, _)| at.refuse(key, format_args!("`{key}` is no efficiency curve"), curve)),
        )?;
        let totals = self.totals();
        if let Some((key, _)) = totals.iter().find(|(_, value)| value.is_none()) {
            return Err(at.complain(
                "",
                &Complaint::new(format_args!("`{key}` is missing"))
                    .expected("every total, or `parts` alone")
                    .help("a GPU by its parts says `model = \"parts\"` where it states totals as well"),
            ));
        }
        let positive: Vec<(&str, f64)> = totals
            .iter()
            .filter(|(key, _)| matches!(*key, "fp16" | "memory" | "memory-bandwidth" | "area"))
            .map(|(key, value)| (*key, value.unwrap_or(0.0)))
            .collect();
        at.positive(&positive)
    }

    /// What a GPU by its totals has to state.
    fn totals(&self) -> [(&'static str, Option<f64>); 7] {
        [
            ("fp32", self.fp32.map(|rate| rate.flop_per_s())),
            ("fp16", self.fp16.map(|rate| rate.flop_per_s())),
            ("vector", self.vector.map(|rate| rate.flop_per_s())),
            ("memory", self.memory.map(|memory| memory.bytes())),
            ("memory-bandwidth", self.memory_bandwidth.map(|rate| rate.byte_per_s())),
            ("area", self.area.map(|area| area.mm2())),
            ("idle-power", self.idle_power.map(|power| power.w())),
        ]
    }

    /// Complains about a die that cannot be made, where its parts decide: a GPU
    /// by its totals was made, whatever the area model says of it. Not asked of
    /// a sweep's points, which are turned away one by one.
    fn check_buildable(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        match (&self.parts, self.die()) {
            (Some(parts), Some(die)) if self.by_parts() => parts.check_buildable(at, &die),
            _ => Ok(()),
        }
    }
}

impl Checked for GpuFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        self.check_totals(at)?;
        self.check_buildable(at)
    }
}

/// NVLink, PCIe, or the way to host memory.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TierFile {
    /// Each GPU's bandwidth, one direction.
    pub bandwidth: DataRate,
    pub latency: Duration,
    pub efficiency: Fraction,
    pub topology: TopologyName,
    pub all_reduce: AlgorithmName,
    /// What its switches draw for each GPU without traffic; nothing where it is not said.
    pub idle_power: Option<Power>,
    /// And at the full rate.
    pub active_power: Option<Power>,
    /// Of each bit beyond the idle power; follows from `active-power` where it is not said.
    pub energy: Option<EnergyPerBit>,
}

impl TierFile {
    fn draw(&self) -> Draw {
        Draw {
            idle_w: self.idle_power.map_or(0.0, |power| power.w()),
            active_w: self.active_power.map(|power| power.w()),
            energy_j_per_bit: self.energy.map(|energy| energy.j_per_bit()),
        }
    }

    pub fn resolve(&self) -> Tier {
        Tier {
            launch_s: 0.0,
            bytes_per_s: self.bandwidth.byte_per_s(),
            latency_s: self.latency.s(),
            efficiency: self.efficiency.get(),
            topology: self.topology.resolve(),
            all_reduce: self.all_reduce.resolve(),
            idle_power_w: self.draw().idle_w,
            energy_j_per_bit: self.draw().energy_j_per_bit(self.bandwidth.bit_per_s()),
        }
    }
}

/// A cluster.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClusterFile {
    pub gpu: GpuFile,
    /// The site of the GPU's calibration whose fabric, hosts and release these are.
    pub site: Option<String>,
    /// The CPU that launches kernels; an x86 where it is not said.
    pub cpu: Option<CpuName>,
    /// As many as the job uses, where it is not said.
    pub gpus: Option<u32>,
    pub gpus_per_node: u32,
    pub intra: TierFile,
    pub nic: NicFile,
    /// May be a fraction: eight GPUs that share four NICs have 0.5 each.
    pub nics_per_gpu: Ratio,
    pub network: NetworkFile,
    pub host: TierFile,
    /// Time no kernel can go below.
    pub launch: Duration,
    pub codec: Option<CodecFile>,
    /// Codecs side by side on each GPU.
    #[serde(default = "one")]
    pub codecs_per_gpu: Ratio,
}

impl ClusterFile {
    /// The model's view; `used` GPUs where the file names no number.
    pub fn resolve(&self, used: u32) -> Cluster {
        let mut cluster = Cluster {
            layer_launch_s: 0.0,
            exchange_s: 0.0,
            gpu: self.gpu.resolve(),
            gpus: self.gpus.unwrap_or(used),
            gpus_per_node: self.gpus_per_node,
            intra: self.intra.resolve(),
            nic: self.nic.resolve(),
            nics_per_gpu: self.nics_per_gpu.get(),
            inter_efficiency: self.network.efficiency.get(),
            inter_latency_s: self.network.latency.s(),
            inter_topology: self.network.topology.resolve(),
            inter_all_reduce: self.network.all_reduce.resolve(),
            levels: self.network.levels(),
            host: self.host.resolve(),
            launch_s: self.launch.s(),
            codec: self.codec.as_ref().map_or(Codec::FREE, CodecFile::resolve),
            codecs_per_gpu: if self.codec.is_some() { self.codecs_per_gpu.get() } else { 0.0 },
        };
        cluster.settle();
        cluster
    }

    /// Name of the calibration that training on this cluster takes, by the
    /// `framework`'s where that has one. A GPU by its parts times kernels by them
    /// instead, and one without a calibration has none under any framework.
    pub fn calibration<'a>(&'a self, framework: Option<&'a FrameworkFile>) -> Option<&'a str> {
        let own = self.gpu.calibration.as_deref().filter(|_| !self.gpu.by_parts())?;
        if own == UNCALIBRATED {
            return None;
        }
        Some(framework.and_then(|framework| framework.calibration.as_deref()).unwrap_or(own))
    }

    /// Complains about a site that the calibration does not have.
    pub(super) fn check_site(
        &self,
        at: &At<'_>,
        framework: Option<&FrameworkFile>,
    ) -> Result<(), Diagnostic> {
        let calibration = self.calibration(framework).and_then(|name| Calibrations::built_in().of(name));
        let (Some(site), Some(calibration)) = (&self.site, calibration) else { return Ok(()) };
        if calibration.clusters.contains_key(site) {
            return Ok(());
        }
        let known: Vec<&str> = calibration.clusters.keys().map(String::as_str).collect();
        let what = format_args!("the GPU's calibration has no site `{site}`");
        at.refuse("site", what, format_args!("one of {}", known.join(", ")))
    }

    /// Lays a calibration over the model's view.
    pub(super) fn calibrate(&self, calibration: &Calibration, cluster: &mut Cluster, wide: bool) {
        let host = Host {
            sustained: self.gpu.sustained.as_ref(),
            efficiency_factor: self.gpu.efficiency_factor.get(),
            grace: self.cpu == Some(CpuName::Grace),
            wide,
        };
        calibration.apply(cluster, self.site.as_deref(), &host);
        if calibration.gpu.measured_kernels > 0.5 {
            // A name that is none was complained about when the file was checked.
            let curves = self.gpu.kernels.as_deref().and_then(|name| curves::of(name).ok().flatten());
            cluster.gpu.kernels = curves.map(MeasuredKernels);
        }
    }

    /// Complains about what no field shows alone.
    pub(super) fn check_members(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let codec = self.codec.as_ref().map(|codec| codec.check_at(&at.table("codec")));
        let positive = at.positive(&[
            ("gpus", f64::from(self.gpus.unwrap_or(1))),
            ("gpus-per-node", f64::from(self.gpus_per_node)),
            ("intra.bandwidth", self.intra.bandwidth.bit_per_s()),
            ("intra.efficiency", self.intra.efficiency.get()),
            ("nic.bandwidth", self.nic.bandwidth.bit_per_s()),
            ("network.efficiency", self.network.efficiency.get()),
            ("host.bandwidth", self.host.bandwidth.bit_per_s()),
        ]);
        let several_nodes = self.gpus.is_some_and(|gpus| gpus > self.gpus_per_node);
        let unwired = (self.nics_per_gpu.get() == 0.0 && several_nodes).then(|| {
            Err(at.complain(
                "nics-per-gpu",
                &Complaint::new("several nodes, but the GPUs have no NIC")
                    .expected("a positive number")
                    .help("set `nics-per-gpu`, or put all GPUs in one node"),
            ))
        });
        let gpu = self.gpu.check_totals(&at.table("gpu"));
        let wires = [
            self.nic.draw().check_at(&at.table("nic")),
            self.intra.draw().check_at(&at.table("intra")),
            self.host.draw().check_at(&at.table("host")),
            self.network.check_at(&at.table("network"), self.gpus_per_node),
        ];
        Diagnostic::gather([gpu, positive].into_iter().chain(codec).chain(unwired).chain(wires))
    }
}

impl Checked for ClusterFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        self.check_site(at, None)?;
        self.check_members(at)?;
        self.gpu.check_buildable(&at.table("gpu"))
    }
}
