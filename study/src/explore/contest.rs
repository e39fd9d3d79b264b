//! Codecs against each other in one sweep, as it is and with something moved.

use super::ground::{Entrant, Ground};
use super::request::key_of;
use super::silicon::Silicon;
use super::tensors::Bits;
use crate::config::SweepFile;
use crate::sweep::Study;
use crate::{Error, Progress, Silent};
use trinity_sim::sweep::{Direction, Entry, Metric, Tally};

/// What is moved.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// `path=value`, over the study.
    pub set: Option<String>,
    /// The bits of one scenario, or of all of them, times a factor.
    pub bits: Option<(Option<String>, f64)>,
    /// The area of one scenario's codec times a factor.
    pub area: Option<(String, f64)>,
}

/// The sweep with each codec as a scenario.
#[derive(Debug)]
pub(super) struct Contest<'a> {
    pub ground: &'a Ground,
    silicon: &'a [Silicon],
    bits: &'a [Bits],
    pub study: Study,
    area_at: usize,
    rank_at: usize,
}

/// What a sweep of the contest found.
#[derive(Debug)]
pub(super) struct Found {
    pub tally: Tally,
    /// The best of each scenario within the budget: what ranks, and its entry.
    pub best: Vec<Option<(f64, Entry)>>,
}

impl<'a> Contest<'a> {
    pub fn new(ground: &'a Ground, silicon: &'a [Silicon], bits: &'a [Bits]) -> Result<Self, Error> {
        let entrants = entrants(ground, silicon, bits, &Change::default());
        let first = entrants.first().map_or("", |entrant| entrant.name.as_str()).to_owned();
        let text = ground.text(&entrants, &first);
        let study = ground.study(&text, 0)?;
        let at = |metric: Metric| study.plan.objectives.iter().position(|own| own.metric == metric);
        let (Some(area_at), Some(rank_at)) = (at(Metric::AreaMm2), at(ground.rank.metric)) else {
            return Err(Error::input("the study ranks by what is no objective", ""));
        };
        Ok(Self { ground, silicon, bits, study, area_at, rank_at })
    }

    /// The sweep with the winner in its headline, and its file.
    pub fn final_study(&self, best: &str) -> Result<(Study, String), Error> {
        let entrants = entrants(self.ground, self.silicon, self.bits, &Change::default());
        let candidate = match entrants.iter().find(|entrant| entrant.name == best) {
            Some(entrant) => entrant.name.as_str(),
            None => entrants.first().map_or("", |entrant| entrant.name.as_str()),
        };
        let text = self.ground.text(&entrants, candidate);
        Ok((self.ground.study(&text, 0)?, text))
    }

    /// Whether `value` is better than `other`.
    pub fn gain(&self, value: f64, other: f64) -> f64 {
        match self.ground.rank.direction {
            Direction::Maximize => value / other,
            Direction::Minimize => other / value,
        }
    }

    pub fn run(&self, progress: &dyn Progress) -> Result<Found, Error> {
        let tally = self.study.tally(progress)?;
        self.study.refuse_nonsense(&tally)?;
        Ok(self.read(tally))
    }

    /// The best of each scenario within the budget, with something moved;
    /// nothing where no point can run any more.
    pub fn moved(&self, change: &Change) -> Result<Option<Vec<Option<f64>>>, Error> {
        let mut document = self.study.document.clone();
        if let Some(set) = &change.set {
            document.set(set)?;
        }
        let mut file: SweepFile = document.read()?;
        for entrant in entrants(self.ground, self.silicon, self.bits, change) {
            if let Some(scenario) = file.scenarios.iter_mut().find(|one| one.name == entrant.name) {
                scenario.set = self.ground.common().iter().chain(&entrant.sets).cloned().collect();
            }
        }
        let Ok(plan) = file.plan(&document, 0) else { return Ok(None) };
        let study = Study {
            name: self.study.name.clone(),
            sets: Vec::new(),
            #[cfg(feature = "hwcodec")]
            measurements: None,
            replaced: Vec::new(),
            document,
            file,
            plan,
        };
        let found = self.read(study.tally(&Silent)?);
        Ok(Some(found.best.into_iter().map(|best| best.map(|(value, _)| value)).collect()))
    }

    fn read(&self, tally: Tally) -> Found {
        let budget = self.ground.budget_mm2.unwrap_or(f64::INFINITY);
        let best = (0..tally.fronts.len()).map(|at| self.best_within(&tally, at, budget)).collect();
        Found { tally, best }
    }

    /// The best of one scenario within an area; of equals the smaller, then the
    /// one that comes first.
    pub fn best_within(&self, tally: &Tally, scenario: usize, area_mm2: f64) -> Option<(f64, Entry)> {
        let entries = tally.fronts.get(scenario)?.entries().iter();
        let within = entries.filter(|entry| entry.values[self.area_at] <= area_mm2);
        let best = within.reduce(|best, entry| {
            let gain = self.gain(entry.values[self.rank_at], best.values[self.rank_at]);
            let smaller = entry.values[self.area_at] < best.values[self.area_at];
            if gain > 1.0 || (gain == 1.0 && smaller) { entry } else { best }
        })?;
        Some((best.values[self.rank_at], best.clone()))
    }

