//! Configurations as their users and their consumers meet them.
#![allow(clippy::unwrap_used)] // Clippy spares test functions, but not their helpers.

mod diagnostics;
mod embedded;
mod layers;
