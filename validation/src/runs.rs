//! Measured training runs: rows of a table, the set each belongs to, and the
//! job the simulator is asked about.
//!
//! What a source does not print but its software is known to do (Megatron's
//! attention, nanotron's balanced stages) is written down here once for each
//! source, never for a row.

use crate::calibration::{Calibrations, ClusterConstants};
use crate::csv::{self, Problem, Row, Table};
use std::path::Path;
use trinity_sim::{
    Attention, AttentionKernel, Cluster, Compression, Job, Llm, Mlp, Overlap, Parallelism, Phase, Precision,
    Recompute, Schedule, Split, Vocabulary, Zero,
};

/// Columns every table of runs has.
pub const COLUMNS: [&str; 16] = [
    "source",
    "model",
    "layers",
    "hidden",
    "heads",
    "seq",
    "vocab",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "dp",
    "interleave",
    "microbatch",
    "global_batch",
    "recompute",
];

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub set: Set,
    pub source: String,
    pub model: String,
    pub gpu: String,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub sequence: u32,
    pub vocab: u32,
    pub gpus: u32,
    pub tensor: u32,
    pub pipeline: u32,
    pub data: u32,
    pub context: u32,
    pub interleave: u32,
    pub microbatch: u32,
    pub global_batch: u32,
    pub recompute: Recompute,
    pub sequence_parallel: bool,
    pub zero: Option<u8>,
    pub fp8: bool,
    /// On fp4 units, where the GPU has them.
    pub fp4: bool,
    /// What the clock said; `None` for a run that did not finish.
    pub seconds: Option<f64>,
    /// Peak memory of a GPU, where it was written down.
    pub peak_memory_gb: Option<f64>,
}

/// What a row is compared under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    KorthikantiT5,
    NarayananT1,
    NarayananT2,
    VtrainMulti,
    VtrainSingle,
    Bloom,
    Nanotron,
    MtNlg,
    MegatronReadme2020,
    MegatronReadme2021,
    MegatronCoreH100,
    Llama3,
    Mosaic,
    Nemo,
    Other,
}

impl Set {
    /// Every set, in the order of the table.
    pub const ALL: [Self; 15] = [
        Self::KorthikantiT5,
        Self::NarayananT1,
        Self::NarayananT2,
        Self::VtrainMulti,
        Self::VtrainSingle,
        Self::Bloom,
        Self::Nanotron,
        Self::MtNlg,
        Self::MegatronReadme2020,
        Self::MegatronReadme2021,
        Self::MegatronCoreH100,
        Self::Llama3,
        Self::Mosaic,
        Self::Nemo,
        Self::Other,
    ];

    /// Its name in tables and bars.
    pub fn name(self) -> &'static str {
        match self {
            Self::KorthikantiT5 => "Korthikanti T5",
            Self::NarayananT1 => "Narayanan T1",
            Self::NarayananT2 => "Narayanan T2",
            Self::VtrainMulti => "vTrain multi-node",
            Self::VtrainSingle => "vTrain single-node",
            Self::Bloom => "BLOOM",
            Self::Nanotron => "nanotron H100",
            Self::MtNlg => "MT-NLG",
            Self::MegatronReadme2020 => "Megatron README 2020",
            Self::MegatronReadme2021 => "Megatron README 2021",
            Self::MegatronCoreH100 => "Megatron-Core H100",
            Self::Llama3 => "Llama 3",
            Self::Mosaic => "MosaicML",
            Self::Nemo => "NeMo",
            Self::Other => "other",
        }
    }

    /// The set of a source, however it is spelled.
    pub fn of_source(source: &str) -> Self {
        let source: String = source.to_lowercase().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let has = |parts: &[&str]| parts.iter().all(|part| source.contains(part));
        match () {
            () if has(&["korthikanti", "t5"]) || has(&["korthikanti", "table5"]) => Self::KorthikantiT5,
            () if has(&["narayanan", "t1"]) || has(&["narayanan", "table1"]) => Self::NarayananT1,
            () if has(&["narayanan", "t2"]) || has(&["narayanan", "table2"]) => Self::NarayananT2,
            () if has(&["vtrain", "multi"]) => Self::VtrainMulti,
            () if has(&["vtrain", "single"]) => Self::VtrainSingle,
            () if has(&["bloom"]) || has(&["bigscience"]) => Self::Bloom,
            () if has(&["nanotron"]) || has(&["ultrascale"]) => Self::Nanotron,
            () if has(&["mtnlg"]) => Self::MtNlg,
            () if has(&["megatron", "readme", "2020"]) => Self::MegatronReadme2020,
            () if has(&["megatron", "readme", "2021"]) => Self::MegatronReadme2021,
            () if has(&["megatroncore"]) => Self::MegatronCoreH100,
            () if has(&["llama3"]) => Self::Llama3,
            () if has(&["mosaic"]) => Self::Mosaic,
            () if has(&["nemo"]) => Self::Nemo,
            () => Self::Other,
        }
    }

    /// The cluster whose constants apply.
    fn cluster(self) -> &'static str {
        match self {
            Self::VtrainMulti | Self::VtrainSingle => "vtrain",
            Self::Bloom => "jean-zay",
            Self::Nanotron => "aws-p5",
            _ => "default",
        }
    }
}

