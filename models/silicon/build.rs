//! Numbers of the paper and of a technology as constants, out of the TOML files
//! that state them with their sources: they stand nowhere else.

#[path = "../../build/own.rs"]
mod own;

use std::{env, fs, path::Path};

/// What a block of a file states, in the units that the constants have.
const ROW: [(&str, &str); 3] = [("power", "W"), ("area", "mm2"), ("printed-energy", "pJ/bit")];

const TECHNOLOGY: [&str; 12] = [
    "gate-um2",
    "utilization",
    "sram-um2-per-bit",
    "clock-ghz",
    "gate-fj",
    "activity",
    "sram-fj-per-bit",
    "leakage-nw-per-gate",
    "addition-um2",
    "multiplication-um2",
    "logic-fj-per-um2",
    "pipeline-clock-ghz",
];

fn main() -> Result<(), String> {
    let configs = Path::new(&own::folder()).join("../../configs");
    let read = |name: &str| {
        let path = configs.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut rows = String::new();
    for (file, constant, name) in [
        ("codecs/h264.toml", "H264", "H.264"),
        ("codecs/h265.toml", "H265", "H.265"),
        ("codecs/three-in-one.toml", "THREE_IN_ONE", "three-in-one"),
    ] {
        let text = read(file)?;
        for (side, end) in [("encoder", "ENCODER"), ("decoder", "DECODER")] {
            let block = text.split_once(&format!("[{side}]")).map_or("", |(_, rest)| rest);
            let block = block.split("\n[").next().unwrap_or_default();
            let mut row = Vec::new();
            for (key, unit) in ROW {
                let value = quoted(block, key, unit)
                    .ok_or_else(|| format!("{file}: [{side}] does not state `{key} = \"NUMBER {unit}\"`"))?;
                row.push(value);
            }
            rows += &format!(
                "pub const {constant}_{end}: Table3Row = Table3Row {{ name: {:?}, power_w: {:?}, area_mm2: {:?}, \
                 printed_pj_per_bit: {:?} }};\n",
                format!("{name} {side}"),
                row[0],
                row[1],
                row[2]
            );
        }
    }
    let file = "technologies/asap7.toml";
    let text = read(file)?;
    let mut fields = String::new();
    for key in TECHNOLOGY {
        let value = cited(&text, key)
            .ok_or_else(|| format!("{file} does not state `{key} = {{ value = NUMBER, source = … }}`"))?;
        fields += &format!("{}: {value:?}, ", key.replace('-', "_"));
    }
    let out = env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let write = |name: &str, text: &str| {
        fs::write(Path::new(&out).join(name), text).map_err(|error| format!("{name}: {error}"))
    };
    write("table3.rs", &rows)?;
    write("asap7.rs", &format!("Technology {{ {fields} }}"))
}

/// What follows `key =` at the start of a line.
fn stated<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('=').map(str::trim))
}

/// `key = "NUMBER UNIT"`.
fn quoted(text: &str, key: &str, unit: &str) -> Option<f64> {
    let (number, found) = stated(text, key)?.strip_prefix('"')?.strip_suffix('"')?.split_once(' ')?;
    number.parse().ok().filter(|_| found == unit)
}

/// `key = { value = NUMBER, … }`.
fn cited(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = stated(text, key)?.split_once("value = ")?;
    rest.split(',').next()?.trim().parse().ok()
}
