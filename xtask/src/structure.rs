//! `cargo xtask structure`: no circle of imports inside a crate, no function
//! over 100 lines, none with more than 7 parameters.
//!
//! What may be otherwise stands in `structure/allowed.txt`, each line with its
//! reason; a circle goes by the first of its modules. Reads sources as text and
//! compiles nothing, so it takes a second.

mod functions;
mod imports;
mod source;

use crate::workspace::root;
use imports::Modules;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 100;
const MAX_PARAMETERS: usize = 7;

/// `KIND PATH NAME: reason`, one a line; `#` begins a remark.
const ALLOWED: &str = include_str!("structure/allowed.txt");

pub fn run() -> Result<(), String> {
    let allowed = allowances(ALLOWED)?;
    let mut used = BTreeSet::new();
    let mut complaints = Vec::new();
    for package in packages(&root())? {
        for (key, complaint) in check(&package)? {
            if allowed.contains(&key) {
                used.insert(key);
            } else {
                complaints.push(complaint);
            }
        }
    }
    for key in allowed.difference(&used) {
        eprintln!("structure/allowed.txt: `{key}` is not needed any more");
    }
    if complaints.is_empty() {
        return Ok(());
    }
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    Err(format!("{} things are too long, too wide or go in circles", complaints.len()))
}

/// What is allowed, without its reasons; all of it must have one.
fn allowances(text: &str) -> Result<BTreeSet<String>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys = lines.map(|line| match line.split_once(": ") {
        Some((key, reason)) if !reason.trim().is_empty() => Ok(key.to_owned()),
        _ => Err(format!("structure/allowed.txt: `{line}` gives no reason")),
    });
    keys.collect()
}

/// Folders of the workspace's packages.
fn packages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folders = |at: &Path| -> Result<Vec<PathBuf>, String> {
        let entries = fs::read_dir(at).map_err(|error| format!("cannot read {}: {error}", at.display()))?;
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    };
    let mut all: Vec<PathBuf> = folders(root)?.into_iter().chain(folders(&root.join("models"))?).collect();
    all.retain(|folder| folder.join("Cargo.toml").is_file() && folder.join("src").is_dir());
    all.sort();
    Ok(all)
}

/// What is wrong in one package: the key that would allow it, and a sentence.
fn check(package: &Path) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    sources(&package.join("src"), &mut files)?;
    files.sort();
    let mut modules = Modules::new();
    let mut found = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let code = source::without_tests(&source::code(&text));
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        for function in functions::functions(&code) {
            let functions::Function { name: of, line, lines, parameters } = function;
            if lines > MAX_LINES {
                found
                    .push((format!("lines {name} {of}"), format!("{name}:{line}: `{of}` has {lines} lines")));
            }
            if parameters > MAX_PARAMETERS {
                let complaint = format!("{name}:{line}: `{of}` has {parameters} parameters");
                found.push((format!("parameters {name} {of}"), complaint));
            }
        }
        modules.insert(module_path(&package.join("src"), file), code);
    }
    let graph = imports::graph(&modules);
    for circle in imports::circles(&graph) {
        let edges = circle.iter().flat_map(|from| {
            let within = graph[from].iter().filter(|to| circle.contains(to));
            within.map(|to| format!("    {} → {}", from.join("::"), to.join("::")))
        });
        let package = package.strip_prefix(root()).unwrap_or(package).display().to_string();
        let first = circle.first().map(|module| module.join("::")).unwrap_or_default();
        let edges: Vec<String> = edges.collect();
        let complaint = format!("{package}: {} files import in a circle\n{}", circle.len(), edges.join("\n"));
        found.push((format!("circle {package} {first}"), complaint));
    }
    Ok(found)
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, out)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

/// `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`; the crate's root is nothing.
fn module_path(source: &Path, file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let mut parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}
