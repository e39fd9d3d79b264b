//! One validation: everything that was brought, scored and judged.

use crate::astra::{self, Simulated};
use crate::bars::{Bars, Breach};
use crate::capacity::{self, Capacity};
use crate::collectives::{self, Links, Measurement};
use crate::csv::{Problem, Table};
use crate::facts::{self, Fact, Peers};
use crate::host_runs::{self, HostRun, HostRuns};
use crate::kernels::FamilyError;
use crate::runs::{Run, Runs, Set};
use crate::score::{Pair, Stats, one_constant};
use crate::serving::Services;
use crate::training::{self, Scored};
use crate::{Error, codecs, dies, engines, kernels, nodes, products, silicon};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trinity_hwcodec::recording::Recording;
use trinity_study::config::software::{BUILT_IN, Calibrations};

/// Name of the set of collectives.
pub const COLLECTIVES: &str = "NCCL collectives";
/// Those that nccl-tests timed, and those taken from traces of kernels.
pub const NCCL_TESTS: &str = "NCCL nccl-tests";
pub const NCCL_TRACES: &str = "NCCL kernel traces";
/// Those that ASTRA-sim timed.
pub const SIMULATED: &str = "ASTRA-sim collectives";
/// Name of the set of runs that fitted and runs that did not.
pub const FITS: &str = "fits or not";

/// A set of collectives, and which are in it.
type CollectiveSet = (&'static str, fn(&Measurement) -> bool);
const COLLECTIVE_SETS: [CollectiveSet; 3] =
    [(COLLECTIVES, |_| true), (NCCL_TESTS, |m| !m.is_traced()), (NCCL_TRACES, Measurement::is_traced)];

/// What to validate against, beside the committed data.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ValidationRequest {
    pub runs: Vec<PathBuf>,
    pub oom: Vec<PathBuf>,
    pub collectives: Vec<PathBuf>,
    /// Runs on the GPU of the recording, instead of the committed ones.
    pub host_runs: Vec<PathBuf>,
    /// Measured services.
    pub serving: Vec<PathBuf>,
    /// A folder of tables of measured kernels, to hold the curves against anew.
    pub kernels: Option<PathBuf>,
    /// A recording of another GPU than the committed one's.
    pub recording: Option<PathBuf>,
    /// Constants changed for this validation only.
    #[serde(rename = "sets")]
    pub assignments: Vec<String>,
}

/// Everything read, nothing judged yet.
#[derive(Clone, Debug)]
pub struct Truth {
    pub calibrations: Calibrations,
    pub links: Links,
    pub runs: Vec<Run>,
    pub failures: Vec<Run>,
    pub measurements: Vec<Measurement>,
    /// Collectives that ASTRA-sim timed.
    pub simulated: Simulated,
    pub host_runs: Vec<HostRun>,
    /// Services, predicted as they were read.
    pub services: Services,
    /// Errors of measured kernels' curves on kernels that no fit saw.
    pub kernels: Vec<FamilyError>,
    pub recording: Recording,
    pub facts: Vec<Fact>,
    pub peers: Peers,
    pub malformed: Vec<Problem>,
    pub incomplete: Vec<Problem>,
    /// Rows that a file repeats.
    pub repeated: usize,
}

impl Truth {
    /// Reads the committed data and every file of the request.
    pub fn read(request: &ValidationRequest) -> Result<Self, Error> {
        let (for_links, for_gpus): (Vec<String>, Vec<String>) =
            request.assignments.iter().cloned().partition(|assignment| assignment.starts_with("links."));
        let known = |assignment: &&String| {
            let name = assignment.split('.').next().unwrap_or_default();
            BUILT_IN.contains(&name)
        };
        if let Some(assignment) = for_gpus.iter().find(|assignment| !known(assignment)) {
            return Err(Error::Assignment { assignment: assignment.clone() });
        }
        let published = include_str!("../data/published_runs.csv");
        let mut truth = Self {
            calibrations: Calibrations::load(&for_gpus)?,
            links: Links::load(&for_links)?,
            runs: Vec::new(),
            failures: Vec::new(),
            measurements: Vec::new(),
            simulated: Simulated::default(),
            host_runs: Vec::new(),
            services: Services::default(),
            kernels: match &request.kernels {
                Some(folder) => remeasured(folder)?,
                None => kernels::stated()?,
            },
            recording: match &request.recording {
                Some(path) => Recording::read(path)?,
                None => engines::recording()?,
            },
            facts: facts::facts()?,
            peers: facts::peers()?,
            malformed: Vec::new(),
            incomplete: Vec::new(),
            repeated: 0,
        };
        truth.add_runs(Runs::parse("validation/data/published_runs.csv", published, true)?, true);
        for path in &request.runs {
            truth.add_runs(Runs::read(path, true)?, false);
        }
        for path in &request.oom {
            let runs = Runs::read(path, false)?;
            truth.failures.extend(runs.runs);
            truth.malformed.extend(runs.malformed);
            truth.incomplete.extend(runs.incomplete);
        }
        for path in &request.collectives {
            truth.add_collectives(&Table::read(path, "")?)?;
        }
        for path in &request.serving {
            let mut read = Services::read(path)?;
            truth.malformed.append(&mut read.malformed);
            truth.services.extend(read);
        }
        // Other rows take the place of the committed ones, so that their error stands alone.
        let mut host_runs =
            request.host_runs.iter().map(|path| HostRuns::read(path)).collect::<Result<Vec<_>, _>>()?;
        if host_runs.is_empty() && request.recording.is_none() {
            host_runs.push(HostRuns::committed()?);
        }
        for read in host_runs {
            truth.host_runs.extend(read.runs);
            truth.malformed.extend(read.malformed);
        }
        Ok(truth)
    }

