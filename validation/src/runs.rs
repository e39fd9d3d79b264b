//! Measured training runs: rows of a table, the set each belongs to, and the
//! job the simulator is asked about.
//!
//! What a source does not print but its software is known to do (Megatron's
//! attention, nanotron's balanced stages) is written down here once for each
//! source, never for a row.

use crate::csv::{self, CsvRow, Problem, Table};
use std::fmt::Write;
use trinity_config::{Checked, Document};
use trinity_sim::{Cluster, Job, Recompute};
use trinity_study::config::StudyFile;
use trinity_study::config::software::Calibrations;

/// Columns every table of runs has.
pub const COLUMNS: &str = "source,model,layers,hidden,heads,seq,vocab,gpu,n_gpus,tp,pp,dp,interleave,microbatch,global_batch,\
     recompute";

/// One row.
#[derive(Clone, Debug)]
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
    /// What of the schedule the source leaves open.
    pub unstated: Unstated,
    pub global_batch: u32,
    pub recompute: Recompute,
    pub sequence_parallel: bool,
    pub zero: Option<u8>,
    pub fp8: bool,
    /// Whether products run on fp4 units, where the GPU has them.
    pub fp4: bool,
    /// Words of the precision and the release, where the table has them.
    pub remark: String,
    /// The run as a study that `trinity estimate` reads, and what was read of it.
    pub text: String,
    pub file: Option<Box<StudyFile>>,
    /// What the clock said; `None` for a run that did not finish.
    pub seconds: Option<f64>,
    /// Peak memory of a GPU, where it was written down.
    pub peak_memory_gb: Option<f64>,
}

/// What of a run's schedule its source does not state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unstated {
    pub interleave: bool,
    pub microbatch: bool,
    pub recompute: bool,
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
    MegatronBridge,
    MlperfTraining,
    Other,
}

impl Set {
    /// Every set by its name in tables and bars, in the order of the table.
    const NAMED: [(Self, &str); 17] = [
        (Self::KorthikantiT5, "Korthikanti T5"),
        (Self::NarayananT1, "Narayanan T1"),
        (Self::NarayananT2, "Narayanan T2"),
        (Self::VtrainMulti, "vTrain multi-node"),
        (Self::VtrainSingle, "vTrain single-node"),
        (Self::Bloom, "BLOOM"),
        (Self::Nanotron, "nanotron H100"),
        (Self::MtNlg, "MT-NLG"),
        (Self::MegatronReadme2020, "Megatron README 2020"),
        (Self::MegatronReadme2021, "Megatron README 2021"),
        (Self::MegatronCoreH100, "Megatron-Core H100"),
        (Self::Llama3, "Llama 3"),
        (Self::Mosaic, "MosaicML"),
        (Self::Nemo, "NeMo"),
        (Self::MegatronBridge, "Megatron-Bridge"),
        (Self::MlperfTraining, "MLPerf Training"),
        (Self::Other, "other"),
    ];

    /// Every set, in the order of the table.
    pub fn all() -> [Self; 17] {
        Self::NAMED.map(|(set, _)| set)
    }

    /// Its name in tables and bars.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(set, _)| *set == self).map_or("", |(_, name)| name)
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
            // Its early rows have formats in remarks alone; the table of 2025 and 2026 has them as columns.
            () if has(&["nemo"]) => Self::Nemo,
            () if has(&["megatronbridge"]) => Self::MegatronBridge,
            () if has(&["mlperf", "training"]) => Self::MlperfTraining,
            () if has(&["mtnlg"]) => Self::MtNlg,
            () if has(&["megatron", "readme", "2020"]) => Self::MegatronReadme2020,
            () if has(&["megatron", "readme", "2021"]) => Self::MegatronReadme2021,
            () if has(&["megatroncore"]) => Self::MegatronCoreH100,
            () if has(&["llama3"]) => Self::Llama3,
            () if has(&["mosaic"]) => Self::Mosaic,
            () => Self::Other,
        }
    }

    /// The site whose constants apply.
    fn site(self) -> &'static str {
        match self {
            Self::VtrainMulti | Self::VtrainSingle => "vtrain",
            Self::Bloom => "jean-zay",
            Self::Nanotron => "aws-p5",
            Self::MtNlg => "mt-nlg",
            _ => "default",
        }
    }
}

