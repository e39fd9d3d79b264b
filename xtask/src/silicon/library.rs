//! ASAP7's Liberty files: unpacked for OpenSTA, and merged into one for abc.

use super::design::folder;
use crate::tools::{Failure, output};
use crate::{files, workspace::root};
use std::{path::PathBuf, process::Command};

/// The library as the two tools want it.
#[derive(Debug)]
pub struct Library {
    /// One by one: their templates differ.
    pub parts: Vec<PathBuf>,
    /// Cells of all under the header of the first, without their power and
    /// without [`UNUSED`]; for abc and `stat` alone, which read it once for each
    /// module.
    pub merged: PathBuf,
    /// The part with flip-flops.
    pub sequential: PathBuf,
}

const PARTS: [&str; 5] = ["SIMPLE", "INVBUF", "AO", "OA", "SEQ"];

/// Cells that mapping must leave alone: buffers that are slow on purpose (for hold
/// times), scan flip-flops, latches and clock gates.
const UNUSED: [&str; 5] = ["HB", "SDF", "ICG", "DLL", "DHL"];

pub fn prepare() -> Result<Library, Failure> {
    let source = root().join("../shared/asap7");
    let target = folder().join("lib");
    files::folder(&target)?;
    let mut parts = Vec::new();
    let mut merged = String::new();
    for part in PARTS {
        let name = format!("asap7sc7p5t_{part}_RVT_TT_nldm.lib");
        let packed = source.join(format!("{name}.gz"));
        if !packed.exists() {
            let place = packed.display();
            return Err(Failure::Missing(format!("no ASAP7 library here ({place} is missing)")));
        }
        let said = output(Command::new("gzip").arg("-dc").arg(&packed))?.stdout;
        let text = String::from_utf8(said).map_err(|_| format!("{} is no text", packed.display()))?;
        let body =
            text.trim_end().strip_suffix('}').ok_or_else(|| format!("{} is cut short", packed.display()))?;
        let first = body.find("\n  cell (").ok_or_else(|| format!("{} has no cell", packed.display()))?;
        merged.push_str(if merged.is_empty() { body } else { &body[first..] });
        let place = target.join(&name);
        files::write(&place, &text)?;
        parts.push(place);
    }
    merged.push_str("\n}\n");
    let place = target.join("merged.lib");
    files::write(&place, trimmed(&merged))?;
    let sequential = parts[PARTS.len() - 1].clone();
    Ok(Library { parts, merged: place, sequential })
}

/// The library without its groups of power tables, two thirds of its text, and
/// without unused cells.
fn trimmed(text: &str) -> String {
    let mut kept = String::with_capacity(text.len() / 2);
    let mut depth = 0usize;
    for line in text.split_inclusive('\n') {
        let opens = line.matches('{').count();
        let closes = line.matches('}').count();
        let word = line.trim_start();
        let cell = word.strip_prefix("cell (");
        let unused = cell.is_some_and(|name| UNUSED.iter().any(|start| name.starts_with(start)));
        if depth > 0 || unused || word.starts_with("internal_power") || word.starts_with("leakage_power ") {
            depth = (depth + opens).saturating_sub(closes);
        } else {
            kept.push_str(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_stays_and_power_and_unused_cells_go() {
        let text = "cell (HB1) {\n  x : 1;\n}\ncell (A) {\n  leakage_power () {\n    value : 1;\n  }\n  pin (Y) {\n    timing () {\n      x : 1;\n    }\n    \
                    internal_power () {\n      rise (t) {\n        y : 2;\n      }\n    }\n  }\n}\n";
        let kept = trimmed(text);
        assert_eq!(kept, "cell (A) {\n  pin (Y) {\n    timing () {\n      x : 1;\n    }\n  }\n}\n");
    }
}
