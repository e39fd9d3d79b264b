//! What the fuzz targets do with an input, and the seeds they start from.
//!
//! A library, so that `cargo test` can hold every target to its word without a
//! fuzzer: its seeds, written by the library's own writers, are accepted and
//! reach the code the target is named for; and findings of the past, under
//! `fuzz/findings`, stay mended. Knows no fuzzer.
#![forbid(unsafe_code)]

mod config;
mod damage;
mod delta;
mod line;
mod pictures;
mod tensors;
mod tri;
mod trinity;
mod video;

use std::sync::atomic::{AtomicU64, Ordering};

/// How far an input came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunOutcome {
    /// Refused before the code that the target is named for.
    Refused,
    /// Refused by that code.
    Reached,
    /// Read to its end.
    Accepted,
}

/// A parser under test.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    /// Inputs that are accepted, made by the library's own writers.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads an input, which must not panic whatever it is.
    pub run: fn(&[u8]) -> RunOutcome,
}

/// Every target, by name.
pub const TARGETS: [Target; 14] = [
    Target { name: "config", seeds: config::seeds, run: config::run },
    Target { name: "delta", seeds: delta::seeds, run: delta::run },
    Target { name: "gguf", seeds: tensors::gguf_seeds, run: tensors::gguf },
    Target { name: "gguf_blocks", seeds: tensors::block_seeds, run: tensors::blocks },
    Target { name: "h264_decode", seeds: video::h264_seeds, run: video::h264 },
    Target { name: "h265_decode", seeds: video::h265_seeds, run: video::h265 },
    Target { name: "line_decode", seeds: line::seeds, run: line::run },
    Target { name: "npy", seeds: tensors::npy_seeds, run: tensors::npy },
    Target { name: "npz", seeds: tensors::npz_seeds, run: tensors::npz },
    Target { name: "pictures", seeds: pictures::seeds, run: pictures::run },
    Target { name: "pt", seeds: tensors::pt_seeds, run: tensors::pt },
    Target { name: "safetensors", seeds: tensors::safetensors_seeds, run: tensors::safetensors },
    Target { name: "tri", seeds: tri::seeds, run: tri::run },
    Target { name: "trinity_decode", seeds: trinity::seeds, run: trinity::run },
];

impl Target {
    /// The target of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Runs an input and counts how far it came.
    pub fn count(&self, input: &[u8], counts: &Counts) {
        let outcome = (self.run)(input);
        counts.inputs.fetch_add(1, Ordering::Relaxed);
        if outcome >= RunOutcome::Reached {
            counts.reached.fetch_add(1, Ordering::Relaxed);
        }
        if outcome == RunOutcome::Accepted {
            counts.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The seeds, each of which was seen to be accepted.
    pub fn checked_seeds(&self) -> Vec<Vec<u8>> {
        let seeds = (self.seeds)();
        for (index, seed) in seeds.iter().enumerate() {
            let outcome = (self.run)(seed);
            assert_eq!(outcome, RunOutcome::Accepted, "seed {index} of {} is not accepted", self.name);
        }
        seeds
    }
}

/// How far inputs came in all.
#[derive(Debug, Default)]
pub struct Counts {
    inputs: AtomicU64,
    reached: AtomicU64,
    accepted: AtomicU64,
}

impl Counts {
    pub const fn new() -> Self {
        Self { inputs: AtomicU64::new(0), reached: AtomicU64::new(0), accepted: AtomicU64::new(0) }
    }

    /// One line for the end of a run.
    pub fn text(&self, target: &Target) -> String {
        let [inputs, reached, accepted] =
            [&self.inputs, &self.reached, &self.accepted].map(|count| count.load(Ordering::Relaxed));
        let name = target.name;
        format!("{name}: {inputs} inputs, {reached} reached the code it is named for, {accepted} accepted")
    }
}
