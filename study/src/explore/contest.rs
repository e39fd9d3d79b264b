//! Codecs against each other in one sweep: each at its best, as it is and with
//! something moved.
//!
//! The study's own grid gives starts; from there each scenario is searched on
//! its own ([`super::optimum`]), and what was found joins the grid, so that the
//! sweep that is left behind has every answer among its points.

use super::baseline_study::{BaselineStudy, Candidate, Listed, REDUCTION};
use super::field::Field;
use super::knob::GPUS;
use super::optimum::{Merit, Optimum, Rules, Values, Within};
use super::request::key_of;
use super::silicon::Silicon;
use super::tensors::{Rates, scaled};
use crate::sweep::Study;
use crate::{Error, Progress};
use trinity_sim::sweep::{Accumulator, Direction, Entry, Metric, Point};

/// A scenario whose best moves by less than this when its grid is refined again
/// is refined enough.
pub const TOLERANCE: f64 = 0.001;
/// Two that are closer than this are told as equals.
pub(super) const TIE: f64 = 0.005;
/// Rounds of search and grid; the second rarely finds anything.
const ROUNDS: usize = 4;

/// A study with some of its values at other places.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// `path=value`, over the study.
    pub set: Option<String>,
    /// The bits of one scenario, or of all of them, times a factor.
    pub bits: Option<(Option<String>, f64)>,
    /// The area of one scenario's codec times a factor.
    pub area: Option<(String, f64)>,
    /// The budget times a factor.
    pub budget: Option<f64>,
}

/// The sweep with each codec as a scenario.
#[derive(Debug)]
pub(super) struct Contest<'a> {
    pub baseline_study: &'a BaselineStudy,
    pub silicon: &'a [Silicon],
    pub rates: &'a Rates,
    pub study: Study,
    pub fields: Vec<Field>,
    pub rules: Rules,
    /// The best of each scenario.
    pub optima: Vec<Option<Optimum>>,
    listed: Vec<Listed>,
    area_at: usize,
    rank_at: usize,
}

/// What a sweep of the contest found.
#[derive(Debug)]
pub(super) struct Found {
    pub accumulated: Accumulator,
    /// The best of each scenario.
    pub best: Vec<Option<Best>>,
}

/// A scenario's best point.
#[derive(Debug, Clone)]
pub(super) struct Best {
    /// More is better.
    pub merit: f64,
    /// What ranks.
    pub value: f64,
    pub entry: Entry,
}

impl<'a> Contest<'a> {
    /// Searches every scenario until another round moves none of them by [`TOLERANCE`].
    pub fn refined(
        baseline_study: &'a BaselineStudy,
        silicon: &'a [Silicon],
        rates: &'a Rates,
        progress: &dyn Progress,
    ) -> Result<(Self, Found), Error> {
        let mut contest = Self::new(baseline_study, silicon, rates)?;
        let mut found = contest.run(progress)?;
        let mut starts = contest.starts(&found);
        if starts.iter().all(Option::is_none) {
            return Ok((contest, found));
        }
        for _ in 0..ROUNDS {
            progress.check()?;
            contest.optima = contest.searched(&starts);
            contest.listed = contest.lists();
            contest.study = contest.grid(None)?.0;
            found = contest.run(progress)?;
            let better = |(best, optimum): (&Option<Best>, &Option<Optimum>)| match (best, optimum) {
                (Some(best), Some(optimum)) => best.merit > optimum.merit * (1.0 + TOLERANCE),
                (best, optimum) => best.is_some() && optimum.is_none(),
            };
            if !found.best.iter().zip(&contest.optima).any(better) {
                break;
            }
            starts = contest.starts(&found);
        }
        Ok((contest, found))
    }

