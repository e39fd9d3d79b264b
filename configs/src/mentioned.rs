//! Which files a configuration leads to, whether they end up in it or not.
//!
//! For who must not overwrite what a study reads: `extends`, tables, traces and
//! runs alike are names in strings, so every string that names a file counts.
//! More than is read, never less. Knows nothing of what a key means.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every file that the configuration at `path` names, directly or through
/// another, with itself; relative names as seen from the file that says them,
/// and from the working folder.
pub fn mentioned_files(path: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut todo = vec![path.to_owned()];
    while let Some(path) = todo.pop() {
        if !path.is_file() || !found.insert(path.clone()) {
            continue;
        }
        let is_toml = path.extension().is_some_and(|ending| ending == "toml");
        // What cannot be read is for the reader to complain about.
        let text = if is_toml { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let mut names = Vec::new();
        if let Ok(table) = text.parse::<toml::Table>() {
            table.values().for_each(|value| strings(value, &mut names));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for name in names {
            todo.extend([folder.join(&name), PathBuf::from(name)]);
        }
    }
    found
}

/// The strings of a value that may be names of files; `TABLE.csv#ROW` is one of
/// a table, `path=value` one of a value.
fn strings(value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::String(text) if !text.contains('\n') && !text.is_empty() => {
            let names = [Some(text.as_str()), text.split_once('#').map(|(table, _)| table)];
            let assigned = text.split_once('=').map(|(_, value)| value.trim().trim_matches(['"', '\'']));
            found.extend(names.into_iter().chain([assigned]).flatten().map(str::to_owned));
        }
        toml::Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        toml::Value::Table(table) => table.values().for_each(|value| strings(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_through_every_string_that_names_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [
            (
                "mine.toml",
                "extends = [\"base.toml\", \"sweeps/llama-7b\"]\nscenarios = [{ set = [\"cluster.codec.extends=mine/codec.toml\"], runs = \"runs.csv#a\" }]",
            ),
            ("base.toml", "extends = \"mine.toml\"\n[study.serving]\ntrace = \"trace.csv\""),
            ("runs.csv", "x"),
            ("trace.csv", "x"),
            ("other.toml", "x"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        std::fs::create_dir(at("mine")).unwrap();
        std::fs::write(at("mine/codec.toml"), "broken = ").unwrap();
        let found = mentioned_files(&at("mine.toml"));
        let wanted = ["base.toml", "mine.toml", "mine/codec.toml", "runs.csv", "trace.csv"].map(at);
        assert_eq!(found, BTreeSet::from(wanted));
    }
}
