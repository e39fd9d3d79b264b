//! One curve for each codec: bits per byte against bits per value of the weights.

use super::{Artefact, Evaluation, EvaluationRow};
use crate::{Error, Progress};
use trinity_lm::coding::Coding;
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::{PAPER_BASELINES, device_of};

/// What is compared where nothing is named.
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

/// Codecs of the weights, each at every rate.
#[derive(Debug, Clone)]
pub struct Curve {
    pub codecs: Vec<String>,
    /// Bits per value.
    pub rates: Vec<f64>,
    pub allocation: Allocation,
    /// Rows of an earlier run; a point among them is not computed again.
    pub earlier: Vec<EvaluationRow>,
    /// Compute nothing: a point that is not among them is out of its codec's reach.
    pub only_earlier: bool,
}

impl Evaluation {
    /// The points of `curve` after `first`, the model as it is. `keep` sees
    /// each new row as it is found. Fails where a codec is unknown or fails, or
    /// the work is no longer wanted.
    pub fn curve(
        &self,
        curve: &Curve,
        first: EvaluationRow,
        keep: &dyn Fn(&EvaluationRow),
        progress: &dyn Progress,
    ) -> Result<Vec<EvaluationRow>, Error> {
        curve.check()?;
        let known = first.bits_per_byte;
        let mut rows = vec![first];
        let coder = Coder { evaluation: self, allocation: curve.allocation };
        progress.begin((curve.codecs.len() * curve.rates.len()) as u64, "sweeping");
        for name in &curve.codecs {
            let mut out_of_reach = None;
            for &bits in &curve.rates {
                progress.check()?;
                if let Some(row) = self.known(curve, name, |rate| rate == bits)? {
                    rows.push(row);
                } else if curve.only_earlier {
                    out_of_reach = Some((bits, "no part has it".to_owned()));
                } else {
                    match coder.code(name, bits, progress)? {
                        Ok(coded) => {
                            rows.push(coder.scored(name, bits, &coded, known)?);
                            keep(&rows[rows.len() - 1]);
                        }
                        Err(reason) => out_of_reach = Some((bits, reason)),
                    }
                }
                progress.advance(1);
            }
            let Some((bits, reason)) = out_of_reach else { continue };
            if let Some(row) = self.known(curve, name, |rate| !curve.rates.contains(&rate))? {
                rows.push(row);
                continue;
            }
            if curve.only_earlier {
                progress.remark(&format!("{name} does not reach {bits} bits per value: {reason}"));
                continue;
            }
            // A number format has one rate: its curve is that point, wherever it lies.
            let own = coder.code(name, ANY_RATE, progress)?.ok();
            match own.filter(|own| own.artefact.bits_per_value < ANY_RATE / 2.0) {
                Some(own) if rows.iter().any(|row| same_point(row, name, &own)) => {}
                Some(own) => {
                    let rate = (own.artefact.bits_per_value * 100.0).round() / 100.0;
                    rows.push(coder.scored(name, rate, &own, known)?);
                    keep(&rows[rows.len() - 1]);
                }
                None => progress.remark(&format!("{name} does not reach {bits} bits per value: {reason}")),
            }
        }
        progress.end();
        Ok(rows)
    }
}

impl Curve {
    /// A name nobody knows is found before hours are spent on the others. Fails
    /// where a codec is unknown.
    pub fn check(&self) -> Result<(), Error> {
        for name in self.codecs.iter().filter(|name| *name != BEST_BASELINE) {
            for &rate in &self.rates {
                Coding::new(name, rate).map_err(|error| Error::input(error, ""))?;
            }
        }
        Ok(())
    }
}

impl Evaluation {
    /// A point of an earlier run that follows from the same as it would now.
    fn known(
        &self,
        curve: &Curve,
        name: &str,
        is_wanted: impl Fn(f64) -> bool,
    ) -> Result<Option<EvaluationRow>, Error> {
        for row in &curve.earlier {
            let Some((own, rate)) = row.point() else { continue };
            if own == name && is_wanted(rate) && row.key == self.point_key(name, rate, curve.allocation)? {
                return Ok(Some(row.clone()));
            }
        }
        Ok(None)
    }

    fn point_key(&self, name: &str, rate: f64, allocation: Allocation) -> Result<String, Error> {
        self.key(&format!("{name}@{rate} {allocation}"))
    }
}

fn same_point(row: &EvaluationRow, name: &str, coded: &Coded) -> bool {
    row.point().is_some_and(|(own, _)| own == name)
        && row.weights_bits_per_value == Some(coded.artefact.bits_per_value)
}

/// A model whose weights went through a codec.
struct Coded {
    artefact: Artefact,
    codec: String,
    allocation: Allocation,
}

/// Why a rate below a codec's least is a gap in its curve; any other error as it is.
fn out_of_reach(error: Error) -> Result<String, Error> {
    match error {
        Error::Model(trinity_lm::Error::Hook { reason, .. }) => Ok(reason),
        Error::Tensor { error: trinity_tensor::Error::Unreachable { reason, .. }, .. } => Ok(reason.into()),
        other => Err(other),
    }
}

struct Coder<'a> {
    evaluation: &'a Evaluation,
    allocation: Allocation,
}

impl Coder<'_> {
    /// The coded model, or why a rate is out of a codec's reach.
    fn code(&self, name: &str, bits: f64, progress: &dyn Progress) -> Result<Result<Coded, String>, Error> {
        let names: &[&str] = if name == BEST_BASELINE { &PAPER_BASELINES } else { &[name] };
        let mut best: Result<Coded, String> = Err(String::new());
        for &codec in names {
            let coding = Coding::new(codec, bits).map_err(|error| Error::input(error, ""))?;
            match self.evaluation.artefact(&coding, self.allocation, progress) {
                // A number format stands at its own rate, not at every one that was asked for.
                Ok(artefact) if coding.has_one_rate() && artefact.bits_per_value > bits => {
                    let own = artefact.bits_per_value;
                    best = best.map_err(|_| format!("it takes {own:.2}"));
                }
                Ok(artefact) => {
                    if best.as_ref().map_or(true, |best| artefact.nmse < best.artefact.nmse) {
                        let allocation = self.evaluation.shared(&coding, self.allocation);
                        best = Ok(Coded { artefact, codec: codec.to_owned(), allocation });
                    }
                }
                Err(error) => match out_of_reach(error) {
                    Ok(reason) => {
                        if let Err(said) = &mut best {
                            *said = reason;
                        }
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(best)
    }

    fn scored(&self, name: &str, bits: f64, coded: &Coded, baseline: f64) -> Result<EvaluationRow, Error> {
        let reference = self.evaluation.reference(&crate::Silent)?;
        let (model, text) = (&coded.artefact.model, &self.evaluation.text);
        let scored = trinity_lm::score_against(reference, model, text, &trinity_lm::NoHooks, &|| ())?;
        let row = self.evaluation.row(&scored, baseline, None);
        Ok(EvaluationRow {
            weights: Some(format!("{name}@{bits}")),
            codec: (coded.codec != name).then(|| coded.codec.clone()),
            allocation: Some(coded.allocation.to_string()),
            weights_bits_per_value: Some(coded.artefact.bits_per_value),
            weights_nmse: Some(coded.artefact.nmse),
            weight_mib: coded.artefact.bytes / f64::from(1 << 20),
            device: device_of(&coded.codec).into(),
            key: self.evaluation.point_key(name, bits, self.allocation)?,
            ..row
        })
    }
}