    fn new(
        baseline_study: &'a BaselineStudy,
        silicon: &'a [Silicon],
        rates: &'a Rates,
    ) -> Result<Self, Error> {
        let candidates = candidates(baseline_study, silicon, rates);
        let first = candidates.first().map_or("", |candidate| candidate.name.as_str()).to_owned();
        let study = baseline_study.study(&baseline_study.text(&candidates, &first, &[]), 0)?;
        let at = |metric: Metric| study.plan.objectives.iter().position(|own| own.metric == metric);
        let (Some(area_at), Some(rank_at)) = (at(Metric::AreaMm2), at(baseline_study.rank.metric)) else {
            return Err(Error::input("the study ranks by what is no objective", ""));
        };
        let most_codecs = |name: &str| {
            let own = silicon.iter().find(|silicon| silicon.candidate == name)?;
            own.most_per_gpu(baseline_study.most_listed(super::knob::CODECS))
        };
        let rules = Rules {
            rank: baseline_study.rank,
            constraints: study.plan.constraints.clone(),
            within: baseline_study.budget_mm2.map_or(Within::AsItIs, Within::AreaMm2),
            merit: if baseline_study.budget_mm2.is_some() { Merit::Rank } else { Merit::PerArea },
        };
        let fields = Field::all(&study, most_codecs, &baseline_study.free_paths())?;
        let optima = vec![None; fields.len()];
        Ok(Self {
            baseline_study,
            silicon,
            rates,
            study,
            fields,
            rules,
            optima,
            listed: Vec::new(),
            area_at,
            rank_at,
        })
    }

    /// The sweep whose grid has what was found, with `best` in its headline, and its file.
    pub fn grid(&self, best: Option<&str>) -> Result<(Study, String), Error> {
        let candidates = candidates(self.baseline_study, self.silicon, self.rates);
        let named = candidates.iter().find(|candidate| Some(candidate.name.as_str()) == best);
        let candidate = named.or(candidates.first()).map_or("", |candidate| candidate.name.as_str());
        let text = self.baseline_study.text(&candidates, candidate, &self.listed);
        Ok((self.baseline_study.study(&text, 0)?, text))
    }

    fn run(&self, progress: &dyn Progress) -> Result<Found, Error> {
        let accumulated = self.study.accumulate(progress)?;
        self.study.refuse_nonsense(&accumulated)?;
        let best = (0..accumulated.fronts.len()).map(|at| self.best_of(&accumulated, at)).collect();
        Ok(Found { accumulated, best })
    }

    /// Where each scenario's search begins: its best of the grid.
    fn starts(&self, found: &Found) -> Vec<Option<Values>> {
        let start = |(at, best): (usize, &Option<Best>)| Some(self.values_at(at, best.as_ref()?.entry.index));
        found.best.iter().enumerate().map(start).collect()
    }

    /// The values of a point of the grid.
    pub fn values_at(&self, scenario: usize, index: u64) -> Values {
        let space = &self.study.plan.space;
        let point = space.point(index);
        self.fields[scenario].player.listed(&space.scenarios()[scenario], &space.digits(index), &point)
    }

    /// The best of each scenario from its own start and from those of the others.
    fn searched(&self, starts: &[Option<Values>]) -> Vec<Option<Optimum>> {
        let places: Vec<usize> = (0..self.fields.len()).collect();
        crate::parallel::map(&places, |&at| {
            let player = &self.fields[at].player;
            let usual = starts[at].or(starts.iter().copied().flatten().next())?;
            let mut own: Vec<Values> = vec![usual];
            for (other, start) in self.fields.iter().zip(starts) {
                let Some(start) = start else { continue };
                for taken in player.coded(&player.taken(&other.player, start, &usual)) {
                    if !own.contains(&taken) {
                        own.push(taken);
                    }
                }
            }
            let base = self.fields[at].base(&[])?;
            let best = player.best(&base, &self.rules, &own)?;
            Some(player.pared(&base, &self.rules, best, TOLERANCE))
        })
    }

    /// The values that the grid of each scenario has: the study's own, and those of its best.
    fn lists(&self) -> Vec<Listed> {
        let mut lists = Vec::new();
        for ((field, optimum), scenario) in
            self.fields.iter().zip(&self.optima).zip(self.study.plan.space.scenarios())
        {
            let Some(optimum) = optimum else { continue };
            for axis in &scenario.axes {
                let knob =
                    field.player.knobs.iter().position(|knob| knob.path == axis.path && knob.is_number());
                let own = match knob {
                    Some(at) => field.player.knobs[at].label(optimum.values[at]),
                    None if axis.path == GPUS => optimum.point.cluster.gpus.to_string(),
                    None => continue,
                };
                // A choice that the study leaves to the search has its own value and the best.
                let mut values = axis.labels.clone();
                let same = |label: &String| match (label.parse::<f64>(), own.parse::<f64>()) {
                    (Ok(label), Ok(own)) => label == own,
                    _ => *label == own,
                };
                if !values.iter().any(same) {
                    values.push(own);
                }
                values.sort_by(|a, b| match (a.parse::<f64>(), b.parse::<f64>()) {
                    (Ok(a), Ok(b)) => a.total_cmp(&b),
                    _ => a.cmp(b),
                });
                lists.push(Listed { scenario: scenario.name.clone(), path: axis.path.clone(), values });
            }
        }
        lists
    }

