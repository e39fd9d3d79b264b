//! hwcodec without a GPU: C layouts against NVIDIA's headers, NVENC against a
//! stand-in library, and plain sentences where there is no driver.

#![allow(clippy::unwrap_used)]

mod layouts;
mod line;
mod no_gpu;
mod recorded;
mod stand_in;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's libffmpeg-nvenc-dev puts the headers.
const HEADERS: &str = "/usr/include/ffnvcodec";

/// Compiles a C file of tests/it against the headers, or None (said aloud)
/// where headers or a compiler are missing.
fn compile(source: &str, flags: &[&str], out: &Path) -> Option<PathBuf> {
    if !Path::new(HEADERS).exists() {
        eprintln!("skipped: {HEADERS} is missing (package libffmpeg-nvenc-dev)");
        return None;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    let status = Command::new("cc").args(["-Wall", "-O1", "-o"]).arg(out).arg(file).args(flags).status();
    match status {
        Ok(status) => assert!(status.success(), "{source} does not compile"),
        Err(e) => {
            eprintln!("skipped: no C compiler ({e})");
            return None;
        }
    }
    Some(out.to_path_buf())
}
