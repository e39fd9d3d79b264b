//! `trinity estimate`: one cluster, one job, what it costs and how sure that is.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use trinity_study::estimate::{EstimateOutcome, EstimateRequest, Part, estimate};
use trinity_study::number::significant;
use trinity_study::sweep::explain_table;

/// Say what one job costs on one cluster
///
/// The same function answers as in `trinity sweep`, and the same that `trinity
/// validate` holds against measured runs; the error quoted is that of the runs
/// most like the question.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity estimate dgx-h100 llama-3-8b --set job.parallelism.tensor=8
  trinity estimate dgx-h100 llama-3-8b --set job.parallelism.tensor=8 --set job.precision.math=fp8
  trinity estimate clusters/dgx-a100 sweeps/llama-7b --set job.parallelism.tensor=8
  trinity estimate dgx-h100 llama-3-8b --set cluster.gpus=8 --set job.parallelism=best

The third takes the job of a sweep to another cluster; the last finds the best parallelism,
micro-batch and recomputation that fit.")]
pub struct Args {
    /// A cluster: a built-in name (`trinity config list`) or a .toml file
    cluster: String,
    /// A job: a .toml file, the name of a sweep whose job is meant, or of a language model, which is
    /// then trained on sequences of 4,096 tokens
    job: String,
    /// Change a value, such as job.microbatch=2 or cluster.nic.bandwidth="800 Gbit/s"
    #[arg(long = "set", value_name = "PATH=VALUE")]
    overrides: Vec<String>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let request = EstimateRequest {
        cluster: Part::Named(in_folder("clusters", &args.cluster)),
        job: job(&args.job),
        overrides: args.overrides.clone(),
    };
    let outcome = estimate(&request)?;
    ctx.show(&outcome, || text(&outcome, ctx.colour))
}

/// A built-in name without its folder, as the folder's; anything else as it is.
fn in_folder(folder: &str, name: &str) -> String {
    if name.contains('/') || name.ends_with(".toml") { name.to_owned() } else { format!("{folder}/{name}") }
}

fn job(name: &str) -> Part {
    if name.ends_with(".toml") {
        return Part::Named(name.to_owned());
    }
    if name.starts_with("sweeps/") {
        return Part::OfSweep(name.to_owned());
    }
    let llm = in_folder("llms", name);
    let text = format!("phase = \"training\"\nsequence = 4096\nllm = {{ extends = \"{llm}\" }}\n");
    Part::Text { name: llm, text }
}

fn text(outcome: &EstimateOutcome, colour: bool) -> String {
    let e = &outcome.estimate;
    let sure = match outcome.error.error {
        Some(error) => format!("off by {:.1} % on average: {}", 100.0 * error, outcome.error.basis),
        None => outcome.error.basis.clone(),
    };
    let cut = outcome.lines.iter().any(|line| line.group == "layout" && line.name == "tensor");
    let best = if cut { "best layout" } else { "layout, with the least recomputation that fits" };
    let layout = e.chosen.map_or_else(String::new, |layout| format!("{best}: {layout}\n"));
    format!(
        "{} s an iteration, {} tokens/s, {} TFLOP/s a GPU of the model, MFU {:.1} %\n{layout}{sure}\n\n{}",
        significant(e.iteration_s),
        significant(e.tokens_per_s),
        significant(e.model_tflops_per_gpu),
        100.0 * e.mfu,
        Table::from(explain_table(&outcome.lines)).render(colour)
    )
}
