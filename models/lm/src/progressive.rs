//! Weights coded layer after layer, each for what it reads once the layers
//! before it are coded, and with their errors made good as far as it can.
//!
//! Where the model as it was reads x and the coded one reads x̂, a weight W is
//! not coded as it is but as T = W + (W · E[(x − x̂) x̂ᵀ] + E[(r − r̂) x̂ᵀ]) · E[x̂ x̂ᵀ]⁻¹,
//! which brings T · x̂ nearest to W · x, and a layer that adds to the residual
//! stream r̂ brings that nearest to r. Knows which linear layers read the same;
//! how a codec weighs its error is [`crate::coding`]'s affair.

use crate::accumulator::{Accumulator, CodedWeights};
use crate::calibrate::{InputMoments, chance, damped, outer_products, second_moments, shrink};
use crate::cholesky::Factor;
use crate::coding::Coding;
use crate::model::{Part, Workspace};
use crate::{Error, Model, Text, Weight};
use nalgebra::DMatrix;
use rayon::prelude::*;
use std::sync::Arc;

/// A window on its way through a model.
struct Stream {
    residual: Vec<f32>,
    /// What the linear layers that come next read.
    reads: Vec<f32>,
}

/// A window on its way through the model as it was and as it is coded.
struct Pair {
    original: Stream,
    coded: Stream,
}

/// Tokens from which on what channels have in common is taken for what it is, but for chance: with fewer, coding for it
/// was seen to do harm (the tiny model's file at 3 bits, docs/language_models.md).
const ENOUGH_TOKENS: f32 = 16_384.0;

/// Means over a text, of what linear layers read.
struct Seen {
    /// E[x̂ x̂ᵀ].
    moments: DMatrix<f32>,
    /// E[(x − x̂) x̂ᵀ].
    drift: DMatrix<f32>,
    /// E[(r − r̂) x̂ᵀ], for a layer that adds to the residual stream.
    lag: Option<DMatrix<f32>>,
    /// How much of the moments off the diagonal is chance.
    chance: f32,
}

fn less(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

impl Pair {
    /// Lets both go on to what `part` of layer `n` reads.
    fn read(
        &mut self,
        (original, coded): (&Model, &Model),
        n: usize,
        part: Part,
        work: &mut Workspace,
    ) -> Result<(), Error> {
        self.original.reads = original.reads(n, part, &self.original.residual, work)?;
        self.coded.reads = coded.reads(n, part, &self.coded.residual, work)?;
        Ok(())
    }

    /// Lets both go past `part` of layer `n`.
    fn pass(&mut self, (original, coded): (&Model, &Model), n: usize, part: Part) {
        let mut buffer = Vec::new();
        original.add_output(n, part, &self.original.reads, &mut buffer, &mut self.original.residual);
        coded.add_output(n, part, &self.coded.reads, &mut buffer, &mut self.coded.residual);
    }
}

impl Seen {
    /// Over all windows; `hidden` channels in a residual stream that is made good, none where
    /// it is not.
    fn over(pairs: &[Pair], inputs: usize, hidden: Option<usize>, tokens: usize) -> Self {
        let of = |what: fn(&Pair) -> Vec<f32>| -> Vec<Vec<f32>> { pairs.par_iter().map(what).collect() };
        let x = of(|pair| pair.coded.reads.clone());
        let drift = of(|pair| less(&pair.original.reads, &pair.coded.reads));
        let lag = hidden.map(|hidden| {
            let lag = of(|pair| less(&pair.original.residual, &pair.coded.residual));
            outer_products(&lag, hidden, &x, inputs)
        });
        let share = 1.0 / tokens.max(1) as f32;
        let moments = second_moments(&x, inputs) * share;
        Self {
            drift: outer_products(&drift, inputs, &x, inputs) * share,
            lag: lag.map(|lag| lag * share),
            chance: chance(&x, &moments).max(1.0 - tokens as f32 / ENOUGH_TOKENS),
            moments,
        }
    }

    /// With as much of what channels have in common taken out as is chance: a short text says little of it, and
    /// next to nothing of what they have in common with the residual stream.
    fn shrunk(mut self) -> Self {
        shrink(&mut self.moments, self.chance);
        shrink(&mut self.drift, self.chance);
        self.lag = self.lag.map(|lag| lag * (1.0 - self.chance));
        self
    }

    /// What a weight is coded as.
    fn target(&self, weight: &Weight, factor: &Factor) -> Vec<f32> {
        let original = DMatrix::from_row_slice(weight.rows, weight.cols, &weight.values);
        let mut asked = original * &self.drift;
        if let Some(lag) = &self.lag {
            asked += lag;
        }
        let change = factor.solve(&asked.transpose().cast::<f64>());
        // A column of the solution is a row of the weight.
        weight.values.iter().zip(change.iter()).map(|(w, c)| w + *c as f32).collect()
    }
}

/// What a weight is coded as, and what errors in it cost.
#[derive(Debug, Clone)]
pub struct Target {
    /// `layers.3.q_proj.weight`.
    pub weight: String,
    /// Row by row.
    pub values: Vec<f32>,
    /// Bits per value.
    pub bits: f64,
    /// Second moments of what it reads, columns × columns.
    pub moments: Arc<Vec<f32>>,
}

/// How weights are coded.
pub(crate) struct Task<'a> {
    pub coding: &'a Coding,
    pub text: &'a Text,
    /// The bits per value of a weight by name.
    pub budget: &'a (dyn Fn(&str) -> f64 + Sync),
    /// Whether norms may take scales of channels: not where they are stored apart.
    pub scales_channels: bool,
}

