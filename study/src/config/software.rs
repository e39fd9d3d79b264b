//! What software makes of hardware: the constants that measured runs decide, one
//! set for each framework and kind of GPU, three more for each site, never one
//! for a row.
//!
//! They live in `configs/calibrations/*.toml`, each with the rows it was fitted
//! on. A GPU's file names the one that its training jobs take; a cluster's may
//! name a site. This module reads them and lays them over a [`Cluster`]; it
//! knows neither rows nor how constants are fitted.

use super::sustained::SustainedFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use trinity_config::{At, Checked, Diagnostic, Document, Kind};
use trinity_sim::collective::Algorithm;
use trinity_sim::{ByFormat, Cluster, Curve, Overlap, Software};

/// What `trinity config` knows about calibrations.
pub const KIND: Kind = Kind::of::<Calibration>("calibrations", "fitted constants of a framework");

/// Built-in calibrations.
pub const BUILT_IN: [&str; 3] = ["a100", "megatron", "nanotron"];

/// The site whose constants a cluster takes that names none.
const DEFAULT_SITE: &str = "default";

macro_rules! constants {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $low:literal ..= $high:literal = $plain:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: f64,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $plain,)* }
            }
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
    /// What a framework's kernels reach on a kind of GPU. What a file does not
    /// state has no effect.
    GpuConstants {
        /// Fraction of peak a large GEMM reaches.
        gemm_efficiency: 0.3 ..= 1.0 = 1.0,
        /// Fraction of the fastest measured kernel (`sustained` of the GPU) that
        /// products in a format reach.
        fp16_efficiency: 0.2 ..= 1.0 = 1.0,
        fp8_efficiency: 0.2 ..= 1.0 = 1.0,
        fp4_efficiency: 0.2 ..= 1.0 = 1.0,
        /// 1 where products take what the GPU's measured kernels take, over the
        /// fractions above; 0 where they follow the law of this file.
        measured_kernels: 0.0 ..= 1.0 = 0.0,
        /// Speed over board power a unit of peak rate: the exponent.
        power_exponent: 0.0 ..= 1.0 = 0.0,
        /// Rows, columns and depth lost at the edges of tiles.
        tile: 0.0 ..= 4000.0 = 0.0,
        /// Bytes moved for each value that is brought into the format.
        fp8_cast_bytes: 0.0 ..= 60.0 = 0.0,
        fp4_cast_bytes: 0.0 ..= 60.0 = 0.0,
        /// What each GEMM takes beyond that.
        gemm_overhead_us: 0.0 ..= 200.0 = 0.0,
        /// Fraction of peak, or of the fastest measured kernel, that attention
        /// reaches at 128-wide heads.
        attention_efficiency: 0.05 ..= 1.5 = 0.5,
        /// Backward over forward time of fused attention.
        attention_backward: 1.5 ..= 6.0 = 2.5,
        head_exponent: 0.0 ..= 2.0 = 0.0,
        misaligned_attention: 1.0 ..= 30.0 = 1.0,
        /// Fraction of memory bandwidth streaming kernels reach.
        memory_efficiency: 0.3 ..= 1.0 = 0.8,
        hidden_passes: 1.0 ..= 60.0 = 10.0,
        mlp_passes: 0.0 ..= 40.0 = 3.0,
        score_passes: 1.0 ..= 30.0 = 8.0,
        loss_bytes: 1.0 ..= 100.0 = 12.0,
        loss_share: 0.0 ..= 1.0 = 1.0,
        /// Fraction of a product's rate that grouped products of experts reach.
        expert_efficiency: 0.2 ..= 1.0 = 1.0,
        /// The same where they are in FP16: kernels that nobody tuned for experts.
        expert_fp16_efficiency: 0.1 ..= 1.0 = 1.0,
        /// Copies of a routed token that each product of an expert layer moves in
        /// FP16; narrow formats are the release's.
        routed_fp16_passes: 0.0 ..= 60.0 = 4.0,
        /// Copies of the experts' width beside each copy of a token.
        routed_ffn_share: 0.0 ..= 4.0 = 0.0,
        scan_passes: 0.0 ..= 400.0 = 8.0,
        /// How much longer than a Grace host another takes to launch an expert layer.
        x86_launch: 1.0 ..= 6.0 = 1.0,
        step_ms: 0.0 ..= 200.0 = 0.0,
        /// 1 where a token crosses the network once for each node it goes to.
        sends_once_per_node: 0.0 ..= 1.0 = 0.0,
        /// Share of each transfer that runs beside compute, where a job says nothing.
        tensor_overlap: 0.0 ..= 1.0 = 0.0,
        context_overlap: 0.0 ..= 1.0 = 0.0,
        expert_overlap: 0.0 ..= 1.0 = 0.0,
        pipeline_overlap: 0.0 ..= 1.0 = 0.0,
        data_overlap: 0.0 ..= 1.0 = 0.0,
        /// Fraction of NVLink a large all-reduce reaches.
        nvlink_efficiency: 0.1 ..= 1.0 = 0.8,
        nvlink_latency_us: 0.0 ..= 60.0 = 1.0,
        nvlink_launch_us: 0.0 ..= 200.0 = 10.0,
        /// Latency of one hop between nodes.
        hop_us: 0.0 ..= 200.0 = 5.0,
        /// Fraction of the link that ZeRO-3 gathers reach.
        gather_efficiency: 0.01 ..= 1.0 = 1.0,
        peer_launch: 0.0 ..= 0.5 = 0.0,
        pipelined_launch: 1.0 ..= 5.0 = 1.0,
        pipelined_peer_launch: 0.0 ..= 3.0 = 0.0,
        /// Values kept for the backward pass, over those of the formula.
        saved_hidden: 0.2 ..= 5.0 = 1.0,
        saved_mlp: 0.2 ..= 5.0 = 1.0,
        logit_bytes: 2.0 ..= 30.0 = 8.0,
        reserved_gb: 0.0 ..= 20.0 = 1.5,
        /// Memory that a job can fill before it fails, over what datasheets print:
        /// beyond 1 where those count GiB and call them GB.
        usable_memory: 0.5 ..= 1.1 = 1.0,
        /// How fast the share of stalled exchanges grows with nodes.
        stall_exponent: 0.0 ..= 12.0 = 0.0,
    }
}

