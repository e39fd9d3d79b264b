//! How sure an answer is with everything uncertain drawn together: the gain's
//! distribution, how often a codec pays, how often each candidate is the best,
//! and which inputs decide it.
//!
//! Every scenario is searched anew in every draw, so that each plays its best
//! there. Draws are independent of each other and summed in their order: the
//! same seed gives the same odds for any number of threads.

use super::contest::Contest;
use super::inputs::{self, Draw, Input};
use super::lattice::Lattice;
use super::optimum::{Optimum, Values};
use crate::measured::Quoted;
use crate::{Error, Progress};
use serde::Serialize;

/// Draws where nothing else is said: a prime above 1,000.
pub const DRAWS: usize = 1021;
/// The seed of the draws.
pub const SEED: u64 = 265;
/// A codec pays where it gains more than this: a percent.
pub const PAYS: f64 = 1.01;
/// Below this share of draws nothing is called sure.
pub const SURE: f64 = 0.95;
/// Classes of an input's draws that variance is shared out over.
const BINS: usize = 16;
/// Draws of a class, at least.
const EACH: usize = 8;
/// Draws between two looks at whether the work is still wanted.
const ROUND: usize = 128;

/// What the draws say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Odds {
    pub draws: usize,
    /// Draws in which nothing could run without a codec; no odds are taken of them.
    pub failed: usize,
    pub seed: u64,
    /// The codec whose gain is told: the best as assumed.
    pub candidate: String,
    /// Its gain over no codec.
    pub gain: Spread,
    /// Its gain at each twentieth of the draws, the least and the most.
    pub quantiles: Vec<f64>,
    /// Share of draws in which it pays, and in which any codec does.
    pub pays: f64,
    pub any_pays: f64,
    /// Every scenario: how often it is the best, and its gain.
    pub chances: Vec<Chance>,
    /// Shares of the variance of the gain's logarithm, the largest first.
    pub decides: Vec<Decides>,
    pub inputs: Vec<Input>,
    /// What is taken to move together.
    pub correlations: Vec<String>,
}

/// A distribution: its median and the ends of its middle 90 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// A scenario's odds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chance {
    pub scenario: String,
    /// Share of draws in which it is the best.
    pub best: f64,
    pub gain: Spread,
}

/// What an input alone explains of the variance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decides {
    pub input: String,
    pub share: f64,
}

/// The odds of a contest; nothing where too few draws can run.
pub(super) fn odds(
    contest: &Contest<'_>,
    candidate: &str,
    measured: &Quoted,
    draws: usize,
    progress: &dyn Progress,
) -> Result<Option<Odds>, Error> {
    let inputs = inputs::inputs(contest, measured);
    let Some(baseline) = contest.baseline_at() else { return Ok(None) };
    let lattice = Lattice::new(draws, inputs.len(), SEED);
    let places: Vec<usize> = (0..draws).collect();
    progress.begin(draws as u64, "drawing assumptions");
    let mut points = Vec::with_capacity(draws);
    let mut merits = Vec::with_capacity(draws);
    for round in places.chunks(ROUND) {
        progress.check()?;
        let drawn = crate::parallel::map(round, |&at| {
            let point = lattice.point(at);
            let merits = played(contest, &inputs::draw(&inputs, &point));
            (point, merits)
        });
        for (point, own) in drawn {
            if own[baseline].is_some() {
                points.push(point);
                merits.push(own);
            }
        }
        progress.advance(round.len() as u64);
    }
    progress.end();
    let names: Vec<String> = contest.names().iter().map(|name| (*name).to_owned()).collect();
    let accumulated = Draws { names, baseline, inputs, points, merits, draws };
    Ok(accumulated.odds(candidate))
}

