//! Training runs of 2025 and 2026 (Megatron-Bridge, MLPerf Training): rows of the
//! table that `shared/runs/modern` describes, told by its header.
//!
//! A row becomes a study; what the models are beyond the columns (the mix of
//! layers of a hybrid, the ranks of latent attention) is written down here once
//! for each model, never for a row.

use crate::csv::{self, CsvRow, Problem, Table};
use crate::runs::{self, FUSED_SINCE, Run, Runs, Set, UNFUSED_SITE, Unstated, machine_of};
use std::fmt::Write;
use std::path::Path;
use trinity_sim::Recompute;

/// A column that only these tables have.
pub const TOLD_BY: &str = "nvlink_domain";

/// Columns that a row is read from.
pub const COLUMNS: &str = "source,task,model,layers,hidden,heads,kv_heads,head_dim,ffn,moe_ffn,vocab,experts,topk,shared_ffn,\
     dense_layers,attn,seq,gpu,n_gpus,nvlink_domain,tp,pp,vp,cp,dp,ep,fsdp,microbatch,global_batch,\
     precision,release,tokens_per_s_per_gpu,tokens_from_tflops,step_time_s,recompute_granularity,\
     arch_note,quality";

impl Runs {
    /// Reads a table of runs; `finished` tells whether each must have a time.
    pub fn read(path: &Path, finished: bool) -> Result<Self, csv::Error> {
        let table = Table::read(path, "source")?;
        if table.has(TOLD_BY) {
            table.require(COLUMNS)?;
            return Ok(Self::of_rows(&table, run));
        }
        table.require(runs::COLUMNS)?;
        Ok(Self::of_table(&table, finished))
    }

    /// Reads a table of the form of this module from memory.
    pub fn parse_modern(file: &str, text: &str) -> Result<Self, csv::Error> {
        let table = Table::parse(file, text.as_bytes(), COLUMNS)?;
        Ok(Self::of_rows(&table, run))
    }
}

/// Reads one row: malformed on the outside, incomplete on the inside.
pub fn run(row: &CsvRow<'_>) -> Result<Result<Run, Problem>, Problem> {
    let (gpus, sequence) = (row.required_count("n_gpus")?, row.required_count("seq")?);
    let global_batch = row.required_count("global_batch")?;
    // Tokens are rounded in some releases; TFLOP/s, which are not, give them exactly.
    let tokens = match row.positive("tokens_from_tflops")? {
        Some(tokens) => Some(tokens),
        None => row.positive("tokens_per_s_per_gpu")?,
    };
    let Some(tokens) = tokens else {
        return Ok(Err(row.problem("tokens_per_s_per_gpu", "no speed to compare with")));
    };
    let seconds = f64::from(global_batch) * f64::from(sequence) / (tokens * f64::from(gpus));
    let source = row.text("source").to_owned();
    let precision = row.text("precision");
    let mut run = Run {
        set: Set::of_source(&source),
        model: row.text("model").to_owned(),
        gpu: row.text("gpu").to_owned(),
        layers: row.required_count("layers")?,
        hidden: row.required_count("hidden")?,
        heads: row.required_count("heads")?,
        sequence,
        vocab: row.required_count("vocab")?,
        gpus,
        tensor: row.required_count("tp")?,
        pipeline: row.required_count("pp")?,
        data: row.required_count("dp")?,
        context: row.required_count("cp")?,
        interleave: row.whole("vp")?.max(1),
        microbatch: row.required_count("microbatch")?,
        unstated: Unstated::default(),
        global_batch,
        recompute: Recompute::None,
        sequence_parallel: false,
        zero: None,
        fp8: precision.starts_with("FP8"),
        fp4: precision.contains("FP4"),
        remark: format!("{} {precision} {}", row.text("task"), row.text("release")),
        text: String::new(),
        file: None,
        seconds: Some(seconds),
        peak_memory_gb: None,
        source,
    };
    if let Some(problem) = run.miscounted(row) {
        return Ok(Err(problem));
    }
    let Some(cluster) = machine_of(&run.gpu) else {
        return Ok(Err(row.problem("gpu", format!("no cluster of `{}` is known", run.gpu))));
    };
    let model = llm(row, &run)?;
    let sharded = row.whole("fsdp")? > 0;
    let text = study(row, &run, cluster, sharded)? + &model;
    if let Err(why) = run.write_sharded(text) {
        return Err(row.problem("source", format!("the row makes no study: {why}")));
    }
    Ok(Ok(run))
}