    /// Measured by NCCL or simulated by ASTRA-sim, told by the header.
    fn add_collectives(&mut self, table: &Table) -> Result<(), Error> {
        if table.has(astra::TOLD_BY) {
            let mut read = Simulated::of(table)?;
            self.malformed.append(&mut read.malformed);
            self.simulated.extend(read);
        } else {
            let read = collectives::Measurements::of(table)?;
            self.measurements.extend(read.measurements);
            self.malformed.extend(read.malformed);
        }
        Ok(())
    }

    /// Published rows may also be in a user's file: they count once.
    fn add_runs(&mut self, runs: Runs, committed: bool) {
        let published = if committed { 0 } else { self.runs.len() };
        for run in runs.runs {
            if self.runs[..published].contains(&run) {
                self.repeated += 1;
            } else {
                self.runs.push(run);
            }
        }
        self.malformed.extend(runs.malformed);
        self.incomplete.extend(runs.incomplete);
    }
}

/// One line of the error table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    pub set: String,
    #[serde(flatten)]
    pub stats: Stats,
    pub worst: Option<Worst>,
    /// Error of work times one constant fitted on this very set.
    pub one_constant_mape: Option<f64>,
    /// Error on rows that a fit did not see.
    pub k_fold_mape: Option<f64>,
    /// Error with constants fitted on the other sets alone.
    pub leave_one_source_out_mape: Option<f64>,
    /// What that may be at most.
    pub left_out_bar: Option<f64>,
    /// Error of a size between its neighbours of the same group: what rows
    /// scatter by, below which no law of the size goes.
    pub between_neighbours_mape: Option<f64>,
    pub calculon_mape: Option<f64>,
    pub vtrain_mape: Option<f64>,
    /// AIConfigurator's error on the rows of a set of services that it predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aiconfigurator_mape: Option<f64>,
    /// Ours on those very rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_on_aiconfigurators_mape: Option<f64>,
    pub balanced_accuracy: Option<f64>,
    /// Whether constants were fitted on rows of this set.
    pub fitted: bool,
    pub bar: Option<f64>,
    pub breached: bool,
    /// Rows predicted with the constants of another path, theirs being unknown.
    pub borrowed: usize,
    /// Rows that could not be put to the model, with the reason of the first.
    pub unscored: usize,
    pub unscored_because: Option<String>,
}

/// The row a set errs most on.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    pub configuration: String,
    pub predicted: f64,
    pub measured: f64,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct ValidationOutcome {
    pub lines: Vec<Line>,
    pub breaches: Vec<Breach>,
    /// Every pair, by set, for pictures.
    pub pairs: BTreeMap<String, Vec<Pair>>,
    pub scored: BTreeMap<Set, Scored>,
    pub capacity: Capacity,
    pub codecs: Vec<codecs::Check>,
}

/// Scores and judges.
pub fn validate(truth: &Truth) -> Result<ValidationOutcome, Error> {
    score_all(truth, &Unseen::of(truth))
}

