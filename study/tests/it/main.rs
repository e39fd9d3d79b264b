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
