//! A version for the model: a hash of what it is made of, so that a checkpoint
//! kept on disk is told apart from one that other code would have written.

#[path = "../build/fingerprint.rs"]
mod fingerprint;
#[path = "../build/own.rs"]
mod own;

use std::path::Path;

fn main() {
    let own = own::folder();
    // The silicon model has its numbers from the last two.
    let folders = ["src", "../models/silicon/src", "../configs/codecs", "../configs/technologies"];
    fingerprint::state("TRINITY_MODEL", &folders.map(|folder| Path::new(&own).join(folder)));
}