constants! {
    /// One site: what its fabric, its hosts and the release installed there bring.
    ClusterConstants {
        /// Bandwidth each GPU gets from the network, where its adapters have
        /// `adapter_gb_per_s`; in proportion with other adapters.
        fabric_gb_per_s: 0.5 ..= 400.0 = 45.0,
        adapter_gb_per_s: 0.5 ..= 400.0 = 50.0,
        /// What a micro-batch loses to each exchange, beside the wire.
        latency_us: 0.0 ..= 1e6 = 0.0,
        /// Floor of one layer's forward and backward pass.
        launch_us: 0.0 ..= 10000.0 = 0.0,
        /// Floor that an expert layer adds, launched by a Grace host.
        expert_launch_us: 0.0 ..= 50000.0 = 0.0,
        /// Copies of a routed token that each product of an expert layer moves in
        /// FP8 or FP4: routing, permuting, casting.
        routed_passes: 0.0 ..= 60.0 = 4.0,
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
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let mut gpu = self.gpu;
        let table = at.table("gpu");
        for range in GpuConstants::RANGES {
            in_range(&table, range, gpu.get_mut(range.0))?;
        }
        for (cluster, constants) in &self.clusters {
            let mut constants = *constants;
            let table = at.table(format_args!("clusters.{cluster}"));
            for range in ClusterConstants::RANGES {
                in_range(&table, range, constants.get_mut(range.0))?;
            }
        }
        Ok(())
    }
}

fn in_range(at: &At<'_>, range: &(&str, f64, f64), value: Option<&mut f64>) -> Result<(), Diagnostic> {
    let &(name, low, high) = range;
    match value {
        Some(value) if (low..=high).contains(value) => Ok(()),
        _ => at.refuse(
            name.replace('_', "-"),
            "the constant is out of its range",
            format_args!("{low} to {high}"),
        ),
    }
}

/// All calibrations, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibrations {
    by_name: BTreeMap<String, Calibration>,
}