fn score_all(truth: &Truth, unseen: &Unseen) -> Result<ValidationOutcome, Error> {
    let bars = Bars::load()?;
    let mut outcome = ValidationOutcome {
        lines: Vec::new(),
        breaches: Vec::new(),
        pairs: BTreeMap::new(),
        scored: training::score(&truth.calibrations, &truth.runs),
        capacity: capacity::score(&truth.calibrations, &truth.runs, &truth.failures),
        codecs: codecs::check(),
    };
    for set in Set::all() {
        let Some(scored) = outcome.scored.get(&set).cloned() else { continue };
        let Some(mut line) = line(set.name(), &scored.pairs) else { continue };
        line.one_constant_mape = scored.one_constant();
        line.k_fold_mape = unseen.k_fold.get(set.name()).copied();
        line.leave_one_source_out_mape = unseen.leave_one_out.get(set.name()).copied();
        line.fitted = training::is_fitted(set);
        line.unscored_because = scored.unscored.first().map(|(_, why)| why.to_string());
        line.unscored = scored.unscored.len();
        outcome.push(line, scored.pairs, &bars, &truth.peers);
    }
    for ((set, trait_name), pairs) in &unseen.left_out {
        let name = format!("{}, {trait_name}", set.name());
        outcome.push_pairs(&name, pairs.clone(), &bars, &truth.peers);
    }
    outcome.push_collectives(truth, unseen, &bars);
    outcome.push_services(truth, &bars);
    outcome.push_capacity(&bars);
    let peaks = capacity::peaks(&truth.calibrations, &truth.runs);
    if let Some(mut line) = line("peak memory", &peaks) {
        line.fitted = true;
        outcome.push(line, peaks, &bars, &truth.peers);
    }
    let name = host_runs::short_name(&truth.recording);
    if !truth.host_runs.is_empty() {
        let device = host_runs::device(&truth.recording)?;
        for (set, pairs) in host_runs::score(&device, &name, &truth.host_runs) {
            outcome.push_pairs(&set, pairs, &bars, &truth.peers);
        }
    }
    let engines = [
        (format!("NVDEC {name}"), engines::decoders(&truth.recording)),
        (format!("coded wires {name}"), engines::wires(&truth.recording)),
    ];
    for (name, pairs) in engines {
        outcome.push_pairs(&name, pairs, &bars, &truth.peers);
    }
    for set in kernels::sets(&truth.kernels) {
        if let Some(mut line) = line(set.name, &set.pairs) {
            (line.stats.n, line.stats.mape, line.fitted) = (set.kernels, set.mape, true);
            outcome.push(line, set.pairs, &bars, &truth.peers);
        }
    }
    let (large, small) = products::products()?;
    let kernels = [(products::LARGE, large), (products::SMALL, small), (nodes::TIERS, nodes::pairs()?)];
    let stages = [(silicon::LEFT_OUT, silicon::left_out(&silicon::stages()?))];
    for (name, pairs) in die_sets()?.into_iter().chain(kernels).chain(stages) {
        outcome.push_pairs(name, pairs, &bars, &truth.peers);
    }
    let families = [
        ("headlines", "headline."),
        ("sweep headlines", "sweep."),
        ("silicon", "silicon."),
        ("torch-nvenc-compress", "torch."),
    ];
    for (name, family) in families {
        outcome.push_pairs(name, facts::score(&truth.facts, family)?, &bars, &truth.peers);
    }
    for check in outcome.codecs.iter().filter(|check| check.agrees == Some(false)) {
        outcome.breaches.push(Breach { set: format!("codec {}", check.name), measured: 1.0, bar: 0.0 });
    }
    Ok(outcome)
}

/// The curves' errors, from the tables of a folder.
#[cfg(feature = "parquet")]
fn remeasured(folder: &std::path::Path) -> Result<Vec<FamilyError>, Error> {
    let curves = |gpu: &str| trinity_study::kernels::of(gpu).ok().flatten();
    let errors = kernels::remeasured(folder, curves)
        .map_err(|why| Error::Kernels { folder: folder.to_owned(), why: why.to_string() })?;
    if errors.is_empty() {
        let why = "it holds no GPU's folder, such as h100_sxm".to_owned();
        return Err(Error::Kernels { folder: folder.to_owned(), why });
    }
    Ok(errors)
}

#[cfg(not(feature = "parquet"))]
fn remeasured(folder: &std::path::Path) -> Result<Vec<FamilyError>, Error> {
    let why = "this build reads no Parquet; build with `--features parquet`".to_owned();
    Err(Error::Kernels { folder: folder.to_owned(), why })
}

