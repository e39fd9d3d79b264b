//! The best that a scenario can do: a search over its knobs from several
//! starts, the same for every candidate.
//!
//! Coordinates are turned one after the other, near and far, and whole layouts
//! in pairs; after each turn the cluster is grown to what the limit allows, and
//! area that is left over goes to network cards. Knows points and knobs; which
//! codec a scenario has it does not ask.

use super::knob::{CODECS, Knob, NICS, SCALE};
use trinity_sim::Estimate;
use trinity_sim::sweep::{Constraint, Direction, Objective, Point, Scenario};

/// A scenario has no more knobs than this.
const MOST: usize = 16;
/// Turns of all knobs; searches end after four or five.
const PASSES: usize = 12;

/// Numbers of codecs that are tried for the fewest that are enough.
const PARED: u32 = 64;

/// Knobs along which searches get stuck: a layout of other stages is far away.
const SPREAD: [&str; 2] = ["job.parallelism.pipeline", "job.parallelism.tensor"];
/// Knobs that a batch may not divide by.
const PLAIN: [&str; 2] = ["job.microbatch", "job.parallelism.interleave"];

/// The values of a player's knobs, in their order.
pub(super) type Values = [f64; MOST];

/// What a cluster may grow to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Within {
    AreaMm2(f64),
    Gpus(f64),
    /// As large as it is.
    AsItIs,
}

/// What the best point is the best in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merit {
    /// What ranks.
    Rank,
    /// What ranks, of each mm².
    PerArea,
    /// What ranks, of each watt.
    PerWatt,
    /// What ranks, of each mm² of a cluster of as many GPUs, whether all of them run or not.
    AmongGpus,
}

/// What a search is held to.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub rank: Objective,
    pub constraints: Vec<Constraint>,
    pub within: Within,
    pub merit: Merit,
}

impl Rules {
    /// How good an estimate is; more is better.
    pub fn merit(&self, estimate: &Estimate) -> f64 {
        let value = self.rank.metric.of(estimate);
        let rank = match self.rank.direction {
            Direction::Maximize => value,
            Direction::Minimize => 1.0 / value,
        };
        match self.merit {
            Merit::Rank => rank,
            Merit::PerArea => rank / estimate.area_mm2,
            Merit::PerWatt => rank * estimate.iteration_s / estimate.energy_j,
            Merit::AmongGpus => rank * estimate.area.gpu_mm2 / estimate.area_mm2,
        }
    }

    fn allows(&self, estimate: &Estimate) -> bool {
        let fits = match self.within {
            Within::AreaMm2(most) => estimate.area_mm2 <= most,
            Within::Gpus(_) | Within::AsItIs => true,
        };
        fits && self.constraints.iter().all(|constraint| constraint.holds(estimate))
    }
}

/// A scenario with what it may turn.
#[derive(Debug, Clone)]
pub(super) struct Player {
    pub name: String,
    pub knobs: Vec<Knob>,
    /// The knob that the cluster grows by.
    scale: Option<usize>,
    nics: Option<usize>,
    codecs: Option<usize>,
}

/// The best that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Optimum {
    pub values: Values,
    pub merit: f64,
    pub estimate: Estimate,
    pub point: Point,
}

impl Player {
    /// The scenario's knobs: its axes. `most_codecs` holds codecs back that no area buys; axes of
    /// `free` are not the study's own.
    pub fn of(scenario: &Scenario, most_codecs: Option<f64>, free: &[&str]) -> Self {
        let knob = |axis: &trinity_sim::sweep::Axis| {
            let most = most_codecs.filter(|_| axis.path == CODECS);
            match Knob::free(axis, &scenario.base).filter(|_| free.contains(&axis.path.as_str())) {
                Some(knob) => knob,
                None => Knob::of(axis, &scenario.base, most),
            }
        };
        let mut knobs: Vec<Knob> = scenario.axes.iter().map(knob).collect();
        knobs.truncate(MOST);
        Self::with(&scenario.name, knobs, scenario.base.gpus_as_used)
    }

    fn with(name: &str, knobs: Vec<Knob>, grows: bool) -> Self {
        let at = |path: &str| knobs.iter().position(|knob| knob.path == path && knob.is_number());
        let (scale, nics, codecs) = (at(SCALE).filter(|_| grows), at(NICS), at(CODECS));
        Self { name: name.to_owned(), knobs, scale, nics, codecs }
    }

    /// This player with some knobs held where they are on every base.
    pub fn without(&self, paths: &[&str]) -> Self {
        let knobs = self.knobs.iter().filter(|knob| !paths.contains(&knob.path.as_str())).cloned();
        Self::with(&self.name, knobs.collect(), self.scale.is_some())
    }

    /// The values of a place of the study's own grid; `point` is what lies there.
    pub fn listed(&self, scenario: &Scenario, digits: &[usize], point: &Point) -> Values {
        let mut values = [0.0; MOST];
        for (value, knob) in values.iter_mut().zip(&self.knobs) {
            let at = scenario.axes.iter().position(|axis| axis.path == knob.path);
            *value = match at {
                Some(at) => knob.listed(&scenario.axes[at], digits[at]),
                None => knob.get(point),
            };
        }
        values
    }

