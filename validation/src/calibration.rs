//! The constants that measurements decide: one set for each GPU type, three
//! more for each cluster, never one for a row.
//!
//! They live in `configs/calibrations/*.toml`, each with the rows it was
//! fitted on. This module reads them, hands them to the simulator as a
//! [`Cluster`], and gives the fit a name for each.

use crate::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trinity_config::{Checked, Complaint, Diagnostic, Document, Kind};
use trinity_sim::collective::{Algorithm, Topology};
use trinity_sim::{Cluster, Codec, Curve, Gpu, Nic, PeakFlops, Software, Tier};

/// What `trinity config` knows about calibrations.
pub const KIND: Kind = Kind::of::<Calibration>("calibrations", "fitted constants of a GPU type");

/// Built-in calibrations.
const BUILT_IN: [&str; 2] = ["a100", "h100"];

macro_rules! constants {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $low:literal ..= $high:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct $name {
            $($(#[$field_doc])* #[schemars(with = "trinity_config::Cited<f64>")] pub $field: f64,)*
        }

        impl $name {
            /// Names and the range each may lie in.
            pub const RANGES: &'static [(&'static str, f64, f64)] =
                &[$((stringify!($field), $low, $high),)*];

            /// The constant called `name`.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

constants! {
    /// One GPU type. The first four are from datasheets, the rest are fitted.
    GpuConstants {
        peak_fp16_tflops: 1.0 ..= 1e5,
        memory_gb: 1.0 ..= 1e4,
        memory_gb_per_s: 10.0 ..= 1e5,
        nvlink_gb_per_s: 1.0 ..= 1e4,
        /// Fraction of peak a large GEMM reaches.
        gemm_efficiency: 0.3 ..= 0.95,
        /// What each GEMM takes beyond that.
        gemm_overhead_us: 0.0 ..= 200.0,
        /// Fraction of peak the products of attention reach at 128-wide heads.
        attention_efficiency: 0.05 ..= 0.9,
        misaligned_attention: 1.0 ..= 30.0,
        /// Fraction of memory bandwidth streaming kernels reach.
        memory_efficiency: 0.3 ..= 1.0,
        hidden_passes: 1.0 ..= 60.0,
        mlp_passes: 1.0 ..= 40.0,
        score_passes: 1.0 ..= 30.0,
        /// Fraction of NVLink a large all-reduce reaches.
        nvlink_efficiency: 0.1 ..= 1.0,
        nvlink_latency_us: 0.0 ..= 60.0,
        nvlink_launch_us: 0.0 ..= 200.0,
        /// Latency of one hop between nodes.
        hop_us: 0.0 ..= 200.0,
        /// Fraction of the link that ZeRO-3 gathers reach.
        gather_efficiency: 0.01 ..= 1.0,
        peer_launch: 0.0 ..= 0.5,
        pipelined_launch: 1.0 ..= 5.0,
        pipelined_peer_launch: 0.0 ..= 3.0,
        /// Values kept for the backward pass, over those of the formula.
        saved_hidden: 0.2 ..= 5.0,
        saved_mlp: 0.2 ..= 5.0,
        logit_bytes: 2.0 ..= 30.0,
        reserved_gb: 0.0 ..= 20.0,
        /// Fraction of memory a job can fill before it fails.
        usable_memory: 0.5 ..= 1.0,
        /// How fast the share of stalled exchanges grows with nodes.
        stall_exponent: 0.0 ..= 12.0,
    }
}

constants! {
    /// One cluster: what the fabric and the host bring.
    ClusterConstants {
        /// Bandwidth each GPU gets from the network.
        fabric_gb_per_s: 0.5 ..= 100.0,
        /// What a micro-batch loses to each exchange, beside the wire.
        latency_us: 0.0 ..= 1e6,
        /// Floor of one layer's forward and backward pass.
        launch_us: 0.0 ..= 10000.0,
    }
}

/// One file of `configs/calibrations`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Calibration {
    pub gpu: GpuConstants,
    pub clusters: BTreeMap<String, ClusterConstants>,
}

impl Checked for Calibration {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let mut gpu = self.gpu;
        for &(name, low, high) in GpuConstants::RANGES {
            in_range(document, "gpu", name, gpu.get_mut(name), low, high)?;
        }
        for (cluster, constants) in &self.clusters {
            let mut constants = *constants;
            for &(name, low, high) in ClusterConstants::RANGES {
                let table = format!("clusters.{cluster}");
                in_range(document, &table, name, constants.get_mut(name), low, high)?;
            }
        }
        Ok(())
    }
}

fn in_range(
    document: &Document,
    table: &str,
    name: &str,
    value: Option<&mut f64>,
    low: f64,
    high: f64,
) -> Result<(), Diagnostic> {
    match value {
        Some(value) if *value >= low && *value <= high => Ok(()),
        _ => {
            let path = format!("{table}.{}", name.replace('_', "-"));
            let complaint =
                Complaint::new("the constant is out of its range").expected(format!("{low} to {high}"));
            Err(document.complain(&path, &complaint))
        }
    }
}

/// All calibrations, by GPU type.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrations {
    by_gpu: BTreeMap<String, Calibration>,
}