/// How good the best of each scenario is in a draw.
fn played(contest: &Contest<'_>, draw: &Draw) -> Vec<Option<f64>> {
    let Some(baseline) = contest.baseline_at() else { return Vec::new() };
    let best = |at: usize, beside: Option<(usize, &Optimum)>| {
        let field = &contest.fields[at];
        let own = contest.silicon.iter().find(|silicon| silicon.candidate == field.player.name);
        let mut base = field.base(&draw.assignments)?;
        draw.apply(&mut base, own.map(|silicon| silicon.origin));
        let start = contest.optima[at].as_ref()?.values;
        // What serves another in this draw may serve this one.
        let taken = beside
            .map(|(other, best)| field.player.taken(&contest.fields[other].player, &best.values, &start));
        let starts: Vec<Values> = [Some(start), taken].into_iter().flatten().collect();
        field.player.best(&base, &contest.rules, &starts)
    };
    let plain = best(baseline, None);
    let mut all: Vec<Option<Optimum>> = (0..contest.fields.len())
        .map(
            |at| if at == baseline { plain } else { best(at, plain.as_ref().map(|plain| (baseline, plain))) },
        )
        .collect();
    let places = all.iter().enumerate().filter_map(|(at, own)| Some((at, own.as_ref()?)));
    let leader = places.reduce(|best, own| if own.1.merit > best.1.merit { own } else { best });
    let again = leader.filter(|(at, _)| *at != baseline).and_then(|leader| best(baseline, Some(leader)));
    if let Some(again) = again.filter(|again| all[baseline].is_none_or(|own| again.merit > own.merit)) {
        all[baseline] = Some(again);
    }
    let merit = |(at, own): (usize, &Option<Optimum>)| {
        let own = own.as_ref()?;
        let name = &contest.fields[at].player.name;
        let silicon = contest.silicon.iter().find(|silicon| silicon.candidate == *name);
        let coder = silicon.map(|silicon| silicon.coder.as_str());
        Some(if at == baseline { own.merit } else { with_quality(contest, draw, own, coder) })
    };
    all.iter().enumerate().map(merit).collect()
}

/// A codec's merit with what coding costs in quality; a class that costs more
/// than it brings is sent as it is.
fn with_quality(contest: &Contest<'_>, draw: &Draw, best: &Optimum, coder: Option<&str>) -> f64 {
    let raw = |gradients: bool, activations: bool| {
        let mut point = best.point;
        let coded = &mut point.job.compression;
        if gradients {
            coded.weight_gradient_bits = None;
        }
        if activations {
            coded.activation_bits = None;
            coded.activation_gradient_bits = None;
        }
        let estimate = point.estimate().ok()?;
        Some(contest.rules.merit(&estimate) * draw.kept(&point, coder))
    };
    let all = best.merit * draw.kept(&best.point, coder);
    let others = [raw(true, false), raw(false, true), raw(true, true)];
    others.into_iter().flatten().fold(all, f64::max)
}

struct Draws {
    names: Vec<String>,
    baseline: usize,
    inputs: Vec<Input>,
    points: Vec<Vec<f64>>,
    /// Merits of each draw, of each scenario; the baseline's is known.
    merits: Vec<Vec<Option<f64>>>,
    draws: usize,
}

impl Draws {
    fn odds(self, candidate: &str) -> Option<Odds> {
        let count = self.merits.len();
        if count < 2 * BINS {
            return None;
        }
        let own = self.names.iter().position(|name| name == candidate)?;
        let gains = self.gains(own);
        let share =
            |holds: &dyn Fn(usize) -> bool| (0..count).filter(|&at| holds(at)).count() as f64 / count as f64;
        let best: Vec<usize> = (0..count).map(|at| self.leader(at)).collect();
        let any = |at: usize| {
            (0..self.names.len()).filter(|&one| one != self.baseline).any(|one| self.gain(at, one) > PAYS)
        };
        let mut chances: Vec<Chance> = (0..self.names.len())
            .map(|one| Chance {
                scenario: self.names[one].clone(),
                best: share(&|at| best[at] == one),
                gain: Spread::of(&self.gains(one)),
            })
            .collect();
        chances.sort_by(|a, b| b.best.total_cmp(&a.best).then(b.gain.median.total_cmp(&a.gain.median)));
        let sorted = sorted(&gains);
        Some(Odds {
            draws: self.draws,
            failed: self.draws - count,
            seed: SEED,
            candidate: candidate.to_owned(),
            gain: Spread::of(&gains),
            quantiles: (0..=20).map(|twentieth| at_share(&sorted, f64::from(twentieth) / 20.0)).collect(),
            pays: share(&|at| gains[at] > PAYS),
            any_pays: share(&any),
            chances,
            decides: self.decides(&gains),
            inputs: self.inputs,
            correlations: inputs::correlations(),
        })
    }

    /// What a scenario gains in a draw; nothing where it cannot run.
    fn gain(&self, draw: usize, scenario: usize) -> f64 {
        let baseline = self.merits[draw][self.baseline].unwrap_or(f64::INFINITY);
        self.merits[draw][scenario].map_or(0.0, |merit| merit / baseline)
    }

    fn gains(&self, scenario: usize) -> Vec<f64> {
        (0..self.merits.len()).map(|draw| self.gain(draw, scenario)).collect()
    }

    /// Who is best in a draw; of equals what has no codec, then the first.
    fn leader(&self, draw: usize) -> usize {
        let mut leader = self.baseline;
        for scenario in 0..self.names.len() {
            if self.gain(draw, scenario) > self.gain(draw, leader) {
                leader = scenario;
            }
        }
        leader
    }