/// Rows read from one table.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    pub runs: Vec<Run>,
    /// Rows that could not be read.
    pub malformed: Vec<Problem>,
    /// Rows that were read but say too little to be scored.
    pub incomplete: Vec<Problem>,
}

impl Runs {
    /// Reads a table of runs; `finished` tells whether each must have a time.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or lacks a column.
    pub fn read(path: &Path, finished: bool) -> Result<Self, csv::Error> {
        Ok(Self::of_table(&Table::read(path, &COLUMNS)?, finished))
    }

    /// Reads a table of runs from memory.
    ///
    /// # Errors
    ///
    /// When a column is missing.
    pub fn parse(file: &str, text: &str, finished: bool) -> Result<Self, csv::Error> {
        Ok(Self::of_table(&Table::parse(file, text.as_bytes(), &COLUMNS)?, finished))
    }

    fn of_table(table: &Table, finished: bool) -> Self {
        let mut runs = Self { malformed: table.problems.clone(), ..Self::default() };
        for row in table.rows() {
            match run(&row, finished) {
                Ok(Ok(run)) => runs.runs.push(run),
                Ok(Err(missing)) => runs.incomplete.push(missing),
                Err(problem) => runs.malformed.push(problem),
            }
        }
        runs
    }
}

/// Reads one row: malformed on the outside, incomplete on the inside.
fn run(row: &Row<'_>, finished: bool) -> Result<Result<Run, Problem>, Problem> {
    let source = row.text("source").to_owned();
    if source.is_empty() {
        return Err(row.problem("source", "expected a name, found nothing"));
    }
    let notes = row.text("notes");
    let recompute = match row.text("recompute").to_lowercase().as_str() {
        "full" => Recompute::Full,
        "selective" => Recompute::Selective,
        "none" | "" => Recompute::None,
        other => {
            return Err(
                row.problem("recompute", format!("expected none, selective or full, found `{other}`"))
            );
        }
    };
    let sequence_parallel = match row.text("sequence_parallel") {
        "1" | "1.0" | "true" => true,
        "" | "0" | "0.0" | "false" => false,
        other => return Err(row.problem("sequence_parallel", format!("expected 0 or 1, found `{other}`"))),
    };
    let seconds = match row.positive("iter_s_effective")? {
        Some(seconds) => Some(seconds),
        None => row.positive("measured_iter_s")?,
    };
    if finished && seconds.is_none() {
        return Ok(Err(row.problem("iter_s_effective", "no time to compare with")));
    }
    let run = Run {
        set: Set::of_source(&source),
        model: row.text("model").to_owned(),
        gpu: row.text("gpu").to_owned(),
        layers: row.required_count("layers")?,
        hidden: row.required_count("hidden")?,
        heads: row.required_count("heads")?,
        sequence: row.required_count("seq")?,
        vocab: row.required_count("vocab")?,
        gpus: row.required_count("n_gpus")?,
        tensor: row.required_count("tp")?,
        pipeline: row.required_count("pp")?,
        data: row.required_count("dp")?,
        context: number_after(notes, "CP=").unwrap_or(1),
        interleave: row.count("interleave")?.unwrap_or(1),
        microbatch: row.count("microbatch")?.unwrap_or(1),
        global_batch: match row.count("global_batch")? {
            Some(batch) => batch,
            None => return Ok(Err(row.problem("global_batch", "the source does not say"))),
        },
        recompute,
        sequence_parallel,
        zero: zero_stage(notes),
        fp8: ["FP8", "fp8", "NVFP4"].iter().any(|kind| notes.contains(kind)),
        fp4: notes.contains("NVFP4"),
        seconds,
        peak_memory_gb: peak_memory_gb(notes),
        source,
    };
    let parts =
        u64::from(run.tensor) * u64::from(run.pipeline) * u64::from(run.data) * u64::from(run.context);
    if parts != u64::from(run.gpus) {
        let message = format!("tp × pp × dp × cp is {parts}, but there are {} GPUs", run.gpus);
        return Ok(Err(row.problem("n_gpus", message)));
    }
    Ok(Ok(run))
}

