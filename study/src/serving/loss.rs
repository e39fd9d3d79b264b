//! What a coded KV cache costs answers at a rate, from recorded runs of
//! `trinity eval --kv`: of the model that is served where it was measured, and
//! of others, named as such, where it was not.
//!
//! Must not know what a codec buys, or how an answer is shown.

use crate::Error;
use crate::config::{LossRateFile, LossesFile};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use trinity_config::Document;

/// A value and between which bounds it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// One model's answers at the rate asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    pub model: String,
    pub million_parameters: Option<f64>,
    /// Rates between which this lies.
    pub measured_bits: (f64, f64),
    /// Bits per byte of text, of which the model needs `uncoded_bits_per_byte`.
    pub lost_bits_per_byte: Interval,
    pub uncoded_bits_per_byte: f64,
    pub kl_nats: Interval,
    pub same_likeliest_token: f64,
    /// The command that measured it.
    pub source: String,
}

/// What is known of answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answers {
    pub bits: f64,
    /// Whether the model that is served was measured.
    pub of_this_model: bool,
    pub measured: Vec<Loss>,
    /// What that says, and what it does not.
    pub statement: String,
}

/// What `trinity eval --json` writes, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Recording {
    kv: Option<String>,
    kv_bits_per_value: Option<f64>,
    bits_per_byte: f64,
    delta_bits_per_byte: Option<f64>,
    delta_ci95: Option<f64>,
    kl_nats: Option<f64>,
    kl_ci95: Option<f64>,
    top1_agreement: Option<f64>,
}

/// What coding caches of `model` by `codec` at `bits` costs answers. Recordings
/// are files of `trinity eval --kv … --json` of that very model; they take the
/// place of built-in ones. Fails when a recording cannot be read, or is of
/// something else.
pub fn answers(model: &str, codec: &str, bits: f64, recordings: &[PathBuf]) -> Result<Answers, Error> {
    if !recordings.is_empty() {
        let own = recordings.iter().map(|path| recorded(model, path)).collect::<Result<Vec<_>, _>>()?;
        return Ok(of_recordings(model, bits, own));
    }
    let file: LossesFile = Document::load("losses/kv")?.read()?;
    let name = codec.rsplit('/').next().unwrap_or(codec).trim_end_matches(".toml");
    let mut measured = Vec::new();
    for own in file.measured.iter().filter(|own| own.codecs.iter().any(|codec| codec == name)) {
        let Some((rate, between)) = at_rate(&own.rates, bits) else { continue };
        measured.push(Loss {
            model: own.model.clone(),
            million_parameters: Some(own.million_parameters),
            measured_bits: between,
            lost_bits_per_byte: Interval::around(rate.lost, rate.lost_half_width),
            uncoded_bits_per_byte: own.uncoded_bits_per_byte,
            kl_nats: Interval::around(rate.kl_nats, rate.kl_half_width),
            same_likeliest_token: rate.same_token,
            source: format!("trinity eval {}.json --kv line@BITS (configs/losses/kv.toml)", own.model),
        });
    }
    let of_this_model = !measured.is_empty() && measured.iter().all(|loss| loss.model == model);
    let statement = statement(model, codec, bits, of_this_model, &measured);
    Ok(Answers { bits, of_this_model, measured, statement })
}

impl Interval {
    fn around(value: f64, half_width: f64) -> Self {
        Self { value, low: value - half_width, high: value + half_width }
    }
}

/// The rate `bits` between its measured neighbours, and these; none outside.
fn at_rate(rates: &[LossRateFile], bits: f64) -> Option<(LossRateFile, (f64, f64))> {
    // A rate control lands a little below what was asked.
    const SLACK: f64 = 0.05;
    if let Some(near) = rates.iter().find(|rate| (rate.bits - bits).abs() <= SLACK) {
        return Some((*near, (near.bits, near.bits)));
    }
    let above = rates.iter().position(|rate| rate.bits > bits)?;
    let (low, high) = (rates.get(above.checked_sub(1)?)?, &rates[above]);
    let share = (bits - low.bits) / (high.bits - low.bits);
    let line = |a: f64, b: f64| a + (b - a) * share;
    // Divergence falls by a factor with each bit.
    let divergence = (low.kl_nats.ln() * (1.0 - share) + high.kl_nats.ln() * share).exp();
    let rate = LossRateFile {
        bits,
        lost: line(low.lost, high.lost),
        // Between two rates nothing was measured: the interval spans both.
        lost_half_width: low.lost_half_width.max(high.lost_half_width) + (low.lost - high.lost).abs() / 2.0,
        kl_nats: divergence,
        kl_half_width: low.kl_half_width.max(high.kl_half_width),
        same_token: line(low.same_token, high.same_token),
    };
    Some((rate, (low.bits, high.bits)))
}

