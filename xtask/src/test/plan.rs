//! What `cargo xtask test` does, in order, and what waits for what.

use super::{
    emulated::emulated,
    notebooks::notebooks,
    outcome::StepOutcome,
    steps,
    times::{Times, WHOLE},
};
use crate::environment::ALL;
use std::env;

/// One step: its name, what it does in a few words, what it waits for.
#[derive(Debug)]
pub struct Step {
    pub name: &'static str,
    what: &'static str,
    /// What `--all` adds, where it adds something.
    more: &'static str,
    /// Steps that come before it; where `build` fails, what waits for it is left out.
    pub after: &'static [&'static str],
    pub run: fn() -> StepOutcome,
}

const fn step(name: &'static str, what: &'static str, run: fn() -> StepOutcome) -> Step {
    Step { name, what, more: "", after: &[], run }
}

impl Step {
    const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    const fn after(self, after: &'static [&'static str]) -> Self {
        Self { after, ..self }
    }
}

pub const BUILD: &str = "build";
/// The step on another processor: with `--all`, or by name.
const EMULATED: &str = "emulated";
/// Steps that others cannot do without.
pub const NEEDED: [&str; 2] = [BUILD, "packages"];
/// Steps for the edit loop, asked for by this name.
pub const QUICK: &str = "quick";
const QUICK_STEPS: [&str; 3] = ["format", "structure", "units"];

/// Parts of other steps: `tests` holds the units, and the build the lints.
const BY_NAME: [&str; 2] = ["units", "lints"];

/// In the order in which they start where nothing holds them up: what takes
/// longest after the build comes first.
pub const STEPS: [Step; 16] = [
    step("tools", "programs that tests compare with, through apt where it may", steps::install_tools),
    step("format", "cargo fmt", steps::format),
    step("structure", "no circles of imports, no overlong functions", steps::structure_holds),
    step("lints", "cargo clippy alone, which the build has in it", steps::lints).after(&["structure"]),
    step("packages", "a Python environment for notebooks and tests, from PyPI", steps::packages)
        .more("PyTorch, Ray and Dask")
        .after(&["tools"]),
    step("licences", "licences and advisories of dependencies", steps::licences),
    step(
        BUILD,
        "everything compiled, once, in the profile of the tests, by clippy, whose warnings are \
         errors",
        steps::build,
    )
    .more("portable crates without threads")
    .after(&["structure"]),
    step("tests", "unit and integration tests", steps::tests)
        .more(
            "four times as many random inputs for each property, whole grids, calibrated files, \
             every baseline, examples for longer",
        )
        .after(&[BUILD, "tools"]),
    step(
        "silicon",
        "the widest RTL designs under Verilator, every value as the codec has it",
        steps::silicon_equals_software,
    )
    .more("under every pressure")
    .after(&[BUILD, "tools"]),
    step("python", "the Python package", steps::python_package)
        .more("PyTorch, Ray, Dask")
        .after(&[BUILD, "packages"]),
    step("notebooks", "notebooks from top to bottom", notebooks)
        .more("every notebook")
        .after(&[BUILD, "packages"]),
    step("page", "the explorer in a browser, beside the command", steps::explorer)
        .more("every study, as one file with the module for browsers")
        .after(&[BUILD, "tools"]),
    step("validation", "every model against its measurements", steps::validation).after(&[BUILD]),
    step(
        "documents",
        "examples in documentation, and a command for every number in documents",
        steps::documents,
    )
    .more("what is cheap of them run again")
    .after(&[BUILD, "tests"]),
    step(EMULATED, "pins of every codec, and NEON beside the scalar truth, on an emulated aarch64", emulated)
        .after(&[BUILD]),
    step("units", "unit tests alone, of every crate", steps::units).after(&["format", "structure"]),
];

/// The steps of these names in their order; all where none is named.
pub fn choose(names: &[&str]) -> Result<Vec<&'static Step>, String> {
    let known = |name: &&&str| **name == QUICK || STEPS.iter().any(|step| step.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let steps = STEPS.map(|step| step.name).join(", ");
        return Err(format!("no step is called `{unknown}`; expected nothing, {QUICK}, or some of: {steps}"));
    }
    let wanted = |step: &&Step| match names {
        [] => !BY_NAME.contains(&step.name) && (step.name != EMULATED || env::var_os(ALL).is_some()),
        _ => names.contains(&step.name) || (names.contains(&QUICK) && QUICK_STEPS.contains(&step.name)),
    };
    Ok(STEPS.iter().filter(wanted).collect())
}

/// What will be done, and how long it took the last time.
pub fn printed(steps: &[&Step], times: &Times) -> String {
    let all = env::var_os(ALL).is_some();
    let seconds = |name| times.of(name).map_or("–".to_string(), |seconds| format!("{seconds} s"));
    let mut text = format!("{:<12} {:>7}\n", "step", "last");
    for step in steps {
        let more = match step.more {
            "" => String::new(),
            more if all => format!("; also {more}"),
            more => format!(" (--all: {more})"),
        };
        text += &format!("{:<12} {:>7}  {}{more}\n", step.name, seconds(step.name), step.what);
    }
    if choose(&[]).is_ok_and(|all| all.len() == steps.len()) {
        text += &format!("{:<12} {:>7}  two steps at a time\n", "all", seconds(WHOLE));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_waits_for_steps_that_are_there_and_come_before_it() {
        for (at, step) in STEPS.iter().enumerate() {
            for name in step.after {
                assert!(STEPS[..at].iter().any(|own| own.name == *name), "{} waits for {name}", step.name);
            }
        }
    }

    #[test]
    fn steps_are_chosen_by_name_and_unknown_ones_are_named() {
        let names = |asked: &[&str]| choose(asked).unwrap().iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(&["quick"]), ["format", "structure", "units"]);
        assert_eq!(names(&["tests", "lints"]), ["lints", "tests"]);
        let all = names(&[]);
        assert!(all.contains(&"tests") && BY_NAME.iter().all(|name| !all.contains(name)));
        assert_eq!(all.contains(&EMULATED), env::var_os(ALL).is_some());
        assert_eq!(names(&[EMULATED]), [EMULATED]);
        assert!(choose(&["test"]).unwrap_err().contains("`test`"));
    }
}
