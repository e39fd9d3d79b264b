//! What a serving study found, as sentences, tables and curves that a front end draws.

use super::{Choice, Found, ServingOutcome, Workload};
use crate::number::{grouped, significant};
use crate::sweep::{Study, quoted};
use crate::table::Table;
use std::fmt::Write as _;
use trinity_sim::serving::{Convergence, Goodput, Objective, Percentiles, Served};

/// A share of the cache above which it counts as full.
const FULL: f64 = 0.95;

/// The answer of a serving study.
#[derive(Debug, Clone)]
pub struct ServingAnswer {
    /// What each scenario buys over the first, and how sure that is.
    pub sentences: Vec<String>,
    /// Each workload by name, with a sentence on every scenario.
    pub workloads: Vec<(String, Vec<String>)>,
    /// Most requests within both objectives, by scenario.
    pub best: Table,
    /// Every point; latencies at the rate stated.
    pub points: Table,
    /// Requests per second within both objectives over the workload, a chart for each kind of it.
    pub charts: Vec<WorkloadChart>,
}

/// Throughput over one axis of the workload, a line for each scenario; both axes are logarithmic.
#[derive(Debug, Clone)]
pub struct WorkloadChart {
    /// Values of the other axes of the workload.
    pub kind: String,
    /// What lies along the chart.
    pub axis: String,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl ServingOutcome {
    /// The outcome in words, tables and charts.
    pub fn answer(&self, study: &Study) -> ServingAnswer {
        let of_workload = |workload: &Workload| {
            let sentences = workload.choices.iter().map(|choice| answer(self, workload, choice));
            (capital(&workload_name(workload)), sentences.collect())
        };
        ServingAnswer {
            sentences: summary(self).into_iter().chain(sureness(study, self)).collect(),
            workloads: self.workloads.iter().map(of_workload).collect(),
            best: best_table(self),
            points: points_table(self),
            charts: charts(self),
        }
    }
}

/// What each scenario buys over the first, from the workload it helps least to
/// the one it helps most.
fn summary(outcome: &ServingOutcome) -> Vec<String> {
    let Some(first) = outcome.workloads.first() else { return Vec::new() };
    let names = first.choices.iter().map(|choice| choice.scenario.as_str());
    let Some(baseline) = names.clone().next() else { return Vec::new() };
    let of = |(at, name): (usize, &str)| {
        let gains: Vec<(f64, [f64; 2], String)> = outcome
            .workloads
            .iter()
            .filter_map(|workload| {
                let ratios = workload.choices.get(at)?.over_baseline?;
                Some((ratios.requests_per_s, ratios.requests_within, workload_name(workload)))
            })
            .collect();
        let least = gains.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let most = gains.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        match (least, most) {
            (Some(least), Some(most)) if gains.len() > 1 => format!(
                "{name}: {} ({}) up to {} ({}) the requests of {baseline} within both objectives.",
                times(least.0, least.1),
                least.2,
                times(most.0, most.1),
                most.2
            ),
            (Some(only), _) => {
                format!(
                    "{name}: {} the requests of {baseline} within both objectives.",
                    times(only.0, only.1)
                )
            }
            _ => format!("{name}: no workload in which both it and {baseline} keep the objectives."),
        }
    };
    names.enumerate().skip(1).map(of).collect()
}

/// A ratio and its interval.
fn times(ratio: f64, within: [f64; 2]) -> String {
    if !within[1].is_finite() {
        return format!("{ratio:.2}× [runs too short to tell]");
    }
    format!("{ratio:.2}× [{:.2}, {:.2}]", within[0], within[1])
}

/// A rate and its interval.
fn rate(per_s: f64, within: [f64; 2]) -> String {
    if !within[1].is_finite() {
        return format!("{} [run too short to tell]", significant(per_s));
    }
    format!("{} [{}, {}]", significant(per_s), significant(within[0]), significant(within[1]))
}

/// How sure the rates are: the rule, and what does not keep it.
fn sureness(study: &Study, outcome: &ServingOutcome) -> Vec<String> {
    let bound = study.file.study.serving.as_ref().map_or(0.0, |serving| 100.0 * serving.bound.get());
    let found: Vec<&Found> = outcome.points.iter().filter(|point| point.goodput.is_some()).collect();
    let of = |which: &dyn Fn(&Goodput) -> bool| {
        let own = found.iter().filter(|point| point.goodput.is_some_and(|own| which(&own)));
        own.map(|point| point.index.to_string()).collect::<Vec<_>>()
    };
    let mut said = vec![format!(
        "In brackets: 95 % intervals. Runs go on until a rate is known within {bound} %, warm-up and cool-down cut."
    )];
    let known = |own: &Goodput| own.within[1].is_finite();
    let short = of(&|own| !known(own));
    if !short.is_empty() {
        let needed = found.iter().filter_map(|point| point.goodput).filter(|own| !known(own));
        said.push(format!(
            "Too short to tell a rate: the runs of {} of {} points (points {}), which take up to {} requests; \
             `most-requests` lets them go on.",
            short.len(),
            found.len(),
            short.join(", "),
            grouped(needed.map(|own| own.needed).max().unwrap_or(0))
        ));
    }
    let wide = of(&|own| known(own) && !own.settled);
    if !wide.is_empty() {
        let apart = |own: Goodput| 100.0 * (own.within[1] / own.within[0] - 1.0) / 2.0;
        let widest = found.iter().filter_map(|point| point.goodput.filter(known)).map(apart);
        said.push(format!(
            "Not within {bound} % after the longest run: {} of {} points, the least sure within {:.1} % (points {}); \
             `most-requests` lets runs go on.",
            wide.len(),
            found.len(),
            widest.fold(0.0, f64::max),
            wide.join(", ")
        ));
    }
    let convergence = |wanted: Convergence| {
        let own = |point: &&Found| point.at_rate.is_some_and(|served| served.steady.convergence == wanted);
        outcome.points.iter().filter(own).map(|point| point.index.to_string()).collect::<Vec<_>>()
    };
    let unstable = convergence(Convergence::Unstable);
    if !unstable.is_empty() {
        said.push(format!(
            "At the rate stated the queue of {} points is unstable: more arrives than they serve, and their latencies grow \
             with the run (points {}).",
            unstable.len(),
            unstable.join(", ")
        ));
    }
    let short = [convergence(Convergence::Short), convergence(Convergence::Wide)].concat();
    if !short.is_empty() {
        said.push(format!(
            "At the rate stated the runs of {} points are too short to know their rate within {bound} % (points {}).",
            short.len(),
            short.join(", ")
        ));
    }
    said
}

fn answer(outcome: &ServingOutcome, workload: &Workload, choice: &Choice) -> String {
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
            ", {} the requests, {:.2}× the tokens per dollar and {:.2}× per joule of {}",
            times(ratios.requests_per_s, ratios.requests_within),
            ratios.tokens_per_usd,
            ratios.tokens_per_j,
            baseline.scenario
        ),
        _ => String::new(),
    };
    let engines = choice.machine_by_machine.iter().filter(|_| !first).map(|gain| {
        let machine = named(gain.machine.iter());
        let gain = times(gain.over_baseline, gain.within);
        format!("{gain} with {}", if machine.is_empty() { "these" } else { &machine })
    });
    let engines: Vec<String> = engines.collect();
    format!(
        "{}: {} requests/s{gain}{}; {limit}.{}",
        choice.scenario,
        rate(choice.requests_per_s, choice.within),
        if machine.is_empty() { String::new() } else { format!(" (best with {machine})") },
        if engines.len() > 1 { format!(" On equal engines: {}.", engines.join(", ")) } else { String::new() },
    )
}

