//! The table of `trinity eval`, in the terminal and on its page.

use crate::table::{Table, sig3};
use trinity_study::evaluate::EvaluationRow;

/// A row for each configuration.
pub fn table(rows: &[EvaluationRow]) -> Table {
    let mut table = Table::new([
        "weights",
        "kv",
        "activations",
        "bits/byte",
        "change",
        "± 95 %",
        "perplexity",
        "KL mean",
        "KL p99",
        "top-1",
        "weight bits",
        "kv bits",
        "activation bits",
        "weights MiB",
    ]);
    let text = |t: &Option<String>| t.clone().unwrap_or_else(|| "as stored".into());
    let bits = |b: Option<f64>| b.map_or(String::new(), sig3);
    for row in rows {
        table.row([
            match (&row.weights, &row.codec) {
                (Some(weights), Some(codec)) => format!("{weights} ({codec})"),
                (weights, _) => text(weights),
            },
            text(&row.kv),
            text(&row.activations),
            format!("{:.5}", row.bits_per_byte),
            format!("{:+.5}", row.delta_bits_per_byte),
            row.delta_ci95.map_or(String::new(), |half| format!("{half:.5}")),
            sig3(row.perplexity),
            bits(row.kl_nats),
            bits(row.kl_nats_p99),
            row.top1_agreement.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share)),
            bits(row.weights_bits_per_value),
            bits(row.kv_bits_per_value),
            bits(row.activations_bits_per_value),
            sig3(row.weight_mib),
        ]);
    }
    table
}
