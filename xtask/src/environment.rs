//! Python beside the tests: a virtual environment with what they import.
//!
//! Made once, and again when a list of requirements changes; large packages
//! only where all tests are asked for.

use crate::{
    files,
    tools::{self, succeed},
    workspace::root,
};
use std::{env, fs, path::PathBuf, process::Command};

/// Set where tests that take long, or need gigabytes, are to run as well.
pub const ALL: &str = "TRINITY_TEST_ALL";

/// What tests of the package import.
const REQUIREMENTS: &str = "python/requirements.txt";
/// PyTorch and clusters: gigabytes, for `cargo xtask test --all`.
const ALL_REQUIREMENTS: &str = "python/requirements-all.txt";

/// Python with what notebooks and tests import.
pub fn environment() -> Result<PathBuf, String> {
    let usual = ["notebooks/requirements.txt", REQUIREMENTS];
    match env::var_os(ALL) {
        None => virtual_environment(".venv", &usual),
        Some(_) => virtual_environment(".venv-all", &[&usual[..], &[ALL_REQUIREMENTS]].concat()),
    }
}

/// Python with what these lists name, in `folder`; made again when one of them changes.
pub fn virtual_environment(folder: &str, lists: &[&str]) -> Result<PathBuf, String> {
    let folder = root().join(folder);
    let python = folder.join("bin/python");
    let installed = folder.join("requirements.txt");
    let texts = lists.iter().map(|list| files::text(&root().join(list)));
    let wanted = texts.collect::<Result<String, String>>()?;
    if python.exists() && fs::read_to_string(&installed).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    let make = || succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    // Debian splits the venv module from Python.
    make().or_else(|_| tools::install(&["python3-venv"]).and_then(|()| make()))?;
    let mut pip = Command::new(&python);
    // Where there is no network, that is soon said.
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
    // Most modules are never imported.
    pip.arg("--no-compile");
    for list in lists {
        pip.arg("-r").arg(root().join(list));
    }
    succeed(&mut pip)?;
    if wanted.contains("ipykernel") {
        succeed(Command::new(&python).args(["-m", "ipykernel", "install", "--sys-prefix"]))?;
    }
    files::write(&installed, wanted)?;
    Ok(python)
}
