//! What a comparison says in words: who is best, and where the paper's Figure 14(a) is borne out.

use super::Winner;
use std::fmt;
use trinity_tensor::Class;
use trinity_tensor::codec::PAPER_BASELINES;
use trinity_tensor::compare::{AtEqualMae, ComparisonRow, at_equal_mae};

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_bits = self.target.contains("bits");
        let figure = match in_bits {
            true => format!("{:.2} dB", self.snr_db),
            false => format!("{:.3} bits per value", self.bits_per_value),
        };
        let reached = match self.tensors == self.of {
            true => String::new(),
            false => format!(" on the {} of {} tensors where it gets there", self.tensors, self.of),
        };
        let by = match (&self.next, self.lead) {
            (Some(next), Some(lead)) => {
                let amount = match (in_bits, lead >= 0.0) {
                    (true, true) => format!("{lead:.2} dB above"),
                    (true, false) => format!("{:.2} dB below", -lead),
                    (false, true) => format!("{:.1} % fewer than", lead * 100.0),
                    (false, false) => format!("{:.1} % more than", -lead * 100.0),
                };
                match self.shared == self.of {
                    true => format!(", {amount} {next}"),
                    false => {
                        format!("; {amount} {next} on the {} of {} that both reach", self.shared, self.of)
                    }
                }
            }
            _ => String::new(),
        };
        write!(f, "{} at {}: {} with {figure}{reached}{by}.", self.class, self.target, self.codec)
    }
}

/// Where these tensors bear the paper's Figure 14(a) out, and where not: on
/// weight gradients, H.265 against each baseline at the same mean absolute error.
pub fn verdicts(rows: &[ComparisonRow]) -> Vec<String> {
    let gradients: Vec<ComparisonRow> =
        rows.iter().filter(|row| row.class == Class::WeightGradient).cloned().collect();
    let found = at_equal_mae(&gradients, "h265");
    PAPER_BASELINES
        .iter()
        .filter_map(|&baseline| {
            let own: Vec<_> = found.iter().filter(|versus| versus.codec == baseline).collect();
            let mean = |bits: &dyn Fn(&&AtEqualMae) -> f64| {
                own.iter().map(bits).sum::<f64>() / own.len() as f64
            };
            let against: Vec<String> = own
                .iter()
                .filter(|versus| versus.codec_bits <= versus.anchor_bits)
                .map(|versus| {
                    format!("{} ({:.3} against {:.3})", versus.tensor, versus.codec_bits, versus.anchor_bits)
                })
                .collect();
            let verdict = match against.len() {
                0 => "as the paper's Figure 14(a) has it".to_owned(),
                count => format!(
                    "which contradicts the paper's Figure 14(a) at {count} of {} points: {}",
                    own.len(),
                    against.join(", ")
                ),
            };
            (!own.is_empty()).then(|| {
                format!(
                    "Weight gradients at equal mean absolute error: H.265 {:.3} bits per value, {baseline} {:.3} (means \
                     over {} points), {verdict}.",
                    mean(&|versus| versus.anchor_bits),
                    mean(&|versus| versus.codec_bits),
                    own.len(),
                )
            })
        })
        .collect()
}
