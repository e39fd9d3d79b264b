//! Weights through a codec before a run, each tensor with the bits an
//! [`Allocation`] gives it.

use crate::calibrate::Moments;
use crate::coding::Coding;
use crate::{Error, Model, NoHooks, Text, Weight, score};
use rayon::prelude::*;
use trinity_tensor::Class;
use trinity_tensor::allocate::{Allocation, Curve, allocate};

/// What coding the weights came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodedWeights {
    pub bits_per_value: f64,
    /// Squared error over energy, all weights together.
    pub nmse: f64,
}

/// What errors in a model's weights cost, on a text that need not be long.
/// Measured once for a model, whatever the codec.
#[derive(Debug, Clone)]
pub struct Calibration {
    text: Text,
    /// For each weight: bits per byte lost per unit of NMSE.
    sensitivities: Vec<f64>,
}

/// Bits of the rounding that a weight's sensitivity is measured with: coarse
/// enough to stand out, fine enough to leave the model one.
const PROBE_BITS: f64 = 3.0;
/// A weight that seems to cost nothing still gets this share of the average.
const LEAST_SHARE: f64 = 0.05;
/// How far sensitivities are trusted: as measured, and drawn towards their
/// mean, since losses at low rates are far from linear in error.
const TRUST: [f64; 3] = [0.25, 0.5, 1.0];
/// Standard errors, over windows, by which another allocation must beat equal
/// bits to be taken: a short text tells no smaller differences apart.
const CERTAINTY: f64 = 2.0;

impl Calibration {
    /// Rounds one weight at a time and scores what the model still knows.
    pub fn measure(model: &Model, text: &Text) -> Result<Self, Error> {
        let known = score(model, text, &NoHooks, &|| ())?.bits_per_byte;
        let weights = model.weights();
        let probe = Coding::new("rtn", PROBE_BITS)
            .map_err(|reason| Error::Hook { place: "calibration".into(), reason })?;
        let costs = (0..weights.len())
            .into_par_iter()
            .map(|index| {
                let mut changed = weights.clone();
                let weight = &mut changed[index];
                code(&probe, weight, PROBE_BITS)?;
                let nmse = relative_error(&weights[index].values, &weight.values);
                let mut model = model.clone();
                model.replace_weights(&changed)?;
                let lost = score(&model, text, &NoHooks, &|| ())?.bits_per_byte - known;
                Ok(lost.max(0.0) / nmse.max(f64::MIN_POSITIVE))
            })
            .collect::<Result<Vec<f64>, Error>>()?;
        let mean = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
        let least = (LEAST_SHARE * mean).max(f64::MIN_POSITIVE);
        let sensitivities = costs.iter().map(|cost| cost.max(least)).collect();
        Ok(Self { text: text.clone(), sensitivities })
    }

    /// The budgets that lose least on this text: equal bits, or equal slopes
    /// under more or less trust in the sensitivities.
    fn best_budgets(&self, model: &Model, weights: &[Weight], coding: &Coding) -> Result<Vec<f64>, Error> {
        let scores = |budgets: &[f64]| -> Result<Vec<f64>, Error> {
            let mut model = model.clone();
            replace(&mut model, weights, coding, budgets)?;
            let windows = self.text.windows.iter();
            windows
                .map(|window| {
                    let text = Text { windows: vec![window.clone()] };
                    Ok(score(&model, &text, &NoHooks, &|| ())?.bits_per_byte)
                })
                .collect()
        };
        let mut curves = curves(weights, coding)?;
        let equal = vec![coding.bits(); weights.len()];
        let equal_scores = scores(&equal)?;
        let mut best = (0.0, equal);
        for trust in TRUST {
            for (curve, sensitivity) in curves.iter_mut().zip(&self.sensitivities) {
                // A curve's cost is values × weight × NMSE; a sensitivity is for the whole tensor.
                curve.weight = (sensitivity / curve.values as f64).powf(trust);
            }
            let budgets = allocate(&curves, coding.bits(), Allocation::EqualSlope);
            let saved = certain_saving(&equal_scores, &scores(&budgets)?);
            if saved > best.0 {
                best = (saved, budgets);
            }
        }
        Ok(best.1)
    }
}

/// What is saved on average over windows, less [`CERTAINTY`] standard errors.
fn certain_saving(from: &[f64], to: &[f64]) -> f64 {
    let count = from.len() as f64;
    if from.len() < 2 {
        return 0.0;
    }
    let mean = from.iter().zip(to).map(|(a, b)| a - b).sum::<f64>() / count;
    let spread = from.iter().zip(to).map(|(a, b)| (a - b - mean).powi(2)).sum::<f64>();
    mean - CERTAINTY * (spread / (count * (count - 1.0))).sqrt()
}

