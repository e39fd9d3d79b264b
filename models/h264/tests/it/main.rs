//! What the crate promises, held against streams of others and against its own.
#![allow(clippy::unwrap_used)] // Clippy spares test functions, but not their helpers.

mod conformance;
#[path = "../../../bits/tests/support/content.rs"]
mod content;
mod damage;
#[path = "../../../bits/tests/support/decoders.rs"]
mod decoders;
#[path = "../../../bits/tests/support/draw.rs"]
mod draw;
mod golden;
mod grid;
#[path = "../../../bits/tests/support/manifest.rs"]
mod manifest;
mod openh264;
mod tools;
