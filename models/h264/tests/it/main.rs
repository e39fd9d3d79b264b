//! What the crate promises, held against streams of others and against its own.
#![allow(clippy::unwrap_used)] // Clippy spares test functions, but not their helpers.

mod conformance;
mod content;
mod damage;
#[path = "../../../bits/tests/support/draw.rs"]
mod draw;
mod golden;
mod grid;
mod openh264;
mod tools;
