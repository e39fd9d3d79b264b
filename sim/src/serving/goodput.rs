//! The highest rate of requests at which a service keeps its word.

use super::{Request, Requests, Served, Service, ServingError, StepCosts, check, serve_with};

/// What a service promises: 99th percentiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objectives {
    pub ttft_p99_s: f64,
    pub tpot_p99_s: f64,
}

impl Objectives {
    /// Whether `served` keeps both, in a queue that keeps up.
    pub fn kept(&self, served: &Served) -> bool {
        served.steady.stable && self.overrun(served).1 <= 1.0
    }

    /// The objective that is furthest from kept, and what was served over it.
    fn overrun(&self, served: &Served) -> (Objective, f64) {
        let ttft = served.ttft.p99_s / self.ttft_p99_s;
        let tpot = served.tpot.p99_s / self.tpot_p99_s;
        if ttft >= tpot { (Objective::Ttft, ttft) } else { (Objective::Tpot, tpot) }
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
    /// What the service did at that rate.
    pub served: Served,
    /// The objective that a higher rate breaks first, where one does.
    pub breaks_first: Option<Objective>,
    /// Simulations that the search took.
    pub runs: u32,
}

/// Relative width at which the search stops.
const PRECISION: f64 = 0.005;

/// Doublings and halvings before the search gives up looking for a bracket.
const MOST_OCTAVES: u32 = 40;

/// Finds the highest rate at which `requests`, sped up or slowed down, are
/// served within `objectives`. `None`: not even one at a time.
///
/// The same requests are used at every rate, so that the answer does not
/// wander with the draw.
///
/// # Errors
///
/// As [`super::serve`].
pub fn goodput(
    service: &Service,
    requests: &[Request],
    objectives: &Objectives,
) -> Result<Option<Goodput>, ServingError> {
    check(service, requests)?;
    let costs =
        StepCosts::of(&service.engine, &service.job, service.max_batch, Requests::mean_context(requests))?;
    let unit = Requests::rate_per_s(requests);
    if !unit.is_finite() {
        return Err(ServingError::Setting {
            name: "requests",
            value: requests.len() as f64,
            rule: "two or more at different times, to search for a rate",
        });
    }
    let (mut broken, mut runs) = (None, 0);
    let mut at = |rate: f64| -> Result<Option<Goodput>, ServingError> {
        runs += 1;
        let served = settled(service, &Requests::faster(requests, rate / unit), &costs)?;
        if objectives.kept(&served) {
            return Ok(Some(Goodput { requests_per_s: rate, served, breaks_first: None, runs: 0 }));
        }
        broken = Some(objectives.overrun(&served).0);
        Ok(None)
    };
    let found = highest(&mut at, unit)?;
    Ok(found.map(|found| Goodput { breaks_first: broken, runs, ..found }))
}

/// Repetitions of the same requests at most.
const MOST_REPEATS: usize = 16;

/// A run lasts at least so many mean latencies between its cuts, or it shows
/// how it fills and empties, not how it serves.
const LATENCIES: f64 = 5.0;

/// Serves `requests`, repeated until the run is long beside its latencies.
fn settled(service: &Service, requests: &[Request], costs: &StepCosts) -> Result<Served, ServingError> {
    let mut repeats = 1;
    loop {
        let served = serve_with(service, &Requests::repeated(requests, repeats), costs)?;
        let lasts_s = served.steady.to_s - served.steady.from_s;
        if lasts_s >= LATENCIES * served.latency.mean_s || repeats >= MOST_REPEATS {
            return Ok(served);
        }
        repeats *= 4;
    }
}

/// The highest rate at which `at` finds the objectives kept, from `unit` on.
fn highest(
    at: &mut impl FnMut(f64) -> Result<Option<Goodput>, ServingError>,
    unit: f64,
) -> Result<Option<Goodput>, ServingError> {
    let mut rate = unit;
    let mut best = at(rate)?;
    let mut octaves = 0;
    let climbs = best.is_some();
    // Widen by doubling while kept, or by halving until kept.
    loop {
        octaves += 1;
        let next = if climbs { rate * 2.0 } else { rate / 2.0 };
        let found = at(next)?;
        rate = next;
        if found.is_some() != climbs {
            if !climbs {
                best = found;
            }
            break;
        }
        if found.is_some() {
            best = found;
        }
        if octaves == MOST_OCTAVES {
            return Ok(best);
        }
    }
    let Some(mut good) = best else { return Ok(None) };
    let mut bad = if climbs { rate } else { 2.0 * rate };
    while bad / good.requests_per_s > 1.0 + PRECISION {
        let middle = (bad * good.requests_per_s).sqrt();
        match at(middle)? {
            Some(found) => good = found,
            None => bad = middle,
        }
    }
    Ok(Some(good))
}
