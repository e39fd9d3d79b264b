//! The command `trinity`: arguments, progress, tables, reports. No arithmetic of its own.
#![forbid(unsafe_code)]

fn main() {}