/// Codes every linear weight of `model` for what it reads on the text; `keep`
/// sees what each was coded as.
pub(crate) fn code(
    model: &mut Model,
    task: &Task<'_>,
    keep: &mut dyn FnMut(Target),
) -> Result<CodedWeights, Error> {
    code_from(&model.clone(), model, task, keep)
}

/// As [`code`], of a `model` whose embedding may differ from the original's already.
pub(crate) fn code_from(
    original: &Model,
    model: &mut Model,
    task: &Task<'_>,
    keep: &mut dyn FnMut(Target),
) -> Result<CodedWeights, Error> {
    let Task { coding, text, .. } = task;
    let stream =
        |model: &Model, tokens: &[u32]| Stream { residual: model.embedded(tokens), reads: Vec::new() };
    let start = |tokens: &[u32]| Pair { original: stream(original, tokens), coded: stream(model, tokens) };
    let mut pairs: Vec<Pair> = text.windows.iter().map(|window| start(&window.tokens)).collect();
    let tokens: usize = text.windows.iter().map(|window| window.tokens.len()).sum();
    let longest = text.windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0);
    let mut accumulator = Accumulator::default();
    for n in 0..original.config().num_hidden_layers {
        for part in Part::ALL {
            let models = (original, &*model);
            pairs.par_iter_mut().try_for_each_init(
                || original.workspace(longest),
                |work, pair| pair.read(models, n, part, work),
            )?;
            let weights = original.part_weights(n, part);
            let inputs = original.part_inputs(n, part);
            let makes_good = coding.follows_inputs() && original.adds_as_it_is(n, part);
            let hidden = makes_good.then_some(original.config().hidden_size);
            let seen = Seen::over(&pairs, inputs, hidden, tokens);
            // Quantizers of papers take moments as they come.
            let seen = if coding.follows_inputs() { seen.shrunk() } else { seen };
            let known = InputMoments::new(&seen.moments, task.scales_channels && part.is_after_norm());
            let factor = coding.follows_inputs().then(|| Factor::new(damped(&seen.moments))).flatten();
            let targets: Vec<Vec<f32>> = weights
                .par_iter()
                .map(|weight| match &factor {
                    Some(factor) => seen.target(weight, factor),
                    None => weight.values.clone(),
                })
                .collect();
            let coded = weights
                .par_iter()
                .zip(&targets)
                .map(|(weight, target)| {
                    let mut coded = Weight { values: target.clone(), ..weight.clone() };
                    let bits = (task.budget)(&weight.name);
                    let spent = coding
                        .apply_calibrated(weight.rows, &mut coded.values, bits, known)
                        .map_err(|reason| Error::Hook { place: weight.name.clone(), reason })?;
                    Ok((coded, spent))
                })
                .collect::<Result<Vec<(Weight, u64)>, Error>>()?;
            weights.iter().zip(&coded).for_each(|(weight, (coded, spent))| {
                accumulator.add(&weight.values, &coded.values, *spent);
            });
            let moments = Arc::new(seen.moments.as_slice().to_vec());
            for (weight, values) in weights.iter().zip(targets) {
                let bits = (task.budget)(&weight.name);
                keep(Target { weight: weight.name.clone(), values, bits, moments: moments.clone() });
            }
            let coded: Vec<Weight> = coded.into_iter().map(|(weight, _)| weight).collect();
            model.replace_part(n, part, &coded);
            let models = (original, &*model);
            pairs.par_iter_mut().for_each(|pair| pair.pass(models, n, part));
        }
    }
    Ok(accumulator.into())
}