impl Calibrations {
    /// The built-in ones, changed by `assignments` such as
    /// `a100.gpu.gemm-efficiency=0.7`.
    ///
    /// # Errors
    ///
    /// When an assignment names no calibration or does not fit.
    pub fn load(assignments: &[String]) -> Result<Self, Error> {
        let mut by_gpu = BTreeMap::new();
        for name in BUILT_IN {
            let mut document = Document::load(&format!("calibrations/{name}"))?;
            for assignment in assignments {
                if let Some(rest) = assignment.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) {
                    document.set(rest)?;
                }
            }
            KIND.check(&document)?;
            by_gpu.insert(name.to_owned(), document.read()?);
        }
        let stray = assignments
            .iter()
            .find(|assignment| !BUILT_IN.iter().any(|name| assignment.starts_with(&format!("{name}."))));
        match stray {
            Some(assignment) => Err(Error::Assignment { assignment: assignment.clone() }),
            None => Ok(Self { by_gpu }),
        }
    }

    /// The calibration of a GPU type.
    pub fn of(&self, gpu: &str) -> Option<&Calibration> {
        self.by_gpu.get(gpu)
    }

    /// The constant at a path such as `a100.gpu.gemm_efficiency` or
    /// `a100.clusters.selene.launch_us`.
    pub fn get_mut(&mut self, path: &str) -> Option<&mut f64> {
        let mut parts = path.split('.');
        let calibration = self.by_gpu.get_mut(parts.next()?)?;
        match (parts.next()?, parts.next()?, parts.next()) {
            ("gpu", name, None) => calibration.gpu.get_mut(name),
            ("clusters", cluster, Some(name)) => calibration.clusters.get_mut(cluster)?.get_mut(name),
            _ => None,
        }
    }

    /// The constant at `path`, read.
    pub fn get(&self, path: &str) -> Option<f64> {
        // The table of names is written once, for writing; reading copies.
        self.clone().get_mut(path).copied()
    }

    /// The range of the constant at `path`.
    pub fn range(path: &str) -> Option<(f64, f64)> {
        let name = path.rsplit('.').next()?;
        GpuConstants::RANGES
            .iter()
            .chain(ClusterConstants::RANGES)
            .find(|(known, _, _)| *known == name)
            .map(|&(_, low, high)| (low, high))
    }
}

impl Calibration {
    /// A machine of `gpus` with the constants of `cluster`.
    pub fn machine(&self, cluster: &ClusterConstants, gpus: u32, gpus_per_node: u32) -> Cluster {
        let g = &self.gpu;
        let tier = Tier {
            bytes_per_s: g.nvlink_gb_per_s * 1e9,
            latency_s: g.nvlink_latency_us * 1e-6,
            launch_s: g.nvlink_launch_us * 1e-6,
            efficiency: g.nvlink_efficiency,
            topology: Topology::Switch,
            all_reduce: Algorithm::Nccl,
            energy_j_per_bit: 0.0,
        };
        Cluster {
            gpu: g.gpu(),
            gpus,
            gpus_per_node,
            intra: tier,
            nic: Nic {
                bytes_per_s: cluster.fabric_gb_per_s * 1e9,
                latency_s: g.hop_us * 1e-6,
                area_mm2: 0.0,
                idle_power_w: 0.0,
                energy_j_per_bit: 0.0,
            },
            nics_per_gpu: 1.0,
            inter_efficiency: 1.0,
            inter_latency_s: 0.0,
            inter_topology: Topology::Switch,
            inter_all_reduce: Algorithm::Nccl,
            host: tier,
            launch_s: 0.0,
            layer_launch_s: cluster.launch_us * 1e-6,
            exchange_s: cluster.latency_us * 1e-6,
            codec: Codec::FREE,
            codecs_per_gpu: 0.0,
        }
    }
}

impl GpuConstants {
    fn gpu(&self) -> Gpu {
        let fp16 = self.peak_fp16_tflops * 1e12;
        Gpu {
            die: None,
            peak_flops: PeakFlops { fp32: fp16 / 2.0, fp16, fp8: fp16 * 2.0, vector: fp16 / 16.0 },
            memory_bytes: self.memory_gb * 1e9,
            reserved_bytes: self.reserved_gb * 1e9,
            memory_bytes_per_s: self.memory_gb_per_s * 1e9,
            gemm_efficiency: Curve::constant(self.gemm_efficiency),
            attention_efficiency: Curve::constant(self.attention_efficiency),
            memory_efficiency: Curve::constant(self.memory_efficiency),
            software: self.software(),
            area_mm2: 0.0,
            power_w: 0.0,
            idle_power_w: 0.0,
        }
    }

    /// What kernels and framework make of this GPU.
    pub fn software(&self) -> Software {
        Software {
            gemm_overhead_s: self.gemm_overhead_us * 1e-6,
            hidden_passes: self.hidden_passes,
            mlp_passes: self.mlp_passes,
            score_passes: self.score_passes,
            misaligned_attention: self.misaligned_attention,
            saved_hidden: self.saved_hidden,
            saved_mlp: self.saved_mlp,
            logit_bytes: self.logit_bytes,
            gather_efficiency: self.gather_efficiency,
            peer_launch: self.peer_launch,
            pipelined_launch: self.pipelined_launch,
            pipelined_peer_launch: self.pipelined_peer_launch,
            stall_exponent: self.stall_exponent,
        }
    }
}
