//! Promises of the cluster model.
#![allow(clippy::unwrap_used)]
mod astra;
mod fixtures;
mod physics;
