//! Documents name tests and files: every one they name is there.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of all functions that stand right under `#[test]`, in every crate.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut after = false;
            for line in text.lines().map(str::trim) {
                match line.strip_prefix("fn ").filter(|_| after) {
                    Some(rest) => drop(found.insert(rest.split('(').next().unwrap().to_owned())),
                    // Other attributes may stand between the two.
                    None => after = line == "#[test]" || after && line.starts_with("#["),
                }
            }
        }
    }
}

/// All Rust files, as paths from the root with slashes.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(format!(
                "/{}",
                path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
            ));
        }
    }
}

/// What stands between backticks in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_a_promise_names_is_there() {
    let text = fs::read_to_string(root().join("docs/promises.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise"));
    let mut known = BTreeSet::new();
    tests(&root(), &mut known);
    let (mut named, mut missing) = (0, Vec::new());
    for row in rows {
        let held_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let mut witnesses = 0;
        for word in quoted(held_by) {
            let is_path = word.contains('/');
            let is_test = !is_path && word.matches('_').count() >= 2;
            if is_path && !root().join(word).exists() || is_test && !known.contains(word) {
                missing.push(word);
            }
            witnesses += usize::from(is_path || is_test);
        }
        assert!(witnesses > 0 || held_by == "the same", "nothing holds this promise: {row}");
        named += witnesses;
    }
    assert!(missing.is_empty(), "docs/promises.md names what is not there: {missing:?}");
    assert!(named > 40, "only {named} names were found");
}

#[test]
fn every_file_that_the_architecture_walks_through_is_there() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut known = Vec::new();
    sources(&root(), &mut known);
    // A walk names a file by the end of its path where the folder was said before.
    let named: Vec<&str> =
        quoted(&text).filter(|word| word.ends_with(".rs") && !word.contains("NAME")).collect();
    let is_missing = |word: &&&str| !known.iter().any(|path| path.ends_with(&format!("/{word}")));
    let missing: Vec<&&str> = named.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
    assert!(named.len() > 40, "only {} files were found", named.len());
}
