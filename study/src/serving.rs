//! Serving studies: every point of a sweep played as a service under load.
//!
//! A sweep whose study has a table `serving` asks another question than how
//! long a step takes: what latency does a stream of requests see at the rate
//! stated, and how many requests a second can be promised the objectives. The
//! points, scenarios and axes are the sweep's own; the first scenario is what
//! the others are held against.
//!
//! Must not know how an answer is shown.

mod answer;
pub mod coded;
pub mod library;
pub mod loss;
pub mod measured;
pub mod plan;
pub mod platform;
pub mod player;
pub mod speed;
mod trace;

pub use answer::{ServingAnswer, WorkloadChart, points_csv};

use crate::config::{ServingFile, SweepFile};
use crate::sweep::{Replaced, Study};
use crate::{Error, Progress, parallel};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trinity_config::{Complaint, Document};
use trinity_sim::serving::{
    Goodput, Requests, Served, Service, ServingError, ServingRequest, Stream, goodput, serve, settle,
};

/// Requests that a run begins with where a study does not say.
const USUAL_REQUESTS: u32 = 10_000;

/// What a serving study found.
#[derive(Debug, Clone, Serialize)]
pub struct ServingOutcome {
    pub title: String,
    /// What measurements replaced.
    #[serde(rename = "calibration")]
    pub replaced: Vec<Replaced>,
    pub points: Vec<Found>,
    /// For each workload, the best point of each scenario.
    pub workloads: Vec<Workload>,
    /// Requests simulated for all of it, each search for a rate included.
    pub simulated_requests: u64,
}

/// One point.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    pub index: u64,
    pub scenario: String,
    pub axes: BTreeMap<String, String>,
    pub ttft_p99_objective_s: f64,
    pub tpot_p99_objective_s: f64,
    /// Requests that arrive at the rate that the study states.
    pub arriving_per_s: f64,
    pub at_rate: Option<Served>,
    /// At the highest rate that keeps both objectives; none where no rate does.
    pub goodput: Option<Goodput>,
    /// Why the point cannot serve, where it cannot.
    pub refused: Option<String>,
}

/// Requests and promises that are the same for all scenarios.
#[derive(Debug, Clone, Serialize)]
pub struct Workload {
    /// Values of the axes that make this workload.
    pub axes: BTreeMap<String, String>,
    /// In the order of the scenarios; the first is what others are held against.
    pub choices: Vec<Choice>,
}

/// The best that a scenario does with a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    pub scenario: String,
    /// The point with the most requests a second; none where no point keeps the objectives.
    pub index: Option<u64>,
    pub requests_per_s: f64,
    /// 95 % interval of the most that any of its points serves.
    pub within: [f64; 2],
    pub over_baseline: Option<Ratios>,
    /// Over the first scenario on the same machine, for each machine on which both keep the objectives.
    pub machine_by_machine: Vec<Gain>,
}

/// Requests a second over those of the first scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Gain {
    /// Values of the axes that make the machine.
    pub machine: BTreeMap<String, String>,
    pub requests_per_s: f64,
    pub over_baseline: f64,
    /// Interval of `over_baseline`: the ends of both rates over each other.
    pub within: [f64; 2],
}

/// A scenario over the first one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Ratios {
    pub requests_per_s: f64,
    /// Interval of `requests_per_s`: the ends of both rates over each other.
    pub requests_within: [f64; 2],
    pub tokens_per_usd: f64,
    pub tokens_per_j: f64,
}

/// Whether a sweep is a serving study.
pub fn serves(study: &Study) -> bool {
    study.file.study.serving.is_some()
}