    /// The values of another player, where the two have the same knobs.
    pub fn taken(&self, other: &Self, theirs: &Values, otherwise: &Values) -> Values {
        let mut values = *otherwise;
        for (value, knob) in values.iter_mut().zip(&self.knobs) {
            if let Some(at) = other.knobs.iter().position(|own| own.path == knob.path) {
                *value = knob.rounded(theirs[at]);
            }
        }
        values
    }

    pub fn point(&self, base: &Point, values: &Values) -> Point {
        let mut point = *base;
        for (knob, value) in self.knobs.iter().zip(values) {
            knob.set(&mut point, *value);
        }
        point.settle();
        point
    }

    /// What these values give, where they can run within the limits.
    pub fn tried(&self, base: &Point, rules: &Rules, values: &Values) -> Option<Optimum> {
        let point = self.point(base, values);
        if matches!(rules.within, Within::Gpus(most) if f64::from(point.cluster.gpus) > most) {
            return None;
        }
        let estimate = point.estimate().ok().filter(|estimate| rules.allows(estimate))?;
        Some(Optimum { values: *values, merit: rules.merit(&estimate), estimate, point })
    }

    /// These values with micro-batches of one and one chunk a stage, which suit every batch.
    fn plain(&self, start: &Values) -> Values {
        let mut plain = *start;
        for (value, knob) in plain.iter_mut().zip(&self.knobs) {
            if PLAIN.contains(&knob.path.as_str()) && knob.is_number() {
                *value = 1.0;
            }
        }
        plain
    }

    /// These values, and with few and with many codecs: how many another has says little of how many
    /// of its own a scenario has room for.
    pub fn coded(&self, values: &Values) -> Vec<Values> {
        let mut starts = vec![*values];
        let Some(codecs) = self.codecs else { return starts };
        for count in [0.125, 0.25, 0.5, 1.0, 4.0] {
            let mut values = *values;
            values[codecs] = self.knobs[codecs].rounded(count);
            starts.push(values);
        }
        starts
    }

    /// Starts far from one another: layouts of few and of many stages and tensor ranks.
    pub fn spread(&self, start: &Values) -> Vec<Values> {
        let plain = self.plain(start);
        let mut starts = vec![*start, plain];
        let knobs = self.knobs.iter().enumerate();
        for (at, knob) in knobs.filter(|(_, knob)| SPREAD.contains(&knob.path.as_str()) && knob.is_number()) {
            for value in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
                let mut values = plain;
                values[at] = knob.rounded(value);
                if !starts.contains(&values) {
                    starts.push(values);
                }
            }
        }
        starts
    }

    /// The best with no more codecs than it needs to be within a tolerance of it: area that is left
    /// over buys codecs for next to nothing, and nobody would build those.
    pub fn pared(&self, base: &Point, rules: &Rules, best: Optimum, tolerance: f64) -> Optimum {
        let Some(codecs) = self.codecs.filter(|_| rules.merit == Merit::Rank) else { return best };
        let fewer = (1..PARED).map(|step| {
            let mut values = best.values;
            let share = f64::from(step) / f64::from(PARED);
            values[codecs] = self.knobs[codecs].rounded(best.values[codecs] * share * share);
            values
        });
        let enough = |own: &Optimum| own.merit >= best.merit * (1.0 - tolerance);
        fewer.filter_map(|values| self.tried(base, rules, &values)).find(enough).unwrap_or(best)
    }

    /// The best from any of the starts; nothing where no start leads to a point that runs.
    pub fn best(&self, base: &Point, rules: &Rules, starts: &[Values]) -> Option<Optimum> {
        let search = Search { player: self, base, rules };
        let found = starts.iter().filter_map(|start| search.climb(start));
        found.reduce(|best, own| if own.merit > best.merit { own } else { best })
    }
}

struct Search<'a> {
    player: &'a Player,
    base: &'a Point,
    rules: &'a Rules,
}

