//! A version for the cluster model: a hash of its code and of the configurations it reads, so that a recorded answer
//! is told apart from one that today's model would give.

#[path = "../build/fingerprint.rs"]
mod fingerprint;
#[path = "../build/own.rs"]
mod own;

use std::path::Path;

/// Whatever decides what an estimate says.
const FOLDERS: [&str; 10] = [
    "sim/src",
    "study/src/config",
    "configs/calibrations",
    "configs/clusters",
    "configs/codecs",
    "configs/gpus",
    "configs/llms",
    "configs/nics",
    "configs/silicon",
    "configs/sweeps",
];

fn main() {
    let root = Path::new(&own::folder()).join("..");
    let folders: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    fingerprint::state("TRINITY_CLUSTER_MODEL", &folders);
}
