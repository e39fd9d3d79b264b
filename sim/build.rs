//! A version for the model: a hash of what it is made of, so that a checkpoint
//! kept on disk is told apart from one that other code would have written.

#[path = "../build/fingerprint.rs"]
mod fingerprint;

use std::path::Path;

fn main() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The silicon model has its numbers from the last two.
    let folders = ["src", "../models/silicon/src", "../configs/codecs", "../configs/technologies"];
    fingerprint::state("TRINITY_MODEL", &folders.map(|folder| own.join(folder)));
}