/// Areas of dies: as fitted, left out in turn, and part by part.
fn die_sets() -> Result<[(&'static str, Vec<Pair>); 4], Error> {
    let constants = dies::constants()?;
    let real = dies::dies(constants)?;
    Ok([
        (dies::DIES, dies::totals(constants, &real)),
        (dies::LEFT_OUT, dies::left_out(constants, &real)),
        (dies::PHOTOGRAPHS, dies::photographs(constants, &real)),
        (dies::DATASHEETS, dies::datasheets()?),
    ])
}

impl ValidationOutcome {
    /// A line with nothing beside what follows from the pairs; none of no pairs.
    fn push_pairs(&mut self, set: &str, pairs: Vec<Pair>, bars: &Bars, peers: &Peers) {
        if let Some(line) = line(set, &pairs) {
            self.push(line, pairs, bars, peers);
        }
    }

    fn push(&mut self, mut line: Line, pairs: Vec<Pair>, bars: &Bars, peers: &Peers) {
        line.bar = bars.error.get(&line.set).copied();
        line.calculon_mape = peers.calculon.get(&line.set).copied();
        line.vtrain_mape = peers.vtrain.get(&line.set).copied();
        let breach = bars.judge_error(&line.set, line.stats.mape);
        let worst = line.worst.as_ref().map_or(0.0, |worst| worst.predicted / worst.measured - 1.0);
        let worst_breach = bars.judge_worst(&line.set, worst);
        let left_out = line.leave_one_source_out_mape;
        line.left_out_bar = bars.left_out.get(&line.set).copied().filter(|_| left_out.is_some());
        let left_out_breach = left_out.and_then(|mape| bars.judge_left_out(&line.set, mape));
        let breaches: Vec<Breach> = [breach, worst_breach, left_out_breach].into_iter().flatten().collect();
        line.breached = !breaches.is_empty();
        self.breaches.extend(breaches);
        self.pairs.insert(line.set.clone(), pairs);
        self.lines.push(line);
    }

    /// All collectives, and apart those of nccl-tests and those of kernel
    /// traces, which contain waits that no model of the wire has.
    fn push_collectives(&mut self, truth: &Truth, unseen: &Unseen, bars: &Bars) {
        for (name, of) in COLLECTIVE_SETS {
            let own: Vec<Measurement> = truth.measurements.iter().filter(|m| of(m)).cloned().collect();
            let (pairs, borrowed) = collectives::score(&truth.links, &own);
            let Some(mut line) = line(name, &pairs) else { continue };
            let bytes: Vec<f64> = own.iter().map(|m| m.bytes).collect();
            let seconds: Vec<f64> = own.iter().map(|m| m.seconds).collect();
            line.one_constant_mape = one_constant(&bytes, &seconds);
            line.k_fold_mape = unseen.k_fold.get(name).copied();
            line.leave_one_source_out_mape = unseen.leave_one_out.get(name).copied();
            line.between_neighbours_mape = collectives::between_neighbours(&own);
            line.fitted = true;
            line.borrowed = borrowed;
            self.push(line, pairs, bars, &truth.peers);
        }
        if let Some(mut line) = line(SIMULATED, &truth.simulated.pairs) {
            line.unscored = truth.simulated.contended;
            line.unscored_because = (line.unscored > 0)
                .then(|| "several chunks of it contend, which no closed form has".to_owned());
            self.push(line, truth.simulated.pairs.clone(), bars, &truth.peers);
        }
    }

    /// Times of services, all together and by engine, GPU and model.
    fn push_services(&mut self, truth: &Truth, bars: &Bars) {
        for group in truth.services.groups() {
            let Some(mut line) = line(&group.set, &group.pairs) else { continue };
            line.fitted = true;
            line.aiconfigurator_mape = group.peer_mape;
            line.ours_on_aiconfigurators_mape = group.ours_on_peer_rows;
            line.unscored = group.unscored;
            line.unscored_because = group.unscored_because;
            self.push(line, group.pairs, bars, &truth.peers);
        }
    }

    fn push_capacity(&mut self, bars: &Bars) {
        let n = self.capacity.fitted + self.capacity.failed;
        if self.capacity.failed == 0 {
            return;
        }
        let recall = self.capacity.failed_right() as f64 / self.capacity.failed as f64;
        // Without runs that fitted there is only one rate to speak of.
        let accuracy = self.capacity.balanced_accuracy().unwrap_or(recall);
        let wrong = 1.0 - accuracy;
        let breach = bars.judge_accuracy(FITS, accuracy);
        let too_small = self.capacity.wrong_failures.len() as f64;
        let too_large = self.capacity.wrong_fits.len() as f64;
        self.lines.push(Line {
            set: FITS.to_owned(),
            stats: Stats {
                n,
                mape: wrong,
                bias: (too_large - too_small) / n as f64,
                p90: wrong,
                ..Stats::default()
            },
            worst: self.capacity.wrong_failures.first().map(|configuration| Worst {
                configuration: configuration.clone(),
                predicted: 1.0,
                measured: 0.0,
            }),
            // Always saying the same is right half of the time.
            one_constant_mape: Some(0.5),
            balanced_accuracy: Some(accuracy),
            fitted: true,
            bar: bars.accuracy.get(FITS).copied(),
            breached: breach.is_some(),
            ..Line::default()
        });
        self.breaches.extend(breach);
    }
}

/// A line with everything that follows from the pairs.
fn line(set: &str, pairs: &[Pair]) -> Option<Line> {
    let stats = Stats::of_pairs(pairs)?;
    let worst = pairs.iter().max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()));
    Some(Line {
        set: set.to_owned(),
        stats,
        worst: worst.map(|pair| Worst {
            configuration: pair.what.clone(),
            predicted: pair.predicted,
            measured: pair.measured,
        }),
        ..Line::default()
    })
}

