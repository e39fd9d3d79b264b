//! A version for the codecs: a hash of what they are made of, so that a result
//! kept on disk is told apart from one that other code would give.

#[path = "../../build/fingerprint.rs"]
mod fingerprint;
#[path = "../../build/own.rs"]
mod own;

use std::path::Path;

/// Crates whose code decides what a codec does to a tensor.
const CRATES: [&str; 6] = ["bits", "numeric", "codec", "h264", "h265", "tensor"];

fn main() {
    let models = Path::new(&own::folder()).join("..");
    let mut folders: Vec<_> = CRATES.iter().map(|name| models.join(name).join("src")).collect();
    // The built-in profiles are part of the codec.
    folders.push(models.join("../configs/profiles"));
    fingerprint::state("TRINITY_CODECS", &folders);
}
