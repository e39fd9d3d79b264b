//! The part of a run that stands for all time: warm-up and cool-down cut off,
//! intervals by batch means, and whether the queue keeps up.
//!
//! Rule. A *residence* is how long a request stays that is in flight at a
//! random moment (mean of squared latencies over mean latency). At both ends
//! of a run the arrivals of [`CUT_RESIDENCES`] residences are cut, at least a
//! tenth and at most a quarter of all; what is between is cut into [`BATCHES`]
//! batches, whose spread, with that of neighbours alike, is the interval. A run
//! is *short* where a quarter is less than those residences or a batch less
//! than one; a queue is *unstable* where, between the cuts, first tokens fall
//! behind arrivals by more than 2 % and more than chance (three standard
//! deviations of a Poisson count) explains, and come later and
//! later. Runs of fewer than [`LEAST_REQUESTS`] count whole and are short.

use std::ops::Range;

/// Runs of fewer requests are counted whole and said to be short.
pub const LEAST_REQUESTS: usize = 100;
/// Half-width of the rate's interval, over the rate, at which a run is settled
/// where nobody says.
pub const BOUND: f64 = 0.02;
/// Residences that are cut at both ends.
pub const CUT_RESIDENCES: f64 = 3.0;
/// Batches, of a residence or more each.
pub const BATCHES: usize = 20;
const LEAST_CUT: f64 = 0.1;
const MOST_CUT: f64 = 0.25;
/// Student's t for 95 % and 19 degrees of freedom.
const STUDENT: f64 = 2.093;
const BEHIND: f64 = 0.02;
/// Growth of the mean wait from the first to the last third that is a trend.
const RISING: f64 = 1.2;

/// A mean and how sure it is: half of its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Interval {
    pub mean: f64,
    pub half_width: f64,
}

impl Interval {
    /// Mean of `batches` and its interval; batches that resemble their
    /// neighbours count for fewer (first-order autoregression).
    fn of(batches: &[f64]) -> Self {
        let count = batches.len() as f64;
        let mean = batches.iter().sum::<f64>() / count.max(1.0);
        if batches.len() < BATCHES {
            return Self { mean, half_width: f64::INFINITY };
        }
        let squares: f64 = batches.iter().map(|x| (x - mean).powi(2)).sum();
        let products: f64 = batches.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let alike = if squares > 0.0 { products / squares + 1.0 / count } else { 0.0 };
        let alike = alike.clamp(0.0, 0.8);
        let variance = squares / (count - 1.0) * (1.0 + alike) / (1.0 - alike);
        Self { mean, half_width: STUDENT * (variance / count).sqrt() }
    }

    /// Mean of `values`, which are in the order of their arrival.
    pub(super) fn of_series(values: impl ExactSizeIterator<Item = f64>) -> Self {
        let count = values.len();
        let mut batches = [(0.0, 0.0); BATCHES];
        for (at, value) in values.enumerate() {
            let batch = &mut batches[at * BATCHES / count];
            *batch = (batch.0 + value, batch.1 + 1.0);
        }
        if count < LEAST_REQUESTS {
            let mean = batches.iter().map(|batch| batch.0).sum::<f64>() / (count as f64).max(1.0);
            return Self { mean, half_width: f64::INFINITY };
        }
        Self::of(&batches.map(|(sum, count): (f64, f64)| sum / count))
    }

    /// Lower and upper end.
    pub fn ends(&self) -> [f64; 2] {
        [(self.mean - self.half_width).max(0.0), self.mean + self.half_width]
    }
}

/// One request as its client saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub arrival_s: f64,
    pub first_token_s: f64,
    pub done_s: f64,
    pub output_tokens: f64,
}

impl Seen {
    pub fn ttft_s(&self) -> f64 {
        self.first_token_s - self.arrival_s
    }

    /// Time between tokens after the first; none of a single token.
    pub fn tpot_s(&self) -> Option<f64> {
        let between = self.output_tokens - 1.0;
        (between > 0.0).then(|| (self.done_s - self.first_token_s) / between)
    }

    pub fn latency_s(&self) -> f64 {
        self.done_s - self.arrival_s
    }
}

/// What a run is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convergence {
    /// Long enough, and the rate of tokens known within the bound.
    Settled,
    /// Long enough, but the rate of tokens is not known within the bound.
    Wide,
    /// Too short beside the time that a request stays.
    #[default]
    Short,
    /// Requests arrive faster than they are served.
    Unstable,
}

