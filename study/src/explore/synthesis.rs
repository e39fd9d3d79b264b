//! What synthesis found of our own RTL, where it has run: `cargo xtask silicon`
//! leaves it as a built-in configuration. Until then a codec's file stands.

use crate::Error;
use serde::{Deserialize, Serialize};
use trinity_config::{Document, builtin};

/// Where synthesis leaves its figures.
const SYNTHESIS: &str = "silicon/asap7";

/// An encoder or a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    pub area_mm2: f64,
    pub power_w: f64,
    pub throughput_gbps: f64,
    /// Of an uncompressed bit, by the column that the codec's file chooses.
    pub pj_per_bit: f64,
}

/// The part of that file that a cluster needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SynthesisFile {
    #[serde(default)]
    design: Vec<DesignFigures>,
}

/// One synthesized top.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct DesignFigures {
    name: String,
    area_mm2: f64,
    gbps: f64,
    power_w: f64,
}

/// The block that was synthesized under that name, and where that is written;
/// nothing where it was not.
pub(super) fn block(top: &str) -> Result<Option<(Block, String)>, Error> {
    match builtin::text(SYNTHESIS) {
        Some(_) => read(&Document::load(SYNTHESIS)?, top),
        None => Ok(None),
    }
}

fn read(document: &Document, top: &str) -> Result<Option<(Block, String)>, Error> {
    let file: SynthesisFile = document.read()?;
    let found = file.design.iter().find(|design| design.name == top);
    Ok(found.filter(|design| design.gbps > 0.0).map(|design| {
        let block = Block {
            area_mm2: design.area_mm2,
            power_w: design.power_w,
            throughput_gbps: design.gbps,
            pj_per_bit: design.power_w / design.gbps * 1e3,
        };
        (block, format!("{SYNTHESIS}, {top}"))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthesized_top_is_read_beside_whatever_else_the_file_says() {
        let text = "[run]\ndate = \"x\"\n[[design]]\nname = \"line_dec\"\ncells = 3\narea-mm2 = 0.02\ngbps = 80.0\npower-w = 0.04\n";
        let document = Document::parse("asap7", text).unwrap();
        let (block, place) = read(&document, "line_dec").unwrap().unwrap();
        assert_eq!((block.area_mm2, block.throughput_gbps), (0.02, 80.0));
        assert!((block.pj_per_bit - 0.5).abs() < 1e-12 && place.contains("line_dec"));
        assert!(read(&document, "line_enc").unwrap().is_none());
    }
}