/// Errors on rows that a fit did not see, by set.
#[derive(Default)]
struct Unseen {
    /// Pairs by set and by what was left out of the fit.
    left_out: BTreeMap<(Set, &'static str), Vec<Pair>>,
    k_fold: BTreeMap<String, f64>,
    leave_one_out: BTreeMap<String, f64>,
}

/// Parts the rows are cut into.
const FOLDS: usize = 5;

impl Unseen {
    fn of(truth: &Truth) -> Self {
        let mut unseen = Self::default();
        for family in &training::FITTED {
            let own = family.runs(&truth.runs);
            if own.iter().any(|run| matches!(run.set, Set::MegatronBridge | Set::MlperfTraining)) {
                for (name, of) in training::LEFT_OUT {
                    for (set, pairs) in training::leave_one_out(family, &truth.calibrations, &own, of) {
                        unseen.left_out.insert((set, name), pairs);
                    }
                }
            }
            for (set, stats) in training::k_fold(family, &truth.calibrations, &own, FOLDS) {
                unseen.k_fold.insert(set.name().to_owned(), stats.mape);
            }
            for (set, stats) in training::leave_one_source_out(family, &truth.calibrations, &own) {
                unseen.leave_one_out.insert(set.name().to_owned(), stats.mape);
            }
        }
        for (name, of) in COLLECTIVE_SETS {
            let own: Vec<Measurement> = truth.measurements.iter().filter(|m| of(m)).cloned().collect();
            if let Some(stats) = Stats::of(&collectives::k_fold(&truth.links, &own, FOLDS)) {
                unseen.k_fold.insert(name.to_owned(), stats.mape);
            }
            if let Some(stats) = Stats::of(&collectives::leave_one_group_out(&truth.links, &own)) {
                unseen.leave_one_out.insert(name.to_owned(), stats.mape);
            }
        }
        unseen
    }
}

/// One constant before and after a fit.
#[derive(Clone, Debug, Serialize)]
pub struct Refitted {
    pub constant: String,
    pub committed: f64,
    pub refitted: f64,
}

/// Constants derived again, and what they would make of the errors.
#[derive(Clone, Debug)]
pub struct Refit {
    pub changes: Vec<Refitted>,
    pub lines: Vec<Line>,
}

/// Derives every constant again from the rows at hand.
pub fn refit(truth: &Truth) -> Result<Refit, Error> {
    let mut calibrations = capacity::refit(&truth.calibrations, &truth.runs);
    for family in &training::FITTED {
        let runs = family.runs(&truth.runs);
        if !runs.is_empty() {
            calibrations = training::refit(family, &calibrations, &runs, crate::fit::Effort::FULL);
        }
    }
    let links = collectives::refit(&truth.links, &truth.measurements);
    let mut changes = Vec::new();
    for path in training::FITTED.iter().flat_map(|family| family.constants).chain(capacity::CONSTANTS) {
        if let (Some(committed), Some(refitted)) = (truth.calibrations.get(path), calibrations.get(path)) {
            changes.push(Refitted { constant: path.replace('_', "-"), committed, refitted });
        }
    }
    for (name, before) in &truth.links.links {
        let Some(after) = links.links.get(name) else { continue };
        for ((field, committed), (_, refitted)) in before.fields().into_iter().zip(after.fields()) {
            let constant = format!("links.{name}.{}", field.replace('_', "-"));
            changes.push(Refitted { constant, committed, refitted });
        }
    }
    let refitted = Truth { calibrations, links, ..truth.clone() };
    Ok(Refit { changes, lines: score_all(&refitted, &Unseen::default())?.lines })
}
