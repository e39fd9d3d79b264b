//! The Python package: assembled from the debug build for tests, and as a wheel.
//!
//! Tests import it from `target/python`, where the libraries that the Rust
//! tests were built with serve it too; a wheel is built by maturin, as pip
//! would, in a profile of its own.

use crate::{
    compile,
    environment::environment,
    files,
    tools::succeed,
    workspace::{root, target},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What a wheel may weigh.
const WHEEL_BYTES: u64 = 15 << 20;

/// Where Python keeps what it compiled: not among the sources, and for all steps once.
pub const BYTECODE: &str = "PYTHONPYCACHEPREFIX";

pub fn bytecode() -> PathBuf {
    target().join("xtask/bytecode")
}

/// Tests the package with Python `python`; `trinity` is the command beside it.
pub fn test(python: &Path, trinity: &Path) -> Result<(), String> {
    let packages = assemble()?;
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests"]);
    let pytest = pytest.current_dir(root()).env("PYTHONPATH", packages).env("TRINITY_COMMAND", trinity);
    succeed(pytest.env("NO_COLOR", "1").env(BYTECODE, bytecode()))
}

/// The package as it would be installed, of the debug build; the folder to import from.
pub fn assemble() -> Result<PathBuf, String> {
    let library = compile::built(&format!("{}_core{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))?;
    let folder = target().join("python");
    let package = folder.join("trinity");
    if package.exists() {
        fs::remove_dir_all(&package)
            .map_err(|error| format!("cannot empty {}: {error}", package.display()))?;
    }
    copy_folder(&root().join("python/trinity"), &package)?;
    copy(&library, &package.join("_core.abi3.so"))?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(|_| ()).map_err(|error| format!("cannot copy {}: {error}", from.display()))
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    files::folder(to)?;
    for path in files::within(from)? {
        let Some(name) = path.file_name() else { continue };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_dir() && name != "__pycache__" {
            copy_folder(&path, &to.join(name))?;
        } else if ["py", "pyi", "typed"].contains(&ending) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// `cargo xtask wheel`: builds the wheel into `target/wheels` and says what it weighs.
pub fn wheel() -> Result<(), String> {
    let python = environment()?;
    let folder = target().join("wheels");
    // What an earlier build left would be taken for this one's.
    let _ = fs::remove_dir_all(&folder);
    let build = ["-m", "maturin", "build", "--quiet", "--manifest-path", "python/Cargo.toml", "--out"];
    succeed(Command::new(python).args(build).arg(&folder).current_dir(root()))?;
    files::within(&folder)?.iter().try_for_each(|wheel| weighed(wheel))
}

/// Says what a wheel weighs; an error where that is too much.
pub fn weighed(wheel: &Path) -> Result<(), String> {
    let bytes = fs::metadata(wheel).map_or(0, |metadata| metadata.len());
    eprintln!("{}: {:.1} MB", wheel.display(), bytes as f64 / f64::from(1 << 20));
    if bytes > WHEEL_BYTES {
        return Err(format!("{} weighs more than {} MB", wheel.display(), WHEEL_BYTES >> 20));
    }
    Ok(())
}
