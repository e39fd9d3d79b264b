//! `cargo xtask text`: text to train on, out of Debian's documentation packages.
//!
//! The work is in `text.py`, where pages are read; here is where the file lies.
//! Nothing of it is committed but a small piece for tests.

use crate::{
    tools::{find, succeed},
    workspace::root,
};
use std::process::Command;

pub fn run(out: Option<&str>) -> Result<(), String> {
    let python = find("python3").ok_or("no python3 on this machine")?;
    let out = out.map_or_else(|| root().join("target/text/docs.txt"), Into::into);
    succeed(Command::new(python).arg(root().join("xtask/src/text.py")).arg(out))
}
