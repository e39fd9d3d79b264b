//! The highest rate of requests at which a service keeps its word, and how
//! sure that rate is.
//!
//! A 99th percentile is kept where at most one request in a hundred misses it:
//! a mean over requests, whose interval batch means give. The rate is known
//! where a rate a little below surely keeps both objectives and a rate a
//! little above surely breaks one; until then runs grow longer.

use super::settle::{Length, MISSES, Trial, costs, needed, trial};
use super::steady::{Interval, Seen, kept};
use super::{Requests, Served, Service, ServingError, ServingRequest, StepCosts, Stream, check};

/// What a service promises: 99th percentiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objectives {
    pub ttft_p99_s: f64,
    pub tpot_p99_s: f64,
}

impl Objectives {
    /// Whether `served` keeps both, in a queue that keeps up.
    pub fn kept(&self, served: &Served) -> bool {
        let turned_away = served.turned_away as f64 <= MISSES * served.requests as f64;
        served.steady.stable
            && turned_away
            && served.ttft.p99_s <= self.ttft_p99_s
            && served.tpot.p99_s <= self.tpot_p99_s
    }
}

/// One of the two promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    Ttft,
    Tpot,
}

/// The outcome of the search.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Goodput {
    /// Highest rate found to keep the objectives.
    pub requests_per_s: f64,
    /// A rate that surely keeps them, and one that surely does not (95 %); from
    /// 0 without end where the longest run is too short to tell.
    pub within: [f64; 2],
    /// Requests of a run that is long enough at this rate.
    pub needed: u64,
    /// Whether that is within the bound, in runs that are long enough.
    pub settled: bool,
    /// What the service did at the rate found.
    pub served: Served,
    /// The objective that a higher rate breaks first, where one does.
    pub breaks_first: Option<Objective>,
    /// Simulations that the search took, and requests in all of them.
    pub runs: u32,
    pub simulated: u64,
}

/// Requests with which the search finds where to look.
const PILOT: usize = 2_000;
/// Relative width of the pilot's bracket.
const PILOT_PRECISION: f64 = 0.05;
/// Width of the last bracket, over the bound.
const PRECISION: f64 = 0.25;
/// Doublings before the search gives up looking for a rate that is too high.
const MOST_OCTAVES: u32 = 40;
/// A rate at which requests are alone.
const ALONE: f64 = 1e-6;
/// How much longer the next runs are at least and at most where these do not tell.
const LONGER: (f64, f64) = (1.5, 8.0);
/// Longer than doubt asks for, so that the next runs are not short by a hair.
const SPARE: f64 = 1.3;
/// Doublings of an interval that is not within the bound.
const WIDENINGS: u32 = 6;
/// A margin beyond which nothing is surer.
const FAR: f64 = 10.0;

/// Finds the highest rate at which `stream` is served within `objectives`.
/// `None`: not even one request at a time.
///
/// The same requests are used at every rate, so that the answer does not
/// wander with the draw. Fails as [`super::settle`].
pub fn goodput(
    service: &Service,
    stream: &Stream,
    objectives: &Objectives,
    length: &Length,
) -> Result<Option<Goodput>, ServingError> {
    check(service)?;
    length.check()?;
    let costs = costs(service, stream)?;
    let mut search = Search {
        service,
        objectives,
        costs: &costs,
        bound: length.bound,
        list: stream.first(length.first.min(PILOT))?,
        tried: Vec::new(),
        runs: 0,
        simulated: 0,
    };
    if !search.at(ALONE)?.kept {
        return Ok(None);
    }
    let Some(mut rate) = search.highest(1.0, 2.0, PILOT_PRECISION)? else { return Ok(None) };
    let mut count = length.first;
    loop {
        // Runs that last too short at the rate found are not worth a search.
        let wanted = search.needed(rate)?;
        count = count.max(wanted as usize).min(length.most());
        search.list = stream.first(count)?;
        search.tried.clear();
        let step = 1.0 + 2.0 * length.bound;
        let Some(found) = search.highest(rate, step, PRECISION * length.bound)? else { return Ok(None) };
        rate = found;
        let last = search.list.len() >= length.most();
        let sure = search.sure(rate, last)?;
        let long = search.needed(rate)? <= SPARE * search.list.len() as f64;
        if (sure.doubt <= 1.0 && long) || last {
            return search.goodput(rate, &sure, long);
        }
        if sure.doubt > 1.0 {
            let longer = (SPARE * sure.doubt * sure.doubt).clamp(LONGER.0, LONGER.1);
            count = (longer * search.list.len() as f64) as usize;
        }
    }
}

/// What a run at a rate says of the objectives.
#[derive(Clone, Copy)]
struct Tried {
    rate: f64,
    served: Served,
    kept: bool,
    /// How far misses are below what is allowed, in halves of their interval:
    /// surely kept (95 %) from 1 on, surely broken up to −1.
    margin: f64,
    worst: Objective,
}

/// Between which rates the highest lies, and how much doubt there is at the
/// bound.
struct Sure {
    within: [f64; 2],
    doubt: f64,
}

struct Search<'a> {
    service: &'a Service,
    objectives: &'a Objectives,
    costs: &'a StepCosts,
    bound: f64,
    /// What is played, at one request a second.
    list: Vec<ServingRequest>,
    /// Every rate that `list` was played at.
    tried: Vec<Tried>,
    runs: u32,
    simulated: u64,
}

