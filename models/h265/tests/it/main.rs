#![allow(clippy::unwrap_used)]
//! What the decoder and encoder promise, checked from outside the crate.

mod conformance;
mod encoder;