/// The files besides the sweep that its points are read from. Fails where a
/// scenario cannot be read.
pub fn traces(study: &Study) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for at in 0..study.file.scenarios.len() {
        let document = study.file.document_of(&study.document, at)?;
        paths.extend(trace::path(&document));
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// A service, what it is asked, how many requests a run begins with, and how
/// many come a second.
#[derive(Clone)]
struct Arriving {
    serving: ServingFile,
    stream: Stream,
    first: usize,
    rate_per_s: f64,
}

/// A point about to be played.
struct Job {
    index: u64,
    arriving: Arriving,
}

/// Plays every point at its rate, and searches for the highest rate that keeps
/// its objectives. Fails where requests cannot be read or drawn, no point can
/// serve, or the work is no longer wanted.
pub fn run(study: &Study, progress: &dyn Progress) -> Result<ServingOutcome, Error> {
    let jobs = jobs(study)?;
    progress.begin(jobs.len() as u64, "serving");
    let found = parallel::map(&jobs, |job| {
        progress.check()?;
        let found = play(study, job);
        progress.advance(1);
        Ok(found)
    });
    progress.end();
    let found = found.into_iter().collect::<Result<Vec<(Found, u64)>, Error>>()?;
    let simulated_requests = found.iter().map(|(_, requests)| requests).sum();
    let points: Vec<Found> = found.into_iter().map(|(found, _)| found).collect();
    if points.iter().all(|point| point.refused.is_some()) {
        let why = points.first().and_then(|point| point.refused.clone()).unwrap_or_default();
        let complaint = Complaint::new(format_args!("no point can serve: {why}"))
            .expected("engines that hold the model and a request");
        return Err(study.document.complain("study.serving", &complaint).into());
    }
    Ok(ServingOutcome {
        title: study.file.title.clone(),
        replaced: study.replaced.clone(),
        workloads: workloads(study, &points),
        points,
        simulated_requests,
    })
}

/// The service of a point and `count` requests at the rate stated, to be
/// simulated by who wants to know how fast that goes. Fails where requests
/// cannot be read or drawn, or GPUs make no engines.
pub fn load(study: &Study, index: u64, count: u32) -> Result<(Service, Vec<ServingRequest>), Error> {
    let at = study.plan.space.scenario_of(index);
    let axes = serving_axes(study, index).into_iter().map(|(path, label)| format!("study.{path}={label}"));
    let sets: Vec<String> = axes.chain([format!("study.serving.requests={count}")]).collect();
    let Arriving { serving, stream, rate_per_s, .. } = arriving(study, at, &sets)?;
    let service = serving.service(&study.plan.space.point(index)).map_err(|(key, why)| {
        Error::from(study.document.complain(&format!("study.serving.{key}"), &Complaint::new(why)))
    })?;
    let said =
        |error: ServingError| Error::from(study.document.complain("study.serving", &Complaint::new(error)));
    let mut requests = Requests::faster(&stream.first(count as usize).map_err(said)?, rate_per_s);
    requests.truncate(count as usize);
    Ok((service, requests))
}

fn jobs(study: &Study) -> Result<Vec<Job>, Error> {
    let space = &study.plan.space;
    // Points that differ in machines alone share what arrives.
    let mut read: BTreeMap<(usize, Vec<String>), Arriving> = BTreeMap::new();
    let mut jobs = Vec::new();
    for index in 0..space.len() {
        let at = space.scenario_of(index);
        let sets: Vec<String> = serving_axes(study, index)
            .into_iter()
            .map(|(path, label)| format!("study.{path}={label}"))
            .collect();
        let key = (at, sets);
        if !read.contains_key(&key) {
            let arriving = arriving(study, at, &key.1)?;
            read.insert(key.clone(), arriving);
        }
        jobs.extend(read.get(&key).map(|arriving| Job { index, arriving: arriving.clone() }));
    }
    Ok(jobs)
}

/// The axes that change requests and promises, not machines.
fn serving_axes(study: &Study, index: u64) -> Vec<(String, String)> {
    let own = |(path, label): &(String, String)| path.starts_with("serving.") && !label.is_empty();
    study.axes_of(index).into_iter().filter(own).collect()
}

/// What arrives in a scenario with `sets` laid over it, and how often.
fn arriving(study: &Study, at: usize, sets: &[String]) -> Result<Arriving, Error> {
    let document = study.file.document_of(&study.document, at)?.with(sets)?;
    let file: SweepFile = document.read()?;
    let Some(serving) = file.study.serving else {
        return Err(Error::input("this sweep serves nothing", "give its study a table `serving`"));
    };
    let (stream, first) = stream(&document, &serving)?;
    let own = match &stream {
        Stream::Trace(requests) => Requests::rate_per_s(requests),
        Stream::Drawn { .. } => 1.0,
    };
    if !own.is_finite() {
        let complaint = Complaint::new("the requests arrive all at once, or there is but one")
            .expected("two or more, at different times");
        return Err(document.complain("study.serving", &complaint).into());
    }
    let rate_per_s = serving.rate.unwrap_or(own);
    Ok(Arriving { serving, stream, first, rate_per_s })
}

/// What comes, and how many a run begins with.
fn stream(document: &Document, serving: &ServingFile) -> Result<(Stream, usize), Error> {
    if let Some(path) = trace::path(document) {
        let mut requests = trace::read(document, &path)?;
        requests.truncate(serving.requests.map_or(usize::MAX, |count| count as usize));
        let count = requests.len();
        return Ok((Stream::Trace(requests.into()), count));
    }
    let lengths = |key: &str, file: &Option<crate::config::LengthsFile>| {
        let lengths = file.as_ref().ok_or("lengths").and_then(|file| file.resolve());
        lengths.map_err(|missing| {
            let complaint = Complaint::new(format_args!("no `{key}`")).expected(missing);
            Error::from(document.complain(&format!("study.serving.{key}"), &complaint))
        })
    };
    let (prompt, output) = (lengths("prompt", &serving.prompt)?, lengths("output", &serving.output)?);
    let first = serving.requests.unwrap_or(USUAL_REQUESTS) as usize;
    Ok((Stream::Drawn { seed: u64::from(serving.seed), prompt, output }, first))
}

/// One point, and how many requests were simulated for it.
fn play(study: &Study, job: &Job) -> (Found, u64) {
    let Arriving { serving, stream, first, rate_per_s } = &job.arriving;
    let objectives = serving.objectives();
    let length = serving.length(*first);
    let mut found = Found {
        index: job.index,
        scenario: study.scenario_of(job.index).to_owned(),
        axes: study.axes_of(job.index).into_iter().collect(),
        ttft_p99_objective_s: objectives.ttft_p99_s,
        tpot_p99_objective_s: objectives.tpot_p99_s,
        arriving_per_s: *rate_per_s,
        at_rate: None,
        goodput: None,
        refused: None,
    };
    let point = study.plan.space.point(job.index);
    let mut simulated = 0;
    let outcome = serving.service(&point).map_err(|(key, why)| format!("{key}: {why}")).and_then(
        |service| -> Result<(), String> {
            let said = |error: ServingError| error.to_string();
            let (served, requests) = match stream {
                // A trace is what came: it is played as it is.
                Stream::Trace(own) => {
                    let list = Requests::faster(own, rate_per_s / Requests::rate_per_s(own));
                    (serve(&service, &list).map_err(said)?, list.len() as u64)
                }
                Stream::Drawn { .. } => {
                    let settled = settle(&service, stream, *rate_per_s, &length).map_err(said)?;
                    (settled.served, settled.simulated)
                }
            };
            found.at_rate = Some(served);
            found.goodput = goodput(&service, stream, &objectives, &length).map_err(said)?;
            simulated = requests + found.goodput.map_or(*first as u64, |goodput| goodput.simulated);
            Ok(())
        },
    );
    found.refused = outcome.err();
    (found, simulated)
}

/// Points by workload, in the order in which workloads first appear.
fn workloads(study: &Study, points: &[Found]) -> Vec<Workload> {
    let mut order: Vec<Vec<(String, String)>> = Vec::new();
    for point in points {
        let axes = serving_axes(study, point.index);
        if !order.contains(&axes) {
            order.push(axes);
        }
    }
    order.iter().map(|axes| workload(study, points, axes)).collect()
}

fn workload(study: &Study, points: &[Found], axes: &[(String, String)]) -> Workload {
    let of = |name: &str| -> Vec<&Found> {
        let own = |point: &&Found| point.scenario == name && serving_axes(study, point.index) == axes;
        points.iter().filter(own).collect()
    };
    let best = |mine: &[&Found]| {
        let kept = mine.iter().filter_map(|point| Some((point.index, point.goodput?)));
        kept.reduce(|a, b| if b.1.requests_per_s > a.1.requests_per_s { b } else { a })
    };
    let scenarios = study.plan.space.scenarios();
    let first = scenarios.first().map(|scenario| of(&scenario.name)).unwrap_or_default();
    let baseline = best(&first).map(|(_, goodput)| goodput);
    let most = |mine: &[&Found]| {
        let ends = mine.iter().filter_map(|point| Some(point.goodput?.within));
        ends.fold([0.0_f64; 2], |most, own| [most[0].max(own[0]), most[1].max(own[1])])
    };
    let base_within = most(&first);
    let ratios = |own: &Goodput, base: &Goodput, within: [f64; 2]| Ratios {
        requests_per_s: own.requests_per_s / base.requests_per_s,
        requests_within: over(within, base_within),
        tokens_per_usd: own.served.output_tokens_per_usd / base.served.output_tokens_per_usd,
        tokens_per_j: own.served.output_tokens_per_j / base.served.output_tokens_per_j,
    };
    let gain = |point: &Found| {
        let machine = machine(point);
        let twin = first.iter().find(|twin| self::machine(twin) == machine)?;
        let (own, base) = (point.goodput?, twin.goodput?);
        Some(Gain {
            machine,
            requests_per_s: own.requests_per_s,
            over_baseline: own.requests_per_s / base.requests_per_s,
            within: over(own.within, base.within),
        })
    };
    let choice = |name: &str| {
        let mine = of(name);
        let found = best(&mine);
        let within = most(&mine);
        Choice {
            scenario: name.to_owned(),
            index: found.map(|(index, _)| index),
            requests_per_s: found.map_or(0.0, |(_, goodput)| goodput.requests_per_s),
            within,
            over_baseline: found.zip(baseline).map(|((_, own), base)| ratios(&own, &base, within)),
            machine_by_machine: mine.iter().filter_map(|point| gain(point)).collect(),
        }
    };
    Workload {
        axes: axes.iter().cloned().collect(),
        choices: scenarios.iter().map(|scenario| choice(&scenario.name)).collect(),
    }
}

/// The ends of one interval over those of another.
fn over(own: [f64; 2], base: [f64; 2]) -> [f64; 2] {
    [own[0] / base[1], own[1] / base[0]]
}

/// The axes of a point that make its machine.
fn machine(point: &Found) -> BTreeMap<String, String> {
    let own = |(path, label): &(&String, &String)| !path.starts_with("serving.") && !label.is_empty();
    point.axes.iter().filter(own).map(|(path, label)| (path.clone(), label.clone())).collect()
}
