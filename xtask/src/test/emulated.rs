//! The codecs on another processor, emulated: the same bytes as here.
//!
//! The line codec parses with NEON; other kernels are plain loops that the compiler widens. Pins of every stream
//! hold them to the bit, and properties hold NEON beside the scalar truth. An emulator says nothing of speed.

use super::outcome::StepOutcome;
use crate::{
    compile::{PROFILE, cargo},
    tools::{self, Tool, succeed},
};
use std::{path::Path, process::Command};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
const COMPILER: Tool = Tool { found_as: &[LINKER], package: "gcc-aarch64-linux-gnu" };
const C_LIBRARY: Tool =
    Tool { found_as: &["/usr/aarch64-linux-gnu/lib/libc.so.6"], package: "libc6-dev-arm64-cross" };
const EMULATOR: Tool = Tool { found_as: &["qemu-aarch64"], package: "qemu-user" };

/// Crates with streams of their own.
const CODECS: [&str; 4] = ["trinity-h264", "trinity-h265", "trinity-codec", "trinity-tensor"];
/// Tests whose names have one of these hold streams and values to what is stored, or registers to the scalar truth.
const HELD: [&str; 3] = ["golden", "wide_registers", "every_width"];

/// Pins of every codec, and every width of registers, under emulation.
pub fn emulated() -> StepOutcome {
    if let Some((tool, why)) = tools::ensure(&[COMPILER, C_LIBRARY, EMULATOR]).first() {
        return StepOutcome::LeftOut(format!("no {} ({why})", tool.package));
    }
    if let Err(reason) = ensure_target(TARGET) {
        return StepOutcome::LeftOut(reason);
    }
    let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", TARGET.replace('-', "_").to_uppercase());
    let mut test = cargo(&["test", "--quiet", "--profile", PROFILE, "--target", TARGET, "--test", "it"]);
    test.args(CODECS.iter().flat_map(|name| ["--package", name])).arg("--").args(HELD);
    test.env(variable("LINKER"), LINKER)
        .env(variable("RUNNER"), format!("{} -L {LIBRARIES}", EMULATOR.found_as[0]));
    // The C libraries of dependencies.
    test.env(format!("CC_{}", TARGET.replace('-', "_")), LINKER);
    succeed(&mut test).into()
}

/// Rust's own libraries for a processor, through rustup where they are missing.
pub fn ensure_target(name: &str) -> Result<(), String> {
    let here = Command::new("rustc").args(["--print", "target-libdir", "--target", name]).output();
    if here.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()) {
        return Ok(());
    }
    succeed(Command::new("rustup").args(["target", "add", name]))
}
