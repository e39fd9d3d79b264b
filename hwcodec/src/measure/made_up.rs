//! Tensors to measure with: the same numbers on every machine.

use crate::Error;
use trinity_codec::line::{self, Options, Plan, Rate, Settings};
use trinity_numeric::random::SplitMix64;

/// A well-mixed number.
pub(super) fn mix(seed: u64) -> u64 {
    SplitMix64::nth(seed.wrapping_add(1))
}

/// A standard normal draw.
fn normal(seed: u64) -> f32 {
    let uniform = |n: u64| ((mix(n) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (uniform(2 * seed), uniform(2 * seed + 1));
    ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
}

/// Gaussian values with scales of rows and columns, as weights have.
pub fn weights(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let row: Vec<f32> = (0..rows).map(|r| (0.25 * normal(seed ^ (r as u64 + 7) << 32)).exp()).collect();
    let col: Vec<f32> = (0..cols).map(|c| (0.35 * normal(seed ^ (c as u64 + 9) << 40)).exp()).collect();
    (0..rows * cols).map(|i| 0.02 * row[i / cols] * col[i % cols] * normal(seed + i as u64)).collect()
}

/// What could not be encoded.
pub(super) fn refused(what: &str) -> impl Fn(line::Error) -> Error {
    move |error| Error::Encode { what: what.into(), reason: error.to_string() }
}

/// The plan of a matrix at a rate, by whatever effort.
pub(super) fn plan_at(
    what: &str,
    values: &[f32],
    cols: usize,
    bits: f64,
    options: &Options,
) -> Result<Plan, Error> {
    let (rows, rate) = (values.len() / cols, Rate::Bits(bits));
    let stream = line::encode_under(values, rows, cols, rate, options, &Settings::default());
    Ok(stream.and_then(|stream| Plan::read(&stream)).map_err(refused(what))?.0)
}

pub(super) fn chosen(
    what: &str,
    values: &[f32],
    cols: usize,
    step: f32,
    options: &Options,
) -> Result<Plan, Error> {
    line::choose(values, values.len() / cols, cols, step, options)
        .ok_or_else(|| Error::Encode { what: what.into(), reason: "no plan".into() })
}

/// The plan of a matrix at the step that gives a piece of it three bits, and its stream.
pub(super) fn coded_as(
    what: &str,
    piece: &[f32],
    values: &[f32],
    cols: usize,
    options: &Options,
) -> Result<(Plan, Vec<u8>), Error> {
    let step = plan_at(what, piece, cols, 3.0, options)?.step;
    let plan = chosen(what, values, cols, step, options)?;
    let stream = line::encode(&plan, values, &Settings::default()).map_err(refused(what))?;
    Ok((plan, stream))
}
