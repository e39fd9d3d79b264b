//! What was planned and what was encoded, as tables and as JSON.

use super::job::Job;
use crate::cmd::eval;
use crate::context::Context;
use crate::device::Used;
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::table::{Table, sig3};
use serde::Serialize;
use std::path::PathBuf;
use trinity_study::encode::KindRow;
use trinity_study::evaluate::{EvaluationRow, Gain};
use trinity_tensor::codec::Metrics;
use trinity_tensor::pipeline::Summary;

/// What became of a file.
#[derive(Debug, Serialize)]
pub struct EncodeOutcome {
    pub output: JsonPath,
    bytes: u64,
    /// Those of tensors that refer to others once.
    values: usize,
    bits_per_value: f64,
    /// Whether that is more than was asked for.
    over_target: bool,
    /// Bits of the basis, which is a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    basis_bits: Option<usize>,
    /// Over all tensors that were coded, weighted by their energy.
    #[serde(flatten)]
    metrics: Metrics,
    /// What was coded, which the errors are over, and what was kept to the bit.
    coded: Share,
    exact: Share,
    /// Who coded.
    device: Used,
    /// The tensor with the largest relative error, where there is one.
    worst_tensor: Option<String>,
    /// What was planned, by kinds of tensors.
    kinds: Vec<KindRow>,
    tensors: Vec<Summary>,
    /// What of a calibration's gain stays on the part of its text that was held out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out: Option<Gain>,
    /// The model as it was and as it was written, on the text of `--eval`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eval: Vec<EvaluationRow>,
}

/// A part of a file.
#[derive(Debug, Default, Serialize)]
struct Share {
    tensors: usize,
    values: usize,
    bytes: u64,
}

impl Share {
    fn of<'s>(tensors: impl Iterator<Item = &'s Summary>) -> Self {
        tensors.fold(Self::default(), |sum, tensor| Self {
            tensors: sum.tensors + 1,
            values: sum.values + tensor.values,
            bytes: sum.bytes + tensor.bytes,
        })
    }
}

impl EncodeOutcome {
    /// What was made of a job; an error where it takes too many bits and the user is strict.
    pub fn of(
        job: &Job<'_>,
        output: PathBuf,
        bytes: u64,
        tensors: Vec<Summary>,
        metrics: Metrics,
        device: Used,
        ctx: &Context,
    ) -> Result<Self, Failure> {
        let values = job.plan.values();
        let bits_per_value = 8.0 * bytes as f64 / values.max(1) as f64;
        let over_target = job.over_target(bits_per_value, &tensors, ctx)?;
        let worst = tensors.iter().max_by(|a, b| a.metrics.nmse.total_cmp(&b.metrics.nmse));
        Ok(Self {
            output: output.into(),
            bytes,
            values,
            bits_per_value,
            over_target,
            basis_bits: job.request.basis.map(|basis| 8 * basis.to_bytes().len()),
            metrics,
            coded: Share::of(tensors.iter().filter(|tensor| tensor.exact.is_none())),
            exact: Share::of(tensors.iter().filter(|tensor| tensor.exact.is_some())),
            device,
            worst_tensor: worst.filter(|own| own.metrics.nmse > 0.0).map(|own| own.tensor.clone()),
            kinds: job.plan.kinds(),
            tensors,
            held_out: None,
            eval: Vec::new(),
        })
    }
}

/// The table of kinds: what is coded, kept exact or tied.
pub fn kinds(rows: &[KindRow]) -> Table {
    Table::of(rows)
        .column("kind", |row| row.kind)
        .column("tensors", |row| row.tensors)
        .column("values", |row| row.values)
        .column("becomes", |row| &row.treatment)
        .column("bits/value", |row| row.bits_per_value.map_or(String::new(), sig3))
        .column("because", |row| row.because.as_deref().unwrap_or_default())
        .end()
}

fn decibels(snr_db: f64) -> String {
    if snr_db.is_finite() { format!("{snr_db:.2}") } else { "∞".into() }
}

/// The table of tensors, and what they came to.
pub fn text(outcome: &EncodeOutcome, colour: bool) -> String {
    let table = Table::of(&outcome.tensors)
        .column("tensor", |tensor| tensor.tensor.escape_debug())
        .column("class", |tensor| tensor.class)
        .column("codec", |tensor| &tensor.codec)
        .column("values", |tensor| tensor.values)
        .column("bytes", |tensor| tensor.bytes)
        .column("bits/value", |tensor| sig3(tensor.bits_per_value))
        .column("NMSE", |tensor| sig3(tensor.metrics.nmse))
        .column("SNR dB", |tensor| decibels(tensor.metrics.snr_db))
        .column("exact because", |tensor| tensor.exact.as_deref().unwrap_or_default())
        .end();
    let counted = match outcome.basis_bits {
        None => "everything counted".into(),
        Some(bits) => format!(
            "the basis not counted: {bits} bits, {:.4} a value of this file",
            bits as f64 / outcome.values.max(1) as f64
        ),
    };
    let scored = if outcome.eval.is_empty() {
        String::new()
    } else {
        format!("\n{}", eval::table(&outcome.eval).render(colour))
    };
    format!(
        "{}{}: {} bytes, {:.4} bits/value, {counted}\n{}\n{scored}",
        table.render(colour),
        outcome.output.display(),
        outcome.bytes,
        outcome.bits_per_value,
        errors(outcome),
    )
}

/// What coding did to the values that were coded, and how many were not.
fn errors(outcome: &EncodeOutcome) -> String {
    let Some(worst) = &outcome.worst_tensor else { return "every value as it was".to_owned() };
    let nmse = outcome.tensors.iter().find(|tensor| tensor.tensor == *worst).map(|t| t.metrics.nmse);
    let kept = match outcome.exact.tensors {
        0 => String::new(),
        1 => format!("; 1 tensor of {} values kept exact", outcome.exact.values),
        many => format!("; {many} tensors of {} values kept exact", outcome.exact.values),
    };
    format!(
        "NMSE {}, SNR {} dB over what was coded; worst is `{}` with NMSE {}{kept}",
        sig3(outcome.metrics.nmse),
        decibels(outcome.metrics.snr_db),
        worst.escape_debug(),
        sig3(nmse.unwrap_or_default())
    )
}