    /// The share of variance that each input explains alone: that of the means of
    /// its classes, less what classes of random draws would have.
    fn decides(&self, gains: &[f64]) -> Vec<Decides> {
        // Classes of a few draws differ by chance alone.
        if gains.len() < EACH * BINS {
            return Vec::new();
        }
        let logs: Vec<f64> = gains.iter().map(|gain| gain.max(1e-3).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / count;
        let chance = (BINS - 1) as f64 / (count - 1.0);
        let mut decides: Vec<Decides> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(k, input)| {
                let mut bins = [(0.0, 0.0); BINS];
                for (point, log) in self.points.iter().zip(&logs) {
                    let bin = &mut bins[((point[k] * BINS as f64) as usize).min(BINS - 1)];
                    *bin = (bin.0 + 1.0, bin.1 + log - mean);
                }
                let between: f64 =
                    bins.iter().filter(|bin| bin.0 > 0.0).map(|(some, sum)| sum * sum / some).sum::<f64>()
                        / count;
                let share =
                    if variance > 1e-12 { (between / variance - chance) / (1.0 - chance) } else { 0.0 };
                Decides { input: input.name.clone(), share: share.clamp(0.0, 1.0) }
            })
            .collect();
        decides.sort_by(|a, b| b.share.total_cmp(&a.share));
        decides
    }
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let sorted = sorted(values);
        Self { median: at_share(&sorted, 0.5), low: at_share(&sorted, 0.05), high: at_share(&sorted, 0.95) }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value that a share of sorted ones lies below, between its neighbours.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws in which `a` gains as `gain` says and `b` never anything.
    fn odds_of(gain: impl Fn(&[f64]) -> f64) -> Odds {
        let lattice = Lattice::new(1021, 3, 1);
        let points: Vec<Vec<f64>> = (0..1021).map(|at| lattice.point(at)).collect();
        let merits = points.iter().map(|point| vec![Some(2.0), Some(2.0 * gain(point)), None]).collect();
        let names = ["none", "a", "b"].map(String::from).to_vec();
        let input = |name: &str| inputs::tests_input(name);
        let inputs = ["first", "second", "third"].map(input).to_vec();
        Draws { names, baseline: 0, inputs, points, merits, draws: 1021 }.odds("a").unwrap()
    }

    #[test]
    fn the_input_that_moves_the_gain_has_its_variance() {
        let odds = odds_of(|u| (0.3 * (u[1] - 0.5) + 0.1 * (u[2] - 0.5)).exp());
        assert_eq!(odds.decides[0].input, "second");
        assert!((odds.decides[0].share - 0.9).abs() < 0.02, "{:?}", odds.decides);
        assert!((odds.decides[1].share - 0.1).abs() < 0.02, "{:?}", odds.decides);
        assert!(odds.decides[2].share < 0.01, "{:?}", odds.decides);
        assert!((odds.gain.median - 1.0).abs() < 0.01, "{:?}", odds.gain);
    }

    #[test]
    fn chances_are_shares_of_draws_and_sum_to_one() {
        let odds = odds_of(|u| if u[0] < 0.25 { 1.2 } else { 0.9 });
        assert!((odds.pays - 0.25).abs() < 0.01 && odds.any_pays == odds.pays, "{odds:?}");
        let of = |name: &str| odds.chances.iter().find(|one| one.scenario == name).unwrap().best;
        assert!((of("a") - 0.25).abs() < 0.01 && (of("none") - 0.75).abs() < 0.01);
        assert_eq!(of("b"), 0.0, "what cannot run is never the best");
        assert_eq!((odds.gain.low, odds.gain.high), (0.9, 1.2));
    }

    #[test]
    fn few_draws_decide_nothing() {
        let names = ["none", "a"].map(String::from).to_vec();
        let lattice = Lattice::new(61, 1, 1);
        let points: Vec<Vec<f64>> = (0..61).map(|at| lattice.point(at)).collect();
        let merits = points.iter().map(|point| vec![Some(1.0), Some(1.0 + point[0])]).collect();
        let inputs = vec![inputs::tests_input("first")];
        let odds = Draws { names, baseline: 0, inputs, points, merits, draws: 61 }.odds("a").unwrap();
        assert!(odds.decides.is_empty() && odds.pays > 0.9, "{odds:?}");
    }

    #[test]
    fn equals_are_no_reason_to_build_a_codec() {
        let odds = odds_of(|_| 1.0);
        assert_eq!(odds.chances[0].scenario, "none");
        assert_eq!((odds.chances[0].best, odds.pays), (1.0, 0.0));
        assert!(odds.decides.iter().all(|one| one.share == 0.0), "{:?}", odds.decides);
    }
}
