//! What the decoder and encoder promise, checked from outside the crate.
#![allow(clippy::unwrap_used)]

mod conformance;
#[path = "../../../bits/tests/support/content.rs"]
mod content;
mod decode;
#[path = "../../../bits/tests/support/decoders.rs"]
mod decoders;
#[path = "../../../bits/tests/support/draw.rs"]
mod draw;
mod encoder;
mod golden;
#[path = "../../../bits/tests/support/manifest.rs"]
mod manifest;
mod tools;
