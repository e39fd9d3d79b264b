//! What libFuzzer needs around a target: seeds on disk before it looks for
//! them, and a line at the end that says how far its inputs came.

use std::sync::OnceLock;

pub use libfuzzer_sys;
use trinity_fuzz_targets::{Counts, Target};

static RUNNING: OnceLock<&'static Target> = OnceLock::new();
static COUNTS: Counts = Counts::new();

unsafe extern "C" {
    fn atexit(last: extern "C" fn()) -> i32;
}

extern "C" fn print_counts() {
    if let Some(target) = RUNNING.get() {
        eprintln!("{}", COUNTS.text(target));
    }
}

/// Checks the seeds, and writes them to the folder that `TRINITY_FUZZ_SEEDS` names.
pub fn start(name: &str) {
    let target = Target::named(name).expect("a target of that name");
    let seeds = target.checked_seeds();
    eprintln!("{name}: {} seeds, all accepted", seeds.len());
    if let Some(folder) = std::env::var_os("TRINITY_FUZZ_SEEDS") {
        for (index, seed) in seeds.iter().enumerate() {
            let path = std::path::Path::new(&folder).join(format!("seed-{index:03}"));
            std::fs::write(path, seed).expect("seeds can be written");
        }
    }
    if RUNNING.set(target).is_ok() {
        // SAFETY: C's own function, given one that takes nothing and never unwinds.
        unsafe { atexit(print_counts) };
    }
}

/// Runs one input.
pub fn run(input: &[u8]) {
    if let Some(target) = RUNNING.get() {
        target.count(input, &COUNTS);
    }
}

/// The whole of a target's binary.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::start($name), |input: &[u8]| {
            $crate::run(input);
        });
    };
}
