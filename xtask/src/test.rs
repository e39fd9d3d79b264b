//! `cargo xtask test`: everything that must hold, on a machine that has only
//! Rust, a C compiler and Python.
//!
//! Each step passes, fails, or is left out with the reason; all of them run,
//! and only a failure makes the exit code non-zero.

use crate::{
    environment::{ALL, environment},
    python::{self, FEATURES},
    silicon, structure,
    tools::{self, succeed},
    web,
    workspace::{root, target},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

enum Outcome {
    Passed,
    Failed(String),
    LeftOut(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(reason) => Self::Failed(reason),
        }
    }
}

impl From<web::Failure> for Outcome {
    fn from(failure: web::Failure) -> Self {
        match failure {
            web::Failure::Missing(reason) => Self::LeftOut(reason),
            web::Failure::Failed(reason) => Self::Failed(reason),
        }
    }
}

type Step = (&'static str, fn() -> Outcome);

const STEPS: [Step; 12] = [
    ("tools", install_tools),
    ("format", format),
    ("structure", structure_holds),
    ("lints", lints),
    ("licences", licences),
    ("no threads", without_threads),
    // Before the tests: the command that they build then carries the page.
    ("web", explorer),
    ("tests", tests),
    ("silicon", silicon_equals_software),
    ("python", python_package),
    ("notebooks", notebooks),
    ("validation", validation),
];

/// Runs every step, or those that are named; `--all` runs the slow tests, too.
pub fn run(options: &[&str]) -> Result<(), String> {
    // By the environment, which tests see too.
    if options == ["--all"] {
        let this = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        return succeed(Command::new(this).arg("test").env(ALL, "1"));
    }
    if let Some(unknown) = options.iter().find(|name| STEPS.iter().all(|(step, _)| step != *name)) {
        let steps = STEPS.map(|(step, _)| format!("\"{step}\"")).join(", ");
        return Err(format!("no step is called `{unknown}`; expected --all, nothing, or some of: {steps}"));
    }
    let steps = STEPS.into_iter().filter(|(name, _)| options.is_empty() || options.contains(name));
    let mut summary = Vec::new();
    for (name, step) in steps {
        eprintln!("── {name}");
        let start = Instant::now();
        let outcome = step();
        summary.push((name, outcome, start.elapsed().as_secs()));
    }
    eprintln!("──");
    for (name, outcome, seconds) in &summary {
        let said = match outcome {
            Outcome::Passed => "passed".to_string(),
            Outcome::Failed(reason) => format!("FAILED: {reason}"),
            Outcome::LeftOut(reason) => format!("left out: {reason}"),
        };
        eprintln!("{name:<10} {seconds:>4} s  {said}");
    }
    let failed: Vec<&str> = summary
        .iter()
        .filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
        .map(|(name, ..)| *name)
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Tests that compare with a program skip themselves, loudly, where it is missing.
fn install_tools() -> Outcome {
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
        return Outcome::Passed;
    }
    let names = missing.iter().map(|(tool, why)| format!("{} ({why})", tool.package));
    Outcome::LeftOut(format!("comparisons with {}", names.collect::<Vec<_>>().join(", ")))
}

fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(root());
    command
}

