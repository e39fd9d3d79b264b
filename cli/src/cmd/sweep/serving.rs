//! `trinity sweep` on a study that serves: latencies, throughput under both
//! objectives, tokens per joule and per dollar, and what that means in words.

use super::show::significant;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::Report;
use crate::table::Table;
use crate::{context::Context, failure::Failure, output};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use trinity_sim::serving::{Objective, Served};
use trinity_study::serving::{Choice, Found, Outcome, Workload, load, run, traces};
use trinity_study::sweep::Study;

/// A share of the cache above which it counts as full.
const FULL: f64 = 0.95;

pub fn serve(study: &Study, out: &Path, ctx: &Context) -> Result<(), Failure> {
    traces(study)?.iter().for_each(|path| output::protect(path));
    let started = Instant::now();
    let outcome = run(study, &ctx.watch())?;
    let seconds = started.elapsed().as_secs_f64();
    output::claim(out, &work(study))?;
    output::write(&out.join("serving.csv"), csv(study, &outcome).as_bytes())?;
    page(study, &outcome).write(&out.join("report.html"))?;
    if ctx.json {
        ctx.print_json(&outcome)?;
    } else {
        ctx.print(text(study, &outcome, ctx.colour))?;
    }
    ctx.remark(format!(
        "{} points, {} requests simulated in {seconds:.1} s on {} threads; wrote {}",
        outcome.points.len(),
        crate::table::grouped(outcome.simulated_requests),
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
        rows.push((study.scenario_of(index).to_owned(), index, served.requests, seconds));
    }
    if ctx.json {
        let row = |(scenario, point, requests, seconds): &(String, u64, usize, f64)| serde_json::json!({ "scenario": scenario, "point": point, "requests": requests, "seconds": seconds });
        return ctx.print_json(&rows.iter().map(row).collect::<Vec<_>>());
    }
    let mut table = Table::new(["scenario", "point", "requests", "seconds on one core", "requests/s"]);
    for (scenario, index, requests, seconds) in rows {
        let rate = significant(requests as f64 / seconds);
        table.row([scenario, index.to_string(), requests.to_string(), significant(seconds), rate]);
    }
    ctx.print(table.render(ctx.colour))
}

/// The study as a folder of its results remembers it.
fn work(study: &Study) -> String {
    let sets = study.sets.iter().map(|set| format!(" --set \"{set}\"")).collect::<String>();
    // Requests and promises are in no point of the plan: FNV-1a over them.
    let promises = study.document.settings();
    let promises = promises.iter().filter(|setting| setting.path.starts_with("study.serving."));
    let bytes = promises.flat_map(|setting| format!("{}={};", setting.path, setting.value).into_bytes());
    let digest = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("serving {}{sets}, fingerprint {}-{digest:016x}", study.name, study.fingerprint())
}

/// The answer in the terminal: words first, then the tables they rest on.
pub fn text(study: &Study, outcome: &Outcome, colour: bool) -> String {
    let mut text = format!("{}\n\n", outcome.title);
    if let Some(table) = super::show::replaced_table(study, None) {
        text += &format!("Measured values in use\n{}\n", table.render(colour));
    }
    for sentence in summary(outcome) {
        let _ = writeln!(text, "{sentence}");
    }
    for workload in &outcome.workloads {
        let _ = writeln!(text, "\n{}:", capital(&workload_name(workload)));
        for choice in &workload.choices {
            let _ = writeln!(text, "  {}", answer(outcome, workload, choice));
        }
    }
    text += "\nMost requests within both objectives, by scenario\n";
    text += &best_table(outcome).render(colour);
    text += "\nAll points\n";
    text += &points_table(outcome).render(colour);
    text
}

/// What each scenario buys over the first, from the workload it helps least to
/// the one it helps most.
fn summary(outcome: &Outcome) -> Vec<String> {
    let Some(first) = outcome.workloads.first() else { return Vec::new() };
    let names = first.choices.iter().map(|choice| choice.scenario.as_str());
    let Some(baseline) = names.clone().next() else { return Vec::new() };
    let of = |(at, name): (usize, &str)| {
        let gains: Vec<(f64, String)> = outcome
            .workloads
            .iter()
            .filter_map(|workload| {
                let ratios = workload.choices.get(at)?.over_baseline?;
                Some((ratios.requests_per_s, workload_name(workload)))
            })
            .collect();
        let least = gains.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let most = gains.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        match (least, most) {
            (Some(least), Some(most)) if gains.len() > 1 => format!(
                "{name}: {:.2}× ({}) to {:.2}× ({}) the requests of {baseline} within both objectives.",
                least.0, least.1, most.0, most.1
            ),
            (Some(only), _) => {
                format!("{name}: {:.2}× the requests of {baseline} within both objectives.", only.0)
            }
            _ => format!("{name}: no workload in which both it and {baseline} keep the objectives."),
        }
    };
    names.enumerate().skip(1).map(of).collect()
}

fn answer(outcome: &Outcome, workload: &Workload, choice: &Choice) -> String {
    let Some(point) = point_of(outcome, choice) else {
        let mut mine = outcome
            .points
            .iter()
            .filter(|point| point.scenario == choice.scenario && of_workload(point, workload));
        let why =
            mine.clone().all(|point| point.refused.is_some()).then(|| mine.find_map(|p| p.refused.clone()));
        let why = why.flatten().unwrap_or_else(|| "even a single request breaks an objective".into());
        return format!("{}: no rate can be promised ({why}).", choice.scenario);
    };
    let Some(goodput) = point.goodput else { return String::new() };
    let limit = match (goodput.breaks_first, goodput.served.peak_cache >= FULL) {
        (Some(Objective::Ttft), true) => "more would wait for room in the cache",
        (Some(Objective::Ttft), false) => "more would wait for their first token",
        (Some(Objective::Tpot), _) => "more would slow the tokens of the others",
        (None, _) => "no higher rate was tried",
    };
    let machine = machine(point, workload);
    let first = workload.choices.first().is_some_and(|first| first.scenario == choice.scenario);
    let gain = match (first, &choice.over_baseline, workload.choices.first()) {
        (false, Some(ratios), Some(baseline)) => format!(
            ", {:.2}× the requests, {:.2}× the tokens per dollar and {:.2}× per joule of {}",
            ratios.requests_per_s, ratios.tokens_per_usd, ratios.tokens_per_j, baseline.scenario
        ),
        _ => String::new(),
    };
    let engines = choice.machine_by_machine.iter().filter(|_| !first).map(|gain| {
        let machine = named(gain.machine.iter());
        format!("{:.2}× with {}", gain.over_baseline, if machine.is_empty() { "these" } else { &machine })
    });
    let engines: Vec<String> = engines.collect();
    format!(
        "{}: {} requests/s{gain}{}; {limit}.{}",
        choice.scenario,
        significant(choice.requests_per_s),
        if machine.is_empty() { String::new() } else { format!(" (best with {machine})") },
        if engines.len() > 1 { format!(" On equal engines: {}.", engines.join(", ")) } else { String::new() },
    )
}

fn workload_name(workload: &Workload) -> String {
    let parts: Vec<String> = workload
        .axes
        .iter()
        .map(|(path, value)| format!("{} {value}", path.trim_start_matches("serving.").replace('.', " ")))
        .collect();
    if parts.is_empty() { "the workload".into() } else { parts.join(", ") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The axes of a point that are not the workload's.
fn machine(point: &Found, workload: &Workload) -> String {
    let own = |(path, value): &(&String, &String)| !workload.axes.contains_key(*path) && !value.is_empty();
    named(point.axes.iter().filter(own))
}

/// Axes by the last word of their paths.
fn named<'a>(axes: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let short = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    axes.map(|(path, value)| format!("{} {value}", short(path))).collect::<Vec<_>>().join(", ")
}

fn of_workload(point: &Found, workload: &Workload) -> bool {
    workload.axes.iter().all(|(path, value)| point.axes.get(path) == Some(value))
}

fn point_of<'a>(outcome: &'a Outcome, choice: &Choice) -> Option<&'a Found> {
    let index = choice.index?;
    outcome.points.iter().find(|point| point.index == index)
}

