//! The part of a run that stands for all time: warm-up and cool-down cut off,
//! intervals by batch means, and whether the queue keeps up.
//!
//! Rule: of a run of at least [`LEAST_REQUESTS`], the first and the last tenth
//! of arrivals are cut; shorter runs count whole. A queue is unstable where,
//! between the two cuts, departures fall behind arrivals by more than 5 % and
//! more than chance (three standard deviations of a Poisson count) explains.

use super::Request;

/// Runs of fewer requests are counted whole and said to be unsettled.
pub const LEAST_REQUESTS: usize = 100;
/// Half-width of the rate's interval, over the rate, at which a run is settled.
pub const BOUND: f64 = 0.02;
const CUT: f64 = 0.1;
const BATCHES: usize = 20;
/// Student's t for 95 % and 19 degrees of freedom.
const STUDENT: f64 = 2.093;
const BEHIND: f64 = 0.05;

/// A mean and how sure it is: half of its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Interval {
    pub mean: f64,
    pub half_width: f64,
}

impl Interval {
    /// Mean of `batches` and its interval.
    fn of(batches: &[f64]) -> Self {
        let count = batches.len() as f64;
        if count < 2.0 {
            return Self { mean: batches.first().copied().unwrap_or(0.0), half_width: f64::INFINITY };
        }
        let mean = batches.iter().sum::<f64>() / count;
        let variance = batches.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self { mean, half_width: STUDENT * (variance / count).sqrt() }
    }
}

/// The steady part of a run.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Steady {
    /// Requests that arrive between the cuts.
    pub requests: usize,
    pub from_s: f64,
    pub to_s: f64,
    /// Departures per second between the cuts.
    pub requests_per_s: f64,
    /// Tokens of those departures per second.
    pub output_tokens_per_s: f64,
    pub ttft_s: Interval,
    pub output_tokens_interval: Interval,
    /// Departures keep up with arrivals.
    pub stable: bool,
    /// Stable, and the rate of tokens known within [`BOUND`].
    pub settled: bool,
}

/// Indices of the requests that arrive between the cuts.
pub(super) fn kept(count: usize) -> std::ops::Range<usize> {
    if count < LEAST_REQUESTS {
        return 0..count;
    }
    let cut = (count as f64 * CUT) as usize;
    cut..count - cut
}

impl Steady {
    pub(super) fn of(requests: &[Request], first_token_s: &[f64], done_s: &[f64]) -> Self {
        let kept = kept(requests.len());
        let whole = requests.len() < LEAST_REQUESTS;
        let arrival = |index: usize| requests.get(index).map_or(0.0, |r| r.arrival_s);
        let from_s = arrival(kept.start);
        let end_s = done_s.iter().fold(from_s, |end, &done| end.max(done));
        let to_s = if whole { end_s } else { arrival(kept.end) };
        let span_s = (to_s - from_s).max(f64::MIN_POSITIVE);
        let mut tokens = [0.0; BATCHES];
        let mut departed = 0.0;
        for (request, &done) in requests.iter().zip(done_s) {
            if (from_s..=to_s).contains(&done) {
                let batch = ((done - from_s) / span_s * BATCHES as f64) as usize;
                tokens[batch.min(BATCHES - 1)] += f64::from(request.output_tokens);
                departed += 1.0;
            }
        }
        let batch_s = span_s / BATCHES as f64;
        let rates = tokens.map(|sum| sum / batch_s);
        let waits: Vec<f64> = kept.clone().map(|i| first_token_s[i] - requests[i].arrival_s).collect();
        let each = waits.len().div_ceil(BATCHES).max(1);
        let means: Vec<f64> =
            waits.chunks(each).map(|own| own.iter().sum::<f64>() / own.len() as f64).collect();
        let arrived = kept.len() as f64;
        let behind = arrived - departed;
        let stable = whole || behind <= (BEHIND * arrived).max(3.0 * arrived.sqrt());
        let output_tokens_interval = Interval::of(&rates);
        let known = output_tokens_interval.half_width <= BOUND * output_tokens_interval.mean;
        Self {
            requests: kept.len(),
            from_s,
            to_s,
            requests_per_s: departed / span_s,
            output_tokens_per_s: tokens.iter().sum::<f64>() / span_s,
            ttft_s: Interval::of(&means),
            output_tokens_interval,
            stable,
            settled: stable && known && !whole,
        }
    }
}
