//! `trinity serve play`: one deployment under one load.

use super::asked::{What, milliseconds, plus_minus, refused, sure};
use crate::cmd::sweep::quantity;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, grouped, sig3};
use std::path::PathBuf;
use trinity_config::Duration;
use trinity_sim::serving::{BOUND, Convergence};
use trinity_study::serving::library::Library;
use trinity_study::serving::player::{Arrivals, PlayOutcome, PlayRequest, run as play};

/// Play one load through one deployment
///
/// Requests come in a closed loop (`--concurrency`), at random (`--rate`) or
/// from a trace. The engine cuts prompts by its token budget, its cache grows
/// page by page, and who no longer fits is thrown out and read anew or swapped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity serve play gpt-oss-120b --precision fp4 --gpu b200-sxm --tensor 2 --concurrency 64
  trinity serve play Llama-3.1-70B --gpu h200-sxm --tensor 4 --rate 3 --prefix-hits 0.5
  trinity serve play Llama-3.1-70B --gpu h200-sxm --tensor 4 --trace=requests.csv
  trinity serve play Qwen3-32B --tensor 2 --concurrency 32 --turns 5 --think \"10 s\"
  trinity serve play Llama-3.1-70B --tensor 4 --concurrency 8 --draft 3 --acceptance 0.7")]
pub struct PlayArgs {
    #[command(flatten)]
    what: What,
    /// GPUs that share each layer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tensor: u32,
    /// Copies of attention, each with requests of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    attention_data: u32,
    /// Groups among which experts are dealt out
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    expert: u32,
    /// Requests that are always in flight
    #[arg(long, value_name = "N", required_unless_present_any = ["rate", "trace"], conflicts_with_all = ["rate", "trace"], value_parser = clap::value_parser!(u32).range(1..=65536))]
    concurrency: Option<u32>,
    /// Requests per second that come at random
    #[arg(long, value_name = "RATE", conflicts_with = "trace")]
    rate: Option<f64>,
    /// Requests that come as a CSV says: arrival_s, prompt_tokens, output_tokens
    #[arg(long, value_name = "CSV")]
    trace: Option<PathBuf>,
    /// Requests in all: as many as it takes to know the rate within 2 % unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: Option<u32>,
    /// Share of each prompt whose cache is there already
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    prefix_hits: f64,
    /// Turns of a conversation; each sends all that was said before
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Time between an answer and the next turn
    #[arg(long, value_name = "TIME", default_value = "0 s", value_parser = quantity::<Duration>)]
    think: Duration,
    /// Tokens that are drafted for each step
    #[arg(long, value_name = "N", requires = "acceptance")]
    draft: Option<f64>,
    /// Chance that a drafted token is accepted when those before it were
    #[arg(long, value_name = "SHARE", requires = "draft")]
    acceptance: Option<f64>,
    /// Time of drafting a token over that of a decoding step
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    draft_cost: f64,
    /// Tokens of a step at most, instead of the engine's
    #[arg(long, value_name = "N")]
    token_budget: Option<u32>,
    /// Sequences in flight at most on a rank, instead of the engine's
    #[arg(long, value_name = "N")]
    max_batch: Option<u32>,
    /// Share of an answer's cache that is kept free at admission, instead of the engine's
    #[arg(long, value_name = "SHARE")]
    reserved: Option<f64>,
    /// Prompts in steps of their own (true) or beside decoding (false), instead of the engine's
    #[arg(long, value_name = "BOOL")]
    prompts_first: Option<bool>,
    /// Who is thrown out of the cache waits in host memory instead of being read anew
    #[arg(long)]
    swap: bool,
    /// Seed of lengths and arrivals
    #[arg(long, value_name = "N", default_value_t = 12_345)]
    seed: u64,
}

