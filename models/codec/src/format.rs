//! Layouts of streams: what a plan and its tiles are in bytes, for each of the two formats.

pub mod line;
pub mod trinity;
