//! The table of `trinity eval`, in the terminal and on its page.

use crate::table::{Table, sig3};
use trinity_study::evaluate::EvaluationRow;

/// A row for each configuration.
pub fn table(rows: &[EvaluationRow]) -> Table {
    let text = |t: &Option<String>| t.clone().unwrap_or_else(|| "as stored".into());
    let bits = |b: Option<f64>| b.map_or(String::new(), sig3);
    Table::of(rows)
        .column("weights", |row| match (&row.weights, &row.codec) {
            (Some(weights), Some(codec)) => format!("{weights} ({codec})"),
            (weights, _) => text(weights),
        })
        .column("kv", |row| text(&row.kv))
        .column("activations", |row| text(&row.activations))
        .column("bits/byte", |row| format!("{:.5}", row.bits_per_byte))
        .column("change", |row| format!("{:+.5}", row.delta_bits_per_byte))
        .column("± 95 %", |row| row.delta_ci95.map_or(String::new(), |half| format!("{half:.5}")))
        .column("perplexity", |row| sig3(row.perplexity))
        .column("KL mean", |row| bits(row.kl_nats))
        .column("KL p99", |row| bits(row.kl_nats_p99))
        .column("top-1", |row| {
            row.top1_agreement.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share))
        })
        .column("weight bits", |row| bits(row.weights_bits_per_value))
        .column("kv bits", |row| bits(row.kv_bits_per_value))
        .column("activation bits", |row| bits(row.activations_bits_per_value))
        .column("weights MiB", |row| sig3(row.weight_mib))
        .end()
}
