//! `trinity eval --sweep`: one curve a codec, bits per byte against bits per value.

use super::{Args, Bench, Row, failure};
use crate::{context::Context, failure::Failure, kept::Kept};
use trinity_lm::{
    Model,
    coding::Coding,
    weights::{Calibration, CodedWeights, code_weights},
};
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::PAPER_BASELINES;

/// What a sweep compares where nothing is named.
pub const CODECS: [&str; 12] = [
    "trinity",
    "h265",
    "h264",
    "rtn",
    "rtn-128g",
    "mxfp4",
    BEST_BASELINE,
    "uniform+ac",
    "hadamard/trinity",
    "hadamard/h265",
    "hadamard/h264",
    "hadamard/rtn",
];

/// Stands for whichever of [`PAPER_BASELINES`] leaves the least error at a rate.
pub const BEST_BASELINE: &str = "best-baseline";

/// The rate offered to a codec that has one of its own, above every target.
const ANY_RATE: f64 = 16.0;

/// Rates out of a list such as `2,2.5,3` or `2,2.25,…,4.5`.
pub fn rates(words: &[String]) -> Result<Vec<f64>, Failure> {
    let number = |word: &str| {
        word.trim().parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
            Failure::input(format_args!("--sweep: `{word}` is no number of bits per value"))
                .help("give rates as 2,2.5,3 or as 2,2.25,…,4.5")
        })
    };
    let mut rates: Vec<f64> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !["…", "..."].contains(&word.trim()) {
            rates.push(number(word)?);
            continue;
        }
        let ([.., before, last], Some(end)) = (rates.as_slice(), words.next()) else {
            return Err(Failure::input("--sweep: `…` stands between two rates and a last one")
                .help("such as 2,2.25,…,4.5"));
        };
        let (step, last, end) = (last - before, *last, number(end)?);
        if step <= 0.0 || end <= last || (end - last) / step > 1000.0 {
            return Err(Failure::input(format_args!("--sweep: steps of {step} do not lead to {end}")));
        }
        let steps = ((end - last) / step + 1e-9).floor() as usize;
        rates.extend((1..=steps).map(|count| last + step * count as f64));
    }
    Ok(rates)
}

pub fn run(
    args: &Args,
    rates: &[f64],
    bench: &Bench,
    first: Row,
    kept: &Kept<Row>,
    ctx: &Context,
) -> Result<Vec<Row>, Failure> {
    for name in args.codecs.iter().filter(|name| *name != BEST_BASELINE) {
        // A name nobody knows is found before hours are spent on the others.
        Coding::new(name, rates[0]).map_err(|e| Failure::input(format_args!("--codecs: {e}")))?;
    }
    let known = first.bits_per_byte;
    let mut rows = vec![first];
    let calibration = bench.calibration(args.allocation)?;
    let coder = Coder { bench, allocation: args.allocation, calibration: calibration.as_ref() };
    let earlier = |name: &str, is_wanted: &dyn Fn(f64) -> bool| {
        let own = |row: &&Row| {
            row.allocation.as_deref() == Some(&args.allocation.to_string())
                && row.point().is_some_and(|(own, rate)| own == name && is_wanted(rate))
        };
        kept.earlier().iter().find(own).cloned()
    };
    let progress = ctx.progress((args.codecs.len() * rates.len()) as u64, "sweeping");
    for name in &args.codecs {
        let mut out_of_reach = None;
        for &bits in rates {
            if let Some(row) = earlier(name, &|rate| rate == bits) {
                rows.push(row);
            } else {
                match coder.code(name, bits)? {
                    Ok(coded) => {
                        rows.push(coder.scored(name, bits, &coded, known)?);
                        kept.add(&rows[rows.len() - 1]);
                    }
                    Err(reason) => out_of_reach = Some((bits, reason)),
                }
            }
            progress.inc(1);
        }
        let Some((bits, reason)) = out_of_reach else { continue };
        if let Some(row) = earlier(name, &|rate| !rates.contains(&rate)) {
            rows.push(row);
            continue;
        }
        // A number format has one rate: its curve is that point, wherever it lies.
        match coder.code(name, ANY_RATE)?.ok().filter(|own| own.outcome.bits_per_value < ANY_RATE / 2.0) {
            Some(own) if rows.iter().any(|row| same_point(row, name, &own)) => {}
            Some(own) => {
                let rate = (own.outcome.bits_per_value * 100.0).round() / 100.0;
                rows.push(coder.scored(name, rate, &own, known)?);
                kept.add(&rows[rows.len() - 1]);
            }
            None => ctx.remark(format!("{name} does not reach {bits} bits per value: {reason}")),
        }
    }
    progress.finish_and_clear();
    Ok(rows)
}

