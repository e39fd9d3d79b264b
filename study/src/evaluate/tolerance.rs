//! How large an error a model stands: the NMSE of one class of tensors at which
//! it has lost so many bits per byte, and no more.
//!
//! The error is a uniform quantizer's, the same for every codec that is held to
//! it later: what is looked for belongs to the class, not to a codec. Gradients
//! have no part in a forward pass, and so no such error.

use super::Evaluation;
use crate::{Error, Progress};
use serde::{Deserialize, Serialize};
use trinity_lm::coding::through;
use trinity_lm::{Hooks, Model, NoHooks, TokenRows};
use trinity_tensor::Class;
use trinity_tensor::codec::{Rate, TensorCodec, codec};

/// The codec whose error it is.
const QUANTIZER: &str = "uniform+ac";
/// Tokens coded together, and stages of a pipeline, as `eval` has them where
/// nothing else is said.
const BLOCK: usize = 256;
const STAGES: usize = 4;
/// Where the search begins.
const FIRST_NMSE: f64 = 0.01;
/// An error beyond which little of a tensor is left.
const MOST_NMSE: f64 = 0.5;
/// Runs of the model at most; each narrows the error down.
const RUNS: usize = 10;
/// A loss from this share of what was asked for up to it is near enough.
const NEAR: f64 = 0.9;

/// The model with one class at one error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub class: Class,
    pub nmse: f64,
    pub lost_bits_per_byte: f64,
    /// A hash of all that the row follows from.
    pub key: String,
}

/// Classes that a forward pass has.
pub const FORWARD: [Class; 3] = [Class::Weight, Class::KvCache, Class::Activation];

/// A class through the quantizer on its way.
struct AtError {
    codec: Box<dyn TensorCodec>,
    class: Class,
    target: Rate,
}

impl AtError {
    fn in_blocks(&self, matrix: TokenRows<'_>) -> Result<u64, String> {
        let cols = matrix.cols;
        matrix.values.chunks_mut(BLOCK * cols).try_fold(0, |bits, values| {
            let matrix = TokenRows { rows: values.len() / cols, cols, values };
            Ok(bits + through(self.codec.as_ref(), self.target, ("matrix", self.class), matrix)?)
        })
    }
}

impl Hooks for AtError {
    fn kv(&self, _: usize, _: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.in_blocks(matrix)
    }

    fn activation(&self, _: usize, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.in_blocks(matrix)
    }

    fn wants_kv(&self) -> bool {
        self.class == Class::KvCache
    }

    fn stages(&self) -> usize {
        if self.class == Class::Activation { STAGES } else { 1 }
    }
}

impl Evaluation {
    /// The largest NMSE of `class` at which the model loses no more than `loss`
    /// bits per byte, with what it does lose. `keep` sees each new run; one
    /// among `earlier` is not made again. Fails where the class has no part in
    /// a forward pass, no error is small enough, or the work is no longer
    /// wanted.
    pub fn tolerance(
        &self,
        class: Class,
        loss: f64,
        earlier: &[Probe],
        keep: &dyn Fn(&Probe),
        progress: &dyn Progress,
    ) -> Result<Probe, Error> {
        let (mut within, mut beyond): (Option<Probe>, Option<Probe>) = (None, None);
        let mut nmse = FIRST_NMSE;
        for _ in 0..RUNS {
            let key = self.key(&format!("tolerance {class} {QUANTIZER} {nmse:e}"))?;
            let known = earlier.iter().find(|probe| probe.key == key).cloned();
            let probe = match known {
                Some(probe) => probe,
                None => {
                    let lost_bits_per_byte = self.lost(class, nmse, progress)?;
                    let probe = Probe { class, nmse, lost_bits_per_byte, key };
                    keep(&probe);
                    probe
                }
            };
            let lost = probe.lost_bits_per_byte;
            if lost > loss {
                beyond = Some(probe);
            } else {
                let enough = lost >= NEAR * loss || nmse >= MOST_NMSE;
                within = Some(probe);
                if enough {
                    break;
                }
            }
            nmse = next(loss, within.as_ref(), beyond.as_ref());
        }
        within.ok_or_else(|| {
            let message =
                format!("no error of {class} tensors costs the model less than {loss} bits per byte");
            let help = "ask for a larger --loss; the model itself predicts a byte with about 2 bits";
            Error::input(message, help)
        })
    }

