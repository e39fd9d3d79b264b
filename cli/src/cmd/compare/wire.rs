//! `trinity compare --wire`: what NIC and codec cost together for a rate of
//! uncompressed values, at the bits that were just measured.

use serde::Serialize;
use trinity_study::wire::{self, WireRow};
use trinity_tensor::compare::{ClassLine, ComparisonRow, by_class};

use super::asked::Args;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::row_cache::csv_of;
use crate::table::{Table, sig3};

/// The rows for `--wire`, also left as wire.csv where there is a folder; none without it.
pub fn rows(args: &Args, classes: &[ClassLine], ctx: &Context) -> Result<Option<Vec<WireRow>>, Failure> {
    let Some(rate) = args.wire else { return Ok(None) };
    // Who did not get there on every tensor has bits of other tensors, and no place beside the rest.
    let most = |line: &ClassLine| {
        let same = classes.iter().filter(|other| (other.class, &other.target) == (line.class, &line.target));
        same.map(|other| other.tensors).max().unwrap_or(0)
    };
    let (whole, parts): (Vec<ClassLine>, Vec<ClassLine>) =
        classes.iter().cloned().partition(|line| line.tensors == most(line));
    for line in &parts {
        ctx.remark(format!(
            "left out of --wire: {} at {} for {}, which it reached on {} of {} tensors",
            line.codec,
            line.target,
            line.class,
            line.tensors,
            most(line)
        ));
    }
    let request = wire::WireRequest { classes: &whole, rate, nic: args.nic.clone() };
    let rows = wire::rows(&request, &ctx.watch())?;
    if let Some(folder) = &args.out {
        let path = folder.join("wire.csv");
        output::write(&path, &csv_of(&rows)?)?;
        ctx.remark(format!("wrote {}", path.display()));
    }
    Ok(Some(rows))
}

/// The sums of one tensor alone.
#[derive(Debug, Serialize)]
pub struct OfTensor {
    pub tensor: String,
    #[serde(flatten)]
    pub row: WireRow,
}

/// The rows for `--wire` of each tensor by itself: how far sums differ from tensor to tensor.
pub fn by_tensor(args: &Args, all: &[ComparisonRow], ctx: &Context) -> Result<Vec<OfTensor>, Failure> {
    let Some(rate) = args.wire else { return Ok(Vec::new()) };
    let mut tensors: Vec<&str> = all.iter().map(|row| row.tensor.as_str()).collect();
    tensors.sort_unstable();
    tensors.dedup();
    let mut found = Vec::new();
    for tensor in tensors {
        let own: Vec<ComparisonRow> = all.iter().filter(|row| row.tensor == tensor).cloned().collect();
        let classes = by_class(&own);
        let request = wire::WireRequest { classes: &classes, rate, nic: args.nic.clone() };
        let rows = wire::rows(&request, &ctx.watch())?;
        found.extend(rows.into_iter().map(|row| OfTensor { tensor: tensor.to_owned(), row }));
    }
    Ok(found)
}

/// A table for each class and target, and who is the smallest and the most frugal.
pub fn text(args: &Args, rows: &[WireRow], colour: bool) -> String {
    let rate_gbps = args.wire.map_or(0.0, |rate| rate.gbit_per_s());
    let mut text = String::new();
    for part in rows.chunk_by(|a, b| (a.class, &a.target) == (b.class, &b.target)) {
        let known = |value: Option<f64>| value.map_or_else(|| "not counted".into(), sig3);
        let nobody = |row: &WireRow| if row.coder == "none" { "-" } else { "nobody's" };
        let table = Table::of(part)
            .column("codec", |row| &row.codec)
            .column("bits of", |row| &row.coder)
            .column("bits/value", |row| format!("{:.3}", row.bits_per_value))
            .column("NIC mm²", |row| sig3(row.nic_mm2))
            .column("codec mm²", |row| known(row.codec_mm2))
            .column("both mm²", |row| sig3(row.area_mm2))
            .column("NIC pJ/bit", |row| sig3(row.nic_pj_per_bit))
            .column("codec pJ/bit", |row| known(row.codec_pj_per_bit))
            .column("both pJ/bit", |row| sig3(row.pj_per_bit))
            .column("by power", |row| sig3(row.pj_per_bit_by_power))
            .column("silicon from", |row| row.origin.map_or(nobody(row), |origin| origin.words()))
            .end();
        text += &format!(
            "\nNIC ({}) and codec for {} Gbit/s of 16-bit values, {}, {}\n{}{}",
            args.nic,
            sig3(rate_gbps),
            part[0].class,
            part[0].target,
            table.render(colour),
            sentences(part),
        );
    }
    text
}

/// Who takes least, by area and by either energy.
fn sentences(rows: &[WireRow]) -> String {
    type Measure = fn(&WireRow) -> f64;
    let measures: [(&str, &str, Measure); 3] = [
        ("area", "mm²", |row| row.area_mm2),
        ("energy by the column that each file chooses", "pJ/bit", |row| row.pj_per_bit),
        ("energy by power over throughput", "pJ/bit", |row| row.pj_per_bit_by_power),
    ];
    let mut text = String::new();
    for (what, unit, of) in measures {
        let Some(least) = rows.iter().min_by(|a, b| of(a).total_cmp(&of(b))) else { continue };
        let free = if least.codec_mm2.is_none() && least.coder != "none" {
            ", its own silicon not counted"
        } else {
            ""
        };
        text += &format!("least {what}: {}, {} {unit}{free}\n", least.codec, sig3(of(least)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_tensor::Class;

    fn row(codec: &str, codec_mm2: Option<f64>, area_mm2: f64) -> WireRow {
        WireRow {
            class: Class::Weight,
            target: "3 bits".into(),
            codec: codec.into(),
            coder: codec.into(),
            bits_per_value: 3.0,
            nic_mm2: 1.0,
            codec_mm2,
            area_mm2,
            nic_pj_per_bit: 1.0,
            codec_pj_per_bit: codec_mm2,
            pj_per_bit: 10.0 - area_mm2,
            pj_per_bit_by_power: area_mm2,
            origin: None,
        }
    }

    #[test]
    fn who_is_smallest_follows_from_all_rows_and_says_what_was_not_counted() {
        let said = sentences(&[row("a", Some(1.0), 2.0), row("b", None, 1.5)]);
        assert!(said.contains("least area: b, 1.50 mm², its own silicon not counted"), "{said}");
        assert!(said.contains("file chooses: a, 8.00 pJ/bit\n"), "{said}");
        let said = sentences(&[row("a", Some(1.0), 2.0), row("b", None, 3.5)]);
        assert!(said.contains("least area: a, 2.00 mm²\n"), "{said}");
    }
}
