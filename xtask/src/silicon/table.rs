//! `cargo xtask silicon --show`: the committed figures, beside the paper's and at
//! other rates. Needs neither tools nor library.

use super::design::Failure;
use super::report::FILE;
use crate::workspace::root;
use std::{collections::BTreeMap, fs};

/// A table of the file: its kind, and its keys.
type Entry = (String, BTreeMap<String, String>);

/// What a design must stay within at 100 Gb/s, and the three-in-one codec of
/// LLM.265 Table 3: square millimetres, watts.
const BARS: [(&str, [f64; 2], [f64; 2]); 2] =
    [("line_enc", [0.15, 0.25], [0.70, 0.78]), ("line_dec", [0.08, 0.12], [0.58, 0.58])];
const RATES_GBPS: [f64; 4] = [100.0, 400.0, 800.0, 1600.0];
/// Parts that a design can do without, and what it then is.
const PARTS: [(&str, &[&str], &str); 2] = [
    ("line_dec", &["line_hadamard_inv"], "without transform"),
    (
        "line_enc",
        &["line_trellis", "line_trellis_lane", "line_candidates", "line_traceback"],
        "without trellis (survivors still hold levels)",
    ),
];

pub fn show() -> Result<(), Failure> {
    let missing = |error| Failure::Missing(format!("no {FILE} ({error}): run `cargo xtask silicon`"));
    let text = fs::read_to_string(root().join(FILE)).map_err(missing)?;
    let entries = parse(&text);
    eprint!("{}", render(&entries)?);
    Ok(())
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

fn number(keys: &BTreeMap<String, String>, key: &str) -> Result<f64, String> {
    let value = keys.get(key).and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("{FILE} has no `{key}` where one belongs: run `cargo xtask silicon`"))
}

fn render(entries: &[Entry]) -> Result<String, String> {
    let all = |kind: &'static str| entries.iter().filter(move |(name, _)| name == kind).map(|(_, keys)| keys);
    let assumed = all("assumed").next().ok_or_else(|| format!("{FILE} states no assumptions"))?;
    let utilization = number(assumed, "utilization")?;
    let mut text = String::new();
    for design in all("design") {
        let name = design.get("name").map_or("", String::as_str);
        let (area, gbps) = (number(design, "area-mm2")?, number(design, "gbps")?);
        // Left out where OpenSTA gave none.
        let power = number(design, "power-w").unwrap_or(f64::NAN);
        text += &format!(
            "{name}: {area:.4} mm2, {power:.4} W, {gbps:.0} Gb/s at {:.2} GHz, {:.3} pJ/bit\n",
            number(design, "clock-ghz")?,
            power / gbps * 1e3
        );
        if let Some((_, bar, paper)) = BARS.iter().find(|(of, ..)| *of == name) {
            // Both for 100 Gb/s, as Table 3 is.
            let share = 100.0 / gbps;
            text += &format!(
                "  at 100 Gb/s {:.4} mm2 of {:.2} allowed, {:.4} W of {:.2}; LLM.265 Table 3 {:.2} mm2, {:.2} W: {:.1} and {:.1} times\n",
                area * share,
                bar[0],
                power * share,
                bar[1],
                paper[0],
                paper[1],
                paper[0] / (area * share),
                paper[1] / (power * share)
            );
        }
        let mut stages: Vec<(f64, &str, f64)> = Vec::new();
        for stage in all("stage").filter(|stage| stage.get("design").is_some_and(|of| of == name)) {
            let copies = number(stage, "copies")?;
            let logic = number(stage, "logic-um2")? / utilization;
            let placed = (logic + number(stage, "sram-um2")?) * copies;
            stages.push((
                placed,
                stage.get("name").map_or("", String::as_str),
                number(stage, "sram-bits")? * copies,
            ));
        }
        stages.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (placed, stage, bits) in &stages {
            text += &format!("  {stage:<20} {placed:>8.0} um2 with {bits:>8.0} bits of SRAM\n");
        }
        for (_, parts, what) in PARTS.iter().filter(|(of, ..)| *of == name) {
            let saved: f64 =
                stages.iter().filter(|(_, stage, _)| parts.contains(stage)).map(|stage| stage.0).sum();
            text += &format!("  {what}: {:.4} mm2\n", area - saved / 1e6);
        }
        for rate in RATES_GBPS {
            let copies = (rate / gbps).ceil();
            text += &format!(
                "  {rate:>5.0} Gb/s: {copies:>2.0} copies, {:.4} mm2, {:.3} W\n",
                area * copies,
                power * copies
            );
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_scaled_by_whole_copies() {
        let text = "[assumed]\nutilization = 0.7 # a margin\n[[design]]\nname = \"line_dec\"\narea-mm2 = 0.05\npower-w = 0.1\n\
            gbps = 125.0\nclock-ghz = 1.0\n[[stage]]\ndesign = \"line_dec\"\nname = \"line_hadamard_inv\"\ncopies = 1\n\
            logic-um2 = 7000\nsram-bits = 0\nsram-um2 = 0.0\n";
        let shown = render(&parse(text)).unwrap();
        assert!(shown.contains("400 Gb/s:  4 copies, 0.2000 mm2"), "{shown}");
        assert!(shown.contains("without transform: 0.0400 mm2"), "{shown}");
        assert!(render(&parse("[assumed]\n")).is_err());
    }
}