/// The release whose expert layers run in graphs with casts fused.
pub(crate) const FUSED_SINCE: &str = "26.06";
/// The site of releases before it.
pub(crate) const UNFUSED_SITE: &str = "before-26-06";

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
    /// Reads a table of runs from memory.
    pub fn parse(file: &str, text: &str, finished: bool) -> Result<Self, csv::Error> {
        Ok(Self::of_table(&Table::parse(file, text.as_bytes(), COLUMNS)?, finished))
    }

    pub(crate) fn of_table(table: &Table, finished: bool) -> Self {
        Self::of_rows(table, |row| run(row, finished))
    }

    pub(crate) fn of_rows(
        table: &Table,
        read: impl Fn(&CsvRow<'_>) -> Result<Result<Run, Problem>, Problem>,
    ) -> Self {
        let (found, malformed) = table.each(read);
        let mut runs = Self { malformed, ..Self::default() };
        for run in found {
            match run {
                Ok(run) => runs.runs.push(run),
                Err(missing) => runs.incomplete.push(missing),
            }
        }
        runs
    }
}

#[cfg(test)]
impl Runs {
    /// Its one row.
    pub(crate) fn only(mut self) -> Result<Result<Run, Problem>, Problem> {
        assert_eq!(self.runs.len() + self.malformed.len() + self.incomplete.len(), 1);
        match (self.runs.pop(), self.incomplete.pop(), self.malformed.pop()) {
            (Some(run), ..) => Ok(Ok(run)),
            (_, Some(missing), _) => Ok(Err(missing)),
            (.., problem) => Err(problem.unwrap()),
        }
    }
}

/// Reads one row: malformed on the outside, incomplete on the inside.
fn run(row: &CsvRow<'_>, finished: bool) -> Result<Result<Run, Problem>, Problem> {
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
    let tflops = row.positive("measured_tflops_per_gpu")?;
    if finished && seconds.is_none() && tflops.is_none() {
        return Ok(Err(row.problem("iter_s_effective", "no time to compare with")));
    }
    let mut run = Run {
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
        unstated: Unstated {
            interleave: row.text("interleave").is_empty(),
            microbatch: row.text("microbatch").is_empty(),
            recompute: row.text("recompute").is_empty(),
        },
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
        remark: String::new(),
        text: String::new(),
        file: None,
        source,
    };
    if let Some(problem) = run.miscounted(row) {
        return Ok(Err(problem));
    }
    let Some(text) = run.study() else {
        return Ok(Err(row.problem("gpu", format!("no cluster of `{}` is known", run.gpu))));
    };
    let written = if run.set == Set::Nemo { run.write_sharded(text) } else { run.write(text) };
    if let Err(why) = written {
        return Err(row.problem("source", format!("the row makes no study: {why}")));
    }
    if let (None, Some(tflops), Ok((_, job))) = (run.seconds, tflops, run.resolve(Calibrations::built_in())) {
        // A source that prints TFLOP/s counts the model's own operations.
        run.seconds = Some(job.model_flops() / (tflops * 1e12 * f64::from(run.gpus)));
    }
    Ok(Ok(run))
}

