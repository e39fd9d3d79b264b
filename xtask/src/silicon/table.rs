//! `cargo xtask silicon --show`: the committed figures, beside the paper's and at
//! other rates. Needs neither tools nor library.

use super::report::FILE;
use crate::{files, tools::Failure, workspace::root};
use std::collections::BTreeMap;

/// A table of a file: its kind, and its keys.
type Entry = (String, BTreeMap<String, String>);

/// What a design must stay within at 100 Gb/s: square millimetres, watts.
const BARS: [(&str, [f64; 2]); 2] = [("line_enc", [0.15, 0.25]), ("line_dec", [0.08, 0.12])];
const RATES_GBPS: [f64; 4] = [100.0, 400.0, 800.0, 1600.0];
/// Stages that a decoder can do without, and what it then is; encoders without a
/// trellis are designs of their own.
const WITHOUT: [(&str, &str, &str); 1] = [("line_dec", "line_hadamard_inv", "without transform")];
/// LLM.265 Table 3, normalized to 100 Gb/s.
const TABLE_3: [(&str, &str); 3] =
    [("H.264", "h264"), ("H.265", "h265"), ("three-in-one (tensor, image, video)", "three-in-one")];
const XK264: &str = "configs/silicon/xk264.toml";
/// A design with picture mode and the same without.
const PICTURE: [(&str, &str); 2] =
    [("line_enc_picture", "line_enc_transforms"), ("line_dec_picture", "line_dec_transforms")];
/// The share of its three-in-one codec that tensors use (LLM.265 section 7).
const SHARED: f64 = 80.0;

/// A design in as many copies as 100 Gb/s take, counted as fractions.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: String,
    pub area_mm2: f64,
    pub power_w: Option<f64>,
}

pub fn show() -> Result<(), Failure> {
    let missing = |why| Failure::Missing(format!("{why}: run `cargo xtask silicon`"));
    let entries = read(FILE).map_err(missing)?;
    let shared = three_in_one(&entries, &read(XK264)?)?;
    eprintln!("{}\n{}\n{}\n{shared}", render(&entries)?, scaling(&entries)?, beside(&entries)?);
    Ok(())
}

fn read(path: &str) -> Result<Vec<Entry>, String> {
    files::text(&root().join(path)).map(|text| parse(&text))
}

fn scaled(design: &BTreeMap<String, String>) -> Result<Figure, String> {
    let share = 100.0 / number(design, "gbps")?;
    let power_w = number(design, "power-w").ok().map(|power| power * share);
    Ok(Figure { name: name_of(design).to_string(), area_mm2: number(design, "area-mm2")? * share, power_w })
}

/// Every design of the committed file.
pub fn figures() -> Result<Vec<Figure>, String> {
    all(&read(FILE)?, "design").map(scaled).collect()
}

/// Table 3's H.264 encoder.
pub fn h264() -> Result<Figure, String> {
    let rows = read("configs/codecs/h264.toml")?;
    let keys = all(&rows, "encoder").next().ok_or("codecs/h264 has no encoder")?;
    let (area_mm2, power_w) = (number(keys, "area")?, Some(number(keys, "power")?));
    Ok(Figure { name: "h264".into(), area_mm2, power_w })
}

fn parse(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            entries.push((line.trim_matches(['[', ']']).to_string(), BTreeMap::new()));
        } else if let (Some((key, value)), Some((_, keys))) = (line.split_once(" = "), entries.last_mut()) {
            let value = value.split(" # ").next().unwrap_or_default();
            keys.insert(key.to_string(), value.trim().trim_matches('"').to_string());
        }
    }
    entries
}

fn all<'a>(entries: &'a [Entry], kind: &'static str) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
    entries.iter().filter(move |(name, _)| name == kind).map(|(_, keys)| keys)
}

fn number(keys: &BTreeMap<String, String>, key: &str) -> Result<f64, String> {
    let value = keys.get(key).and_then(|value| value.split(' ').next()?.parse().ok());
    value.ok_or_else(|| format!("no `{key}` where one belongs in the figures of silicon"))
}

fn name_of(keys: &BTreeMap<String, String>) -> &str {
    keys.get("name").map_or("", String::as_str)
}

/// Watts, where they are known.
fn watts(power: Option<f64>) -> String {
    power.map_or_else(|| "power not known".into(), |power| format!("{power:.4} W"))
}

