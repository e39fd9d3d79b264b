//! `trinity compare --stages`: what the Trinity codec chose for a tensor, where
//! its bits went, and what such stages would cost in silicon.

use rayon::prelude::*;
use serde::Serialize;
use trinity_silicon::operations::{Work, estimate};
use trinity_silicon::stages::Technology;
use trinity_silicon::table3::{THREE_IN_ONE_ENCODER, THROUGHPUT_GBPS};
use trinity_tensor::codec::{StageCost, codec};
use trinity_tensor::{Class, Entry, crop};

use super::{Args, codecs, entries, targets};
use crate::cmd::tensors::bad_input;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::table::{Table, sig3};

/// One stage of one tensor; the fields are the columns of `stages.csv`.
#[derive(Debug, Serialize)]
struct Row {
    tensor: String,
    class: Class,
    codec: String,
    target: String,
    stage: &'static str,
    choice: String,
    bits_per_value: f64,
    operations_per_value: f64,
    multiplications_per_value: f64,
    serial_values: usize,
    gates_kge: f64,
    sram_bits: f64,
    area_mm2: f64,
    pj_per_bit: f64,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let (entries, targets) = (entries(args)?, targets(args));
    let codecs =
        if args.codecs.is_empty() { vec!["trinity".into(), "trinity-lite".into()] } else { codecs(args)? };
    let mut jobs = Vec::new();
    for entry in &entries {
        for name in &codecs {
            jobs.extend(targets.iter().map(|&target| (entry, name, target)));
        }
    }
    let progress = ctx.progress(jobs.len() as u64, "taking apart");
    let results: Vec<Result<Vec<Row>, (String, trinity_tensor::Error)>> = jobs
        .par_iter()
        .map(|&(entry, name, target)| {
            let found = codec(name).and_then(|codec| {
                let costs = codec.stages(&crop(entry, args.sample as usize)?, target)?;
                // A value waits once, in front of the stage with the longest chain.
                let longest = costs.iter().map(|cost| cost.serial_values).max().unwrap_or(0);
                let waits = costs.iter().position(|cost| cost.serial_values == longest);
                let row =
                    |(at, cost)| row(entry, &codec.name(), &target.to_string(), cost, waits == Some(at));
                Ok(costs.into_iter().enumerate().map(row).collect())
            });
            progress.inc(1);
            found.map_err(|error| (entry.name().to_owned(), error))
        })
        .collect();
    progress.finish_and_clear();
    let mut rows: Vec<Row> = Vec::new();
    for result in results {
        rows.extend(result.map_err(|(tensor, error)| bad_input(&tensor, &error))?);
    }
    if rows.is_empty() {
        return Err(Failure::input("none of these codecs can say what its stages did")
            .help("--stages takes trinity, trinity-lite, trinity-max or a profile as FILE.toml"));
    }
    if let Some(folder) = &args.out {
        let mut csv = csv::Writer::from_writer(Vec::new());
        for row in &rows {
            csv.serialize(row).map_err(Failure::run)?;
        }
        output::write(&folder.join("stages.csv"), &csv.into_inner().map_err(Failure::run)?)?;
        ctx.remark(format!("wrote {}", folder.join("stages.csv").display()));
    }
    if ctx.json {
        return ctx.print_json(&rows);
    }
    ctx.print(text(&rows, ctx.colour))
}

fn row(entry: &Entry, codec: &str, target: &str, cost: StageCost, waits: bool) -> Row {
    let work = Work {
        additions_per_value: cost.operations_per_value - cost.multiplications_per_value,
        multiplications_per_value: cost.multiplications_per_value,
        serial_values: if waits { cost.serial_values as f64 } else { 1.0 },
    };
    let silicon = estimate(&work, THROUGHPUT_GBPS, &Technology::ASAP7);
    Row {
        tensor: entry.name().to_owned(),
        class: entry.class(),
        codec: codec.to_owned(),
        target: target.to_owned(),
        stage: cost.stage,
        choice: cost.choice,
        bits_per_value: cost.bits_per_value,
        operations_per_value: cost.operations_per_value,
        multiplications_per_value: cost.multiplications_per_value,
        serial_values: cost.serial_values,
        gates_kge: silicon.gates_kge,
        sram_bits: silicon.sram_bits,
        area_mm2: silicon.cost.area_mm2,
        pj_per_bit: silicon.cost.energy_pj_per_bit(),
    }
}

fn text(rows: &[Row], colour: bool) -> String {
    let mut text = String::new();
    for part in rows.chunk_by(|a, b| (&a.tensor, &a.codec, &a.target) == (&b.tensor, &b.codec, &b.target)) {
        let mut table = Table::new([
            "stage",
            "choice",
            "bits/value",
            "operations/value",
            "multiply",
            "serial values",
            "kGE",
            "SRAM kbit",
            "mm²",
            "pJ/bit",
        ]);
        for row in part {
            table.row([
                row.stage.to_owned(),
                if row.choice.is_empty() { "-".into() } else { row.choice.clone() },
                format!("{:.3}", row.bits_per_value),
                format!("{:.0}", row.operations_per_value),
                format!("{:.0}", row.multiplications_per_value),
                row.serial_values.to_string(),
                format!("{:.0}", row.gates_kge),
                format!("{:.0}", row.sram_bits / 1e3),
                sig3(row.area_mm2),
                sig3(row.pj_per_bit),
            ]);
        }
        let sum = |of: fn(&Row) -> f64| part.iter().map(of).sum::<f64>();
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
            sig3(sum(|row| row.pj_per_bit)),
        );
    }
    text + &format!(
        "Silicon of an encoder for {THROUGHPUT_GBPS} Gbit/s of 16-bit values at 7 nm and {} GHz, estimated from operations \
         (one operator each)\nand from one buffer for the values that wait for others; the paper's three-in-one encoder takes \
         {} mm² (Table 3).\n",
        Technology::ASAP7.clock_ghz,
        THREE_IN_ONE_ENCODER.area_mm2,
    )
}