/// The whole number right after `key` in free text.
fn number_after(text: &str, key: &str) -> Option<u32> {
    let rest = &text[text.find(key)? + key.len()..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

fn zero_stage(notes: &str) -> Option<u8> {
    if notes.contains("FULL_SHARD") {
        return Some(3);
    }
    if notes.contains("SHARD_GRAD_OP") {
        return Some(2);
    }
    number_after(notes, "ZeRO-").and_then(|stage| u8::try_from(stage).ok())
}

/// `peak mem 36.7 GB` or `Mem 44GB`.
fn peak_memory_gb(notes: &str) -> Option<f64> {
    let start = notes.find("peak mem ").map(|i| i + 9).or_else(|| notes.find("Mem ").map(|i| i + 4))?;
    let rest = &notes[start..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok().filter(|gb| *gb > 0.0)
}

/// Why a run cannot be put to the simulator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unscored {
    #[error("no calibration for the GPU `{0}`")]
    Gpu(String),
    #[error("{0}")]
    Infeasible(#[from] trinity_sim::Infeasible),
}

impl Run {
    /// A line that names the configuration.
    pub fn describe(&self) -> String {
        let zero =
            self.zero.filter(|&stage| stage > 0).map_or(String::new(), |stage| format!(" zero{stage}"));
        let chunks = if self.interleave > 1 { format!(" v{}", self.interleave) } else { String::new() };
        format!(
            "{} on {} {}: tp{} pp{} dp{}{chunks} mb{} gb{}{zero}",
            self.model,
            self.gpus,
            self.gpu,
            self.tensor,
            self.pipeline,
            self.data,
            self.microbatch,
            self.global_batch
        )
    }

    /// Whether two rows say the same.
    pub fn same_as(&self, other: &Self) -> bool {
        self == other
    }

    /// The GPU type whose constants apply.
    pub fn gpu_type(&self) -> Option<&'static str> {
        if self.gpu.starts_with("A100") {
            Some("a100")
        } else if self.gpu.starts_with("H100") {
            Some("h100")
        } else {
            None
        }
    }

    /// The cluster the run was measured on.
    ///
    /// # Errors
    ///
    /// When there is no calibration for its GPU.
    pub fn machine(&self, calibrations: &Calibrations) -> Result<Cluster, Unscored> {
        let unknown = || Unscored::Gpu(self.gpu.clone());
        let calibration = self.gpu_type().and_then(|gpu| calibrations.of(gpu)).ok_or_else(unknown)?;
        let name = self.set.cluster();
        let cluster: &ClusterConstants = calibration
            .clusters
            .get(name)
            .or_else(|| calibration.clusters.get("default"))
            .ok_or_else(unknown)?;
        let mut machine = calibration.machine(cluster, self.gpus, 8);
        if self.set == Set::MtNlg {
            // Trained with DeepSpeed's pipeline, as BLOOM was: what that loses at
            // each exchange was fitted there, and comes along to another machine.
            let deepspeed = calibration.clusters.get("jean-zay").map(|cluster| cluster.latency_us);
            machine.exchange_s = deepspeed.map_or(machine.exchange_s, |us| us * 1e-6);
        }
        if self.gpu.contains("40GB") {
            machine.gpu.memory_bytes = 40e9;
            machine.gpu.memory_bytes_per_s *= A100_40GB_BANDWIDTH;
        }
        Ok(machine)
    }

    /// What the simulator is asked.
    pub fn job(&self) -> Job {
        let llama = matches!(self.set, Set::Nanotron | Set::Llama3 | Set::Nemo);
        let modern = llama || matches!(self.set, Set::MegatronCoreH100 | Set::Mosaic);
        let llm = Llm {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads(),
            head_dim: self.hidden / self.heads,
            ffn: self.ffn(),
            mlp: if llama { Mlp::SwiGlu } else { Mlp::Gelu },
            vocab: self.vocab,
            // nanotron's 8B and 80B, and Llama 3, have two matrices.
            vocabulary: if llama && self.hidden >= 4096 { Vocabulary::Untied } else { Vocabulary::Tied },
            positions: if modern || self.set == Set::Bloom { 0 } else { self.sequence },
            biases: !modern,
            attention: Attention::Grouped,
            moe: None,
        };
        let zero = match self.zero {
            Some(1) => Zero::Optimizer,
            Some(2) => Zero::Gradients,
            Some(3) => Zero::Parameters,
            // Its distributed optimizer, which overlapping gathers presume.
            None if self.set == Set::MegatronCoreH100 => Zero::Optimizer,
            _ => Zero::None,
        };
        let mut precision = Precision::MIXED;
        if self.fp8 {
            precision.math = trinity_sim::Math::Fp8;
        }
        Job {
            llm,
            phase: Phase::Training,
            sequence: self.sequence,
            global_batch: self.global_batch,
            microbatch: self.microbatch,
            parallelism: Parallelism {
                tensor: self.tensor,
                sequence_parallel: self.sequence_parallel || (modern && self.tensor > 1),
                pipeline: self.pipeline,
                schedule: if self.interleave > 1 {
                    Schedule::Interleaved(self.interleave)
                } else {
                    Schedule::OneFOneB
                },
                split: if self.set == Set::Nanotron { Split::Work } else { Split::Layers },
                data: self.data,
                zero,
                expert: 1,
                context: self.context,
            },
            precision,
            recompute: self.recompute,
            attention: if modern { AttentionKernel::Flash } else { AttentionKernel::Materialized },
            overlap: self.overlap(zero, modern),
            compression: Compression::NONE,
            kv_spill: 0.0,
        }
    }

    /// ZeRO-3 prefetches behind compute everywhere; Megatron-Core, NeMo and
    /// Llama 3 state that they overlap the rest too.
    fn overlap(&self, zero: Zero, modern: bool) -> Overlap {
        let stated = modern && self.set != Set::Nanotron;
        let data = if zero == Zero::Parameters || stated { 1.0 } else { 0.0 };
        let tensor = if stated { 0.5 } else { 0.0 };
        let pipeline = if stated { 1.0 } else { 0.0 };
        Overlap { data, tensor, pipeline, ..Overlap::NONE }
    }

    fn kv_heads(&self) -> u32 {
        match self.set {
            Set::Llama3 | Set::Nemo => 8.min(self.heads),
            _ => self.heads,
        }
    }

    /// Feed-forward widths of the Llama family; four times the hidden size else.
    fn ffn(&self) -> u32 {
        match (self.set, self.hidden) {
            (Set::Nanotron, 2048 | 3072) => 8192,
            (Set::Nanotron | Set::Llama3 | Set::Nemo, 4096) => 14336,
            (Set::Nanotron | Set::Llama3 | Set::Nemo, 8192) => 28672,
            (Set::Llama3 | Set::Nemo, 16384) => 53248,
            _ => 4 * self.hidden,
        }
    }
}

/// HBM2 of the 40 GB board against HBM2e of the 80 GB one (datasheets: 1555
/// and 2039 GB/s).
const A100_40GB_BANDWIDTH: f64 = 1555.0 / 2039.0;