/// The cluster and the job, without the model.
fn study(row: &CsvRow<'_>, run: &Run, cluster: &str, sharded: bool) -> Result<String, Problem> {
    let unfused = run.set == Set::MegatronBridge && row.text("release") < FUSED_SINCE;
    let site = if unfused { UNFUSED_SITE } else { "default" };
    let math = match (run.fp4, run.fp8) {
        (true, _) => "fp4",
        (_, true) => "fp8",
        _ => "fp16",
    };
    let framework = if reported_by_deepseek(row) { "deepseek" } else { "megatron-bridge" };
    let adapters = row.text("task") == "lora";
    let tuning = if adapters { "adapters" } else { "all" };
    // Weights that stay as they are are kept in the format of the products.
    let weights = match math {
        "fp8" if adapters => 8.0,
        "fp4" if adapters => 4.5,
        _ => 16.0,
    };
    // A table may print an expert group larger than the ranks of a stage.
    let stage = run.gpus / run.pipeline.max(1);
    let expert = row.whole("ep")?.max(1).min(stage);
    // The tables do not say what is recomputed, nor how states are kept: it is
    // the framework's.
    let mut text = format!(
        "[cluster]\nextends = \"clusters/{cluster}\"\ngpus = {}\nsite = \"{site}\"\n\
         [job]\nphase = \"training\"\ntuning = \"{tuning}\"\nsequence = {}\nglobal-batch = {}\nmicrobatch = {}\n\
         framework = {{ extends = \"frameworks/{framework}\" }}\n\
         precision = {{ math = \"{math}\", weights = {weights} }}\n",
        run.gpus, run.sequence, run.global_batch, run.microbatch,
    );
    let _ = write!(
        text,
        "[job.parallelism]\ntensor = {}\nsequence-parallel = {}\npipeline = {}\ninterleave = {}\ndata = {}\n\
         {}expert = {expert}\nexpert-tensor = 1\ncontext = {}\n",
        run.tensor,
        run.tensor > 1,
        run.pipeline,
        run.interleave,
        run.data,
        if sharded { "zero = 3\n" } else { "" },
        run.context,
    );
    Ok(text)
}

/// Its own framework, and a router that looks at nodes; NVIDIA's runs of the same
/// model force the router to spread tokens evenly.
fn reported_by_deepseek(row: &CsvRow<'_>) -> bool {
    row.text("source").starts_with("DeepSeek")
}

/// The model's table.
fn llm(row: &CsvRow<'_>, run: &Run) -> Result<String, Problem> {
    let (ffn, expert_ffn) = (row.whole("ffn")?, row.whole("moe_ffn")?);
    let experts = row.whole("experts")?;
    let attention = row.text("attn");
    let hybrid = attention.starts_with("hybrid");
    let latent_attention = attention == "mla";
    let head_dim = if latent_attention { 128 } else { row.required_count("head_dim")? };
    let mut text = format!(
        "[job.llm]\nlayers = {}\nhidden = {}\nheads = {}\nkv-heads = {}\nhead-dim = {head_dim}\nffn = {}\n\
         mlp = \"{}\"\nvocab = {}\nvocabulary = \"untied\"\n",
        run.layers,
        run.hidden,
        run.heads,
        row.required_count("kv_heads")?,
        ffn.max(expert_ffn),
        // Squared ReLU has two matrices, as GELU.
        if hybrid { "gelu" } else { "swi-glu" },
        run.vocab,
    );
    let note = row.text("arch_note");
    let predicts_further = note.contains("1 MTP layer") && !row.text("quality").contains("w/o_MTP");
    let _ = writeln!(text, "next-token-layers = {}", u32::from(predicts_further));
    if latent_attention {
        text.push_str("latent = { query-rank = 1536, kv-rank = 512, rope-dim = 64, value-dim = 128 }\n");
    }
    // A window of 128 beside 512 tokens that an index picks. The windows of gpt-oss
    // are left out: its sinks keep the fused kernel from skipping what they mask.
    if attention == "sparse-mla" {
        let _ = writeln!(text, "window = {{ tokens = 640, layers = {} }}", run.layers);
    }
    // Nemotron 3: 23 state-space, 6 attention and 23 expert layers of Nano; 40, 8
    // and 40 of Super, whose experts see tokens of 1,024 values.
    let wide = run.layers >= 88;
    if hybrid {
        let (mamba, attend, heads) = if wide { (40, 8, 128) } else { (23, 6, 64) };
        let _ = writeln!(
            text,
            "mamba = {{ layers = {mamba}, attention-layers = {attend}, heads = {heads}, head-dim = 64, state = 128, groups = 8 }}"
        );
    }
    if experts > 0 {
        let shared = row.whole("shared_ffn")? / expert_ffn.max(1);
        let dense = if hybrid { 0 } else { row.whole("dense_layers")? };
        let latent = if hybrid && wide { 1024 } else { 0 };
        let most_nodes = if reported_by_deepseek(row) { 4 } else { 0 };
        let _ = writeln!(
            text,
            "moe = {{ experts = {experts}, top-k = {}, shared-experts = {shared}, expert-ffn = {expert_ffn}, dense-layers = {dense}, latent = {latent}, most-nodes = {most_nodes} }}",
            row.required_count("topk")?
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