fn render(entries: &[Entry]) -> Result<String, String> {
    let assumed = all(entries, "assumed").next().ok_or_else(|| format!("{FILE} states no assumptions"))?;
    let utilization = number(assumed, "utilization")?;
    let mut text = String::new();
    for design in all(entries, "design") {
        let name = name_of(design);
        let (area, gbps) = (number(design, "area-mm2")?, number(design, "gbps")?);
        let power = number(design, "power-w").ok();
        let energy = power.map_or_else(String::new, |power| format!(", {:.3} pJ/bit", power / gbps * 1e3));
        text += &format!(
            "{name}: {area:.4} mm2, {}, {gbps:.1} Gb/s at {:.3} GHz{energy}\n",
            watts(power),
            number(design, "clock-ghz")?,
        );
        if let Some((_, [mm2, w])) = BARS.iter().find(|(of, ..)| *of == name) {
            let share = 100.0 / gbps;
            text += &format!(
                "  at 100 Gb/s {:.4} mm2 of {mm2:.2} allowed, {} of {w:.2}\n",
                area * share,
                watts(power.map(|power| power * share)),
            );
        }
        let stages = stages(entries, name, utilization)?;
        for (placed, stage, bits) in &stages {
            text += &format!("  {stage:<20} {placed:>8.0} um2 with {bits:>8.0} bits of SRAM\n");
        }
        for (_, part, what) in WITHOUT.iter().filter(|(of, ..)| *of == name) {
            let saved: f64 = stages.iter().filter(|(_, stage, _)| stage == part).map(|stage| stage.0).sum();
            text += &format!("  {what}: {:.4} mm2\n", area - saved / 1e6);
        }
    }
    Ok(text)
}

/// Whole copies for each rate: a copy has eight values under way in a cycle, on 32
/// lanes of the stream; tiles go to copies in turn.
fn scaling(entries: &[Entry]) -> Result<String, String> {
    let mut text = "by rate, in whole copies of 8 values/cycle".to_string();
    for rate in RATES_GBPS {
        text += &format!(" |{rate:>6.0} Gb/s: copies, mm2, W");
    }
    text += "\n";
    for design in all(entries, "design") {
        let (area, gbps) = (number(design, "area-mm2")?, number(design, "gbps")?);
        let power = number(design, "power-w").ok();
        text += &format!("{:<42}", name_of(design));
        for rate in RATES_GBPS {
            let copies = (rate / gbps).ceil();
            let power = power.map_or_else(|| "?".into(), |power| format!("{:.3}", power * copies));
            text += &format!(" |{copies:>9.0} {:>10.4} {power:>8}", area * copies);
        }
        text += "\n";
    }
    Ok(text)
}

/// Stages of a design by placed area of all copies, the largest first, with bits.
fn stages<'a>(
    entries: &'a [Entry],
    design: &str,
    utilization: f64,
) -> Result<Vec<(f64, &'a str, f64)>, String> {
    let mut stages = Vec::new();
    for stage in all(entries, "stage").filter(|stage| stage.get("design").is_some_and(|of| of == design)) {
        let copies = number(stage, "copies")?;
        let logic = number(stage, "logic-um2")? / utilization;
        let placed = (logic + number(stage, "sram-um2")?) * copies;
        stages.push((placed, name_of(stage), number(stage, "sram-bits")? * copies));
    }
    stages.sort_by(|a, b| b.0.total_cmp(&a.0));
    Ok(stages)
}

/// Table 3, the open encoder and ours, each for 100 Gb/s.
fn beside(entries: &[Entry]) -> Result<String, String> {
    let mut text = "for 100 Gb/s                                    mm2       W   pJ/bit\n".to_string();
    let mut line = |what: String, area: f64, power: Option<f64>, printed: Option<f64>| {
        let power_text = power.map_or_else(|| "      ?".into(), |power| format!("{power:>7.3}"));
        let energy = power.map_or_else(|| "?".into(), |power| format!("{:.3}", power / 100.0 * 1e3));
        let printed = printed.map_or_else(String::new, |printed| format!(", {printed} printed"));
        text += &format!("{what:<44} {area:>7.4} {power_text} {energy:>8}{printed}\n");
    };
    for (what, file) in TABLE_3 {
        let rows = read(&format!("configs/codecs/{file}.toml"))?;
        for side in ["encoder", "decoder"] {
            let keys = all(&rows, side).next().ok_or_else(|| format!("codecs/{file} has no {side}"))?;
            line(
                format!("Table 3: {what} {side}"),
                number(keys, "area")?,
                Some(number(keys, "power")?),
                Some(number(keys, "printed-energy")?),
            );
        }
    }
    let open = read(XK264)?;
    for design in all(&open, "design").chain(all(entries, "design")) {
        let Figure { name, area_mm2, power_w } = scaled(design)?;
        line(format!("synthesized: {name}"), area_mm2, power_w, None);
    }
    Ok(text)
}

