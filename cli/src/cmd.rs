//! One module a command, named as the user types it.
//!
//! Each has `Args` (its arguments, with help that teaches by example) and
//! `run(&Args, &Context) -> Result<(), Failure>`.

pub mod compare;
pub mod completions;
pub mod config;
pub mod decode;
pub mod delta;
pub mod encode;
pub mod estimate;
pub mod eval;
pub mod explore;
pub mod figure;
pub mod h264;
pub mod h265;
pub mod man;
pub mod measure;
mod pictures;
pub mod serve;
pub mod sweep;
pub mod tensors;
pub mod validate;
mod video;
pub mod web;