    /// A scenario's point with something moved; nothing where that makes no sense.
    fn base(&self, at: usize, change: &Change) -> Option<Point> {
        let set: Vec<String> = change.set.iter().cloned().collect();
        let mut point = self.fields[at].base(&set)?;
        let name = &self.fields[at].player.name;
        match &change.bits {
            Some((None, factor)) => scale_bits(&mut point, *factor),
            Some((Some(scenario), factor)) if scenario == name => scale_bits(&mut point, *factor),
            _ => {}
        }
        if let Some((_, factor)) = change.area.as_ref().filter(|(scenario, _)| scenario == name) {
            point.cluster.codec.area_mm2 *= factor;
        }
        Some(point)
    }

    /// How good the best of each scenario is with something moved; nothing where
    /// no scenario can run any more.
    pub fn moved(&self, change: &Change) -> Option<Vec<Option<f64>>> {
        let places: Vec<usize> = (0..self.fields.len()).collect();
        let mut rules = self.rules.clone();
        if let (Within::AreaMm2(most), Some(factor)) = (rules.within, change.budget) {
            rules.within = Within::AreaMm2(most * factor);
        }
        let merits = crate::parallel::map(&places, |&at| {
            let starts = self.near(at)?;
            let best = self.fields[at].player.best(&self.base(at, change)?, &rules, &starts)?;
            Some(best.merit)
        });
        merits.iter().any(Option::is_some).then_some(merits)
    }

    /// Starts for a search near what is known: the scenario's own best, and the baseline's.
    pub fn near(&self, at: usize) -> Option<Vec<Values>> {
        let own = self.optima[at].as_ref()?.values;
        let player = &self.fields[at].player;
        let baseline = self.baseline_at().filter(|other| *other != at);
        let other = baseline.and_then(|other| Some((other, self.optima[other].as_ref()?)));
        let other = other.map(|(other, best)| player.taken(&self.fields[other].player, &best.values, &own));
        Some([Some(own), other.filter(|other| *other != own)].into_iter().flatten().collect())
    }

    /// Where the scenario without a codec stands.
    pub fn baseline_at(&self) -> Option<usize> {
        self.fields.iter().position(|field| field.player.name == self.baseline_study.baseline)
    }

    fn merit(&self, entry: &Entry) -> f64 {
        let value = entry.values[self.rank_at];
        let rank = match self.baseline_study.rank.direction {
            Direction::Maximize => value,
            Direction::Minimize => 1.0 / value,
        };
        match self.rules.merit {
            Merit::PerArea => rank / entry.values[self.area_at],
            Merit::Rank | Merit::PerWatt | Merit::AmongGpus => rank,
        }
    }

    /// The best of one scenario within the budget; of equals the smaller, then
    /// the one that comes first.
    fn best_of(&self, accumulated: &Accumulator, scenario: usize) -> Option<Best> {
        let budget = self.baseline_study.budget_mm2.unwrap_or(f64::INFINITY);
        let entries = accumulated.fronts.get(scenario)?.entries().iter();
        let within = entries.filter(|entry| entry.values[self.area_at] <= budget);
        let best = within.reduce(|best, entry| {
            let (own, other) = (self.merit(entry), self.merit(best));
            let smaller = entry.values[self.area_at] < best.values[self.area_at];
            if own > other || (own == other && smaller) { entry } else { best }
        })?;
        Some(Best { merit: self.merit(best), value: best.values[self.rank_at], entry: best.clone() })
    }

    /// The scenarios, in the order of fronts.
    pub fn names(&self) -> Vec<&str> {
        self.study.file.scenarios.iter().map(|scenario| scenario.name.as_str()).collect()
    }

