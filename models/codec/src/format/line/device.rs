//! Who codes under a plan: this CPU, or a device that writes the same bytes.
//!
//! Plans are chosen here either way; a device codes and decodes whole streams.
//! Knows nothing of what a device is.

use crate::format::line::error::Error;
use crate::format::line::plan::Plan;
use crate::format::line::stream::{Settings, decode, encode};

/// Something that codes as [`encode`] and [`decode`] do, byte for byte and value for value.
pub trait Device: std::fmt::Debug + Send + Sync {
    /// What it is, in a word: `cpu`, `cuda`.
    fn kind(&self) -> &'static str;

    /// What it is called, for people.
    fn name(&self) -> String;

    /// The stream of some values under a plan.
    fn encode(&self, plan: &Plan, values: &[f32], settings: &Settings) -> Result<Vec<u8>, Error>;

    /// Rows, columns and values of a stream.
    fn decode(&self, stream: &[u8]) -> Result<(usize, usize, Vec<f32>), Error>;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

impl Device for Cpu {
    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn name(&self) -> String {
        "this CPU".into()
    }

    fn encode(&self, plan: &Plan, values: &[f32], settings: &Settings) -> Result<Vec<u8>, Error> {
        encode(plan, values, settings)
    }

    fn decode(&self, stream: &[u8]) -> Result<(usize, usize, Vec<f32>), Error> {
        decode(stream)
    }
}
