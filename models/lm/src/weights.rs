//! Weights through a codec before a run, each tensor with the bits an
//! [`Allocation`] gives it.

use crate::cache::CacheTurns;
use crate::calibrate::Moments;
use crate::coding::Coding;
use crate::nearby::Nearby;
pub use crate::progressive::Target;
use crate::progressive::Task;
pub use crate::tally::CodedWeights;
use crate::tally::{Tally, relative_error};
use crate::{Error, Model, NoHooks, Text, Weight, progressive, score};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use trinity_tensor::Class;
use trinity_tensor::allocate::{Allocation, Curve, allocate};

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

/// A text that tells what errors in a model's weights cost it.
#[derive(Debug)]
pub struct Calibrator {
    text: Text,
    /// Of the model as it is.
    moments: Moments,
    /// What each weight costs alone, once somebody asked.
    divergences: OnceLock<Vec<f64>>,
    turns: OnceLock<CacheTurns>,
}

/// Tokens at the start of windows, and windows, that divergences are taken of:
/// each weight takes a run over all of them.
const PROBE_TOKENS: usize = 512;
const PROBE_WINDOWS: usize = 2;
/// Bits per value from which on divergences are trusted as they are when bits are moved. The
/// coarser a code, the more of what a weight alone costs do layers after it make good, and
/// the less do costs add up: trust falls with the bits.
const TRUSTED_BITS: f64 = 4.0;

impl Calibrator {
    /// Runs the model over a text.
    pub fn measure(model: &Model, text: Text) -> Result<Self, Error> {
        let moments = Moments::measure(model, &text)?;
        Ok(Self { text, moments, divergences: OnceLock::new(), turns: OnceLock::new() })
    }

    /// Turns of K and V in which errors count alike.
    pub fn cache_turns(&self, model: &Model) -> Result<&CacheTurns, Error> {
        if let Some(known) = self.turns.get() {
            return Ok(known);
        }
        let measured = CacheTurns::measure(model, &self.text)?;
        Ok(self.turns.get_or_init(|| measured))
    }

    /// The KL divergence from the model as it is that each weight causes when
    /// it alone is coded at [`PROBE_BITS`].
    fn divergences(&self, model: &Model, coding: &Coding) -> Result<&[f64], Error> {
        if let Some(known) = self.divergences.get() {
            return Ok(known);
        }
        let text = self.text.beginnings(PROBE_WINDOWS, PROBE_TOKENS);
        let nearby = Nearby::measure(model, &text)?;
        let weights = model.weights();
        let probe = Coding::new(coding.name(), PROBE_BITS)
            .map_err(|reason| Error::Hook { place: "calibration".into(), reason })?;
        let layers = model.config().num_hidden_layers.max(1);
        let per_layer = weights.len().div_ceil(layers).max(1);
        // A copy of the model for each thread, and weights dealt to them: later ones take less.
        let threads = rayon::current_num_threads().max(1);
        let measured: Vec<Vec<f64>> = (0..threads)
            .into_par_iter()
            .map(|thread| {
                let (mut copy, mut work) = (model.clone(), model.workspace(PROBE_TOKENS));
                let own = weights.iter().enumerate().skip(thread).step_by(threads);
                own.map(|(at, weight)| {
                    let mut coded = weight.clone();
                    self.code(&probe, &mut coded, PROBE_BITS)?;
                    copy.replace_weight(&coded);
                    let moved = nearby.divergence(&copy, at / per_layer, &mut work);
                    copy.replace_weight(weight);
                    moved
                })
                .collect::<Result<_, Error>>()
            })
            .collect::<Result<_, Error>>()?;
        let measured = (0..weights.len()).map(|at| measured[at % threads][at / threads]).collect();
        Ok(self.divergences.get_or_init(|| measured))
    }

