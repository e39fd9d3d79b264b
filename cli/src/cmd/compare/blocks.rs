//! `trinity compare --blocks`: outliers and residuals of every tensor.

use serde::Serialize;
use trinity_tensor::codec::ablate::{Blocks, blocks};
use trinity_tensor::{Class, Entry, crop};

use super::asked::{Args, entries, fixed_error, keep_rows, of_each};
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};

/// One tensor; the fields are the columns of `blocks.csv`.
#[derive(Debug, Serialize)]
struct BlocksRow {
    tensor: String,
    class: Class,
    /// The largest magnitudes of values and of coefficients, in standard deviations.
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
    let found = of_each(&entries, "coding blocks", ctx, Entry::name, |entry| {
        let found = blocks(&crop(entry, args.sample as usize)?, goal)?;
        Ok(found.map(|found| BlocksRow::of(entry, &found)))
    })?;
    let rows: Vec<BlocksRow> = found.into_iter().flatten().collect();
    keep_rows(args, "blocks.csv", &rows, ctx)?;
    let table = Table::of(&rows)
        .column("tensor", |row| &row.tensor)
        .column("class", |row| row.class)
        .column("largest σ", |row| sig3(row.largest_value))
        .column("behind DCT", |row| sig3(row.largest_coefficient))
        .column("kurtosis", |row| sig3(row.excess_kurtosis_of_values))
        .column("behind DCT", |row| sig3(row.excess_kurtosis_of_coefficients))
        .column("residual/values", |row| sig3(row.residual_over_values))
        .column("predicted %", |row| sig3(100.0 * row.predicted))
        .end();
    ctx.show(&rows, || table.render(ctx.colour))
}
