//! Pins: one line of text for each thing that must stay as it is, in a file
//! under version control. Tests of several crates include this file by its path.
//!
//! `TRINITY_BLESS=1 cargo test …` writes the pins anew, for a change that means
//! to alter them; the difference then shows in the commit.

#[path = "../../../numeric/src/hash.rs"]
#[allow(dead_code, reason = "one function of a file that others use more of")]
mod hash;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The 64-bit FNV-1a hash and the length: enough to notice any change.
pub fn fingerprint(bytes: &[u8]) -> String {
    format!("{:016x} {}", hash::fnv1a(bytes.iter().copied()), bytes.len())
}

/// Keeps a file for good, when pins are written anew: what is there already stays, since some
/// user may have its like on disk.
pub fn store(path: &Path, bytes: &[u8]) {
    if std::env::var_os("TRINITY_BLESS").is_some() && !path.exists() {
        std::fs::write(path, bytes).expect("golden files can be written");
    }
}

/// Compares names and what they stand for with the lines of a file.
#[track_caller]
pub fn hold(path: &Path, found: &BTreeMap<String, String>) {
    if std::env::var_os("TRINITY_BLESS").is_some() {
        let text: String = found.iter().map(|(name, value)| format!("{value} {name}\n")).collect();
        std::fs::write(path, text).expect("pins can be written");
        return;
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A fingerprint is two words; the name is the rest of the line.
    let pinned: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| {
            let cut = line.match_indices(' ').nth(1)?.0;
            Some((&line[cut + 1..], &line[..cut]))
        })
        .collect();
    let mut wrong = String::new();
    for (name, value) in found {
        match pinned.get(name.as_str()) {
            Some(pin) if pin == value => {}
            Some(pin) => writeln!(wrong, "{name}: {value}, pinned as {pin}").expect("memory"),
            None => writeln!(wrong, "{name}: {value}, not pinned").expect("memory"),
        }
    }
    for name in pinned.keys().filter(|name| !found.contains_key(**name)) {
        writeln!(wrong, "{name}: pinned and gone").expect("memory");
    }
    assert!(
        wrong.is_empty(),
        "{} has other pins; where the change is meant, write them anew with TRINITY_BLESS=1:\n{wrong}",
        path.display()
    );
}
