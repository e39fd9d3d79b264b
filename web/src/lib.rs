//! The explorer's engine: what the page asks, answered by the same crates as
//! the command.
//!
//! A request and its answer are JSON in linear memory; there are no bindings to
//! generate. The page writes a request where [`exports`] tells it to, calls, and
//! reads the answer. Must not know how an answer is drawn, nor do arithmetic of
//! its own: a number on the page is a number of `trinity-study`.
#![deny(unsafe_code)]

mod answer;
#[cfg(target_family = "wasm")]
mod exports;
mod refusal;
mod shape;
mod studies;
mod tensors;

pub use answer::Engine;
