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
mod pictures;
mod tensors;
mod tri;
mod trinity;
mod video;

use std::sync::atomic::{AtomicU64, Ordering};

/// How far an input came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
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
    pub run: fn(&[u8]) -> Outcome,
}

/// Every target, by name.
pub const TARGETS: [Target; 13] = [
    Target { name: "config", seeds: config::seeds, run: config::run },
    Target { name: "delta", seeds: delta::seeds, run: delta::run },
    Target { name: "gguf", seeds: tensors::gguf_seeds, run: tensors::gguf },
    Target { name: "gguf_blocks", seeds: tensors::block_seeds, run: tensors::blocks },
    Target { name: "h264_decode", seeds: video::h264_seeds, run: video::h264 },
    Target { name: "h265_decode", seeds: video::h265_seeds, run: video::h265 },
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
        if outcome >= Outcome::Reached {
            counts.reached.fetch_add(1, Ordering::Relaxed);
        }
        if outcome == Outcome::Accepted {
            counts.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The seeds, each of which was seen to be accepted.
    pub fn checked_seeds(&self) -> Vec<Vec<u8>> {
        let seeds = (self.seeds)();
        for (index, seed) in seeds.iter().enumerate() {
            let outcome = (self.run)(seed);
            assert_eq!(outcome, Outcome::Accepted, "seed {index} of {} is not accepted", self.name);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_seed_is_accepted_and_reaches_the_code_its_target_is_named_for() {
        for target in &TARGETS {
            let counts = Counts::new();
            let seeds = target.checked_seeds();
            assert!(!seeds.is_empty(), "{} has no seed", target.name);
            seeds.iter().for_each(|seed| target.count(seed, &counts));
            println!("{}", counts.text(target));
        }
    }

    #[test]
    fn findings_of_the_past_stay_mended() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../findings");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !path.is_dir() {
                assert_eq!(name, "README.md", "findings lie in folders named as their targets");
                continue;
            }
            let target = Target::named(name).unwrap_or_else(|| panic!("no target named {name}"));
            for finding in std::fs::read_dir(&path).unwrap() {
                let finding = finding.unwrap().path();
                println!("{}: {:?}", finding.display(), (target.run)(&std::fs::read(&finding).unwrap()));
            }
        }
    }

    /// Not a fuzzer, but damage of a few kinds to every seed, on every test run.
    #[test]
    fn no_damaged_seed_panics() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        for target in &TARGETS {
            let counts = Counts::new();
            for seed in (target.seeds)() {
                for _ in 0..6 {
                    let mut input = seed.clone();
                    for _ in 0..1 + random() % 3 {
                        let place = random() % (input.len() + 1);
                        match (random() % 4, input.get_mut(place)) {
                            (0, _) => input.truncate(place),
                            (1, _) => input.insert(place, random() as u8),
                            (_, Some(byte)) => *byte ^= 1 << (random() % 8),
                            (_, None) => input.extend((0..4).map(|_| random() as u8)),
                        }
                    }
                    target.count(&input, &counts);
                }
            }
            println!("{}", counts.text(target));
        }
    }

    #[test]
    fn every_target_has_a_binary_of_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
        let mut binaries: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        binaries.sort();
        assert_eq!(binaries, TARGETS.map(|target| target.name));
    }
}
