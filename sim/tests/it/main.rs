//! Promises of the cluster model.
#![allow(clippy::unwrap_used)]
mod astra;
mod domains;
mod events;
mod fixtures;
mod layouts;
mod networks;
mod physics;
mod serving;