    /// Area and what ranks along the hull of a scenario's front, area rising.
    pub fn hull(&self, tally: &Tally, scenario: usize) -> Vec<(f64, f64)> {
        let Some(front) = tally.fronts.get(scenario) else { return Vec::new() };
        // Upwards is better on every hull.
        let sign = if self.ground.rank.direction == Direction::Maximize { 1.0 } else { -1.0 };
        let values = |entry: &Entry| (entry.values[self.area_at], sign * entry.values[self.rank_at]);
        let mut points: Vec<(f64, f64)> = front.entries().iter().map(values).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut hull: Vec<(f64, f64)> = Vec::new();
        for point in points {
            if hull.last().is_some_and(|last| point.0 <= last.0 || point.1 <= last.1) {
                continue;
            }
            while let [.., first, middle] = hull.as_slice() {
                let rise = |to: (f64, f64)| (to.1 - first.1) / (to.0 - first.0);
                if rise(*middle) > rise(point) {
                    break;
                }
                hull.pop();
            }
            hull.push(point);
        }
        hull.into_iter().map(|(area, value)| (area, sign * value)).collect()
    }

    /// Areas at which some front has a point, rising.
    pub fn areas(&self, tally: &Tally) -> Vec<f64> {
        let entries = tally.fronts.iter().flat_map(|front| front.entries());
        let mut areas: Vec<f64> = entries.map(|entry| entry.values[self.area_at]).collect();
        areas.sort_by(f64::total_cmp);
        areas.dedup();
        areas
    }

    /// The scenarios, in the order of fronts.
    pub fn names(&self) -> Vec<&str> {
        self.study.file.scenarios.iter().map(|scenario| scenario.name.as_str()).collect()
    }

    /// The scenario of the best value; of equals the first.
    pub fn leader(&self, values: &[Option<f64>]) -> Option<usize> {
        let known = values.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?)));
        known.reduce(|best, own| if self.gain(own.1, best.1) > 1.0 { own } else { best }).map(|(at, _)| at)
    }

    /// Bits of a scenario differ between tensors: the least and the most, as
    /// factors on the mean.
    pub fn spread(&self) -> (f64, f64) {
        let ratios = |pick: fn(&Bits) -> Option<f64>| {
            let needed = self.bits.iter().filter(|bits| self.ground.needs.contains(&bits.class));
            needed.filter_map(move |bits| Some(pick(bits)? / bits.bits_per_value?))
        };
        (ratios(|bits| bits.low).fold(1.0, f64::min), ratios(|bits| bits.high).fold(1.0, f64::max))
    }

    /// How far the area of a scenario's codec may be off.
    pub fn area_factor(&self, scenario: &str) -> Option<f64> {
        self.silicon.iter().find(|silicon| silicon.candidate == scenario)?.area_factor
    }

    /// Nothing fits: how small the smallest is, and what it is made of.
    pub fn too_small(&self, found: &Found) -> Error {
        let budget = self.ground.budget_mm2.unwrap_or(0.0);
        let all = found.tally.fronts.iter().flat_map(|front| front.entries());
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
                self.ground.name,
                estimate.area_mm2,
                estimate.area.gpu_mm2,
                estimate.area.nic_mm2,
                estimate.area.codec_mm2
            ),
            format_args!("give a --budget of {:.0} mm2 or more", estimate.area_mm2.ceil()),
        )
    }
}

/// Each codec with what its scenario sets: silicon, and the bits of every class
/// that the study codes.
fn entrants(ground: &Ground, silicon: &[Silicon], bits: &[Bits], change: &Change) -> Vec<Entrant> {
    silicon
        .iter()
        .map(|own| {
            let name = &own.candidate;
            let scale = match &change.bits {
                Some((None, factor)) => *factor,
                Some((Some(scenario), factor)) if scenario == name => *factor,
                _ => 1.0,
            };
            let area = match &change.area {
                Some((scenario, factor)) if scenario == name => *factor,
                _ => 1.0,
            };
            let mut sets = own.sets_scaled(area);
            for class in &ground.needs {
                let value = bits.iter().find(|bits| bits.class == *class && bits.coder == own.coder);
                if let (Some(key), Some(value)) = (key_of(*class), value.and_then(|bits| bits.bits_per_value))
                {
                    sets.push(format!("job.compression.{key}={}", (value * scale).min(MOST_BITS)));
                }
            }
            Entrant { name: name.clone(), sets }
        })
        .collect()
}

/// What a job takes at most.
const MOST_BITS: f64 = 32.0;
