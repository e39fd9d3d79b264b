//! The explorer: the model as a WebAssembly module, the page around it, and the
//! tests that drive it in a browser.
//!
//! As the command serves it, the page needs nothing of this. As one file it needs
//! the wasm32 target, Node and what the lock file of `web/` names. Where one of
//! them cannot be had, that is said, and nothing else suffers.

use crate::{
    compile::cargo,
    environment::ALL,
    files,
    test::ensure_target,
    tools::{Failure, find, succeed},
    workspace::{root, target},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const TARGET: &str = "wasm32-unknown-unknown";

/// `cargo xtask web`: builds the page and says where it is.
pub fn run() -> Result<(), String> {
    let page = build().map_err(|(Failure::Missing(reason) | Failure::Failed(reason))| reason)?;
    eprintln!("wrote {}; the next build of the command carries it (`trinity web -o`)", page.display());
    Ok(())
}

/// The module in a profile.
fn module(profile: &str) -> Result<PathBuf, Failure> {
    let missing = |_| format!("{TARGET} is not installed (`rustup target add {TARGET}`)");
    ensure_target(TARGET).map_err(missing).map_err(Failure::Missing)?;
    // Only here is the crate a library of its own kind: the command links it like any other.
    let build =
        ["rustc", "--quiet", "--crate-type", "cdylib", "--target", TARGET, "--package", "trinity-web"];
    succeed(cargo(&build).args(["--profile", profile]))?;
    Ok(target().join(TARGET).join(profile).join("trinity_web.wasm"))
}

/// Builds `target/web/trinity.html`.
pub fn build() -> Result<PathBuf, Failure> {
    // First, so that the crates are held to build for a browser also where there is no Node.
    let module = module("web")?;
    node()?;
    packages()?;
    let page = target().join("web/trinity.html");
    files::folder(&target().join("web"))?;
    let mut bundle = Command::new("node");
    succeed(bundle.arg("build.mjs").arg(&module).arg(&page).current_dir(root().join("web")))?;
    let embedded = root().join("web/dist/trinity.html");
    let built = files::bytes(&page)?;
    // A copy that is newer and the same would have the command built again.
    if fs::read(&embedded).ok().as_ref() != Some(&built) {
        files::write(&embedded, &built)?;
    }
    Ok(page)
}

fn node() -> Result<(), Failure> {
    if find("node").is_none() || find("npm").is_none() {
        return Err(Failure::Missing("no Node with npm (Debian: nodejs, npm)".into()));
    }
    Ok(())
}

/// Packages of the lock file, where they are not there yet.
fn packages() -> Result<(), Failure> {
    let folder = root().join("web");
    let changed = |name: &str| fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    let installed = changed("node_modules/.package-lock.json");
    if installed.is_some() && installed >= changed("package-lock.json") {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder);
    succeed(&mut npm)
        .map_err(|reason| Failure::Missing(format!("packages of web/package-lock.json: {reason}")))
}

/// Drives the page that `trinity` serves in Chromium: every promise, and the digits of a few studies.
pub fn test_served(trinity: &Path) -> Result<(), Failure> {
    drive(&["served"], trinity, if env::var_os(ALL).is_some() { "all" } else { "few" })
}

/// Drives the page that is one file, and holds it against the command `trinity`.
pub fn test_file(page: &Path, trinity: &Path) -> Result<(), Failure> {
    drive(&[&page.display().to_string()], trinity, "all")
}

fn drive(page: &[&str], trinity: &Path, studies: &str) -> Result<(), Failure> {
    node()?;
    packages()?;
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find) else {
        return Err(Failure::Missing("no Chromium is here to open the page".into()));
    };
    let pictures = target().join("web");
    files::folder(&pictures)?;
    let mut drive = Command::new("node");
    drive.arg("test/drive.mjs").args(page).arg(trinity).arg(chromium).arg(studies).arg(pictures);
    Ok(succeed(drive.current_dir(root().join("web")))?)
}

/// The module for browsers, without a browser: a few studies, digit by digit. Compiled as fast as it
/// goes; the one that is handed out is driven with `--all`.
pub fn module_answers(trinity: &Path) -> Result<(), Failure> {
    let module = module("web-check")?;
    node()?;
    let mut compare = Command::new("node");
    compare.arg("test/module.mjs").arg(&module).arg(trinity);
    Ok(succeed(compare.current_dir(root().join("web")))?)
}
