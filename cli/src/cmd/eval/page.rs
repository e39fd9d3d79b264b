//! The report of `trinity eval`: curves like the paper's Figures 5 and 6, and
//! where a model contradicts them.

use super::table::table;
use crate::{
    context::Context,
    failure::Failure,
    plot::{Axis, Mark, Plot, Series},
    report::Report,
    table::sig3,
};
use std::path::Path;
use trinity_study::evaluate::{EvaluationRow, LossCurve, loss_curves, verdicts};

pub fn write(rows: &[EvaluationRow], model: &str, out: &Path, ctx: &Context) -> Result<(), Failure> {
    report(rows, model).write(&out.join("report.html"))?;
    ctx.remark(format!("wrote {}", out.join("{eval.csv,report.html}").display()));
    Ok(())
}

fn report(rows: &[EvaluationRow], model: &str) -> Report {
    let mut report = Report::new(format!("What bits do to a language model: {model}"));
    let curves = loss_curves(rows);
    if !curves.is_empty() {
        report.paragraph(
            "Bits per value of the weights against what the model still knows, in bits per byte of text; lower is \
             better. Everything is counted, scales and headers included. hadamard/ rotates rows first, as the paper's \
             own weight results do.",
        );
        report.plot(
            "Bits per byte of text against bits per value of the weights",
            &Plot::new(Axis::linear("bits per value"), Axis::log("bits per byte"), series(&curves, rows)),
        );
        report.heading("Held against the paper");
        report.paragraphs(verdicts(&curves));
    }
    for (what, values) in [
        ("KV cache", rows.iter().filter(|row| row.kv.is_some()).collect::<Vec<_>>()),
        ("Activations between stages", rows.iter().filter(|row| row.activations.is_some()).collect()),
    ] {
        if values.len() > 1 {
            report.heading(what);
            report.paragraph(order_of(&values));
        }
    }
    report.add("Every point", &table(rows));
    report
}

fn series(curves: &[LossCurve<'_>], rows: &[EvaluationRow]) -> Vec<Series> {
    let known = rows[0].bits_per_byte;
    let series = curves.iter().map(|curve| {
        let mark = if curve.points.len() > 1 { Mark::Line } else { Mark::Points };
        Series::new(curve.name, curve.points.iter().map(|point| (point.bits, known + point.lost)), mark)
    });
    let all = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.bits);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    series.chain([Series::new("uncompressed", [(low, known), (high, known)], Mark::Reference)]).collect()
}

/// Codings from the least to the most harmful.
fn order_of(rows: &[&EvaluationRow]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.delta_bits_per_byte.total_cmp(&b.delta_bits_per_byte));
    let items: Vec<String> = rows
        .iter()
        .map(|row| {
            let name = row.kv.as_deref().or(row.activations.as_deref()).unwrap_or_default();
            let bits = row.kv_bits_per_value.or(row.activations_bits_per_value).unwrap_or_default();
            format!("{name} ({} bits per value): {:+.5}", sig3(bits), row.delta_bits_per_byte)
        })
        .collect();
    format!("Change in bits per byte, from the least to the most: {}.", items.join("; "))
}
