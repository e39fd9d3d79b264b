//! What tests, notebooks, the package and the benches run, compiled once.
//!
//! Cargo resolves features for the packages it is asked for: a second command
//! with another choice compiles the same libraries again. Whoever needs
//! something built in the profile of the tests asks here, for all of it.

use crate::{
    tools::succeed,
    workspace::{root, target},
};
use std::{path::PathBuf, process::Command, sync::OnceLock};

/// Features that are off by default and tested all the same.
pub const FEATURES: &str = "trinity/parquet";

/// The profile of a whole run of the tests: in few parts and without lines for debuggers, since nothing is built from it
/// a second time. The edit loop has cargo's own.
pub const PROFILE: &str = "once";

/// Cargo in the workspace, as tests use it.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(root());
    command
}

/// What lints refuse. What the library gained after `rust-version` is found here: that compiler need not be installed.
pub const REFUSED: [&str; 4] = ["-D", "warnings", "-D", "clippy::incompatible_msrv"];

/// Clippy's compiler, where it is installed beside rustc.
pub fn linter() -> Option<&'static PathBuf> {
    static LINTER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let asked = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let sysroot = String::from_utf8(asked.stdout).ok()?;
        let driver = PathBuf::from(sysroot.trim()).join("bin/clippy-driver");
        driver.exists().then_some(driver)
    };
    LINTER.get_or_init(find).as_ref()
}

/// The words that choose the same packages, features and profile every time.
///
/// Clippy's compiler makes what rustc makes, and lints on the way: linting first would read everything twice, what we
/// depend on included. Who calls cargo otherwise has crates of the workspace compiled anew.
pub fn selected(subcommand: &str) -> Command {
    let mut command = edited(subcommand);
    command.args(["--profile", PROFILE]);
    if let Some(linter) = linter() {
        // As `cargo clippy` hands its words to the compiler.
        let words: String = REFUSED.iter().map(|word| format!("{word}__CLIPPY_HACKERY__")).collect();
        command.env("RUSTC_WORKSPACE_WRAPPER", linter).env("CLIPPY_ARGS", words);
    }
    command
}

/// As [`selected`], in the profile of the edit loop.
pub fn edited(subcommand: &str) -> Command {
    cargo(&[subcommand, "--quiet", "--workspace", "--features", FEATURES])
}

/// Builds and lints all that there is; nothing where it is there.
pub fn everything() -> Result<(), String> {
    succeed(selected("build").arg("--all-targets"))
}

/// Something that [`everything`] built, by its path in the folder of the profile.
pub fn built(path: &str) -> Result<PathBuf, String> {
    everything()?;
    Ok(target().join(PROFILE).join(path))
}

/// An example that no test runs and that computes for minutes, most of them in one package.
pub fn example(name: &str, package: &str) -> Result<PathBuf, String> {
    let mut build = selected("build");
    build.args(["--example", name]);
    for setting in ["opt-level=3", "debug-assertions=false", "overflow-checks=false"] {
        build.args(["--config", &format!("profile.{PROFILE}.package.{package}.{setting}")]);
    }
    succeed(&mut build)?;
    Ok(target().join(PROFILE).join("examples").join(name))
}

/// The command.
pub fn command() -> Result<PathBuf, String> {
    built("trinity")
}
