//! `cargo xtask wheel --dist`: wheels for machines that have no Rust.
//!
//! One for each processor, for every CPython from 3.11 on and every Linux with
//! glibc 2.17 or newer; zig links, so that no older Linux is needed to build
//! them. Each is looked into, and the one for this machine is installed in an
//! environment of its own, with no compiler on the path, and used.

use crate::{
    environment::virtual_environment,
    files,
    python::weighed,
    test::ensure_target,
    tools::succeed,
    workspace::{root, target},
};
use std::{env, fs, path::Path, process::Command};

/// maturin and zig, both from PyPI.
const REQUIREMENTS: &str = "python/requirements-dist.txt";
const GLIBC: &str = "manylinux_2_17";
const PROCESSORS: [&str; 2] = ["x86_64", "aarch64"];
/// What a wheel holds, and that it works; see the file.
const CHECK: &str = include_str!("wheels/check.py");

pub fn run() -> Result<(), String> {
    let python = virtual_environment(".venv-dist", &[REQUIREMENTS])?;
    let folder = target().join("wheels");
    // What an earlier build left would be taken for this one's.
    let _ = fs::remove_dir_all(&folder);
    for processor in PROCESSORS {
        let target = format!("{processor}-unknown-linux-gnu");
        ensure_target(&target)?;
        let mut maturin = activated(&python)?;
        maturin.args(["-m", "maturin", "build", "--quiet", "--manifest-path", "python/Cargo.toml", "--zig"]);
        maturin.args(["--target", &target, "--compatibility", GLIBC, "--out"]).arg(&folder);
        succeed(maturin.current_dir(root()))?;
    }
    let wheels = files::within(&folder)?;
    for processor in PROCESSORS {
        let wheel = wheels.iter().find(|wheel| serves(wheel, processor));
        let wheel = wheel.ok_or_else(|| format!("no wheel for {processor} in {}", folder.display()))?;
        succeed(Command::new(&python).args(["-c", CHECK, "look", processor]).arg(wheel))?;
        if processor == env::consts::ARCH {
            use_it(&python, wheel)?;
        } else {
            eprintln!("{processor}: looked into, not run: this is no such machine");
        }
        weighed(wheel)?;
    }
    Ok(())
}

/// Whether a wheel is for a processor, by its tags: an interpreter's and an ABI's, then platforms with dots between
/// (maturin writes the older alias of a glibc's tag, too).
fn serves(wheel: &Path, processor: &str) -> bool {
    let name = wheel.file_stem().unwrap_or_default().to_string_lossy();
    let mut tags = name.rsplit('-');
    let platform = format!("{GLIBC}_{processor}");
    tags.next().is_some_and(|platforms| platforms.split('.').any(|one| one == platform))
        && tags.next() == Some("abi3")
        && tags.next() == Some("cp311")
}

/// Python of an environment, as who activated it would call it: maturin asks the `python3` of the path for zig.
fn activated(python: &Path) -> Result<Command, String> {
    let own = python.parent().into_iter().map(Path::to_path_buf);
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(own.chain(env::split_paths(&path)))
        .map_err(|error| format!("cannot put {} on the path: {error}", python.display()))?;
    let mut command = Command::new(python);
    command.env("PATH", path);
    Ok(command)
}

/// Installs a wheel where nothing else is, and codes a tensor with it.
fn use_it(python: &Path, wheel: &Path) -> Result<(), String> {
    let clean = target().join("wheels-clean");
    succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&clean))?;
    let own = clean.join("bin/python");
    let apart = |program: &Path| {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", clean.join("bin")).current_dir(&clean);
        // How the network is reached is the machine's, not the environment's.
        let reach = |name: &str| {
            ["HOME", "PIP_", "SSL_", "REQUESTS_"].iter().any(|own| name.starts_with(own))
                || name.to_ascii_lowercase().ends_with("_proxy")
        };
        command.envs(env::vars_os().filter(|(name, _)| reach(&name.to_string_lossy())));
        command
    };
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
    succeed(apart(&own).args(install).arg(wheel))?;
    succeed(apart(&own).args(["-c", CHECK, "use"]))
}

#[cfg(test)]
mod tests {
    use super::serves;
    use std::path::Path;

    #[test]
    fn a_wheel_is_told_by_its_tags() {
        let both = Path::new("trinity-0.2.0-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl");
        assert!(serves(both, "x86_64"));
        assert!(!serves(both, "aarch64"));
        assert!(serves(Path::new("trinity-0.2.0-cp311-abi3-manylinux_2_17_aarch64.whl"), "aarch64"));
        assert!(!serves(Path::new("trinity-0.2.0-cp311-abi3-linux_x86_64.whl"), "x86_64"));
        assert!(!serves(Path::new("trinity-0.2.0-cp312-cp312-manylinux_2_17_x86_64.whl"), "x86_64"));
    }
}
