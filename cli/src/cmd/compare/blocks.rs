//! `trinity compare --blocks`: outliers and residuals of every tensor.

use rayon::prelude::*;
use serde::Serialize;
use trinity_tensor::codec::ablate::{Blocks, blocks};
use trinity_tensor::{Class, Entry, Error, crop};

use super::asked::{Args, entries, fixed_error, write_rows};
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};
use crate::tensor_files::bad_input;

/// One tensor; the fields are the columns of `blocks.csv`.
#[derive(Debug, Serialize)]
struct BlocksRow {
    tensor: String,
    class: Class,
    /// In standard deviations.
    largest_value: f64,
    largest_coefficient: f64,
    excess_kurtosis_of_values: f64,
    excess_kurtosis_of_coefficients: f64,
    /// RMS of the residual over that of the values.
    residual_over_values: f64,
    /// The part of samples whose block has less energy behind prediction.
    predicted: f64,
}

impl BlocksRow {
    fn of(entry: &Entry, found: &Blocks) -> Self {
        Self {
            tensor: entry.name().to_owned(),
            class: entry.class(),
            largest_value: found.largest[0],
            largest_coefficient: found.largest[1],
            excess_kurtosis_of_values: found.excess_kurtosis[0],
            excess_kurtosis_of_coefficients: found.excess_kurtosis[1],
            residual_over_values: found.residual,
            predicted: found.smaller,
        }
    }
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let entries = entries(args)?;
    let goal = fixed_error(args);
    let progress = ctx.progress(entries.len() as u64, "coding blocks");
    let results: Vec<Result<Option<BlocksRow>, (String, Error)>> = entries
        .par_iter()
        .map(|entry| {
            let found = crop(entry, args.sample as usize).and_then(|tensor| blocks(&tensor, goal));
            progress.inc(1);
            found
                .map(|found| found.map(|found| BlocksRow::of(entry, &found)))
                .map_err(|error| (entry.name().into(), error))
        })
        .collect();
    progress.finish_and_clear();
    let mut rows = Vec::new();
    for result in results {
        rows.extend(result.map_err(|(tensor, error)| bad_input(&tensor, &error))?);
    }
    if let Some(folder) = &args.out {
        write_rows(args, folder, "blocks.csv", &rows)?;
        ctx.remark(format!("wrote {}", folder.join("blocks.csv").display()));
    }
    if ctx.json {
        return ctx.print_json(&rows);
    }
    let headers = [
        "tensor",
        "class",
        "largest σ",
        "behind DCT",
        "kurtosis",
        "behind DCT",
        "residual/values",
        "predicted %",
    ];
    let mut table = Table::new(headers);
    for row in &rows {
        table.row([
            row.tensor.clone(),
            row.class.to_string(),
            sig3(row.largest_value),
            sig3(row.largest_coefficient),
            sig3(row.excess_kurtosis_of_values),
            sig3(row.excess_kurtosis_of_coefficients),
            sig3(row.residual_over_values),
            sig3(100.0 * row.predicted),
        ]);
    }
    ctx.print(table.render(ctx.colour))
}