fn has_component(subcommand: &str) -> bool {
    cargo(&[subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

fn format() -> Outcome {
    if !has_component("fmt") {
        return Outcome::LeftOut("no rustfmt (`rustup component add rustfmt`)".into());
    }
    succeed(&mut cargo(&["fmt", "--all", "--check"])).into()
}

fn lints() -> Outcome {
    if !has_component("clippy") {
        return Outcome::LeftOut("no clippy (`rustup component add clippy`)".into());
    }
    let all = ["clippy", "--quiet", "--workspace", "--all-targets", "--features", FEATURES];
    // What the library gained after `rust-version` is found here: that compiler need not be installed.
    succeed(cargo(&all).args(["--", "-D", "warnings", "-D", "clippy::incompatible_msrv"])).into()
}

/// No circles of imports, no function that asks for too much at once.
fn structure_holds() -> Outcome {
    structure::run().into()
}

/// Licences, advisories and sources of what we depend on.
fn licences() -> Outcome {
    if !has_component("deny") {
        return Outcome::LeftOut("no cargo-deny (`cargo install cargo-deny`)".into());
    }
    succeed(&mut cargo(&["deny", "--all-features", "check", "--hide-inclusion-graph"])).into()
}

/// Crates that a browser can run.
const PORTABLE: [&str; 14] = [
    "--package",
    "trinity-bits",
    "--package",
    "trinity-numeric",
    "--package",
    "trinity-h264",
    "--package",
    "trinity-h265",
    "--package",
    "trinity-codec",
    "--package",
    "trinity-sim",
    "--package",
    "trinity-study",
];

/// The same code without threads, which the step `web` builds for a browser, on this machine.
fn without_threads() -> Outcome {
    if env::var_os(ALL).is_none() {
        return Outcome::LeftOut("`web` builds it; `cargo xtask test --all` checks it here, too".into());
    }
    let check = [&["check", "--quiet", "--no-default-features"][..], &PORTABLE].concat();
    succeed(&mut cargo(&check)).into()
}

/// The explorer's page, in a browser and beside the command.
fn explorer() -> Outcome {
    let page = match web::build() {
        Ok(page) => page,
        Err(failure) => return failure.into(),
    };
    let trinity = match built_command() {
        Ok(trinity) => trinity,
        Err(reason) => return Outcome::Failed(reason),
    };
    match web::test(&page, &trinity) {
        Ok(()) => Outcome::Passed,
        Err(failure) => failure.into(),
    }
}

/// Unit, integration and documentation tests.
fn tests() -> Outcome {
    let test = ["test", "--quiet", "--workspace", "--features", FEATURES, "--no-fail-fast"];
    // Examples are built where something runs them; the lints have read them.
    let kinds: [&[&str]; 2] = [&["--lib", "--bins", "--tests"], &["--doc"]];
    let ran = kinds.map(|kind| succeed(cargo(&test).args(kind)));
    ran.into_iter().collect::<Result<(), _>>().into()
}

/// The RTL on small vectors: every value as the Rust codec has it.
fn silicon_equals_software() -> Outcome {
    match silicon::quick() {
        Ok(()) => Outcome::Passed,
        Err(silicon::Failure::Missing(reason)) => Outcome::LeftOut(reason),
        Err(silicon::Failure::Failed(reason)) => Outcome::Failed(reason),
    }
}

/// Runs notebooks from top to bottom, with the command just built on the PATH.
fn notebooks() -> Outcome {
    let folder = root().join("notebooks");
    let has_notebooks = fs::read_dir(&folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.path().extension().is_some_and(|ending| ending == "ipynb"))
        })
    });
    if !has_notebooks {
        return Outcome::LeftOut("there are none".into());
    }
    let python = match environment() {
        Ok(python) => python,
        Err(reason) => return Outcome::LeftOut(reason),
    };
    let trinity = match built_command() {
        Ok(trinity) => trinity,
        Err(reason) => return Outcome::Failed(reason),
    };
    let package = match python::assemble() {
        Ok(package) => package,
        Err(reason) => return Outcome::Failed(reason),
    };
    let here = [python.parent(), trinity.parent()].into_iter().flatten().map(Path::to_path_buf);
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(here.chain(env::split_paths(&inherited))).unwrap_or(inherited.clone());
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "--nbmake", "--overwrite", "--nbmake-timeout=600", "-q"]);
    let executed = target().join("notebooks");
    // One that is no longer kept would run for ever.
    let _ = fs::remove_dir_all(&executed);
    let pytest = pytest.arg(&executed).current_dir(root()).env("PATH", path).env("PYTHONPATH", package);
    let ran = copy_notebooks(&folder, &executed).and_then(|()| succeed(pytest.env("NO_COLOR", "1")));
    if ran.is_err() || env::var_os("TRINITY_BLESS").is_some() {
        return ran.and_then(|()| copy_notebooks(&executed, &folder)).into();
    }
    let mut current = Command::new(&python);
    succeed(current.arg("notebooks/current.py").arg(&executed).arg(&folder).current_dir(root())).into()
}

/// Notebooks of minutes, for `--all`.
const SLOW_NOTEBOOKS: [&str; 1] = ["paper.ipynb"];

/// Copies notebooks: they run apart from those that are kept.
fn copy_notebooks(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot copy notebooks to {}: {error}", to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "ipynb")) {
            if SLOW_NOTEBOOKS.iter().any(|slow| name == *slow) && env::var_os(ALL).is_none() {
                eprintln!("notebooks: {} is left out; `cargo xtask test --all` runs it", path.display());
                continue;
            }
            fs::copy(&path, to.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

/// The Python package, as a user would import it. PyTorch and clusters with `--all`.
fn python_package() -> Outcome {
    let python = match environment() {
        Ok(python) => python,
        Err(reason) => return Outcome::LeftOut(reason),
    };
    match built_command().and_then(|trinity| python::test(&python, &trinity)) {
        Ok(()) if env::var_os(ALL).is_none() => {
            eprintln!(
                "python: tests with PyTorch, Ray and Dask are left out; `cargo xtask test --all` runs them"
            );
            Outcome::Passed
        }
        outcome => outcome.into(),
    }
}

/// Every model against its measurements, by the command's own account.
fn validation() -> Outcome {
    let trinity = match built_command() {
        Ok(trinity) => trinity,
        Err(reason) => return Outcome::Failed(reason),
    };
    let has_validate = Command::new(&trinity)
        .args(["validate", "--help"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_validate {
        return Outcome::LeftOut("this build has no `trinity validate`".into());
    }
    succeed(Command::new(&trinity).arg("validate").current_dir(root())).into()
}

/// The command in the profile of the tests, so that nothing is compiled twice.
fn built_command() -> Result<PathBuf, String> {
    succeed(&mut cargo(&["build", "--quiet", "--package", "trinity", "--features", FEATURES]))?;
    Ok(target().join("debug/trinity"))
}