fn ms(seconds: f64) -> String {
    significant(seconds * 1e3)
}

fn best_table(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        "workload",
        "scenario",
        "requests/s",
        "× first",
        "tokens/s",
        "TTFT p50 s",
        "p99 s",
        "TPOT p50 ms",
        "p99 ms",
        "mean batch",
        "cache used %",
        "tokens/J",
        "tokens/$",
        "point",
    ]);
    for workload in &outcome.workloads {
        for choice in &workload.choices {
            let mut cells = vec![workload_name(workload), choice.scenario.clone()];
            if let Some(goodput) = point_of(outcome, choice).and_then(|point| point.goodput) {
                let served = &goodput.served;
                let over = choice.over_baseline.map(|ratios| format!("{:.2}×", ratios.requests_per_s));
                cells.extend([significant(goodput.requests_per_s), over.unwrap_or_default()]);
                cells.extend(served_cells(served));
                cells.push(choice.index.map(|index| index.to_string()).unwrap_or_default());
            } else {
                cells.push("none".into());
            }
            table.row(cells);
        }
    }
    table
}

fn served_cells(served: &Served) -> [String; 9] {
    [
        significant(served.output_tokens_per_s),
        significant(served.ttft.p50_s),
        significant(served.ttft.p99_s),
        ms(served.tpot.p50_s),
        ms(served.tpot.p99_s),
        significant(served.mean_batch),
        format!("{:.0}", 100.0 * served.peak_cache),
        significant(served.output_tokens_per_j),
        significant(served.output_tokens_per_usd),
    ]
}

