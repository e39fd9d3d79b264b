//! Where a number comes from, in one word: what a page shows beside it.
//!
//! Read off the sentence that a configuration gives as its source; knows
//! nothing of the number.

use serde::Serialize;

/// How a value came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A number measured on a device, by us or somebody else.
    Measured,
    /// Placed and counted by a synthesis tool.
    Synthesized,
    /// Printed in a paper, a standard or a datasheet.
    Paper,
    /// Somebody's judgement.
    Estimated,
    /// Chosen for the study: true because it is asked.
    Chosen,
    /// Nobody says.
    Unsaid,
}

/// The origin that a source's own words tell.
pub fn origin(source: Option<&str>) -> Origin {
    let Some(source) = source else { return Origin::Unsaid };
    let said = source.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    // The first word of a source outweighs what it mentions later.
    if said.starts_with("choice") {
        Origin::Chosen
    } else if has(&["estimate", "assum", "guess"]) {
        Origin::Estimated
    } else if has(&["synthes", "asap7", "open rtl", "yosys"]) {
        Origin::Synthesized
    } else if has(&["measured", "trinity measure", "calibrat", "recorded", "profiled"]) {
        Origin::Measured
    } else {
        Origin::Paper
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_source_say_where_it_comes_from() {
        for (source, expected) in [
            (Some("LLM.265 section 7.2"), Origin::Paper),
            (Some("NVIDIA datasheet"), Origin::Paper),
            (Some("choice: every GPU is a node of its own, as measured elsewhere"), Origin::Chosen),
            (Some("eight lanes of 4.9 mW, buffers and routing twice that: estimate"), Origin::Estimated),
            (Some("our synthesis of reference blocks on ASAP7 (7 nm)"), Origin::Synthesized),
            (Some("die measured 12.14 mm × 13.98 mm"), Origin::Measured),
            (None, Origin::Unsaid),
        ] {
            assert_eq!(origin(source), expected, "{source:?}");
        }
    }
}