    /// Bits per byte that the model loses with one class at that error.
    fn lost(&self, class: Class, nmse: f64, progress: &dyn Progress) -> Result<f64, Error> {
        let failed = |error| Error::Tensor { subject: QUANTIZER.to_owned(), error };
        let codec = codec(QUANTIZER).map_err(failed)?;
        let target = Rate::Nmse(nmse);
        let what = format!("{class} at NMSE {nmse:.4}");
        let before = self.reference(progress)?.score.bits_per_byte;
        let scored = match class {
            Class::Weight => {
                let model = self.coded_at(codec.as_ref(), target)?;
                self.score_through(&model, &NoHooks, progress, &what)?
            }
            Class::KvCache | Class::Activation => {
                let hooks = AtError { codec, class, target };
                self.score_through(&self.model, &hooks, progress, &what)?
            }
            _ => {
                let message =
                    format!("{class} tensors have no part in a forward pass: no loss shows their error");
                return Err(Error::input(message, "give an --nmse"));
            }
        };
        Ok(scored.bits_per_byte - before)
    }

    /// The model with every linear weight at that error.
    fn coded_at(&self, codec: &dyn TensorCodec, target: Rate) -> Result<Model, Error> {
        let mut weights = self.model.weights();
        for weight in &mut weights {
            let matrix = TokenRows { rows: weight.rows, cols: weight.cols, values: &mut weight.values };
            through(codec, target, ("matrix", Class::Weight), matrix)
                .map_err(|reason| Error::input(format_args!("`{}`: {reason}", weight.name), ""))?;
        }
        let mut model = self.model.clone();
        model.replace_weights(&weights)?;
        Ok(model)
    }
}

/// The error to try next: losses grow about as errors do, and between one that
/// is within and one that is beyond lies the answer.
fn next(loss: f64, within: Option<&Probe>, beyond: Option<&Probe>) -> f64 {
    /// Aimed a little below what was asked for.
    const AIM: f64 = 0.95;
    let scaled = |probe: &Probe| probe.nmse * AIM * loss / probe.lost_bits_per_byte.max(loss / 10.0);
    match (within, beyond) {
        (Some(low), Some(high)) => {
            let guess = scaled(low);
            let inside = guess > low.nmse * 1.01 && guess < high.nmse * 0.99;
            if inside { guess } else { (low.nmse * high.nmse).sqrt() }
        }
        (Some(low), None) => scaled(low).min(MOST_NMSE),
        (None, Some(high)) => scaled(high).clamp(high.nmse / 100.0, high.nmse * 0.9),
        (None, None) => FIRST_NMSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::evaluate::EvaluationRequest;
    use std::cell::RefCell;

    #[test]
    fn an_error_is_found_at_which_the_model_loses_what_was_asked_for_and_kept() {
        let evaluation =
            Evaluation::open(&EvaluationRequest { windows: Some(1), ..EvaluationRequest::default() })
                .unwrap();
        let rows = RefCell::new(Vec::new());
        let keep = |probe: &Probe| rows.borrow_mut().push(probe.clone());
        let found = evaluation.tolerance(Class::KvCache, 0.05, &[], &keep, &Silent).unwrap();
        assert!((0.0..=0.05).contains(&found.lost_bits_per_byte), "{found:?}");
        let earlier = rows.into_inner();
        // Twice the error costs more than was asked for.
        let twice = evaluation.lost(Class::KvCache, 2.0 * found.nmse, &Silent).unwrap();
        assert!(twice > 0.05, "{found:?} {twice}");
        let never = |_: &Probe| panic!("measured again");
        assert_eq!(evaluation.tolerance(Class::KvCache, 0.05, &earlier, &never, &Silent).unwrap(), found);
        let refused = evaluation.tolerance(Class::WeightGradient, 0.05, &[], &keep_none, &Silent);
        assert!(refused.unwrap_err().to_string().contains("no part in a forward pass"));
    }

    fn keep_none(_: &Probe) {}

    #[test]
    fn the_next_error_lies_between_those_that_are_known() {
        let probe = |nmse, lost_bits_per_byte| Probe {
            class: Class::Weight,
            nmse,
            lost_bits_per_byte,
            key: String::new(),
        };
        let (low, high) = (probe(0.01, 0.001), probe(0.1, 0.5));
        let between = next(0.02, Some(&low), Some(&high));
        assert!(between > 0.01 && between < 0.1, "{between}");
        assert!(next(0.02, None, Some(&high)) < 0.1);
        assert_eq!(next(0.02, Some(&probe(0.4, -0.1)), None), MOST_NMSE);
    }
}
