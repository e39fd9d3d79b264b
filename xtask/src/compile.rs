//! What tests, notebooks, the package and the benches run, compiled once.
//!
//! Cargo resolves features for the packages it is asked for: a second command
//! with another choice compiles the same libraries again. Whoever needs
//! something built in the profile of the tests asks here, for all of it.

use crate::{
    environment::ALL,
    tools::succeed,
    workspace::{root, target},
};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Features that are off by default, and tested with `--all`: what they bring along takes long to compile.
const FEATURES: [&str; 2] = ["--features", "trinity/parquet"];

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
    if linter().is_some() {
        // As `cargo clippy` hands its words to the compiler.
        let words: String = REFUSED.iter().map(|word| format!("{word}__CLIPPY_HACKERY__")).collect();
        command.env("CLIPPY_ARGS", words);
    }
    if let Ok(this) = env::current_exe() {
        command.env("RUSTC_WORKSPACE_WRAPPER", this).env(WRAPPED, "1");
    }
    command
}

/// Says that cargo calls this program instead of a compiler.
const WRAPPED: &str = "TRINITY_COMPILER";

/// Crates whose unit tests are over in seconds however they are compiled: with their library optimized a second time
/// for them they take up to sixty.
const PLAIN_UNITS: [&str; 6] =
    ["trinity_bits", "trinity_codec", "trinity_h264", "trinity_h265", "trinity_silicon", "trinity_sim"];

/// Compiles in the place of a compiler, where cargo asks for that: its name and words are in `words`. Lints on the way
/// where there is a linter. A profile has one `opt-level` for a library and its unit tests; here they part.
pub fn instead(words: &[String]) -> Option<Result<(), String>> {
    env::var_os(WRAPPED)?;
    let (compiler, words) = words.split_first()?;
    let mut command = Command::new(linter().map_or(Path::new(compiler), PathBuf::as_path));
    if linter().is_some() {
        command.arg(compiler);
    }
    command.args(as_compiled(words));
    Some(match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => Err(format!("cannot run {compiler}: {error}")),
    })
}

/// The words of a compilation, of unit tests that are in no hurry without optimization.
fn as_compiled(words: &[String]) -> Vec<&str> {
    let of = words.windows(2).find(|pair| pair[0] == "--crate-name").map(|pair| pair[1].as_str());
    let plain =
        words.iter().any(|word| word == "--test") && of.is_some_and(|name| PLAIN_UNITS.contains(&name));
    words
        .iter()
        .map(|word| if plain && word == "opt-level=2" { "opt-level=0" } else { word.as_str() })
        .collect()
}

/// As [`selected`], in the profile of the edit loop.
pub fn edited(subcommand: &str) -> Command {
    let mut command = cargo(&[subcommand, "--quiet", "--workspace"]);
    if env::var_os(ALL).is_some() {
        command.args(FEATURES);
    }
    command
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
    if env::var_os(ALL).is_none() {
        // Some examples are of a feature.
        build.args(FEATURES);
    }
    build.args(["--example", name]);
    for setting in ["opt-level=3", "debug-assertions=false", "overflow-checks=false"] {
        build.args(["--config", &format!("profile.{PROFILE}.package.{package}.{setting}")]);
    }
    succeed(&mut build)?;
    Ok(target().join(PROFILE).join("examples").join(name))
}

/// An example with optimizations, as users have what it measures.
pub fn released(name: &str, package: &str) -> Result<PathBuf, String> {
    succeed(&mut cargo(&["build", "--release", "--quiet", "--package", package, "--example", name]))?;
    Ok(target().join("release/examples").join(name))
}

pub fn command() -> Result<PathBuf, String> {
    built("trinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_in_no_hurry_are_not_optimized_and_libraries_are() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let library = words("--crate-name trinity_h264 --crate-type lib -C opt-level=2");
        assert_eq!(as_compiled(&library), library);
        let units = words("--crate-name trinity_h264 -C opt-level=2 --test");
        assert_eq!(as_compiled(&units).join(" "), "--crate-name trinity_h264 -C opt-level=0 --test");
        let slow = words("--crate-name trinity_tensor -C opt-level=2 --test");
        assert_eq!(as_compiled(&slow), slow);
        // Its integration tests are compiled as `it`.
        let whole = words("--crate-name it -C opt-level=2 --test");
        assert_eq!(as_compiled(&whole), whole);
    }
}
