//! What each step does, other than running notebooks.

use super::{binaries, outcome::StepOutcome};
use crate::{
    compile::{self, cargo, edited, selected},
    environment::{ALL, environment},
    numbers, python, silicon, structure,
    tools::{self, Failure, succeed},
    web,
    workspace::root,
};
use std::{env, process::Command};

/// Tests that compare with a program skip themselves, loudly, where it is missing.
pub fn install_tools() -> StepOutcome {
    let missing = tools::ensure(&[
        tools::FFMPEG,
        tools::X264,
        tools::X265,
        tools::LIBDE265,
        tools::OPENH264,
        tools::CHROMIUM,
        tools::NVENC_HEADERS,
        tools::VERILATOR,
    ]);
    if missing.is_empty() {
        return StepOutcome::Passed;
    }
    let names = missing.iter().map(|(tool, why)| format!("{} ({why})", tool.package));
    StepOutcome::LeftOut(format!("comparisons with {}", names.collect::<Vec<_>>().join(", ")))
}

fn has_component(subcommand: &str) -> bool {
    cargo(&[subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

pub fn format() -> StepOutcome {
    if !has_component("fmt") {
        return StepOutcome::LeftOut("no rustfmt (`rustup component add rustfmt`)".into());
    }
    succeed(&mut cargo(&["fmt", "--all", "--check"])).into()
}

/// Lints alone, for who has no need of what they would compile; [`build`] has the same in one pass.
pub fn lints() -> StepOutcome {
    if compile::linter().is_none() {
        return StepOutcome::LeftOut("no clippy (`rustup component add clippy`)".into());
    }
    succeed(edited("clippy").args(["--all-targets", "--"]).args(compile::REFUSED)).into()
}

/// No circles of imports, no function that asks for too much at once.
pub fn structure_holds() -> StepOutcome {
    structure::run().into()
}

/// Licences, advisories and sources of what we depend on.
pub fn licences() -> StepOutcome {
    if !has_component("deny") {
        return StepOutcome::LeftOut("no cargo-deny (`cargo install cargo-deny`)".into());
    }
    succeed(&mut cargo(&["deny", "--all-features", "check", "--hide-inclusion-graph"])).into()
}

/// Python with what notebooks and tests import.
pub fn packages() -> StepOutcome {
    environment().map(drop).map_err(Failure::Missing).into()
}

/// Crates that a browser can run.
const PORTABLE: [&str; 7] = ["bits", "numeric", "h264", "h265", "codec", "sim", "study"];

/// What the other steps run, linted; with `--all` also the portable crates without threads, on this machine.
pub fn build() -> StepOutcome {
    if compile::linter().is_none() {
        eprintln!("build: no clippy (`rustup component add clippy`): lints are left out");
    }
    let mut built = compile::everything();
    if env::var_os(ALL).is_some() {
        let packages = PORTABLE.iter().map(|name| format!("--package=trinity-{name}"));
        let mut check = cargo(&["check", "--quiet", "--no-default-features"]);
        built = built.and(succeed(check.args(packages)));
    }
    built.into()
}

/// Random inputs that a property meets by default, where its test does not say how many; proptest's
/// own number is four times as many, and `--all` has it.
const CASES: (&str, &str) = ("PROPTEST_CASES", "64");

/// What says how many random inputs were asked for.
fn cases() -> &'static [(&'static str, &'static str)] {
    let given = env::var_os(ALL).is_some() || env::var_os(CASES.0).is_some();
    if given { &[] } else { &[CASES] }
}

/// Unit and integration tests; with `--all` also pins of H.264 as users have it, since builds with debug assertions
/// compile its search for narrow registers alone.
pub fn tests() -> StepOutcome {
    // Examples are built, and run where something asks for them.
    let mut build = selected("test");
    // Of every target that has tests; `--lib` would compile those that say they have none, too.
    build.arg("--tests");
    if env::var_os(ALL).is_none() {
        return binaries::run(build, &[], cases()).into();
    }
    // Tests of a minute are marked `ignore`.
    let ran = binaries::run(build, &["--include-ignored"], cases());
    ran.and(succeed(cargo(&["test", "--release", "-p", "trinity-h264", "--test", "it"]).arg("golden"))).into()
}

/// Documentation tests.
pub fn documents() -> StepOutcome {
    let examples = succeed(selected("test").args(["--no-fail-fast", "--doc"]));
    examples.and_then(|()| numbers::hold(env::var_os(ALL).is_some())).into()
}

/// Unit tests alone, for who edits.
pub fn units() -> StepOutcome {
    succeed(edited("test").args(["--lib", "--bins"]).envs(cases().iter().copied())).into()
}

/// The RTL on small vectors: every value as the Rust codec has it.
pub fn silicon_equals_software() -> StepOutcome {
    silicon::quick(env::var_os(ALL).is_some()).into()
}

/// The explorer's page in a browser and beside the command: as the command serves it, and with
/// `--all` also as one file, with the module for browsers by itself.
pub fn explorer() -> StepOutcome {
    let trinity = match compile::command() {
        Ok(trinity) => trinity,
        Err(reason) => return StepOutcome::Failed(reason),
    };
    let mut parts = vec![web::test_served(&trinity)];
    if env::var_os(ALL).is_some() {
        parts.push(web::module_answers(&trinity));
        parts.push(web::build().and_then(|page| web::test_file(&page, &trinity)));
    }
    // What one part lacks keeps no other from running, and a failure is said before it.
    let mut lacking = StepOutcome::Passed;
    for part in parts {
        match part.into() {
            StepOutcome::Passed => {}
            failed @ StepOutcome::Failed(_) => return failed,
            left_out => lacking = left_out,
        }
    }
    lacking
}

/// The Python package, as a user would import it. PyTorch and clusters with `--all`.
pub fn python_package() -> StepOutcome {
    let python = environment().map_err(Failure::Missing);
    let tested = python.and_then(|python| Ok(python::test(&python, &compile::command()?)?));
    if tested.is_ok() && env::var_os(ALL).is_none() {
        eprintln!(
            "python: tests with PyTorch, Ray and Dask are left out; `cargo xtask test --all` runs them"
        );
    }
    tested.into()
}

/// Every model against its measurements, by the command's own account.
pub fn validation() -> StepOutcome {
    compile::command()
        .and_then(|trinity| succeed(Command::new(trinity).arg("validate").current_dir(root())))
        .into()
}