/// Every point, at the rate stated and at the highest that keeps its word.
fn points_table(outcome: &Outcome) -> Table {
    let paths: Vec<&String> = outcome.points.first().map(|p| p.axes.keys().collect()).unwrap_or_default();
    let fixed = [
        "at the rate stated, /s",
        "TTFT p99 s",
        "TPOT p99 ms",
        "within both, requests/s",
        "cache of an engine, tokens",
        "cannot serve",
    ];
    let headers = ["point", "scenario"].map(String::from).into_iter();
    let headers = headers.chain(paths.iter().map(|path| (*path).clone())).chain(fixed.map(String::from));
    let mut table = Table::new(headers);
    for point in &outcome.points {
        let mut cells = vec![point.index.to_string(), point.scenario.clone()];
        cells.extend(point.axes.values().cloned());
        let served = point.at_rate.as_ref();
        let overrun = served.is_some_and(|served| !served.steady.stable);
        let rate = significant(point.arriving_per_s);
        cells.push(if overrun { format!("{rate}, more than it can serve") } else { rate });
        cells.push(served.map_or_else(String::new, |served| significant(served.ttft.p99_s)));
        cells.push(served.map_or_else(String::new, |served| ms(served.tpot.p99_s)));
        cells.push(match (&point.goodput, &point.refused) {
            (Some(goodput), _) => significant(goodput.requests_per_s),
            (None, Some(_)) => String::new(),
            (None, None) => "none".into(),
        });
        cells.push(served.map_or_else(String::new, |served| served.cache_tokens.to_string()));
        cells.push(point.refused.clone().unwrap_or_default());
        table.row(cells);
    }
    table
}