fn recorded(model: &str, path: &Path) -> Result<Loss, Error> {
    let wrong = |why: String| {
        let what = format!("{}: {why}", path.display());
        Error::input(what, "give what `trinity eval MODEL --kv CODEC@BITS --json` wrote")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let own: Recording = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let (Some(kv), Some(bits), Some(lost)) = (&own.kv, own.kv_bits_per_value, own.delta_bits_per_byte) else {
        return Err(wrong("no KV cache was coded in this run".into()));
    };
    Ok(Loss {
        model: model.to_owned(),
        million_parameters: None,
        measured_bits: (bits, bits),
        lost_bits_per_byte: Interval::around(lost, own.delta_ci95.unwrap_or(0.0)),
        uncoded_bits_per_byte: own.bits_per_byte - lost,
        kl_nats: Interval::around(own.kl_nats.unwrap_or(f64::NAN), own.kl_ci95.unwrap_or(0.0)),
        same_likeliest_token: own.top1_agreement.unwrap_or(f64::NAN),
        source: format!("{}: {kv}", path.display()),
    })
}

fn of_recordings(model: &str, bits: f64, mut measured: Vec<Loss>) -> Answers {
    measured.sort_by(|a, b| a.measured_bits.0.total_cmp(&b.measured_bits.0));
    let statement = statement(model, "the recorded codec", bits, true, &measured);
    Answers { bits, of_this_model: true, measured, statement }
}

fn statement(model: &str, codec: &str, bits: f64, of_this_model: bool, measured: &[Loss]) -> String {
    let ask = "`trinity eval MODEL --kv line@BITS --json` measures it, `--recorded FILE` puts it here";
    if measured.is_empty() {
        return format!("Answers: nobody measured what {codec} at {bits} bits loses. {ask}.");
    }
    let each: Vec<String> = measured
        .iter()
        .map(|loss| {
            let half = loss.lost_bits_per_byte.high - loss.lost_bits_per_byte.value;
            let size = loss.million_parameters.map_or(String::new(), |own| format!(" ({own} M parameters)"));
            format!(
                "{}{size} {:.3} ± {:.3} of {:.2} bits per byte, the same likeliest token for {:.1} %",
                loss.model,
                loss.lost_bits_per_byte.value,
                half,
                loss.uncoded_bits_per_byte,
                100.0 * loss.same_likeliest_token
            )
        })
        .collect();
    let lead = format!("Answers at {bits} bits lose: {}.", each.join("; "));
    if of_this_model {
        return lead;
    }
    format!(
        "{lead} {model} itself was not measured, and larger models need not lose as much or as little; {ask}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bits_lose_less_and_a_rate_nobody_measured_is_said_to_be_one() {
        let at = |bits| answers("Llama-3.1-70B", "line-h200", bits, &[]).unwrap();
        let losses = [2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0].map(|bits| at(bits).measured);
        for pair in losses.windows(2) {
            for (few, many) in pair[0].iter().zip(&pair[1]) {
                assert_eq!(few.model, many.model);
                assert!(few.kl_nats.value > many.kl_nats.value, "{few:?} {many:?}");
                assert!(few.same_likeliest_token < many.same_likeliest_token, "{few:?} {many:?}");
            }
        }
        let three = at(3.0);
        assert!(!three.of_this_model && three.measured.len() == 2, "{three:?}");
        assert!(three.statement.contains("Llama-3.1-70B itself was not measured"), "{}", three.statement);
        for bits in [1.0, 8.0] {
            assert!(at(bits).measured.is_empty() && at(bits).statement.contains("nobody measured"));
        }
        let other = answers("Llama-3.1-70B", "nvenc", 3.0, &[]).unwrap();
        assert!(other.measured.is_empty(), "{other:?}");
    }

    #[test]
    fn between_two_rates_the_interval_spans_both() {
        let found = answers("Llama-3.1-70B", "codecs/line-lanes.toml", 2.25, &[]).unwrap();
        for loss in &found.measured {
            assert!(loss.measured_bits.0 < 2.25 && loss.measured_bits.1 > 2.25, "{loss:?}");
            assert!(loss.lost_bits_per_byte.low < loss.lost_bits_per_byte.value);
        }
    }

    #[test]
    fn a_recording_of_the_model_takes_the_place_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.json");
        let text = r#"{"kv":"line@3","kv_bits_per_value":2.98,"bits_per_byte":1.1,"delta_bits_per_byte":0.01,"delta_ci95":0.002,"kl_nats":0.004,"top1_agreement":0.97}"#;
        std::fs::write(&path, text).unwrap();
        let own = answers("Qwen3-32B", "line-h200", 3.0, std::slice::from_ref(&path)).unwrap();
        assert!(own.of_this_model && own.measured[0].model == "Qwen3-32B", "{own:?}");
        std::fs::write(&path, r#"{"kv":null,"bits_per_byte":1.1}"#).unwrap();
        let said = answers("Qwen3-32B", "line-h200", 3.0, &[path]).unwrap_err().to_string();
        assert!(said.contains("no KV cache was coded"), "{said}");
    }
}
