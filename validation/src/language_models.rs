//! Language models of 135 and 270 million parameters, their weights coded: what each loses.
//!
//! Rows of `trinity eval` that take hours (validation/data/figures), so that figures and documents quote one table.
//! Knows tables; knows nothing of models or of how a weight is coded.

use crate::Error;
use crate::committed;
use serde::Serialize;
use std::fmt::Write;

const ROWS: &[u8] = include_bytes!("../data/figures/language_models.csv");
const FILE: &str = "figures/language_models.csv";

const COLUMNS: &str = "model,weights,bits_per_value,delta_bits_per_byte,delta_ci95";

/// One model after one codec at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    pub model: String,
    /// The codec and the rate it was asked for, as `trinity eval` prints them.
    pub weights: String,
    pub bits_per_value: f64,
    /// Bits per byte of text lost to the uncoded model.
    pub delta_bits_per_byte: f64,
    /// Half of its 95 % interval.
    pub delta_ci95: f64,
}

/// Every recorded row.
pub fn rows() -> Result<Vec<Loss>, Error> {
    parse(ROWS)
}

fn parse(bytes: &[u8]) -> Result<Vec<Loss>, Error> {
    committed::rows(FILE, bytes, COLUMNS, |row| {
        Ok(Loss {
            model: row.text("model").to_owned(),
            weights: row.text("weights").to_owned(),
            bits_per_value: row.number("bits_per_value")?,
            delta_bits_per_byte: row.number("delta_bits_per_byte")?,
            delta_ci95: row.number("delta_ci95")?,
        })
    })
}

/// The rows of one model as a table, for people.
pub fn table(model: &str) -> Result<String, Error> {
    let mut out =
        format!("{model}: bits per byte lost\n{:<24}{:>8}{:>10}{:>10}\n", "weights", "bits", "lost", "95 %");
    for row in rows()?.iter().filter(|row| row.model == model) {
        let (lost, half) = (row.delta_bits_per_byte, row.delta_ci95);
        let _ = writeln!(out, "{:<24}{:>8}{lost:>10.3}{half:>10.3}", row.weights, row.bits_per_value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_number_is_named_with_its_place() {
        let good = "model,weights,bits_per_value,delta_bits_per_byte,delta_ci95\nm,h265@3,3,0.4,0.02\n";
        assert_eq!(parse(good.as_bytes()).unwrap()[0].weights, "h265@3");
        let bad = good.replace("0.4", "much");
        let said = parse(bad.as_bytes()).unwrap_err().to_string();
        assert!(said.contains(":2:") && said.contains("expected a number"), "{said}");
    }

    #[test]
    fn every_model_has_the_rivals_at_three_and_four_bits() {
        let rows = rows().unwrap();
        for model in ["smollm2-135m", "gemma-3-270m"] {
            for codec in ["h265", "gptq-128g", "awq-128g"] {
                for bits in [3, 4] {
                    let weights = format!("{codec}@{bits}");
                    assert!(
                        rows.iter().any(|row| row.model == model && row.weights == weights),
                        "{model} {weights}"
                    );
                }
            }
        }
    }
}
