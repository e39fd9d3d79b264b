//! The highest rate of requests at which a service keeps its word.

use super::{Request, Requests, Served, Service, ServingError, StepCosts, check, serve_with};

/// What a service promises: 99th percentiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objectives {
    pub ttft_p99_s: f64,
    pub tpot_p99_s: f64,
}

impl Objectives {
    /// Whether `served` keeps both.
    pub fn kept(&self, served: &Served) -> bool {
        served.ttft.p99_s <= self.ttft_p99_s && served.tpot.p99_s <= self.tpot_p99_s
    }
}

/// The outcome of the search.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Goodput {
    /// Highest rate found to keep the objectives.
    pub requests_per_s: f64,
    /// What the service did at that rate.
    pub served: Served,
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
    let at = |rate: f64| {
        serve_with(service, &Requests::faster(requests, rate / unit), &costs)
            .map(|served| objectives.kept(&served).then_some(Goodput { requests_per_s: rate, served }))
    };
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
