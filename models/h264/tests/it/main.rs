//! What the crate promises, held against streams of others and against its own.

mod conformance;
mod content;
mod damage;
mod grid;