    /// The scenario of the most merit; of equals the first.
    pub fn leader(&self, merits: &[Option<f64>]) -> Option<usize> {
        let known = merits.iter().enumerate().filter_map(|(at, merit)| Some((at, (*merit)?)));
        known.reduce(|best, own| if own.1 > best.1 { own } else { best }).map(|(at, _)| at)
    }

    /// Who is the best instead of `best`: another that is better by more than a tie, or what has no
    /// codec where a codec is no better than that; nobody where `best` holds.
    pub fn instead(&self, best: &str, merits: &[Option<f64>]) -> Option<&str> {
        let (names, leader) = (self.names(), self.leader(merits)?);
        let of = |name: &str| names.iter().position(|own| *own == name).and_then(|at| merits[at]);
        let Some(own) = of(best) else { return Some(self.name(leader)) };
        if merits[leader].is_some_and(|leading| leading / own > 1.0 + TIE) {
            return Some(self.name(leader));
        }
        let plain = of(&self.baseline_study.baseline).filter(|_| best != self.baseline_study.baseline)?;
        (own / plain < 1.0 + TOLERANCE).then_some(self.baseline_study.baseline.as_str())
    }

    fn name(&self, at: usize) -> &str {
        self.study.file.scenarios[at].name.as_str()
    }

    /// Bits differ between tensors: the least and the most of any class that is coded, as factors
    /// on the mean.
    pub fn spread(&self) -> (f64, f64) {
        let each = self.baseline_study.needs.iter().map(|class| self.rates.spread(*class));
        each.fold((1.0, 1.0), |(low, high), own| (own.0.min(low), own.1.max(high)))
    }

    /// How far the area of a scenario's codec may be off.
    pub fn area_factor(&self, scenario: &str) -> Option<f64> {
        self.silicon.iter().find(|silicon| silicon.candidate == scenario)?.area_factor
    }

    /// Nothing fits: how small the smallest is, and what it is made of.
    pub fn too_small(&self, found: &Found) -> Error {
        let budget = self.baseline_study.budget_mm2.unwrap_or(0.0);
        let all = found.accumulated.fronts.iter().flat_map(|front| front.entries());
        let smallest = all.min_by(|a, b| a.values[self.area_at].total_cmp(&b.values[self.area_at]));
        let Some(estimate) =
            smallest.and_then(|entry| self.study.plan.space.point(entry.index).estimate().ok())
        else {
            return Error::input("no point of the study can run", "`trinity sweep` says why");
        };
        Error::input(
            format_args!(
                "nothing fits into {budget} mm²: the smallest point of `{}` that can run takes {:.0} mm² ({:.0} mm² of \
                 GPUs, {:.0} of network cards, {:.2} of codecs)",
                self.baseline_study.name,
                estimate.area_mm2,
                estimate.area.gpu_mm2,
                estimate.area.nic_mm2,
                estimate.area.codec_mm2
            ),
            format_args!("give a --budget of {:.0} mm2 or more", estimate.area_mm2.ceil()),
        )
    }
}

/// The bits of every coded class times a factor.
fn scale_bits(point: &mut Point, factor: f64) {
    let coded = &mut point.job.compression;
    for bits in [
        &mut coded.weight_bits,
        &mut coded.weight_gradient_bits,
        &mut coded.activation_bits,
        &mut coded.activation_gradient_bits,
        &mut coded.kv_bits,
    ] {
        *bits = bits.map(|bits| scaled(bits, factor));
    }
}

/// Each codec with what its scenario sets: silicon, and the bits of every class
/// that the study codes.
fn candidates(baseline_study: &BaselineStudy, silicon: &[Silicon], rates: &Rates) -> Vec<Candidate> {
    silicon
        .iter()
        .map(|own| {
            let mut sets = own.sets.clone();
            for class in &baseline_study.needs {
                if let (Some(key), Some(bits)) = (key_of(*class), rates.stated(*class, &own.coder)) {
                    sets.push(format!("job.compression.{key}={bits}"));
                }
            }
            // Every recorded run decoded, added once and coded once.
            if !rates.trained.is_empty() {
                sets.push(format!("{REDUCTION}=gather"));
            }
            Candidate { name: own.candidate.clone(), sets }
        })
        .collect()
}
