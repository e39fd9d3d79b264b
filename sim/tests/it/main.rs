//! Promises of the cluster model.
#![allow(clippy::unwrap_used)]
mod astra;
#[cfg(feature = "config")]
mod configs;
mod events;
mod fixtures;
mod physics;
mod serving;
mod sweeps;