/// A row's set, source and time come from the table; everything else from the
/// study that it wrote.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.set == other.set
            && self.source == other.source
            && self.model == other.model
            && self.seconds == other.seconds
            && self.text == other.text
    }
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
    if number_after(notes, "FSDP=").is_some_and(|ranks| ranks > 0) {
        return Some(3);
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
    #[error("the row was not written as a study")]
    Unwritten,
    #[error("{0}")]
    Infeasible(#[from] trinity_sim::Infeasible),
}

impl Run {
    /// A line that names the configuration.
    pub fn describe(&self) -> String {
        let zero =
            self.zero.filter(|&stage| stage > 0).map_or(String::new(), |stage| format!(" zero{stage}"));
        let chunks = if self.interleave > 1 { format!(" v{}", self.interleave) } else { String::new() };
        let remark = if self.remark.is_empty() { String::new() } else { format!(" {}", self.remark) };
        format!(
            "{} on {} {}: tp{} pp{} dp{}{chunks} mb{} gb{}{zero}{remark}",
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

    /// What is wrong where its ranks are not all GPUs.
    pub(crate) fn miscounted(&self, row: &CsvRow<'_>) -> Option<Problem> {
        let ranks = [self.tensor, self.pipeline, self.data, self.context];
        let parts: u64 = ranks.into_iter().map(u64::from).product();
        let message = format!("tp × pp × dp × cp is {parts}, but there are {} GPUs", self.gpus);
        (parts != u64::from(self.gpus)).then(|| row.problem("n_gpus", message))
    }

    /// The calibration whose constants apply.
    pub fn calibration(&self) -> Option<&str> {
        self.file.as_ref()?.calibration()
    }

    /// Keeps the study that was written for the run.
    pub(crate) fn write(&mut self, text: String) -> Result<(), trinity_config::Diagnostic> {
        let document = Document::parse("a run", &text)?;
        let file: StudyFile = document.read()?;
        file.check(&document)?;
        self.text = text;
        self.file = Some(Box::new(file));
        Ok(())
    }

    /// Keeps the study, with weights sharded where nothing fits without: whatever
    /// the table says of it, they can only have been.
    pub(crate) fn write_sharded(&mut self, text: String) -> Result<(), trinity_config::Diagnostic> {
        let stated = text.contains("\nzero = ");
        let sharded = text.replace("[job.parallelism]\n", "[job.parallelism]\nzero = 3\n");
        self.write(text)?;
        if self.pipeline > 1 || stated || self.fits() {
            return Ok(());
        }
        let unsharded = self.clone();
        self.write(sharded)?;
        if !self.fits() {
            *self = unsharded;
        }
        Ok(())
    }

    /// Whether the model finds room for the run.
    fn fits(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.point().estimate().is_ok())
    }

    /// The machine and the job, as every front end would make them of the study.
    ///
    /// # Errors
    ///
    /// When the row was never written as a study.
    pub fn resolve(&self, calibrations: &Calibrations) -> Result<(Cluster, Job), Unscored> {
        let file = self.file.as_ref().ok_or(Unscored::Unwritten)?;
        let (machine, job) = file.resolve_with(calibrations);
        let search = file.job.search();
        if !search.on {
            return Ok((machine, job));
        }
        // A run that is known to have finished had the memory, whatever the model says of it.
        let mut roomy = machine;
        roomy.gpu.memory_bytes = f64::MAX;
        let found = trinity_sim::best(&machine, &job, &search)
            .or_else(|_| trinity_sim::best(&roomy, &job, &search))?;
        Ok((machine, found.chosen.map_or(job, |layout| layout.apply(&job, 0))))
    }

    /// The run as a study.
    fn study(&self) -> Option<String> {
        let mut text = self.cluster()?;
        let llama = matches!(self.set, Set::Nanotron | Set::Llama3 | Set::Nemo);
        let modern = self.is_modern();
        let positions = if modern || self.set == Set::Bloom { 0 } else { self.sequence };
        // nanotron's 8B and 80B, and Llama 3, have two matrices.
        let untied = llama && self.hidden >= 4096;
        let zero = match (self.zero, self.set) {
            (Some(stage), _) => stage.min(3),
            // Its distributed optimizer, which overlapping gathers presume.
            (None, Set::MegatronCoreH100) => 1,
            // Optimizer states and gradients sharded, weights kept (arXiv 2407.21783, section 3.3.2).
            (None, Set::Llama3) => 2,
            (None, _) => 0,
        };
        // Its recipes' sharding, formats of states and recomputation are the framework's.
        let recipe = self.framework() == "megatron-bridge";
        let zero = if recipe && zero == 0 { String::new() } else { format!("zero = {zero}\n") };
        let math = match (self.fp4, self.fp8) {
            (true, _) if self.gpu.starts_with("GB") || self.gpu.starts_with('B') => "fp4",
            (_, true) => "fp8",
            _ => "fp16",
        };
        let recompute = format!("recompute = \"{}\"\n", self.recompute.name());
        let microbatch = format!("microbatch = {}\n", self.microbatch);
        let interleave = format!("interleave = {}\n", self.interleave);
        // What a record run's source leaves open is what was fastest of what fits.
        let open = self.chooses();
        let stated = |text: String, unstated: bool| if open && unstated { String::new() } else { text };
        let recompute = if recipe { String::new() } else { stated(recompute, self.unstated.recompute) };
        let microbatch = stated(microbatch, self.unstated.microbatch);
        let interleave = stated(interleave, self.unstated.interleave);
        let choose = if open { "choose = \"best\"\n" } else { "" };
        let attention = if modern { "flash" } else { "materialized" };
        let sharded = self.sequence_parallel || (modern && self.tensor > 1);
        let split = if self.set == Set::Nanotron { "work" } else { "layers" };
        let framework = self.framework();
        let _ = write!(
            text,
            "[job]\nphase = \"training\"\nsequence = {}\nglobal-batch = {}\n{microbatch}\
             {recompute}attention = \"{attention}\"\nprecision = {{ math = \"{math}\" }}\n\
             framework = {{ extends = \"frameworks/{framework}\" }}\n\
             [job.llm]\nlayers = {}\nhidden = {}\nheads = {}\nkv-heads = {}\nhead-dim = {}\nffn = {}\n\
             mlp = \"{}\"\nvocab = {}\nvocabulary = \"{}\"\npositions = {positions}\nbiases = {}\n\
             [job.parallelism]\n{choose}tensor = {}\nsequence-parallel = {sharded}\npipeline = {}\n{interleave}\
             split = \"{split}\"\ndata = {}\n{zero}context = {}\n",
            self.sequence,
            self.global_batch,
            self.layers,
            self.hidden,
            self.heads,
            self.kv_heads(),
            self.hidden / self.heads.max(1),
            self.ffn(),
            if llama { "swi-glu" } else { "gelu" },
            self.vocab,
            if untied { "untied" } else { "tied" },
            !modern,
            self.tensor,
            self.pipeline,
            self.data,
            self.context,
        );
        Some(text)
    }

    /// The framework that ran it.
    fn framework(&self) -> &'static str {
        match self.set {
            Set::Nanotron => "nanotron",
            Set::MegatronCoreH100 => "megatron-core",
            Set::Nemo if self.source.contains("Bridge") => "megatron-bridge",
            Set::Nemo => "megatron-core",
            Set::Llama3 => "llama-3",
            Set::Mosaic => "fsdp",
            _ if self.zero == Some(3) => "deepspeed",
            _ => "megatron-lm",
        }
    }

    /// Whether the study chooses what the source leaves open: runs that were
    /// published for their speed, and that no constant was fitted on.
    fn chooses(&self) -> bool {
        let open = self.unstated.interleave || self.unstated.microbatch || self.unstated.recompute;
        open && matches!(self.set, Set::MegatronCoreH100 | Set::Llama3)
    }

    fn is_modern(&self) -> bool {
        matches!(self.set, Set::Nanotron | Set::Llama3 | Set::Nemo | Set::MegatronCoreH100 | Set::Mosaic)
    }

    /// The cluster the run was measured on.
    fn cluster(&self) -> Option<String> {
        let gpus = self.gpus;
        // The source ends in the release.
        let unfused = self.set == Set::Nemo
            && self.source.rsplit('-').next().is_some_and(|release| release < FUSED_SINCE);
        let site =
            if unfused && self.framework() == "megatron-bridge" { UNFUSED_SITE } else { self.set.site() };
        let gpu = self.gpu.as_str();
        let smaller = if gpu.contains("40GB") {
            "gpu.memory = \"40 GB\"\ngpu.memory-bandwidth = \"1555 GB/s\"\n"
        } else {
            ""
        };
        if gpu.starts_with("V100") {
            return Some(format!(
                "[cluster]\nextends = \"clusters/dgx-a100\"\ngpus = {gpus}\ngpus-per-node = 16\n\
                 site = \"{site}\"\nintra.bandwidth = \"150 GB/s\"\ngpu = {{ extends = \"gpus/v100\" }}\n"
            ));
        }
        let name = machine_of(gpu)?;
        Some(format!("[cluster]\nextends = \"clusters/{name}\"\ngpus = {gpus}\nsite = \"{site}\"\n{smaller}"))
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

/// The cluster file of a GPU as tables call it.
pub(crate) fn machine_of(gpu: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 11] = [
        ("A100", "dgx-a100"),
        ("H100", "dgx-h100"),
        ("H200", "dgx-h200"),
        ("H800", "h800"),
        ("GB200", "gb200-nvl72"),
        ("GB300", "gb300-nvl72"),
        ("B200", "dgx-b200"),
        ("B300", "dgx-b300"),
        ("MI300X", "mi300x"),
        ("MI350X", "mi350x"),
        ("MI355X", "mi355x"),
    ];
    KNOWN.iter().find(|(prefix, _)| gpu.starts_with(prefix)).map(|(_, cluster)| *cluster)
}

#[cfg(test)]
mod tests;
