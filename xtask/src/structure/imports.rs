//! Which file of a crate imports from which, and the circles among them.
//!
//! A path is followed through re-exports to the file that defines its last
//! name. A `mod` declaration imports nothing: a folder's file may list its
//! children. Knows paths as text; macros and globs are taken at their word.

use super::source::block_length;
use std::collections::{BTreeMap, BTreeSet};

/// The files of one crate by module path (`[]` is its root).
pub type Modules = BTreeMap<Vec<String>, String>;

/// A word of Rust, `::` included as a word of its own.
fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(length);
        if !word.trim().is_empty() {
            words.push(word);
        }
        rest = after;
    }
    words
}

/// Every path of a `use` tree, and the name it gets here.
fn use_tree(words: &[&str], prefix: &[String], out: &mut Vec<(Vec<String>, String)>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        match word {
            "::" => at += 1,
            "{" => {
                at += 1;
                while words.get(at).is_some_and(|w| *w != "}") {
                    // Never less than a word, whatever is written here.
                    at += use_tree(&words[at..], &path, out).max(1);
                    at += usize::from(words.get(at) == Some(&","));
                }
                return at + 1;
            }
            "as" => {
                let name = words.get(at + 1).unwrap_or(&"_");
                out.push((path, (*name).to_owned()));
                return at + 2;
            }
            "," | "}" | ";" => break,
            "self" if at > 0 || !prefix.is_empty() => at += 1,
            _ => {
                path.push(word.to_owned());
                at += 1;
            }
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    out.push((path, name));
    at
}

/// What a file imports, as written, and under which name.
fn uses(code: &str) -> Vec<Import> {
    let mut out = Vec::new();
    let words = words(code);
    let made_use_of = outside_imports(&words);
    // `use<'a>` in a signature captures lifetimes and imports nothing.
    let imports = words.windows(2).enumerate().filter(|(_, pair)| pair[0] == "use" && pair[1] != "<");
    for (at, _) in imports {
        let mut leaves = Vec::new();
        use_tree(&words[at + 1..], &[], &mut leaves);
        let public = at > 0 && ["pub", ")"].contains(&words[at - 1]);
        out.extend(leaves.into_iter().map(|(path, name)| {
            // A name that is only passed on is not made use of here.
            let passed_on = public && !made_use_of.contains(name.as_str());
            Import { path, name, passed_on }
        }));
    }
    out
}

/// The words of a file that stand neither in a `use` nor in a `mod` declaration.
fn outside_imports<'a>(words: &[&'a str]) -> BTreeSet<&'a str> {
    let mut outside = BTreeSet::new();
    let mut inside = false;
    for (at, &word) in words.iter().enumerate() {
        let import = word == "use" && words.get(at + 1) != Some(&"<");
        let declaration = word == "mod" && words.get(at + 2) == Some(&";");
        inside = (inside && words[at - 1] != ";") || import || declaration;
        if !inside {
            outside.insert(word);
        }
    }
    outside
}

/// One leaf of a `use`.
struct Import {
    path: Vec<String>,
    /// What it is called here.
    name: String,
    passed_on: bool,
}

/// Paths in code that begin at the crate, a parent, or a child.
fn paths(code: &str, children: &BTreeSet<&str>) -> Vec<Vec<String>> {
    let words = words(code);
    let mut out = Vec::new();
    let mut in_use = false;
    for (at, word) in words.iter().enumerate() {
        // Those are known from their trees.
        in_use = (in_use && *word != ";") || (*word == "use" && words.get(at + 1) != Some(&"<"));
        if in_use {
            continue;
        }
        let starts = at == 0 || words[at - 1] != "::";
        if !starts || words.get(at + 1) != Some(&"::") {
            continue;
        }
        if !["crate", "super", "self"].contains(word) && !children.contains(word) {
            continue;
        }
        let mut path = vec![(*word).to_owned()];
        let mut next = at + 1;
        while words.get(next) == Some(&"::") {
            match words.get(next + 1) {
                Some(name) if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                    path.push((*name).to_owned())
                }
                _ => break,
            }
            next += 2;
        }
        // What is left open is the prefix of a tree, whose leaves are known.
        if path.len() > 1 {
            out.push(path);
        }
    }
    out
}

type Imports = BTreeMap<Vec<String>, Vec<Import>>;