fn workload_name(workload: &Workload) -> String {
    let parts: Vec<String> =
        workload.axes.iter().map(|(path, value)| format!("{} {value}", spoken(path))).collect();
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

fn point_of<'a>(outcome: &'a ServingOutcome, choice: &Choice) -> Option<&'a Found> {
    let index = choice.index?;
    outcome.points.iter().find(|point| point.index == index)
}

fn ms(seconds: f64) -> String {
    significant(seconds * 1e3)
}

fn best_table(outcome: &ServingOutcome) -> Table {
    let mut table = Table::new([
        "workload",
        "scenario",
        "requests/s",
        "× first",
        "tokens/s",
        "tokens a request",
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
                let over = choice.over_baseline.map(|own| times(own.requests_per_s, own.requests_within));
                cells.extend([rate(goodput.requests_per_s, goodput.within), over.unwrap_or_default()]);
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

fn served_cells(served: &Served) -> [String; 10] {
    let tokens = served.steady.output_tokens_per_s;
    let tokens = match tokens.half_width.is_finite() {
        true => format!("{} ± {}", significant(tokens.mean), significant(tokens.half_width)),
        false => significant(tokens.mean),
    };
    [
        tokens,
        significant(served.output_tokens_per_s / served.requests_per_s),
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
fn points_table(outcome: &ServingOutcome) -> Table {
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
        let stated = significant(point.arriving_per_s);
        cells.push(if overrun { format!("{stated}, unstable: more than it can serve") } else { stated });
        cells.push(served.map_or_else(String::new, |served| p99(&served.ttft, 1.0)));
        cells.push(served.map_or_else(String::new, |served| p99(&served.tpot, 1e3)));
        cells.push(match (&point.goodput, &point.refused) {
            (Some(goodput), _) => rate(goodput.requests_per_s, goodput.within),
            (None, Some(_)) => String::new(),
            (None, None) => "none".into(),
        });
        cells.push(served.map_or_else(String::new, |served| served.cache_tokens.to_string()));
        cells.push(point.refused.clone().unwrap_or_default());
        table.row(cells);
    }
    table
}

/// A 99th percentile and its interval, in seconds over `per_s`.
fn p99(own: &Percentiles, per_s: f64) -> String {
    match own.within.p99_s[1].is_finite() {
        true => rate(own.p99_s * per_s, own.within.p99_s.map(|s| s * per_s)),
        false => significant(own.p99_s * per_s),
    }
}

/// Every number of every point, at both rates.
pub fn points_csv(study: &Study, outcome: &ServingOutcome) -> String {
    let mut text = String::from("index,scenario,rate");
    for path in study.plan.space.paths() {
        let _ = write!(text, ",{}", quoted(path));
    }
    text += ",requests_per_s,output_tokens_per_s,ttft_mean_s,ttft_p50_s,ttft_p90_s,ttft_p99_s,tpot_mean_s,\
             tpot_p50_s,tpot_p90_s,tpot_p99_s,latency_mean_s,latency_p99_s,mean_batch,peak_cache,cache_tokens,\
             energy_j,output_tokens_per_j,usd,output_tokens_per_usd,mean_present,rate_times_latency,\
             requests,preempted,turned_away,residence_s,requests_per_s_low,requests_per_s_high,\
             output_tokens_per_s_low,output_tokens_per_s_high,ttft_p99_low_s,ttft_p99_high_s,tpot_p99_low_s,\
             tpot_p99_high_s,status\n";
    for point in &outcome.points {
        let within = point.goodput.as_ref().map(|goodput| &goodput.served);
        let known = point.goodput.as_ref().map(|goodput| goodput.within);
        for (rate, served, known) in [("stated", point.at_rate.as_ref(), None), ("highest", within, known)] {
            let _ = write!(text, "{},{},{rate}", point.index, quoted(&point.scenario));
            for path in study.plan.space.paths() {
                let value = point.axes.get(path).map_or("", String::as_str);
                let _ = write!(text, ",{}", quoted(value));
            }
            match served {
                Some(served) => {
                    for number in numbers(served, known) {
                        let _ = write!(text, ",{number}");
                    }
                    let _ =
                        writeln!(text, ",{}", convergence(served, point.goodput.filter(|_| known.is_some())));
                }
                None => {
                    let why = point.refused.as_deref().unwrap_or("no rate keeps both objectives");
                    let _ = writeln!(text, "{},{}", ",".repeat(NUMBERS), quoted(why));
                }
            }
        }
    }
    text
}

/// What a row is worth: as its run stands, or as the search for its rate does.
fn convergence(served: &Served, goodput: Option<Goodput>) -> &'static str {
    match (served.steady.convergence, goodput.map(|own| own.settled)) {
        (Convergence::Unstable, _) => "unstable",
        (_, Some(true)) | (Convergence::Settled, None) => "settled",
        (Convergence::Short, _) => "short",
        (_, Some(false)) if goodput.is_some_and(|own| !own.within[1].is_finite()) => "short",
        (_, Some(false)) | (Convergence::Wide, None) => "wide",
    }
}

/// Numbers of a row.
const NUMBERS: usize = 33;

fn numbers(s: &Served, known: Option<[f64; 2]>) -> [f64; NUMBERS] {
    let requests = known.unwrap_or(s.steady.requests_per_s.ends());
    let tokens = s.steady.output_tokens_per_s.ends();
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
        s.requests as f64,
        s.preempted as f64,
        s.turned_away as f64,
        s.steady.residence_s,
        requests[0],
        requests[1],
        tokens[0],
        tokens[1],
        s.ttft.within.p99_s[0],
        s.ttft.within.p99_s[1],
        s.tpot.within.p99_s[0],
        s.tpot.within.p99_s[1],
    ]
}

/// Throughput over the first axis of the workload that is made of numbers: one
/// chart for each value of the other axes, one line for each scenario.
fn charts(outcome: &ServingOutcome) -> Vec<WorkloadChart> {
    let number = |workload: &Workload, path: &str| workload.axes.get(path)?.parse::<f64>().ok();
    let Some(first) = outcome.workloads.first() else { return Vec::new() };
    let numeric = |path: &&String| outcome.workloads.iter().all(|own| number(own, path).is_some());
    let Some(path) = first.axes.keys().find(numeric) else { return Vec::new() };
    let kind_of = |workload: &Workload| {
        let others = workload.axes.iter().filter(|(own, _)| *own != path);
        others.map(|(own, value)| format!("{} {value}", spoken(own))).collect::<Vec<_>>().join(", ")
    };
    let mut kinds: Vec<String> = Vec::new();
    for kind in outcome.workloads.iter().map(kind_of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let chart = |kind: &str| {
        let mine: Vec<&Workload> = outcome.workloads.iter().filter(|own| kind_of(own) == kind).collect();
        let line = |(at, choice): (usize, &Choice)| {
            let points = mine.iter().filter_map(|workload| {
                let rate = workload.choices.get(at)?.requests_per_s;
                (rate > 0.0).then_some((number(workload, path)?, rate))
            });
            (choice.scenario.clone(), points.collect::<Vec<_>>())
        };
        let lines = first.choices.iter().enumerate().map(line).filter(|own| !own.1.is_empty());
        WorkloadChart { kind: kind.to_owned(), axis: spoken(path), lines: lines.collect() }
    };
    kinds.iter().map(|kind| chart(kind)).collect()
}

/// The path of an axis of the workload in words.
fn spoken(path: &str) -> String {
    path.trim_start_matches("serving.").replace('.', " ")
}
