//! Promises of the cluster model.
mod astra;
mod fixtures;
mod physics;