/// Every number of every point, at both rates.
fn csv(study: &Study, outcome: &Outcome) -> String {
    let mut text = String::from("index,scenario,rate");
    for path in study.plan.space.paths() {
        let _ = write!(text, ",{}", super::show::quoted(path));
    }
    text += ",requests_per_s,output_tokens_per_s,ttft_mean_s,ttft_p50_s,ttft_p90_s,ttft_p99_s,tpot_mean_s,\
             tpot_p50_s,tpot_p90_s,tpot_p99_s,latency_mean_s,latency_p99_s,mean_batch,peak_cache,cache_tokens,\
             energy_j,output_tokens_per_j,usd,output_tokens_per_usd,mean_present,rate_times_latency,\
             ttft_half_width_s,output_tokens_half_width,status\n";
    for point in &outcome.points {
        let within = point.goodput.as_ref().map(|goodput| &goodput.served);
        for (rate, served) in [("stated", point.at_rate.as_ref()), ("highest", within)] {
            let _ = write!(text, "{},{},{rate}", point.index, super::show::quoted(&point.scenario));
            for path in study.plan.space.paths() {
                let value = point.axes.get(path).map_or("", String::as_str);
                let _ = write!(text, ",{}", super::show::quoted(value));
            }
            match served {
                Some(served) => {
                    for number in numbers(served) {
                        let _ = write!(text, ",{number}");
                    }
                    text += if served.steady.stable { ",ok\n" } else { ",unstable\n" };
                }
                None => {
                    let why = point.refused.as_deref().unwrap_or("no rate keeps both objectives");
                    let _ = writeln!(text, "{},{}", ",".repeat(23), super::show::quoted(why));
                }
            }
        }
    }
    text
}

fn numbers(s: &Served) -> [f64; 23] {
    [
        s.requests_per_s,
        s.output_tokens_per_s,
        s.ttft.mean_s,
        s.ttft.p50_s,
        s.ttft.p90_s,
        s.ttft.p99_s,
        s.tpot.mean_s,
        s.tpot.p50_s,
        s.tpot.p90_s,
        s.tpot.p99_s,
        s.latency.mean_s,
        s.latency.p99_s,
        s.mean_batch,
        s.peak_cache,
        s.cache_tokens as f64,
        s.energy_j,
        s.output_tokens_per_j,
        s.usd,
        s.output_tokens_per_usd,
        s.little.mean_present,
        s.little.rate_times_latency,
        s.steady.ttft_s.half_width,
        s.steady.output_tokens_interval.half_width,
    ]
}

fn page(study: &Study, outcome: &Outcome) -> Report {
    let mut report = Report::new(outcome.title.clone());
    report.heading("Answer");
    for sentence in summary(outcome) {
        report.paragraph(sentence);
    }
    let best = best_table(outcome);
    report.table("Most requests within both objectives, by scenario", best.headers(), best.rows());
    if let Some(plot) = plot(outcome) {
        report.plot("Requests per second within both objectives, over the workload", &plot);
    }
    for workload in &outcome.workloads {
        report.heading(capital(&workload_name(workload)));
        for choice in &workload.choices {
            report.paragraph(answer(outcome, workload, choice));
        }
    }
    report.heading("Points");
    let all = points_table(outcome);
    report.table("Every point; latencies at the rate stated", all.headers(), all.rows());
    super::page::assumptions(&mut report, study);
    report
}

/// Throughput over the first axis of the workload that is made of numbers.
fn plot(outcome: &Outcome) -> Option<Plot> {
    let number = |workload: &Workload, path: &str| workload.axes.get(path)?.parse::<f64>().ok();
    let first = outcome.workloads.first()?;
    let path = first.axes.keys().find(|path| outcome.workloads.iter().all(|w| number(w, path).is_some()))?;
    // One line per scenario and per value of every other axis of the workload.
    let others = |workload: &Workload| named(workload.axes.iter().filter(|(own, _)| *own != path));
    let mut kinds: Vec<String> = Vec::new();
    for workload in &outcome.workloads {
        let kind = others(workload);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut series = Vec::new();
    for (at, choice) in first.choices.iter().enumerate() {
        for kind in &kinds {
            let mine = outcome.workloads.iter().filter(|workload| others(workload) == *kind);
            let points = mine.filter_map(|workload| {
                let rate = workload.choices.get(at)?.requests_per_s;
                (rate > 0.0).then_some((number(workload, path)?, rate))
            });
            let points: Vec<(f64, f64)> = points.collect();
            let name = match kind.is_empty() {
                true => choice.scenario.clone(),
                false => format!("{}, {kind}", choice.scenario),
            };
            if !points.is_empty() {
                series.push(Series { name, points, mark: Mark::Line });
            }
        }
    }
    let x = path.trim_start_matches("serving.").replace('.', " ");
    Some(Plot { x: Axis::log(x), y: Axis::log("requests/s within both objectives"), series })
}
