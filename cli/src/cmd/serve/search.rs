//! `trinity serve search`: the best deployment of so many GPUs.

use super::asked::{What, milliseconds, plus_minus, refused, sure};
use crate::cmd::sweep::quantity;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, grouped, sig3};
use std::time::Instant;
use trinity_config::Duration;
use trinity_study::serving::library::Library;
use trinity_study::serving::plan::{DeploymentOutcome, DeploymentRequest, find};

/// Rank placements, batches and splits of so many GPUs within a TTFT and a TPOT
///
/// Every placement of the model, as replicas that do all and as workers for
/// prompts beside workers for answers, at every concurrency, by a closed form;
/// the best are then played request by request and ranked by tokens per second.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity serve search Llama-3.1-70B --gpu h200-sxm --gpus 16 --ttft \"1 s\" --tpot \"30 ms\"
  trinity serve search DeepSeek-R1 --precision fp4 --gpu gb200 --engine trtllm --gpus 32
  trinity serve search gpt-oss-120b --precision fp4 --gpu b200-sxm --tpot \"8 ms\" --json")]
pub struct SearchArgs {
    #[command(flatten)]
    what: What,
    /// GPUs there are
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpus: u32,
    /// Mean time to first token that is promised
    #[arg(long, value_name = "TIME", default_value = "2 s", value_parser = quantity::<Duration>)]
    ttft: Duration,
    /// Mean time per token after the first that is promised
    #[arg(long, value_name = "TIME", default_value = "30 ms", value_parser = quantity::<Duration>)]
    tpot: Duration,
    /// Requests in flight at most
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65536))]
    most_concurrency: u32,
    /// How many to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: u32,
}

pub fn run(args: &SearchArgs, library: &Library, ctx: &Context) -> Result<(), Failure> {
    let request = DeploymentRequest {
        ask: args.what.ask(),
        gpus: args.gpus,
        ttft_s: args.ttft.s(),
        tpot_s: args.tpot.s(),
        most_concurrency: args.most_concurrency,
        top: args.top as usize,
    };
    let started = Instant::now();
    let outcome = find(library, &request).map_err(refused)?;
    if ctx.json {
        return ctx.print_json(&outcome);
    }
    ctx.remark(format!(
        "{} deployments, {} points of the closed form, {} played in {:.1} s",
        grouped(outcome.deployments as u64),
        grouped(outcome.predictions as u64),
        outcome.ranked.len(),
        started.elapsed().as_secs_f64()
    ));
    ctx.print(text(&outcome, ctx.colour))
}

fn text(outcome: &DeploymentOutcome, colour: bool) -> String {
    let table = Table::of(&outcome.ranked)
        .column("deployment (prompts : answers)", |own| &own.name)
        .column("GPUs", |own| own.gpus)
        .column("in flight", |own| own.concurrency)
        .column("tokens/s", |own| plus_minus(own.tokens_per_s, own.tokens_per_s_half_width))
        .column("per GPU", |own| sig3(own.tokens_per_s_per_gpu))
        .column("TTFT ms", |own| sig3(own.ttft_s * 1e3))
        .column("TPOT ms", |own| sig3(own.tpot_s * 1e3))
        .column("steady TTFT p99 ms", |own| milliseconds((own.ttft_p99_s, own.ttft_p99_within_s)))
        .column("batch of a rank", |own| sig3(own.batch))
        .column("closed form tokens/s", |own| sig3(own.closed_form_tokens_per_s))
        .end();
    let best = outcome.ranked.first().map_or(String::new(), |own| {
        format!(
            "{}: {} tokens/s, {} a GPU, with {} in flight.\n",
            own.name,
            plus_minus(own.tokens_per_s, own.tokens_per_s_half_width),
            sig3(own.tokens_per_s_per_gpu),
            own.concurrency
        )
    });
    format!(
        "{best}{}\n\n{}",
        sure(outcome.unseen_ttft_error, outcome.unseen_tpot_error),
        table.render(colour)
    )
}