/// What picture mode adds to a codec of tensors, and what motion would, as xk264 has it.
fn three_in_one(entries: &[Entry], open: &[Entry]) -> Result<String, String> {
    let mut text = format!("three in one, {SHARED} % shared in LLM.265\n");
    let find = |name: &str| all(entries, "design").find(|design| name_of(design) == name);
    let motion = motion(open)?;
    for (with, without) in PICTURE {
        let (Some(with), Some(without)) = (find(with), find(without)) else { continue };
        let (area, plain) = (number(with, "area-mm2")?, number(without, "area-mm2")?);
        let power = number(with, "power-w").ok().zip(number(without, "power-w").ok());
        let more = power.map_or_else(|| "?".into(), |(with, without)| format!("{:.4}", with - without));
        text += &format!(
            "{}: {area:.4} mm2, of these {:.4} mm2 and {more} W for pictures alone: {:.1} % shared\n",
            name_of(with),
            area - plain,
            100.0 * plain / area
        );
        if name_of(with).starts_with("line_enc") {
            text += &format!(
                "  with motion of 4K at 60 frames/s as xk264 has it ({:.4} mm2, {:.3} W): {:.1} % shared\n",
                motion.area_mm2,
                motion.power_w.unwrap_or(f64::NAN),
                100.0 * plain / (area + motion.area_mm2)
            );
        }
    }
    Ok(text)
}

/// The motion stages of the open encoder, one instance at its clock.
fn motion(open: &[Entry]) -> Result<Figure, String> {
    let assumed = all(open, "assumed").next().ok_or_else(|| format!("{XK264} states no assumptions"))?;
    let design = all(open, "design").next().ok_or_else(|| format!("{XK264} has no design"))?;
    let (utilization, clock_ghz) = (number(assumed, "utilization")?, number(design, "clock-ghz")?);
    let (mut area_mm2, mut power_w) = (0.0, 0.0);
    for stage in all(open, "stage").filter(|stage| stage.get("part").is_some_and(|part| part == "motion")) {
        area_mm2 += (number(stage, "logic-um2")? / utilization + number(stage, "sram-um2")?) / 1e6;
        // Stages were measured at 1 GHz.
        power_w += number(stage, "power-w")? * clock_ghz;
    }
    Ok(Figure { name: "motion".into(), area_mm2, power_w: Some(power_w) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESIGN: &str = "[assumed]\nutilization = 0.7 # a margin\n[[design]]\nname = \"line_dec\"\narea-mm2 = 0.05\n\
        gbps = 125.0\nclock-ghz = 1.0\n[[stage]]\ndesign = \"line_dec\"\nname = \"line_hadamard_inv\"\ncopies = 1\n\
        logic-um2 = 7000\nsram-bits = 0\nsram-um2 = 0.0\n";

    #[test]
    fn figures_are_scaled_by_whole_copies() {
        let shown = scaling(&parse(DESIGN)).unwrap();
        let row = shown.lines().find(|line| line.starts_with("line_dec")).unwrap();
        let cells: Vec<Vec<&str>> = row.split('|').map(|cell| cell.split_whitespace().collect()).collect();
        assert_eq!((&cells[1], &cells[2]), (&vec!["1", "0.0500", "?"], &vec!["4", "0.2000", "?"]), "{shown}");
        let shown = render(&parse(DESIGN)).unwrap();
        assert!(shown.contains("without transform: 0.0400 mm2"), "{shown}");
        assert!(render(&parse("[assumed]\n")).is_err());
    }

    #[test]
    fn a_power_that_no_tool_gave_is_not_known() {
        let shown = render(&parse(DESIGN)).unwrap();
        assert!(shown.contains("power not known") && !shown.contains("NaN"), "{shown}");
        let shown = render(&parse(&DESIGN.replace("gbps", "power-w = 0.1\ngbps"))).unwrap();
        assert!(shown.contains("0.1000 W") && shown.contains("0.800 pJ/bit"), "{shown}");
    }

    #[test]
    fn table_3_stands_beside_what_was_synthesized() {
        let shown = beside(&parse(DESIGN)).unwrap();
        assert!(shown.contains("three-in-one (tensor, image, video) encoder"), "{shown}");
        assert!(shown.contains("97.8 printed") && shown.contains("xk264"), "{shown}");
    }
    #[test]
    fn what_pictures_add_is_a_difference_of_designs() {
        let entries = parse(
            "[[design]]\nname = \"line_enc_transforms\"\narea-mm2 = 0.09\npower-w = 0.1\n\
             [[design]]\nname = \"line_enc_picture\"\narea-mm2 = 0.1\npower-w = 0.102\n",
        );
        let open = read(XK264).unwrap();
        let shown = three_in_one(&entries, &open).unwrap();
        assert!(shown.contains("0.0100 mm2 and 0.0020 W") && shown.contains("90.0 % shared"), "{shown}");
        let motion = motion(&open).unwrap();
        assert!((motion.area_mm2 - 0.0606).abs() < 0.0001, "{motion:?}");
    }
}