    /// The bits of each weight at which the next bit saves as much divergence
    /// everywhere, `coding`'s on average.
    fn budgets(&self, model: &Model, coding: &Coding) -> Result<BTreeMap<String, f64>, Error> {
        let divergences = self.divergences(model, coding)?;
        let mean = divergences.iter().sum::<f64>() / divergences.len().max(1) as f64;
        let least = (LEAST_SHARE * mean).max(f64::MIN_POSITIVE);
        let trust = (coding.bits() / TRUSTED_BITS).min(1.0);
        let weights = model.weights();
        let curve = |(weight, divergence): (&Weight, &f64)| Curve {
            values: weight.values.len(),
            weight: (divergence.max(least) / weight.values.len().max(1) as f64).powf(trust),
            layer: 0.0,
            points: vec![(coding.bits(), 1.0)],
        };
        let curves: Vec<Curve> = weights.iter().zip(divergences).map(curve).collect();
        let budgets = allocate(&curves, coding.bits(), Allocation::EqualSlope);
        Ok(weights.into_iter().map(|weight| weight.name).zip(budgets).collect())
    }

    /// Codes a weight for what it reads in the model as it is.
    fn code(&self, coding: &Coding, weight: &mut Weight, bits: f64) -> Result<u64, Error> {
        let known = self.moments.of(&weight.name);
        let spent = match known.filter(|known| known.inputs() == weight.cols) {
            Some(known) => coding.apply_calibrated(weight.rows, &mut weight.values, bits, known),
            None => Err("the calibration has no moments of its input".into()),
        };
        spent.map_err(|reason| Error::Hook { place: weight.name.clone(), reason })
    }
}

/// Codes every linear weight of `model` at the coding's bits on average,
/// weighing errors by what each weight's inputs are worth.
pub fn code_weights_calibrated(
    model: &mut Model,
    coding: &Coding,
    calibrator: &Calibrator,
) -> Result<CodedWeights, Error> {
    if !coding.is_progressive() {
        let originals = model.weights();
        return put(model, &originals, |weight| calibrator.code(coding, weight, coding.bits()));
    }
    let budgets =
        if coding.is_divisible() { calibrator.budgets(model, coding)? } else { BTreeMap::default() };
    let budget = |name: &str| budgets.get(name).copied().unwrap_or(coding.bits());
    let task = Task { coding, text: &calibrator.text, budget: &budget, scales_channels: true };
    progressive::code(model, &task, &mut |_| ())
}

/// What each linear weight of `model` is to be coded as, at how many bits, and what errors in
/// it cost, where the coding's bits are their average: all the same, or, with
/// `equal_slopes`, by what the next bit saves. `keep` sees one after the other.
///
/// # Errors
///
/// Where the codec takes no calibration, or fails.
pub fn calibrated_targets(
    model: &Model,
    coding: &Coding,
    text: &Text,
    equal_slopes: bool,
    keep: &mut dyn FnMut(Target),
) -> Result<(), Error> {
    if !coding.follows_inputs() {
        let reason = format!("{} takes no calibration", coding.name());
        return Err(Error::Hook { place: "calibration".into(), reason });
    }
    let budgets = if equal_slopes {
        Calibrator::measure(model, text.clone())?.budgets(model, coding)?
    } else {
        BTreeMap::default()
    };
    let budget = |name: &str| budgets.get(name).copied().unwrap_or(coding.bits());
    let task = Task { coding, text, budget: &budget, scales_channels: false };
    progressive::code(&mut model.clone(), &task, keep).map(|_| ())
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
    let mut tally = Tally::default();
    originals.iter().zip(&coded).for_each(|(a, (b, spent))| tally.add(&a.values, &b.values, *spent));
    let weights: Vec<Weight> = coded.into_iter().map(|c| c.0).collect();
    model.replace_weights(&weights)?;
    Ok(tally.into())
}

fn code(coding: &Coding, weight: &mut Weight, bits: f64) -> Result<u64, Error> {
    coding
        .apply(Class::Weight, weight.rows, weight.cols, &mut weight.values, bits)
        .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })
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
