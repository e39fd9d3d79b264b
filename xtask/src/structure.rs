//! `cargo xtask structure`: no circle of imports inside a crate, no function
//! over 100 lines, none with more than 7 parameters, no file over 700 lines
//! (tests inside it aside). CUDA, SystemVerilog, Python and JavaScript keep to
//! the same lengths, Python and JavaScript to the rest, too.
//!
//! What may be otherwise stands in `structure/allowed.txt`, each line with its
//! reason; a circle goes by the first of its modules. Reads sources as text and
//! compiles nothing, so it takes a second.

mod functions;
mod imports;
mod others;
mod source;

use crate::{files, workspace::root};
use imports::Modules;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 100;
const MAX_PARAMETERS: usize = 7;
const MAX_FILE_LINES: usize = 700;

/// Folders that hold other languages than Rust, and folders inside that hold nothing of ours.
const OTHERS: [&str; 7] = ["cli/src", "hwcodec", "models", "python", "validation", "web", "xtask"];
const FOREIGN: [&str; 3] = ["node_modules", "__pycache__", "target"];

/// `KIND PATH NAME: reason`, one a line; `#` begins a remark.
const ALLOWED: &str = include_str!("structure/allowed.txt");

pub fn run() -> Result<(), String> {
    let allowed = allowances(ALLOWED)?;
    let mut used = BTreeSet::new();
    let mut complaints = Vec::new();
    let rust = packages(&root())?.into_iter().map(|package| check(&package));
    for found in rust.chain([check_others(&root())]) {
        for (key, complaint) in found? {
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
    let mut all = [files::within(root)?, files::within(&root.join("models"))?].concat();
    all.retain(|folder| folder.join("Cargo.toml").is_file() && folder.join("src").is_dir());
    all.sort();
    Ok(all)
}

/// What is wrong in files of other languages.
fn check_others(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for ending in others::ENDINGS {
        let mut own = Vec::new();
        for folder in OTHERS.iter().map(|folder| root.join(folder)).filter(|folder| folder.is_dir()) {
            sources(&folder, ending, &mut own)?;
        }
        own.sort();
        let mut known = own.clone();
        // What is compiled has stubs, which import nothing that counts.
        for folder in OTHERS.iter().filter(|_| ending == "py").map(|folder| root.join(folder)) {
            sources(&folder, "pyi", &mut known)?;
        }
        let known: BTreeSet<PathBuf> = known.into_iter().collect();
        let module = |file: &Path| shown(file).split('/').map(String::from).collect::<Vec<String>>();
        let mut graph: imports::Graph = known.iter().map(|file| (module(file), BTreeSet::new())).collect();
        for file in &own {
            let text = files::text(file)?;
            found.extend(lengths(&shown(file), text.lines().count(), &others::functions(file, &text)));
            if ["py", "js"].contains(&ending) {
                let imported = others::imports(file, &text, &known);
                graph.insert(module(file), imported.iter().map(|file| module(file)).collect());
            }
        }
        found.extend(circles(ending, &graph));
    }
    Ok(found)
}

/// A file's name below the root.
fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// A file and functions that are too long, or ask for too much.
fn lengths(name: &str, file_lines: usize, functions: &[functions::Function]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if file_lines > MAX_FILE_LINES {
        found.push((format!("file {name}"), format!("{name}: {file_lines} lines")));
    }
    for functions::Function { name: of, line, lines, parameters } in functions {
        if *lines > MAX_LINES {
            found.push((format!("lines {name} {of}"), format!("{name}:{line}: `{of}` has {lines} lines")));
        }
        if *parameters > MAX_PARAMETERS {
            let complaint = format!("{name}:{line}: `{of}` has {parameters} parameters");
            found.push((format!("parameters {name} {of}"), complaint));
        }
    }
    found
}

/// What is wrong in one package: the key that would allow it, and a sentence.
fn check(package: &Path) -> Result<Vec<(String, String)>, String> {
    let mut own = Vec::new();
    sources(&package.join("src"), "rs", &mut own)?;
    own.sort();
    let mut modules = Modules::new();
    let mut found = Vec::new();
    for file in &own {
        let code = source::without_tests(&source::code(&files::text(file)?));
        // Tests are blank by now, at the end of their files.
        let lines = code.trim_end().lines().count();
        found.extend(lengths(&shown(file), lines, &functions::functions(&code)));
        modules.insert(module_path(&package.join("src"), file), code);
    }
    let package = package.strip_prefix(root()).unwrap_or(package).display().to_string();
    found.extend(circles(&package, &imports::graph(&modules)));
    Ok(found)
}

/// The circles of a package, or of all files of a language.
fn circles(package: &str, graph: &imports::Graph) -> Vec<(String, String)> {
    let complaint = |circle: Vec<Vec<String>>| {
        let edges = circle.iter().flat_map(|from| {
            let within = graph[from].iter().filter(|to| circle.contains(to));
            within.map(|to| format!("    {} → {}", from.join("::"), to.join("::")))
        });
        let first = circle.first().map(|module| module.join("::")).unwrap_or_default();
        let edges: Vec<String> = edges.collect();
        let complaint = format!("{package}: {} files import in a circle\n{}", circle.len(), edges.join("\n"));
        (format!("circle {package} {first}"), complaint)
    };
    imports::circles(graph).into_iter().map(complaint).collect()
}

fn sources(folder: &Path, wanted: &str, out: &mut Vec<PathBuf>) -> Result<(), String> {
    for path in files::within(folder)? {
        let foreign =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| FOREIGN.contains(&name));
        if path.is_dir() {
            if !foreign {
                sources(&path, wanted, out)?;
            }
        } else if path.extension().is_some_and(|ending| ending == wanted) {
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
