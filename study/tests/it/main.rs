//! Promises of studies: what a file says is what is computed.
#![allow(clippy::unwrap_used)]
mod api;
mod configs;
mod explore;
mod invariants;
mod layouts;
mod networks;
mod parts;
mod rates;
mod refused;
mod setters;
mod sweeps;
mod trained;
mod written;

use trinity_study::Error;
use trinity_study::estimate::{EstimateOutcome, EstimateRequest, Part, Study};

/// A job, as the text of a file, on a cluster by name, with values set over either.
fn asked(cluster: &str, job: &str, sets: &[&str]) -> Result<Study, Error> {
    Study::load(&EstimateRequest {
        cluster: Part::Named(cluster.into()),
        job: Part::Text { name: "job".into(), text: job.into() },
        overrides: sets.iter().map(|&set| set.into()).collect(),
    })
}

/// Fails unless all of the parts are said.
#[track_caller]
fn says(said: impl ToString, parts: &[&str]) {
    let said = said.to_string();
    for part in parts {
        assert!(said.contains(part), "{part} is missing:\n{said}");
    }
}

/// What that costs.
fn estimated(cluster: &str, job: &str, sets: &[&str]) -> Result<EstimateOutcome, Error> {
    asked(cluster, job, sets)?.outcome()
}
