//! Notebooks from top to bottom, with the command just built on the PATH; what
//! they print must be what is kept.

use super::outcome::StepOutcome;
use crate::{
    compile,
    environment::{ALL, environment},
    files, python,
    tools::{Failure, succeed},
    workspace::{root, target},
};
use std::{env, fs, path::Path, process::Command};

/// Notebooks of a minute and more, for `--all`.
const SLOW: [&str; 5] = ["accuracy.ipynb", "compare.ipynb", "die.ipynb", "paper.ipynb", "python.ipynb"];

pub fn notebooks() -> StepOutcome {
    environment().map_err(Failure::Missing).and_then(|python| Ok(run(&python)?)).into()
}

fn run(python: &Path) -> Result<(), String> {
    let kept = root().join("notebooks");
    let executed = target().join("notebooks");
    // One that is no longer kept would run for ever.
    let _ = fs::remove_dir_all(&executed);
    copy(&kept, &executed)?;
    let trinity = compile::command()?;
    let package = python::assemble()?;
    let here = [python.parent(), trinity.parent()].into_iter().flatten().map(Path::to_path_buf);
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(here.chain(env::split_paths(&inherited))).unwrap_or(inherited.clone());
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "--nbmake", "--overwrite", "--nbmake-timeout=600", "-q", "--durations=5"]);
    pytest.arg(&executed).current_dir(root()).env("PATH", path).env("PYTHONPATH", package);
    succeed(pytest.env("NO_COLOR", "1").env(python::BYTECODE, python::bytecode()))?;
    if env::var_os("TRINITY_BLESS").is_some() {
        return copy(&executed, &kept);
    }
    let mut current = Command::new(python);
    succeed(current.arg("notebooks/current.py").arg(&executed).arg(&kept).current_dir(root()))
}

/// Copies notebooks: they run apart from those that are kept.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot copy notebooks to {}: {error}", to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for path in files::ending_in(from, "ipynb") {
        let Some(name) = path.file_name() else { continue };
        if SLOW.iter().any(|slow| name == *slow) && env::var_os(ALL).is_none() {
            eprintln!("notebooks: {} is left out; `cargo xtask test --all` runs it", path.display());
            continue;
        }
        fs::copy(&path, to.join(name)).map_err(failed)?;
    }
    Ok(())
}
