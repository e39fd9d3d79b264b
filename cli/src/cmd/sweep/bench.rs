//! `trinity sweep bench`: configurations a second, and what more threads bring.
//!
//! Threads of one process are held against as many processes that know nothing
//! of each other: those share the machine's clock and caches and nothing else,
//! so what they gain over one thread is all that the machine has to give.

use super::asked::SweepArgs;
use crate::failure::Failure;
use crate::table::Table;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trinity_sim::sweep::{BLOCK, evaluate};
use trinity_study::number::significant;
use trinity_study::sweep::Study;

#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// How long to measure each row of the table
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// In how many turns; the best counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
}

/// Evaluations in one turn, and what they took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Throughput {
    threads: usize,
    processes: usize,
    points: u64,
    feasible: u64,
    seconds: f64,
    /// Time the threads had a core; on a busy machine less than they waited.
    cpu_seconds: f64,
}

impl Throughput {
    fn per_second(&self) -> f64 {
        self.points as f64 / self.seconds
    }

    fn per_cpu_second(&self) -> f64 {
        self.points as f64 / self.cpu_seconds
    }

    fn feasible_per_cpu_second(&self) -> f64 {
        self.feasible as f64 / self.cpu_seconds
    }
}

/// One thread; where more are asked for also as many threads, and as many
/// processes. They take turns, so that a machine that slows down slows all of
/// them; the best turn of each counts.
pub fn measure(study: &Study, args: &BenchArgs, threads: usize) -> Result<Vec<Throughput>, Failure> {
    let turn = Duration::from_secs_f64(args.seconds.clamp(0.1, 600.0) / f64::from(args.turns));
    let mut rates: Vec<Throughput> = Vec::new();
    for _ in 0..args.turns {
        let mut turns = vec![on_threads(study, turn, 1)?];
        if threads > 1 {
            turns.push(on_threads(study, turn, threads)?);
            turns.push(in_processes(&args.sweep, turn, threads)?);
        }
        if rates.is_empty() {
            rates = turns;
            continue;
        }
        for (best, turn) in rates.iter_mut().zip(turns) {
            if turn.per_second() > best.per_second() {
                *best = turn;
            }
        }
    }
    Ok(rates)
}

fn on_threads(study: &Study, time: Duration, threads: usize) -> Result<Throughput, Failure> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Failure::run(format_args!("cannot start worker threads: {error}")))?;
    let len = study.plan.space.len();
    let started = Instant::now();
    let counts = pool.broadcast(|_| {
        let (thread_started, cpu_before) = (Instant::now(), thread_cpu_s());
        let (mut points, mut feasible, mut start) = (0, 0, 0);
        while started.elapsed() < time {
            let end = (start + BLOCK).min(len);
            let accumulated = evaluate(&study.plan, start..end, |_, _, _, _| ());
            points += accumulated.points;
            feasible += accumulated.feasible;
            start = if end == len { 0 } else { end };
        }
        let waited_s = thread_started.elapsed().as_secs_f64();
        let cpu_s = cpu_before.zip(thread_cpu_s()).map_or(waited_s, |(before, after)| after - before);
        (points, feasible, cpu_s)
    });
    Ok(Throughput {
        threads,
        processes: 1,
        points: counts.iter().map(|(points, _, _)| points).sum(),
        feasible: counts.iter().map(|(_, feasible, _)| feasible).sum(),
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: counts.iter().map(|(_, _, cpu_s)| cpu_s).sum(),
    })
}

/// The same on one thread in each of several processes: this command, started again.
fn in_processes(args: &SweepArgs, time: Duration, processes: usize) -> Result<Throughput, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::run(format_args!("cannot measure a process of its own: {error}"))
    };
    let this = std::env::current_exe().map_err(|error| cannot(&error))?;
    let start = || {
        let mut child = Command::new(&this);
        child.args(["sweep", "bench", &args.sweep, "--threads", "1", "--json", "--quiet", "--seconds"]);
        child.arg(time.as_secs_f64().to_string()).args(["--turns", "1"]);
        for assignment in &args.sets {
            child.args(["--set", assignment]);
        }
        if let Some(file) = &args.calibration {
            child.arg("--calibration").arg(file);
        }
        child.stdout(Stdio::piped()).spawn()
    };
    let started: Result<Vec<_>, _> = (0..processes).map(|_| start()).collect();
    let mut sum =
        Throughput { threads: 1, processes, points: 0, feasible: 0, seconds: 1.0, cpu_seconds: 0.0 };
    let mut per_second = 0.0;
    for child in started.map_err(|error| cannot(&error))? {
        let output = child.wait_with_output().map_err(|error| cannot(&error))?;
        let rates: Vec<Throughput> =
            serde_json::from_slice(&output.stdout).map_err(|error| cannot(&error))?;
        let rate = rates.first().ok_or_else(|| cannot(&"it measured nothing"))?;
        per_second += rate.per_second();
        sum.points += rate.points;
        sum.feasible += rate.feasible;
        sum.cpu_seconds += rate.cpu_seconds;
    }
    // Each has a clock of its own; together they are as fast as their sum.
    sum.seconds = sum.points as f64 / per_second;
    Ok(sum)
}

/// Seconds this thread has had a core, where the system says so (Linux).
fn thread_cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

pub fn json(rates: &[Throughput]) -> Value {
    let one = |rate: &Throughput| {
        let mut value = serde_json::to_value(rate).unwrap_or_default();
        value["points_per_cpu_s"] = rate.per_cpu_second().into();
        value["feasible_per_cpu_s"] = rate.feasible_per_cpu_second().into();
        value["points_per_s"] = rate.per_second().into();
        value["over_one_thread"] = (rate.per_second() / rates[0].per_second()).into();
        value
    };
    rates.iter().map(one).collect()
}

pub fn text(rates: &[Throughput], colour: bool) -> String {
    let table = Table::of(rates)
        .column("processes", |rate| rate.processes)
        .column("threads of each", |rate| rate.threads)
        .column("configurations/CPU s", |rate| significant(rate.per_cpu_second()))
        .column("full estimates/CPU s", |rate| significant(rate.feasible_per_cpu_second()))
        .column("configurations/s", |rate| significant(rate.per_second()))
        .column("over one thread", |rate| format!("{:.2}×", rate.per_second() / rates[0].per_second()))
        .end();
    let mut text = table.render(colour);
    if let [_, threads, processes] = rates {
        text += &format!(
            "\n{} processes that share nothing are what the machine allows: threads reach {:.0} % of them\n",
            processes.processes,
            100.0 * threads.per_second() / processes.per_second()
        );
    }
    text
}