/// Codes every linear weight of `model`; the average over all values is the
/// coding's bits. Equal slopes follow a calibration where there is one; without,
/// relative errors weigh alike: a linear layer's output is as wrong as its
/// weight is, whatever its scale.
pub fn code_weights(
    model: &mut Model,
    coding: &Coding,
    allocation: Allocation,
    calibration: Option<&Calibration>,
) -> Result<CodedWeights, Error> {
    let originals = model.weights();
    let budgets = match (allocation, calibration) {
        // Plain RTN has whole bits only, and equal shares need no curve.
        _ if !coding.is_divisible() => vec![coding.bits(); originals.len()],
        (Allocation::Equal, _) => vec![coding.bits(); originals.len()],
        (Allocation::EqualSlope, Some(calibration)) => calibration.best_budgets(model, &originals, coding)?,
        (allocation, _) => allocate(&curves(&originals, coding)?, coding.bits(), allocation),
    };
    replace(model, &originals, coding, &budgets)
}

/// Codes every linear weight of `model` at the coding's bits, weighing errors
/// by what each weight's inputs are worth where the codec can.
pub fn code_weights_calibrated(
    model: &mut Model,
    coding: &Coding,
    moments: &Moments,
) -> Result<CodedWeights, Error> {
    let originals = model.weights();
    put(model, &originals, |weight| {
        let known = moments.of(&weight.name);
        let spent = match known.filter(|known| known.inputs() == weight.cols) {
            Some(known) => coding.apply_calibrated(weight.rows, &mut weight.values, coding.bits(), known),
            None => Err("the calibration has no moments of its input".into()),
        };
        spent.map_err(|reason| Error::Hook { place: weight.name.clone(), reason })
    })
}

/// Puts weights into a model as a codec gives them back.
fn replace(
    model: &mut Model,
    originals: &[Weight],
    coding: &Coding,
    budgets: &[f64],
) -> Result<CodedWeights, Error> {
    let budget = |weight: &Weight| {
        let own = originals.iter().zip(budgets).find(|(original, _)| original.name == weight.name);
        own.map_or(coding.bits(), |(_, &bits)| bits)
    };
    put(model, originals, |weight| code(coding, weight, budget(weight)))
}

/// Puts weights into a model as `code` leaves them; it answers their bits.
fn put(
    model: &mut Model,
    originals: &[Weight],
    code: impl Fn(&mut Weight) -> Result<u64, Error> + Sync,
) -> Result<CodedWeights, Error> {
    let coded: Vec<(Weight, u64)> = originals
        .par_iter()
        .map(|weight| {
            let mut coded = weight.clone();
            let spent = code(&mut coded)?;
            Ok((coded, spent))
        })
        .collect::<Result<_, Error>>()?;
    let values: u64 = originals.iter().map(|w| w.values.len() as u64).sum();
    let spent: u64 = coded.iter().map(|c| c.1).sum();
    let (error, energy) = originals.iter().zip(&coded).fold((0.0, 0.0), |(error, energy), (a, (b, _))| {
        (error + squared_error(&a.values, &b.values), energy + squared(&a.values))
    });
    let weights: Vec<Weight> = coded.into_iter().map(|c| c.0).collect();
    model.replace_weights(&weights)?;
    Ok(CodedWeights {
        bits_per_value: spent as f64 / values.max(1) as f64,
        nmse: error / energy.max(f64::MIN_POSITIVE),
    })
}

fn code(coding: &Coding, weight: &mut Weight, bits: f64) -> Result<u64, Error> {
    coding
        .apply(Class::Weight, weight.rows, weight.cols, &mut weight.values, bits)
        .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })
}

fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x - y).powi(2)).sum()
}

fn squared(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v).powi(2)).sum()
}

fn relative_error(original: &[f32], coded: &[f32]) -> f64 {
    squared_error(original, coded) / squared(original).max(f64::MIN_POSITIVE)
}

/// Rates at which each tensor's error is measured, around the average.
const PROBES: [f64; 3] = [-1.0, 0.0, 1.0];
/// No tensor is probed below this: a codec's headers alone take about as much.
const LEAST_BITS: f64 = 0.5;

/// What each weight's relative error does with its bits.
fn curves(weights: &[Weight], coding: &Coding) -> Result<Vec<Curve>, Error> {
    weights
        .par_iter()
        .map(|original| {
            let mut points = Vec::new();
            for probe in PROBES {
                let mut coded = original.clone();
                let spent = code(coding, &mut coded, (coding.bits() + probe).max(LEAST_BITS))?;
                let nmse = relative_error(&original.values, &coded.values);
                points.push((spent as f64 / coded.values.len() as f64, nmse.max(1e-12)));
            }
            points.dedup_by(|a, b| a.0 - b.0 < 1e-6);
            let layer = original.name.split('.').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
            Ok(Curve { values: original.values.len(), weight: 1.0, layer, points })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_saving_in_nearly_every_window_is_certain() {
        assert!(certain_saving(&[2.0, 2.1, 1.9, 2.0], &[1.8, 1.9, 1.7, 1.9]) > 0.1);
        assert!(certain_saving(&[2.0, 2.1, 1.9, 2.0], &[1.0, 2.4, 2.2, 2.1]) < 0.0);
        // One window proves nothing.
        assert_eq!(certain_saving(&[2.0], &[1.0]), 0.0);
    }
}
