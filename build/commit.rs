//! Which commit a build is of, for build scripts: `--version` names it.
//!
//! From git where there is a repository, from the text that `git archive` fills
//! in where there is none, or from whoever builds (`TRINITY_COMMIT`). Builds for
//! development say that they are such: asking git would have the command
//! compiled again after every commit.

use std::{env, path::Path, process::Command};

/// Filled in by `git archive` (see .gitattributes).
const ARCHIVED: &str = include_str!("commit.txt");

/// States the version as `TRINITY_VERSION`; `package` is the folder of the crate being built.
pub fn state(package: &str) {
    println!("cargo::rerun-if-env-changed=TRINITY_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=TRINITY_VERSION={version} ({})", commit(package));
}

fn commit(package: &str) -> String {
    if let Some(given) = env::var("TRINITY_COMMIT").ok().filter(|given| !given.is_empty()) {
        return given;
    }
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return "development build".into();
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(package).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    // A repository that this folder happens to lie in is not ours.
    if let Some(found) = git(&["ls-files", "Cargo.toml"])
        .filter(|found| !found.is_empty())
        .and_then(|_| git(&["log", "-1", "--no-show-signature", "--abbrev=12", "--format=%h %cs"]))
    {
        // Written at every commit and checkout.
        if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
            && Path::new(&log).is_file()
        {
            println!("cargo::rerun-if-changed={log}");
        }
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
        return if changed { format!("{found}, with changes") } else { found };
    }
    if ARCHIVED.starts_with('$') { "of an unknown commit".into() } else { ARCHIVED.trim().into() }
}
