//! `trinity serve bench`: how fast services are predicted and played.

use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};
use serde::Serialize;
use std::time::Instant;
use trinity_study::serving::library::Library;
use trinity_study::serving::platform::Ask;
use trinity_study::serving::speed::{Speed, speed};

/// Configurations of the closed form and requests played, per second of one core
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity serve bench
  trinity serve bench --seconds 5 --json")]
pub struct BenchArgs {
    /// How long to measure each of the two
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
}

#[derive(Serialize)]
struct Throughput {
    what: &'static str,
    count: u64,
    seconds: f64,
    per_second: f64,
    asked_per_second: f64,
}

/// At least so many: ten times what AIConfigurator does, and of requests 10⁵.
const CONFIGURATIONS: f64 = 270.0;
const REQUESTS: f64 = 1e5;

pub fn run(args: &BenchArgs, library: &Library, ctx: &Context) -> Result<(), Failure> {
    let limit = args.seconds.clamp(0.05, 600.0);
    let mut rates = Vec::new();
    for (what, which, asked) in [
        ("configurations, tables built anew", Speed::Tables, CONFIGURATIONS),
        ("configurations, tables at hand", Speed::ClosedForm, CONFIGURATIONS),
        ("requests played", Speed::Requests, REQUESTS),
    ] {
        let started = Instant::now();
        let mut count = 0;
        while started.elapsed().as_secs_f64() < limit {
            count += speed(library, &Ask::usual(), which).map_err(Failure::input)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        rates.push(Throughput {
            what,
            count,
            seconds,
            per_second: count as f64 / seconds,
            asked_per_second: asked,
        });
    }
    let table = Table::of(&rates)
        .column("", |rate| rate.what)
        .column("count", |rate| rate.count)
        .column("s", |rate| sig3(rate.seconds))
        .column("per second of one core", |rate| sig3(rate.per_second))
        .column("asked", |rate| sig3(rate.asked_per_second))
        .end();
    ctx.show(&rates, || table.render(ctx.colour))
}
