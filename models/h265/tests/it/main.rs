//! What the decoder and encoder promise, checked from outside the crate.
#![allow(clippy::unwrap_used)]

mod conformance;
mod decode;
#[path = "../../../bits/tests/support/draw.rs"]
mod draw;
mod encoder;
mod golden;
mod tools;
