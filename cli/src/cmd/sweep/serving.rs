//! `trinity sweep` on a study that serves: latencies, throughput under both
//! objectives, tokens per joule and per dollar, drawn as `study` says them.

use super::page;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::Report;
use crate::table::Table;
use crate::{context::Context, failure::Failure, output};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use trinity_study::number::{grouped, significant};
use trinity_study::serving::{ServingAnswer, WorkloadChart, load, points_csv, run, traces};
use trinity_study::sheet::Block;
use trinity_study::sweep::Study;

pub fn serve(study: &Study, out: &Path, ctx: &Context) -> Result<(), Failure> {
    traces(study)?.iter().for_each(|path| output::protect(path));
    let started = Instant::now();
    let outcome = run(study, &ctx.watch())?;
    let seconds = started.elapsed().as_secs_f64();
    output::lock(out, &work(study))?;
    output::write(&out.join("serving.csv"), points_csv(study, &outcome).as_bytes())?;
    let answer = outcome.answer(study);
    report(study, &outcome.title, &answer).write(&out.join("report.html"))?;
    ctx.show(&outcome, || text(study, &outcome.title, answer, ctx.colour))?;
    ctx.remark(format!(
        "{} points, {} requests simulated in {seconds:.1} s on {} threads; wrote {}",
        outcome.points.len(),
        grouped(outcome.simulated_requests),
        ctx.threads,
        out.join("report.html").display()
    ));
    Ok(())
}

/// Requests in a benchmark of the simulation.
const BENCH_REQUESTS: u32 = 100_000;

/// How long one core takes to simulate many requests, in every scenario's first point.
pub fn bench(study: &Study, ctx: &Context) -> Result<(), Failure> {
    let space = &study.plan.space;
    let mut rows = Vec::new();
    let mut seen = None;
    for index in 0..space.len() {
        if seen == Some(space.scenario_of(index)) {
            continue;
        }
        let (service, requests) = load(study, index, BENCH_REQUESTS)?;
        let started = Instant::now();
        // A point that cannot serve is not the first that can.
        let Ok(served) = trinity_sim::serving::serve(&service, &requests) else { continue };
        let seconds = started.elapsed().as_secs_f64();
        seen = Some(space.scenario_of(index));
        let scenario = study.scenario_of(index).to_owned();
        rows.push(BenchRow { scenario, point: index, requests: served.requests, seconds });
    }
    let table = Table::of(&rows)
        .column("scenario", |row| &row.scenario)
        .column("point", |row| row.point)
        .column("requests", |row| row.requests)
        .column("seconds on one core", |row| significant(row.seconds))
        .column("requests/s", |row| significant(row.requests as f64 / row.seconds))
        .end();
    ctx.show(&rows, || table.render(ctx.colour))
}

/// How long a scenario's first point took.
#[derive(Debug, Serialize)]
struct BenchRow {
    scenario: String,
    point: u64,
    requests: usize,
    seconds: f64,
}

/// The study as a folder of its results remembers it.
fn work(study: &Study) -> String {
    let sets = study.sets.iter().map(|set| format!(" --set \"{set}\"")).collect::<String>();
    format!("serving {}{sets}, fingerprint {}", study.name, study.serving_fingerprint())
}

/// The answer in the terminal: words first, then the tables they rest on.
fn text(study: &Study, title: &str, answer: ServingAnswer, colour: bool) -> String {
    let mut blocks = vec![Block::lines(vec![title.to_owned()])];
    blocks.extend(study.replaced_block());
    blocks.push(Block::lines(answer.sentences));
    blocks.extend(answer.workloads.into_iter().map(|(workload, sentences)| Block {
        caption: Some(format!("{workload}:")),
        lines: sentences.iter().map(|sentence| format!("  {sentence}")).collect(),
        ..Block::default()
    }));
    blocks.push(Block::captioned("Most requests within both objectives, by scenario", answer.best));
    blocks.push(Block::captioned("All points", answer.points));
    page::text(blocks, colour)
}

fn report(study: &Study, title: &str, answer: &ServingAnswer) -> Report {
    let mut report = Report::new(title);
    report.heading("Answer").paragraphs(&answer.sentences);
    let ServingAnswer { best, points, .. } = answer;
    report.table("Most requests within both objectives, by scenario", best.headers(), best.rows());
    for chart in &answer.charts {
        let of = if chart.kind.is_empty() { String::new() } else { format!(": {}", chart.kind) };
        report
            .plot(format!("Requests per second within both objectives, over the workload{of}"), &plot(chart));
    }
    for (workload, sentences) in &answer.workloads {
        report.heading(workload).paragraphs(sentences);
    }
    report.heading("Points");
    report.table("Every point; latencies at the rate stated", points.headers(), points.rows());
    page::add(&mut report, &study.assumptions());
    report
}

fn plot(chart: &WorkloadChart) -> Plot {
    let (x, y) = (Axis::log(chart.axis.clone()), Axis::log("requests/s within both objectives"));
    Plot::new(x, y, chart.lines.iter().cloned().map(|(name, points)| Series::new(name, points, Mark::Line)))
}