/// The module that defines what `path`, written in `here`, ends at.
fn resolve(modules: &Imports, here: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
    let mut module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        "super" => here.split_last()?.1.to_vec(),
        child => {
            let module: Vec<String> = here.iter().cloned().chain([child.to_owned()]).collect();
            modules.contains_key(&module).then_some(module)?
        }
    };
    for (at, name) in path.iter().enumerate().skip(1) {
        if name == "super" {
            module.pop();
            continue;
        }
        module.push(name.clone());
        if modules.contains_key(&module) {
            continue;
        }
        module.pop();
        let exported = modules.get(&module)?.iter().find(|import| import.name == *name);
        return match exported {
            // A re-export: what it names is defined elsewhere, unless it leads out of the crate.
            Some(import) if depth < 8 => {
                let longer: Vec<String> = import.path.iter().chain(&path[at + 1..]).cloned().collect();
                resolve(modules, &module, &longer, depth + 1)
            }
            _ => Some(module),
        };
    }
    Some(module)
}

/// Code in which `super` of a module inside a file is that file.
fn flattened(code: &str) -> String {
    let mut out = code.to_owned();
    let mut from = 0;
    while let Some(at) = out[from..].find("mod ").map(|at| from + at) {
        from = at + 4;
        let rest = &out[from..];
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let starts_word = !out[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if starts_word && rest[name..].trim_start().starts_with('{') {
            let length = name + block_length(&rest[name..]);
            let inside = rest[..length].replace("super::", "self::");
            out.replace_range(from..from + length, &inside);
        }
    }
    out
}

/// From each module to those it imports from.
pub type Graph = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// The imports among the files of a crate.
pub fn graph(modules: &Modules) -> Graph {
    let mut graph = BTreeMap::new();
    let modules: Modules = modules.iter().map(|(module, code)| (module.clone(), flattened(code))).collect();
    let imports: Imports = modules.iter().map(|(module, code)| (module.clone(), uses(code))).collect();
    for (here, code) in &modules {
        let below = modules.keys().filter(|own| own.len() == here.len() + 1 && own.starts_with(here));
        let children = below.filter_map(|module| module.last().map(String::as_str)).collect();
        let used = imports[here].iter().filter(|import| !import.passed_on).map(|import| import.path.clone());
        let named = used.chain(paths(code, &children));
        let targets = named.filter_map(|path| resolve(&imports, here, &path, 0));
        graph.insert(here.clone(), targets.filter(|target| target != here).collect::<BTreeSet<_>>());
    }
    graph
}

/// Sets of modules each of which reaches all others of its set.
pub fn circles(graph: &Graph) -> Vec<Vec<Vec<String>>> {
    let reach = |from: &Vec<String>| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&Vec<String>> = graph.get(from).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(graph.get(next).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&Vec<String>, _> = graph.keys().map(|module| (module, reach(module))).collect();
    let mut circles = Vec::new();
    let mut placed = BTreeSet::new();
    for (module, others) in &reached {
        if !others.contains(module) || placed.contains(module) {
            continue;
        }
        let circle: Vec<Vec<String>> =
            others.iter().filter(|other| reached[**other].contains(module)).map(|m| (*m).clone()).collect();
        placed.extend(others.iter().filter(|other| circle.contains(other)).copied());
        circles.push(circle);
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(name, code)| (path(name), (*code).to_owned())).collect()
    }

    #[test]
    fn a_circle_of_three_is_found_through_a_re_export() {
        let circle = modules(&[
            ("", "mod a; mod b; pub use b::{Thing as Other, c};"),
            ("a", "use crate::Other; use std::fmt;"),
            ("b", "mod c; use c::Deep; pub struct Thing;"),
            ("b::c", "fn f() { crate::a::g() }"),
        ]);
        let names: Vec<String> = circles(&graph(&circle))[0].iter().map(|m| m.join("::")).collect();
        assert_eq!(names, ["a", "b", "b::c"]);
    }

    #[test]
    fn children_re_exports_and_inner_modules_alone_are_no_circle() {
        let fine = modules(&[
            ("", "mod error; mod a; pub use error::Error; pub use a::run; mod wide { use super::f; }"),
            ("error", "pub enum Error {}"),
            ("a", "mod b; use crate::Error; pub use b::run;"),
            ("a::b", "use crate::{Error, error::Error as E}; pub fn run() {}"),
        ]);
        assert!(circles(&graph(&fine)).is_empty(), "{:?}", graph(&fine));
    }
}
