//! `cargo xtask silicon --bits`: what the encoders in gates take of captured
//! tensors beside the paper's H.264 pipeline, at one error, with the mm² of each.
//!
//! Keeps what was found in `FILE`, which `--show` and the notebook read.

use super::design::{Failure, captured};
use super::table::{Figure, figures, h264};
use crate::{tools::succeed_with_output, workspace::root};
use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

pub const FILE: &str = "validation/data/silicon-bits.csv";
/// Relative squared error that all are held to.
const NMSE: f64 = 0.01;
/// What codes, and the designs that it is made of; none for H.264.
const CODECS: [(&str, &[&str]); 6] = [
    ("h264", &[]),
    ("line-rtl-1", &["line_enc_1"]),
    ("line-rtl-4", &["line_enc_4"]),
    ("line-rtl", &["line_enc"]),
    ("line-rtl-hadamard", &["line_enc", "line_hadamard"]),
    ("line-rtl-dct", &["line_enc", "line_dct"]),
];
/// Our own pieces, where nothing was captured.
const OWN: &str = "study/data/tensors.safetensors";

/// Bits per value by class of a file, and by codec.
type Rows = BTreeMap<String, BTreeMap<String, f64>>;

pub fn run() -> Result<(), Failure> {
    let mut files = captured();
    files.extend(captured_of_others());
    if files.is_empty() {
        eprintln!("no captured tensors beside the repository: our own pieces, {OWN}");
        files.push(root().join(OWN));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--package", "trinity-tensor", "--example", "silicon_bits", "--"]);
    let rows = succeed_with_output(cargo.arg(NMSE.to_string()).args(&files).current_dir(root()))?;
    let place = root().join(FILE);
    if files.len() > 1 {
        fs::write(&place, &rows).map_err(|error| format!("cannot write {}: {error}", place.display()))?;
        eprintln!("wrote {FILE}");
    }
    let rows = parse(&rows);
    eprint!("{}", table(&rows)?);
    let behind: Vec<&str> =
        rows.iter().filter(|(_, bits)| !ahead(bits)).map(|(class, _)| &class[..]).collect();
    if behind.is_empty() {
        Ok(())
    } else {
        Err(format!("no fewer bits than H.264: {}", behind.join(", ")).into())
    }
}

/// Tensors of models that were not trained here.
fn captured_of_others() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join("../shared/captured/real")) else { return Vec::new() };
    let ends = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "safetensors");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ends).collect();
    files.sort();
    files
}

/// What was found before.
pub fn show() -> Result<(), Failure> {
    let missing = |error| Failure::Missing(format!("no {FILE} ({error}): run `cargo xtask silicon --bits`"));
    let rows = fs::read_to_string(root().join(FILE)).map_err(missing)?;
    eprint!("{}", table(&parse(&rows))?);
    Ok(())
}

fn parse(rows: &str) -> Rows {
    let mut found = Rows::new();
    for row in rows.lines().skip(1) {
        if let [file, class, codec, _, bits, _] = row.split(',').collect::<Vec<_>>()[..]
            && let Ok(bits) = bits.parse()
        {
            found.entry(format!("{file}, {class}")).or_default().insert(codec.to_string(), bits);
        }
    }
    found
}

/// Whether the encoder with its whole trellis takes fewer bits than H.264.
fn ahead(bits: &BTreeMap<String, f64>) -> bool {
    bits.get("line-rtl").zip(bits.get("h264")).is_some_and(|(ours, theirs)| ours < theirs)
}

fn table(rows: &Rows) -> Result<String, String> {
    let built = figures()?;
    let theirs = h264()?;
    let sum = |designs: &[&str], of: &dyn Fn(&Figure) -> Option<f64>| -> Option<f64> {
        if designs.is_empty() {
            return of(&theirs);
        }
        designs.iter().map(|name| of(built.iter().find(|figure| figure.name == *name)?)).sum()
    };
    let mut text = format!("bits per value at a relative squared error of {NMSE}\n{:<45}", "");
    for (codec, _) in CODECS {
        text += &format!("{codec:>18}");
    }
    text += "   8 states below H.264\n";
    for (class, bits) in rows {
        text += &format!("{class:<45}");
        for (codec, _) in CODECS {
            text += &bits.get(codec).map_or_else(|| format!("{:>18}", "-"), |bits| format!("{bits:>18.3}"));
        }
        if let (Some(ours), Some(theirs)) = (bits.get("line-rtl"), bits.get("h264")) {
            text += &format!("{:>15.1} %", 100.0 * (1.0 - ours / theirs));
        }
        text += "\n";
    }
    let mut line = |what: &str, of: &dyn Fn(&Figure) -> Option<f64>| {
        text += &format!("{what:<45}");
        for (_, designs) in CODECS {
            let value = sum(designs, of);
            text += &value.map_or_else(|| format!("{:>18}", "-"), |value| format!("{value:>18.4}"));
        }
        text += "\n";
    };
    line("encoder for 100 Gb/s, mm2 (H.264: Table 3)", &|figure| Some(figure.area_mm2));
    line("encoder for 100 Gb/s, W", &|figure| figure.power_w);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "file,class,codec,tensors,bits_per_value,nmse\nkv,kv-cache,h264,4,3.5,0.01\n\
        kv,kv-cache,line-rtl,4,3.0,0.01\n";

    #[test]
    fn bits_stand_beside_the_area_of_who_took_them() {
        let rows = parse(ROWS);
        let shown = table(&rows).unwrap();
        assert!(
            shown.contains("kv, kv-cache") && shown.contains("3.500") && shown.contains("14.3 %"),
            "{shown}"
        );
        assert!(shown.contains("mm2") && !shown.contains("NaN"), "{shown}");
        assert!(ahead(&rows["kv, kv-cache"]));
        assert!(!ahead(&parse(&ROWS.replace("3.0,", "3.6,"))["kv, kv-cache"]));
    }
}