impl Calibrations {
    /// The built-in ones as they are.
    pub fn built_in() -> &'static Self {
        static LOADED: OnceLock<Calibrations> = OnceLock::new();
        // The embedded files are read by every test; a name that is missing is
        // complained about where a GPU asks for it.
        LOADED.get_or_init(|| Self::load(&[]).unwrap_or_default())
    }

    /// The built-in ones, changed by `assignments` such as
    /// `a100.gpu.gemm-efficiency=0.7`; an assignment that names none of them has
    /// no effect. Fails when an assignment does not fit.
    pub fn load(assignments: &[String]) -> Result<Self, Diagnostic> {
        let mut by_name = BTreeMap::new();
        for name in BUILT_IN {
            let mut document = Document::load(&format!("calibrations/{name}"))?;
            for assignment in assignments {
                let rest = assignment.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
                if let Some(rest) = rest {
                    document.set(rest)?;
                }
            }
            KIND.check(&document)?;
            by_name.insert(name.to_owned(), document.read()?);
        }
        Ok(Self { by_name })
    }

    /// The calibration of that name.
    pub fn of(&self, name: &str) -> Option<&Calibration> {
        self.by_name.get(name)
    }

    /// Refuses a name of no built-in calibration; `known` are those there are.
    pub(super) fn check(name: &str, at: &At<'_>, known: &str) -> Result<(), Diagnostic> {
        if Self::built_in().of(name).is_some() {
            return Ok(());
        }
        let what = format_args!("there is no calibration `{name}`");
        at.refuse("calibration", what, format_args!("one of {known}"))
    }

    /// The constant at a path such as `a100.gpu.gemm_efficiency` or
    /// `a100.clusters.selene.launch_us`.
    pub fn get_mut(&mut self, path: &str) -> Option<&mut f64> {
        let mut parts = path.split('.');
        let calibration = self.by_name.get_mut(parts.next()?)?;
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
    /// The constants of a site, or of the default one.
    pub fn site(&self, name: Option<&str>) -> ClusterConstants {
        self.clusters
            .get(name.unwrap_or(DEFAULT_SITE))
            .or_else(|| self.clusters.get(DEFAULT_SITE))
            .copied()
            .unwrap_or_default()
    }

    /// Overlap of a job that states none.
    pub fn overlap(&self) -> Overlap {
        let g = &self.gpu;
        Overlap {
            tensor: g.tensor_overlap,
            pipeline: g.pipeline_overlap,
            data: g.data_overlap,
            gather: g.data_overlap,
            expert: g.expert_overlap,
            context: g.context_overlap,
            storage: 0.0,
        }
    }

    /// Lays the constants over a cluster: kernels, collectives and the host are
    /// as they were fitted; sizes, rates, bandwidths and power stay the cluster's.
    pub fn apply(&self, cluster: &mut Cluster, site: Option<&str>, on: &Host<'_>) {
        let g = &self.gpu;
        let site = self.site(site);
        let sustained = on.sustained;
        let gpu = &mut cluster.gpu;
        gpu.gemm_efficiency = Curve::constant(g.gemm_efficiency).scaled(on.efficiency_factor);
        let attention = g.attention_efficiency * sustained.map_or(1.0, |sustained| sustained.attention.get());
        gpu.attention_efficiency = Curve::constant(attention).scaled(on.efficiency_factor);
        gpu.memory_efficiency = Curve::constant(g.memory_efficiency).scaled(on.efficiency_factor);
        gpu.reserved_bytes = g.reserved_gb * 1e9;
        gpu.software = g.software(&site, on);
        cluster.intra.efficiency = g.nvlink_efficiency;
        cluster.intra.latency_s = g.nvlink_latency_us * 1e-6;
        cluster.intra.launch_s = g.nvlink_launch_us * 1e-6;
        cluster.intra.all_reduce = Algorithm::Nccl;
        cluster.nic.latency_s = g.hop_us * 1e-6;
        cluster.inter_latency_s = 0.0;
        cluster.inter_efficiency = site.fabric_gb_per_s / site.adapter_gb_per_s;
        cluster.inter_all_reduce = Algorithm::Nccl;
        cluster.launch_s = 0.0;
        cluster.layer_launch_s = site.launch_us * 1e-6;
        cluster.exchange_s = site.latency_us * 1e-6;
    }
}

/// What of a cluster's files the constants are relative to.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub sustained: Option<&'a SustainedFile>,
    pub efficiency_factor: f64,
    /// Whether a Grace CPU launches kernels.
    pub grace: bool,
    /// Whether products take 16 bits or more.
    pub wide: bool,
}

impl GpuConstants {
    /// What kernels and framework make of a GPU.
    fn software(&self, site: &ClusterConstants, on: &Host<'_>) -> Software {
        let sustained = on.sustained.map_or(ByFormat::all(1.0), SustainedFile::rates);
        let launch = if on.grace { 1.0 } else { self.x86_launch };
        let routed_passes = if on.wide { self.routed_fp16_passes } else { site.routed_passes };
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
            format_efficiency: ByFormat {
                fp16: self.fp16_efficiency * sustained.fp16,
                fp8: self.fp8_efficiency * sustained.fp8,
                fp4: self.fp4_efficiency * sustained.fp4,
            },
            kernel_share: ByFormat {
                fp16: self.fp16_efficiency,
                fp8: self.fp8_efficiency,
                fp4: self.fp4_efficiency,
            },
            tile: self.tile,
            cast_bytes: ByFormat { fp16: 0.0, fp8: self.fp8_cast_bytes, fp4: self.fp4_cast_bytes },
            power_exponent: self.power_exponent,
            attention_backward: self.attention_backward,
            head_exponent: self.head_exponent,
            loss_bytes: self.loss_bytes,
            loss_share: self.loss_share,
            expert_efficiency: if on.wide { self.expert_fp16_efficiency } else { self.expert_efficiency },
            routed_passes,
            routed_ffn_passes: routed_passes * self.routed_ffn_share,
            scan_passes: self.scan_passes,
            expert_launch_s: site.expert_launch_us * launch * 1e-6,
            step_s: self.step_ms * 1e-3,
            sends_once_per_node: self.sends_once_per_node > 0.5,
            usable_memory: self.usable_memory,
        }
    }
}