impl Search<'_> {
    fn at(&mut self, rate: f64) -> Result<Tried, ServingError> {
        if let Some(tried) = self.tried.iter().find(|tried| tried.rate == rate) {
            return Ok(*tried);
        }
        self.runs += 1;
        self.simulated += self.list.len() as u64;
        let list = Requests::faster(&self.list, rate);
        let run = trial(self.service, self.costs, &list, self.bound)?;
        let missed = missed(&run, self.objectives);
        let worst = if missed[0].mean >= missed[1].mean { Objective::Ttft } else { Objective::Tpot };
        let stable = run.served.steady.stable;
        let kept = stable && missed.iter().all(|own| own.mean <= MISSES);
        let margin = missed.map(|own| (MISSES - own.mean) / own.half_width.max(f64::MIN_POSITIVE));
        let margin = if stable { margin[0].min(margin[1]) } else { -FAR };
        let tried = Tried { rate, served: run.served, kept, margin: margin.clamp(-FAR, FAR), worst };
        self.tried.push(tried);
        Ok(tried)
    }

    /// The highest rate that keeps the objectives, from `rate` on by steps of
    /// the factor `step`, which grow.
    fn highest(&mut self, rate: f64, step: f64, precision: f64) -> Result<Option<f64>, ServingError> {
        let (mut rate, mut step) = (rate, step);
        let climbs = self.at(rate)?.kept;
        let (mut good, mut bad) = (None, None);
        for _ in 0..MOST_OCTAVES {
            *(if climbs { &mut good } else { &mut bad }) = Some(rate);
            rate = if climbs { rate * step } else { rate / step };
            if self.at(rate)?.kept != climbs {
                *(if climbs { &mut bad } else { &mut good }) = Some(rate);
                break;
            }
            step = (step * step).min(2.0);
        }
        let Some(mut good) = good else { return Ok(None) };
        let Some(mut bad) = bad else { return Ok(Some(good)) };
        while bad / good > 1.0 + precision {
            let middle = (bad * good).sqrt();
            *(if self.at(middle)?.kept { &mut good } else { &mut bad }) = middle;
        }
        Ok(Some(good))
    }

    /// Requests that a run at `rate` takes to be long beside the time that
    /// requests stay, and to show a queue that grows: one that is served by the
    /// bound too slowly makes first tokens wait as long as is promised after
    /// the promise over the bound.
    fn needed(&mut self, rate: f64) -> Result<f64, ServingError> {
        let served = self.at(rate)?.served;
        let growth_s = 2.0 * self.objectives.ttft_p99_s / self.bound;
        Ok(needed(&served, rate).max(growth_s * rate))
    }

    /// Looks below and above `rate` for rates that are beyond doubt: at the
    /// bound, and further where this is the `last` chance. An end of the
    /// interval lies where the margin is 1, between the rates tried.
    fn sure(&mut self, rate: f64, last: bool) -> Result<Sure, ServingError> {
        let mut within = [0.0, f64::INFINITY];
        let mut doubt: f64 = 0.0;
        for (side, sign) in [(0, 1.0), (1, -1.0)] {
            let (mut apart, mut inner) = (self.bound, (rate, sign * self.at(rate)?.margin));
            for turn in 0..=WIDENINGS {
                let other = if side == 0 { rate / (1.0 + apart) } else { rate * (1.0 + apart) };
                let margin = sign * self.at(other)?.margin;
                if turn == 0 {
                    doubt = doubt.max(if margin > 0.0 { 1.0 / margin } else { f64::INFINITY });
                }
                if margin >= 1.0 {
                    let share = ((1.0 - inner.1) / (margin - inner.1)).clamp(0.0, 1.0);
                    within[side] = inner.0 + share * (other - inner.0);
                    break;
                }
                if !last {
                    break;
                }
                inner = (other, margin);
                apart *= 2.0;
            }
        }
        Ok(Sure { within, doubt })
    }

    fn goodput(&mut self, rate: f64, sure: &Sure, long: bool) -> Result<Option<Goodput>, ServingError> {
        let (found, needed) = (self.at(rate)?, self.needed(rate)? as u64);
        let above = self.tried.iter().filter(|tried| !tried.kept && tried.rate > rate);
        let above = above.min_by(|a, b| a.rate.total_cmp(&b.rate));
        Ok(Some(Goodput {
            requests_per_s: rate,
            within: if long { sure.within } else { [0.0, f64::INFINITY] },
            needed,
            settled: long && sure.doubt <= 1.0,
            served: found.served,
            breaks_first: above.map(|tried| tried.worst),
            runs: self.runs,
            simulated: self.simulated,
        }))
    }
}

/// Shares of requests that miss either objective; who is turned away misses both.
fn missed(run: &Trial, objectives: &Objectives) -> [Interval; 2] {
    let kept = &run.seen[kept(&run.seen)];
    let share = |times: Vec<f64>, most_s: f64| {
        let own = Interval::of_series(times.iter().map(|&s| if s > most_s { 1.0 } else { 0.0 }));
        // None of so many is no more than three of them (95 %).
        let half_width = own.half_width.max(3.0 / times.len().max(1) as f64 - own.mean);
        Interval { mean: own.mean * (1.0 - run.turned_away) + run.turned_away, half_width }
    };
    [
        share(kept.iter().map(Seen::ttft_s).collect(), objectives.ttft_p99_s),
        share(kept.iter().filter_map(Seen::tpot_s).collect(), objectives.tpot_p99_s),
    ]
}
