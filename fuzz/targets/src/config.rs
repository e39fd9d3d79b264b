//! Configuration from any text: the file, an override, and every quantity.

use crate::RunOutcome;
use std::collections::BTreeMap;
use trinity_config::{Area, DataRate, Document, Fraction, builtin};

/// The files that come with the command.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = builtin::names().filter_map(builtin::text);
    texts.filter(|text| !text.contains("extends")).map(|text| text.as_bytes().to_vec()).collect()
}

pub fn run(input: &[u8]) -> RunOutcome {
    let Ok(input) = std::str::from_utf8(input) else { return RunOutcome::Refused };
    // `extends` may name files; a fuzzer should not go reading what it finds.
    if input.contains("extends") {
        return RunOutcome::Refused;
    }
    let _ = input.parse::<Area>();
    let _ = input.parse::<Fraction>();
    let Ok(mut document) = Document::parse("input", input) else { return RunOutcome::Reached };
    let _ = document.settings();
    let _ = document.read::<BTreeMap<String, DataRate>>();
    let _ = document.set(input);
    RunOutcome::Accepted
}