/// The steady part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Steady {
    /// Requests that arrive between the cuts.
    pub requests: usize,
    pub from_s: f64,
    pub to_s: f64,
    /// How long a request stays that is in flight at a random moment.
    pub residence_s: f64,
    /// Departures per second between the cuts.
    pub requests_per_s: Interval,
    /// Tokens of those departures per second.
    pub output_tokens_per_s: Interval,
    #[serde(rename = "standing")]
    pub convergence: Convergence,
    /// First tokens keep up with arrivals.
    pub stable: bool,
}

/// Requests of a run, in the order of their arrival, that count.
pub(super) fn kept(seen: &[Seen]) -> Range<usize> {
    let count = seen.len();
    if count < LEAST_REQUESTS {
        return 0..count;
    }
    let cut_s = CUT_RESIDENCES * residence_s(seen);
    let (first_s, last_s) = (seen[0].arrival_s, seen[count - 1].arrival_s);
    let bounded = |cut: usize| cut.clamp((LEAST_CUT * count as f64) as usize, most_cut(count));
    let head = bounded(seen.partition_point(|own| own.arrival_s < first_s + cut_s));
    let tail = bounded(count - seen.partition_point(|own| own.arrival_s < last_s - cut_s));
    head..count - tail
}

fn most_cut(count: usize) -> usize {
    (MOST_CUT * count as f64) as usize
}

fn residence_s(seen: &[Seen]) -> f64 {
    let (mut squares, mut sum) = (0.0, 0.0);
    for latency_s in seen.iter().map(Seen::latency_s) {
        squares += latency_s * latency_s;
        sum += latency_s;
    }
    if sum > 0.0 { squares / sum } else { 0.0 }
}

/// Whether first tokens come later and later.
fn rising(kept: &[Seen]) -> bool {
    let third = kept.len() / 3;
    let mean = |own: &[Seen]| own.iter().map(Seen::ttft_s).sum::<f64>() / own.len().max(1) as f64;
    mean(&kept[kept.len() - third..]) > RISING * mean(&kept[..third])
}

impl Steady {
    /// Of `seen` in the order of arrival; the run is settled when its rate of
    /// tokens is known within `bound`.
    pub(super) fn of(seen: &[Seen], bound: f64) -> Self {
        let kept = kept(seen);
        let whole = seen.len() < LEAST_REQUESTS;
        let from_s = seen.get(kept.start).map_or(0.0, |own| own.arrival_s);
        let end_s = seen.iter().fold(from_s, |end, own| end.max(own.done_s));
        let to_s = if whole { end_s } else { seen[kept.end].arrival_s };
        let span_s = (to_s - from_s).max(f64::MIN_POSITIVE);
        let (mut tokens, mut departed) = ([0.0; BATCHES], [0.0; BATCHES]);
        for own in seen.iter().filter(|own| (from_s..=to_s).contains(&own.done_s)) {
            let batch = ((own.done_s - from_s) / span_s * BATCHES as f64) as usize;
            tokens[batch.min(BATCHES - 1)] += own.output_tokens;
            departed[batch.min(BATCHES - 1)] += 1.0;
        }
        let batch_s = span_s / BATCHES as f64;
        let known = |sums: [f64; BATCHES]| {
            let own = Interval::of(&sums.map(|sum| sum / batch_s));
            if whole { Interval { half_width: f64::INFINITY, ..own } } else { own }
        };
        let (requests_per_s, output_tokens_per_s) = (known(departed), known(tokens));
        let arrived = kept.len() as f64;
        // Not departures: while the batch still grows these lag behind in any queue.
        let started = seen.iter().filter(|own| (from_s..=to_s).contains(&own.first_token_s)).count();
        let behind = arrived - started as f64;
        let late = behind > (BEHIND * arrived).max(3.0 * arrived.sqrt());
        let stable = whole || !late || !rising(&seen[kept.clone()]);
        let residence_s = residence_s(seen);
        let clipped = kept.start >= most_cut(seen.len()) || seen.len() - kept.end >= most_cut(seen.len());
        let long = !whole && !clipped && batch_s >= residence_s;
        let sure = output_tokens_per_s.half_width <= bound * output_tokens_per_s.mean;
        Self {
            requests: kept.len(),
            from_s,
            to_s,
            residence_s,
            requests_per_s,
            output_tokens_per_s,
            convergence: match (stable, long, sure) {
                (false, ..) => Convergence::Unstable,
                (true, false, _) => Convergence::Short,
                (true, true, false) => Convergence::Wide,
                (true, true, true) => Convergence::Settled,
            },
            stable,
        }
    }
}
