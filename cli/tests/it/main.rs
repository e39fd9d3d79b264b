//! The command as a user meets it: exit codes, help, pipes.
#![allow(clippy::unwrap_used)] // Clippy spares test functions, but not their helpers.

mod browser;
mod config;
mod containers;
mod device;
mod engines;
mod eval;
mod examples;
mod explore;
mod figure;
mod golden;
mod h264;
mod h265;
mod help;
mod inputs;
mod json;
mod messages;
mod names;
mod output;
mod pages;
mod pictures;
mod promises;
mod results;
mod rows;
mod serving;
mod shards;
mod support;
mod sweep;
mod tensors;
mod video;
mod web;