impl Search<'_> {
    fn climb(&self, start: &Values) -> Option<Optimum> {
        let begun = |start: Values| {
            let mut best = None;
            self.offer(&mut best, start);
            self.offer_trimmed(&mut best, start);
            self.offer_grown(&mut best, start);
            best
        };
        // Another batch than the one these values were found for need not divide by them.
        let mut best = begun(*start).or_else(|| begun(self.player.plain(start)))?;
        for _ in 0..PASSES {
            let before = best.merit;
            for knob in 0..self.player.knobs.len() {
                best = self.along(best, knob);
            }
            best = self.in_pairs(best);
            if best.merit <= before * (1.0 + 1e-9) {
                break;
            }
        }
        Some(best)
    }

    /// The best with one knob turned.
    fn along(&self, best: Optimum, knob: usize) -> Optimum {
        let from = best.values;
        let mut found = Some(best);
        for value in self.player.knobs[knob].around(from[knob]) {
            let mut values = from;
            values[knob] = value;
            self.offer(&mut found, values);
            if self.player.scale != Some(knob) {
                self.offer_grown(&mut found, values);
            }
        }
        found.unwrap_or(best)
    }

    /// The best with one whole knob doubled and another halved: layouts trade one
    /// kind of parallelism for another.
    fn in_pairs(&self, best: Optimum) -> Optimum {
        let knobs = &self.player.knobs;
        let whole: Vec<usize> = (0..knobs.len()).filter(|&at| knobs[at].is_whole()).collect();
        let mut found = Some(best);
        for &up in &whole {
            for &down in whole.iter().filter(|&&down| down != up) {
                let mut values = best.values;
                values[up] = knobs[up].rounded(values[up] * 2.0);
                values[down] = knobs[down].rounded(values[down] / 2.0);
                self.offer(&mut found, values);
                self.offer_grown(&mut found, values);
            }
        }
        found.unwrap_or(best)
    }

    fn offer(&self, best: &mut Option<Optimum>, values: Values) {
        let Some(own) = self.player.tried(self.base, self.rules, &values) else { return };
        // Of equals the smaller: what buys nothing is not built.
        let better = best.as_ref().is_none_or(|best| {
            own.merit > best.merit * (1.0 + 1e-12)
                || (own.merit >= best.merit && own.estimate.area_mm2 < best.estimate.area_mm2)
        });
        if better {
            *best = Some(own);
        }
    }

    /// Offers the values with the cluster as large as the limit allows, and with
    /// network cards in what is then left of it.
    fn offer_grown(&self, best: &mut Option<Optimum>, mut values: Values) {
        if let Some(scale) = self.player.scale {
            let Some(ranks) = self.most_ranks(&values, scale) else { return };
            values[scale] = ranks;
            self.offer(best, values);
        }
        if let (Some(nics), Within::AreaMm2(most)) = (self.player.nics, self.rules.within) {
            let cluster = self.player.point(self.base, &values).cluster;
            let fixed = cluster.gpu.area_mm2 + cluster.codecs_per_gpu * cluster.codec.area_mm2;
            let rest = most / f64::from(cluster.gpus) - fixed;
            let fits = self.player.knobs[nics].rounded(rest / cluster.nic.area_mm2);
            if fits > values[nics] && rest > 0.0 {
                values[nics] = fits;
                self.offer(best, values);
            }
        }
    }

    /// Offers values that take more than the limit with fewer network cards and codecs: ranks come in
    /// whole steps, and half a cluster is no answer to a card that is a little larger.
    fn offer_trimmed(&self, best: &mut Option<Optimum>, values: Values) {
        let (Some(nics), Within::AreaMm2(most)) = (self.player.nics, self.rules.within) else { return };
        let (knobs, codecs) = (&self.player.knobs, self.player.codecs);
        let cluster = self.player.point(self.base, &values).cluster;
        let left = most / f64::from(cluster.gpus) - cluster.gpu.area_mm2;
        let coded = cluster.codecs_per_gpu * cluster.codec.area_mm2;
        if left <= 0.0 || cluster.nics_per_gpu * cluster.nic.area_mm2 + coded <= left {
            return;
        }
        let kept: &[f64] = if codecs.is_some() { &[1.0, 0.5, 0.25, 0.1, 0.03, 0.0] } else { &[1.0] };
        for share in kept {
            for tight in [1.0, 0.97, 0.9] {
                let mut trimmed = values;
                if let Some(codecs) = codecs {
                    trimmed[codecs] = knobs[codecs].rounded(values[codecs] * share);
                }
                let coded = self.player.point(self.base, &trimmed).cluster.codecs_per_gpu;
                let rest = left - coded * cluster.codec.area_mm2;
                if rest > 0.0 {
                    let fits = rest * tight / cluster.nic.area_mm2;
                    trimmed[nics] = knobs[nics].rounded(fits.min(values[nics]));
                    self.offer(best, trimmed);
                }
            }
        }
    }

    /// The most ranks within the limit that the batch can be dealt out to.
    fn most_ranks(&self, values: &Values, scale: usize) -> Option<f64> {
        let mut one = *values;
        one[scale] = 1.0;
        let point = self.player.point(self.base, &one);
        let cluster = &point.cluster;
        let gpus = f64::from(cluster.gpus);
        let each = cluster.gpu.area_mm2
            + cluster.nics_per_gpu * cluster.nic.area_mm2
            + cluster.codecs_per_gpu * cluster.codec.area_mm2;
        let most = match self.rules.within {
            Within::AreaMm2(most) => most / (gpus * each),
            Within::Gpus(most) => most / gpus,
            Within::AsItIs => return Some(values[scale]),
        };
        let most = (most + 1e-9).floor();
        if most < 1.0 {
            return None;
        }
        if point.replica_batch > 0 {
            return Some(self.player.knobs[scale].rounded(most));
        }
        let steps = point.job.global_batch / point.job.microbatch.max(1);
        let most = (most as u32).min(steps.max(1));
        (1..=most).rev().find(|ranks| steps.is_multiple_of(*ranks)).map(f64::from)
    }
}
