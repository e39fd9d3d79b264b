//! Configuration from any text: the file, an override, and every quantity.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_config::{Area, DataRate, Document, Fraction};

fuzz_target!(|input: &str| {
    // `extends` may name files; a fuzzer should not go reading what it finds.
    if input.contains("extends") {
        return;
    }
    if let Ok(mut document) = Document::parse("input", input) {
        let _ = document.settings();
        let _ = document.read::<std::collections::BTreeMap<String, DataRate>>();
        let _ = document.set(input);
    }
    let _ = input.parse::<Area>();
    let _ = input.parse::<Fraction>();
});
