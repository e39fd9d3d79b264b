//! `trinity compare --stages`: what the Trinity codec chose for a tensor, where
//! its bits went, and what such stages would cost in silicon.

use trinity_silicon::stages::Technology;
use trinity_silicon::table3::{THREE_IN_ONE_ENCODER, THROUGHPUT_GBPS};
use trinity_study::price::{self, PriceRow};

use super::asked::{Args, codecs, entries, keep_rows, targets};
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let codecs =
        if args.codecs.is_empty() { vec!["trinity".into(), "trinity-lite".into()] } else { codecs(args)? };
    let device = args.device.open(codecs.iter().map(String::as_str), ctx)?;
    let technology = price::technology("technologies/asap7")?;
    let request = price::PriceRequest {
        entries: &entries(args)?,
        codecs,
        targets: targets(args),
        sample: args.sample as usize,
        technology,
        throughput_gbps: THROUGHPUT_GBPS,
    };
    let rows = price::stages(&request, &ctx.watch())?;
    device.remark(ctx);
    keep_rows(args, "stages.csv", &rows, ctx)?;
    ctx.show(&rows, || text(&rows, &technology, ctx.colour))
}

fn text(rows: &[PriceRow], technology: &Technology, colour: bool) -> String {
    let mut text = String::new();
    for part in rows.chunk_by(|a, b| (&a.tensor, &a.codec, &a.target) == (&b.tensor, &b.codec, &b.target)) {
        let table = Table::of(part)
            .column("stage", |row| row.stage)
            .column("choice", |row| if row.choice.is_empty() { "-".into() } else { row.choice.clone() })
            .column("bits/value", |row| format!("{:.3}", row.bits_per_value))
            .column("operations/value", |row| format!("{:.0}", row.operations_per_value))
            .column("multiply", |row| format!("{:.0}", row.multiplications_per_value))
            .column("serial values", |row| row.serial_values)
            .column("kGE", |row| format!("{:.0}", row.gates_kge))
            .column("SRAM kbit", |row| format!("{:.0}", row.sram_bits / 1e3))
            .column("mm²", |row| sig3(row.area_mm2))
            .column("pJ/bit", |row| row.pj_per_bit.map_or_else(|| "not known".into(), sig3))
            .column("silicon from", |row| row.silicon_from.name())
            .end();
        let sum = |of: fn(&PriceRow) -> f64| part.iter().map(of).sum::<f64>();
        text += &format!(
            "{}, {} ({}), {}\n{}sum: {:.3} bits/value, {:.0} operations/value, {} mm², {} pJ/bit\n\n",
            part[0].codec,
            part[0].tensor.escape_debug(),
            part[0].class,
            part[0].target,
            table.render(colour),
            sum(|row| row.bits_per_value),
            sum(|row| row.operations_per_value),
            sig3(sum(|row| row.area_mm2)),
            // One stage whose power is not known leaves the sum unknown.
            part.iter().map(|row| row.pj_per_bit).sum::<Option<f64>>().map_or_else(|| "?".into(), sig3),
        );
    }
    text + &format!(
        "Silicon of an encoder for {THROUGHPUT_GBPS} Gbit/s of 16-bit values at 7 nm. Synthesized: that stage of our RTL on \
         ASAP7 (configs/silicon/asap7.toml), SRAM included.\nEstimate: from operations at {} GHz, one operator each, and one \
         buffer for the values that wait for others. The paper's three-in-one encoder takes {} mm² (Table 3).\n",
        technology.pipeline_clock_ghz, THREE_IN_ONE_ENCODER.area_mm2,
    )
}