pub fn run(args: &PlayArgs, library: &Library, ctx: &Context) -> Result<(), Failure> {
    let arrivals = match (args.concurrency, args.rate, &args.trace) {
        (Some(concurrency), ..) => Arrivals::Concurrency(concurrency),
        (None, Some(rate), _) => Arrivals::Rate(rate),
        (None, None, Some(path)) => Arrivals::Trace(path.clone()),
        (None, None, None) => return Err(Failure::input("a load needs --concurrency, --rate or --trace")),
    };
    let request = PlayRequest {
        ask: args.what.ask(),
        tensor: args.tensor,
        attention_data: args.attention_data,
        expert: args.expert,
        arrivals,
        requests: args.requests,
        prefix_hits: args.prefix_hits,
        turns: args.turns,
        think_s: args.think.s(),
        draft: args.draft.zip(args.acceptance).map(|(tokens, chance)| (tokens, chance, args.draft_cost)),
        token_budget: args.token_budget,
        max_batch: args.max_batch,
        reserved_answer: args.reserved,
        prompts_first: args.prompts_first,
        swap: args.swap,
        seed: args.seed,
    };
    let outcome = play(library, &request).map_err(refused)?;
    ctx.show(&outcome, || text(&outcome, ctx.colour))
}

fn text(outcome: &PlayOutcome, colour: bool) -> String {
    let (played, watched) = (&outcome.played, &outcome.watched);
    let table = Table::of([("TTFT ms", &watched.ttft), ("TPOT ms", &watched.tpot)])
        .column("", |(name, _)| name)
        .column("mean", |(_, own)| milliseconds((own.mean_s, own.within.mean_s)))
        .column("p50", |(_, own)| milliseconds((own.p50_s, own.within.p50_s)))
        .column("p90", |(_, own)| milliseconds((own.p90_s, own.within.p90_s)))
        .column("p99", |(_, own)| milliseconds((own.p99_s, own.within.p99_s)))
        .end();
    let thrown = match played.preempted {
        0 => String::new(),
        count => format!(", {count} times a sequence was thrown out of the cache"),
    };
    let asked = match outcome.request.requests {
        Some(_) => "these requests".to_owned(),
        None => format!("{} requests", grouped(played_requests(outcome))),
    };
    let beyond = match outcome.extrapolated.as_slice() {
        [] => String::new(),
        found => format!("Outside what was measured, and extrapolated: {}.\n", found.join("; ")),
    };
    format!(
        "{} on {} GPUs: {} tokens/s, {} requests/s, {} sequences a step{thrown}.\n{}\n\
         A benchmark of {asked} would print TTFT {} ms and TPOT {} ms, its first burst included.\n{}\n{beyond}\n{}",
        outcome.placement,
        outcome.gpus,
        plus_minus(outcome.tokens_per_s, outcome.tokens_per_s_half_width),
        plus_minus(outcome.requests_per_s, outcome.requests_per_s_half_width),
        sig3(played.mean_batch),
        convergence(outcome),
        sig3(played.ttft_s * 1e3),
        sig3(played.tpot_s * 1e3),
        sure(outcome.unseen_ttft_error, outcome.unseen_tpot_error),
        table.render(colour)
    )
}

/// Requests of the run that a benchmark would print, of all ranks.
fn played_requests(outcome: &PlayOutcome) -> u64 {
    let played = &outcome.played;
    (played.requests_per_s * played.duration_s * f64::from(outcome.request.attention_data)).round() as u64
}

/// What the rates are worth, in words.
fn convergence(outcome: &PlayOutcome) -> String {
    let steady = &outcome.watched.steady;
    let bound = 100.0 * BOUND;
    let of = format!(
        "of {} requests, {} after the warm-up and before the cool-down",
        grouped(outcome.watched_requests as u64),
        grouped(steady.requests as u64)
    );
    match steady.convergence {
        Convergence::Settled => format!("Rates and times {of}, at 95 %; the rate is within {bound:.0} %."),
        Convergence::Wide => format!("Rates and times {of}: the rate is not known within {bound:.0} %."),
        Convergence::Short => format!(
            "Rates and times {of}: too short for a steady state, a request stays {} s.",
            sig3(steady.residence_s)
        ),
        Convergence::Unstable => format!(
            "The queue is unstable: requests come faster than they are answered, and these numbers, {of}, grow with the run."
        ),
    }
}