fn same_point(row: &Row, name: &str, coded: &Coded) -> bool {
    row.point().is_some_and(|(own, _)| own == name)
        && row.weights_bits_per_value == Some(coded.outcome.bits_per_value)
}

/// A model whose weights went through a codec.
struct Coded {
    model: Model,
    outcome: CodedWeights,
    codec: String,
}

struct Coder<'a> {
    bench: &'a Bench,
    allocation: Allocation,
    calibration: Option<&'a Calibration>,
}

impl Coder<'_> {
    /// The coded model, or why a rate is out of a codec's reach.
    fn code(&self, name: &str, bits: f64) -> Result<Result<Coded, String>, Failure> {
        let names: &[&str] = if name == BEST_BASELINE { &PAPER_BASELINES } else { &[name] };
        let mut best: Result<Coded, String> = Err(String::new());
        for &codec in names {
            let coding =
                Coding::new(codec, bits).map_err(|e| Failure::input(format_args!("--sweep: {e}")))?;
            let mut model = self.bench.model.clone();
            match code_weights(&mut model, &coding, self.allocation, self.calibration) {
                Ok(outcome) => {
                    if best.as_ref().map_or(true, |best| outcome.nmse < best.outcome.nmse) {
                        best = Ok(Coded { model, outcome, codec: codec.to_owned() });
                    }
                }
                // A rate below a codec's least is a gap in its curve.
                Err(trinity_lm::Error::Hook { reason, .. }) => {
                    if let Err(said) = &mut best {
                        *said = reason;
                    }
                }
                Err(error) => return Err(failure(error)),
            }
        }
        Ok(best)
    }

    fn scored(&self, name: &str, bits: f64, coded: &Coded, baseline: f64) -> Result<Row, Failure> {
        let scored = trinity_lm::score(&coded.model, &self.bench.text, &trinity_lm::NoHooks, &|| ())
            .map_err(failure)?;
        let row = self.bench.row(&scored, baseline, None);
        Ok(Row {
            weights: Some(format!("{name}@{bits}")),
            codec: (coded.codec != name).then(|| coded.codec.clone()),
            allocation: Some(self.allocation.to_string()),
            weights_bits_per_value: Some(coded.outcome.bits_per_value),
            weights_nmse: Some(coded.outcome.nmse),
            weight_mib: self.bench.mib(coded.outcome.bits_per_value),
            ..row
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(String::from).collect()
    }

    #[test]
    fn rates_are_lists_or_progressions() {
        assert_eq!(rates(&words("2,2.5,3")).unwrap(), [2.0, 2.5, 3.0]);
        assert_eq!(rates(&words("2,2.5,…,4")).unwrap(), [2.0, 2.5, 3.0, 3.5, 4.0]);
        assert_eq!(rates(&words("1,2,...,4,8")).unwrap(), [1.0, 2.0, 3.0, 4.0, 8.0]);
        for bad in ["2,x", "…,3", "2,…,3", "2,1,…,3", "2,2.5,…", "-1", "2,2,…,4"] {
            assert!(rates(&words(bad)).is_err(), "{bad}");
        }
    }
}
