//! Runs that go on until they can be believed: as long as their warm-up asks,
//! and until the rate is known within a bound.
//!
//! Must not know what is promised.

use super::steady::{BATCHES, BOUND, CUT_RESIDENCES, Convergence, Seen};
use super::{
    Requests, Served, Service, ServingError, ServingRequest, StepCosts, Stream, check, serve_with, too_long,
};

/// How long a run may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Requests of the first run.
    pub first: usize,
    /// Requests of the longest.
    pub most: usize,
    /// Half of an interval, over its mean, that is narrow enough.
    pub bound: f64,
}

impl Length {
    /// Longest run where nobody says.
    pub const MOST: usize = 100_000;

    /// A run that starts with `first` requests, within the usual bound.
    pub fn from(first: usize) -> Self {
        Self { first, most: Self::MOST, bound: BOUND }
    }

    pub(super) fn check(&self) -> Result<(), ServingError> {
        let bound = self.bound;
        ServingError::setting("bound", bound, bound > 0.0 && bound < 1.0, "above 0 and below 1")?;
        ServingError::setting("requests", self.first as f64, self.first > 0, "at least 1")
    }

    /// Requests of the longest run: never fewer than were asked for.
    pub(super) fn most(&self) -> usize {
        self.most.max(self.first)
    }
}

/// What a service did in the last of its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    pub served: Served,
    /// Requests simulated in all runs.
    pub simulated: u64,
}

/// Share of requests that may be turned away, or miss what is promised: what
/// a 99th percentile leaves.
pub(super) const MISSES: f64 = 0.01;

/// Longer than asked, so that the next run is not short by a hair.
const SPARE: f64 = 1.2;

/// Plays `stream` at `rate_per_s`, longer and longer, until the rate of tokens
/// is known within the bound, the queue is found unstable twice, or the
/// longest run is over. A queue is unstable, too, where requests stay longer in
/// proportion to the run, three runs in a row. Fails when the engine cannot run
/// the model, does not hold a request in a hundred, or requests make no sense.
pub fn settle(
    service: &Service,
    stream: &Stream,
    rate_per_s: f64,
    length: &Length,
) -> Result<Settled, ServingError> {
    check(service)?;
    length.check()?;
    let costs = costs(service, stream)?;
    let (mut count, mut simulated, mut unstable, mut grown) = (length.first, 0, 0, 0);
    let mut before: Option<(usize, f64)> = None;
    loop {
        let list = Requests::faster(&stream.first(count)?, rate_per_s);
        simulated += list.len() as u64;
        let mut served = trial(service, &costs, &list, length.bound)?.served;
        let steady = &mut served.steady;
        grown = if before.is_some_and(|own| in_proportion(own, (list.len(), steady.residence_s))) {
            grown + 1
        } else {
            0
        };
        unstable += u32::from(!steady.stable);
        if steady.convergence == Convergence::Short && grown >= 2 {
            (steady.convergence, steady.stable) = (Convergence::Unstable, false);
            unstable = 2;
        }
        before = Some((list.len(), steady.residence_s));
        if steady.convergence == Convergence::Settled || unstable >= 2 || list.len() >= length.most() {
            return Ok(Settled { served, simulated });
        }
        let wanted = match served.steady.convergence {
            Convergence::Short => needed(&served, rate_per_s),
            Convergence::Wide => {
                let tokens = served.steady.output_tokens_per_s;
                let wide = tokens.half_width / (length.bound * tokens.mean);
                SPARE * list.len() as f64 * (wide * wide).min(4.0)
            }
            _ => 0.0,
        };
        count = (wanted as usize).clamp(2 * list.len(), 4 * list.len()).min(length.most());
    }
}

/// Whether requests stay longer in a longer run about as much as it is longer:
/// `(requests, residence)` of both.
fn in_proportion(before: (usize, f64), now: (usize, f64)) -> bool {
    let longer = now.0 as f64 / before.0 as f64;
    longer >= 1.5 && now.1 >= before.1 * longer.powf(0.8)
}

/// What the steps of `service` cost, whatever the length of a run.
pub(super) fn costs(service: &Service, stream: &Stream) -> Result<StepCosts, ServingError> {
    StepCosts::of(&service.engine, &service.job, service.max_batch, stream.mean_context())
}

/// Requests of a run that is long beside the time that a request stays.
pub(super) fn needed(served: &Served, rate_per_s: f64) -> f64 {
    let residences = 2.0 * CUT_RESIDENCES + BATCHES as f64;
    SPARE * residences * served.steady.residence_s * rate_per_s
}

/// One run.
pub(super) struct Trial {
    pub served: Served,
    pub seen: Vec<Seen>,
    /// Share of requests that were turned away.
    pub turned_away: f64,
}

/// Plays what an engine can hold and turns the rest away.
pub(super) fn trial(
    service: &Service,
    costs: &StepCosts,
    list: &[ServingRequest],
    bound: f64,
) -> Result<Trial, ServingError> {
    let mut long = too_long(service, costs, list).peekable();
    let Some(&(index, item)) = long.peek() else {
        let (served, seen) = serve_with(service, list, costs, bound);
        return Ok(Trial { served, seen, turned_away: 0.0 });
    };
    let places: Vec<usize> = long.map(|(index, _)| index).collect();
    let turned_away = places.len() as f64 / list.len() as f64;
    if turned_away > MISSES {
        let (needed, capacity) = (item.cache_tokens(), costs.cache_tokens());
        return Err(ServingError::TooLong { index, needed, capacity });
    }
    let fits = (0..list.len()).filter(|index| places.binary_search(index).is_err());
    let held: Vec<ServingRequest> = fits.map(|index| list[index]).collect();
    let (served, seen) = serve_with(service, &held, costs, bound);
    Ok(Trial { served: Served { turned_away: places.len(), ..served }, seen, turned_away })
}
