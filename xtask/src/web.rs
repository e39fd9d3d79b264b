//! The explorer: the model as a WebAssembly module, the page around it, and the
//! tests that drive it in a browser.
//!
//! Needs the wasm32 target, Node and what the lock file of `web/` names. Where
//! one of them cannot be had, that is said, and nothing else suffers.

use crate::{
    tools::{find, succeed},
    workspace::{root, target},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Why there is no page.
#[derive(Debug)]
pub enum Failure {
    /// Something it needs is not on this machine.
    Missing(String),
    Failed(String),
}

const TARGET: &str = "wasm32-unknown-unknown";

/// Whether the compiler has its library for the browser.
fn has_target() -> bool {
    let library = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    library.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Installs the target where it is missing and rustup can.
fn ensure_target() -> Result<(), Failure> {
    if has_target() {
        return Ok(());
    }
    let added = Command::new("rustup").args(["target", "add", TARGET]).output();
    if added.is_ok_and(|output| output.status.success()) && has_target() {
        return Ok(());
    }
    Err(Failure::Missing(format!("{TARGET} is not installed (`rustup target add {TARGET}`)")))
}

/// `cargo xtask web`: builds the page and says where it is.
pub fn run() -> Result<(), String> {
    match build() {
        Ok(page) => {
            eprintln!("wrote {}; the next build of the command carries it (`trinity web`)", page.display());
            Ok(())
        }
        Err(Failure::Missing(reason) | Failure::Failed(reason)) => Err(reason),
    }
}

/// Builds `target/web/trinity.html`.
pub fn build() -> Result<PathBuf, Failure> {
    ensure_target()?;
    // First, so that the crates are held to build for a browser also where there is no Node.
    let module = ["build", "--quiet", "--profile", "web", "--target", TARGET, "--package", "trinity-web"];
    succeed(Command::new(env!("CARGO")).args(module).current_dir(root())).map_err(Failure::Failed)?;
    if find("node").is_none() || find("npm").is_none() {
        return Err(Failure::Missing("no Node with npm (Debian: nodejs, npm)".into()));
    }
    packages()?;
    let module = target().join(TARGET).join("web/trinity_web.wasm");
    let page = target().join("web/trinity.html");
    let failed = |what: &str, path: &Path, error| {
        Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
    };
    let folder = target().join("web");
    fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, error))?;
    let mut bundle = Command::new("node");
    bundle.arg("build.mjs").arg(&module).arg(&page).current_dir(root().join("web"));
    succeed(&mut bundle).map_err(Failure::Failed)?;
    let embedded = root().join("web/dist/trinity.html");
    let built = fs::read(&page).map_err(|error| failed("read", &page, error))?;
    // A copy that is newer and the same would have the command built again.
    if fs::read(&embedded).ok().as_ref() != Some(&built) {
        fs::write(&embedded, &built).map_err(|error| failed("write", &embedded, error))?;
    }
    Ok(page)
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

/// Drives the page in Chromium and holds it against the command `trinity`.
pub fn test(page: &Path, trinity: &Path) -> Result<(), Failure> {
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find) else {
        return Err(Failure::Missing("the page is built, but no Chromium is here to open it".into()));
    };
    let mut drive = Command::new("node");
    drive.arg("test/drive.mjs").arg(page).arg(trinity).arg(chromium).current_dir(root().join("web"));
    succeed(&mut drive).map_err(Failure::Failed)
}
