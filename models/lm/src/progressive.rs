//! Weights coded layer after layer, each for what it reads once the layers
//! before it are coded, and with their errors made good as far as it can.
//!
//! Where the model as it was reads x and the coded one reads x̂, a weight W is
//! not coded as it is but as T = W + (W · E[(x − x̂) x̂ᵀ] + E[(r − r̂) x̂ᵀ]) · E[x̂ x̂ᵀ]⁻¹,
//! which brings T · x̂ nearest to W · x, and a layer that adds to the residual
//! stream r̂ brings that nearest to r. Knows which linear layers read the same;
//! how a codec weighs its error is [`crate::coding`]'s affair.

use crate::accumulator::{Accumulator, CodedWeights};
use crate::calibrate::{
    InputMoments, chance, damped, likely, log_variances, outer_products, second_moments, shrink,
};
use crate::cholesky::Factor;
use crate::coding::Coding;
use crate::keeper::Keeper;
use crate::model::{Part, Workspace};
use crate::{Error, Model, NoHooks, Text, Weight};
use nalgebra::DMatrix;
use rayon::prelude::*;

/// A window on its way through a model.
struct Stream {
    residual: Vec<f32>,
    /// What the linear layers that come next read.
    reads: Vec<f32>,
}

/// A window on its way through the model as it was, where that is followed, and as it is coded.
struct Pair {
    original: Option<Stream>,
    coded: Stream,
}

/// Tokens from which on what channels have in common is taken for what it is, but for chance: with fewer, coding for it
/// was seen to do harm (the tiny model's file at 3 bits, docs/language_models.md).
const ENOUGH_TOKENS: f32 = 16_384.0;

/// Means over a text, of what linear layers read.
struct Seen {
    /// E[x̂ x̂ᵀ].
    moments: DMatrix<f32>,
    /// E[(x − x̂) x̂ᵀ], where the model as it was is followed.
    drift: Option<DMatrix<f32>>,
    /// E[(r − r̂) x̂ᵀ], for a layer that adds to the residual stream.
    lag: Option<DMatrix<f32>>,
    /// How much of the moments off the diagonal is chance.
    chance: f32,
    /// By how much the logarithms of those on the diagonal err, as variances.
    log_variances: Vec<f64>,
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
        if let Some(own) = &mut self.original {
            own.reads = original.reads(n, part, &own.residual, work, &NoHooks)?;
        }
        self.coded.reads = coded.reads(n, part, &self.coded.residual, work, &NoHooks)?;
        Ok(())
    }

    /// Lets both go past `part` of layer `n`.
    fn pass(&mut self, (original, coded): (&Model, &Model), n: usize, part: Part) {
        let mut buffer = Vec::new();
        if let Some(own) = &mut self.original {
            original.add_output(n, part, &own.reads, &mut buffer, &mut own.residual);
        }
        coded.add_output(n, part, &self.coded.reads, &mut buffer, &mut self.coded.residual);
    }
}

impl Seen {
    /// Over all windows; `hidden` channels in a residual stream that is made good, none where
    /// it is not.
    fn over(pairs: &[Pair], inputs: usize, hidden: Option<usize>, tokens: usize) -> Self {
        let of = |what: &(dyn Fn(&Pair) -> Vec<f32> + Sync)| -> Vec<Vec<f32>> {
            pairs.par_iter().map(what).collect()
        };
        let followed = pairs.iter().all(|pair| pair.original.is_some());
        let behind = |what: fn(&Stream) -> &[f32]| {
            of(&|pair| pair.original.as_ref().map_or_else(Vec::new, |own| less(what(own), what(&pair.coded))))
        };
        let share = 1.0 / tokens.max(1) as f32;
        let x = of(&|pair| pair.coded.reads.clone());
        let drift = followed.then(|| outer_products(&behind(|own| &own.reads), inputs, &x, inputs) * share);
        let lag = hidden.filter(|_| followed);
        let lag = lag.map(|hidden| outer_products(&behind(|own| &own.residual), hidden, &x, inputs) * share);
        let moments = second_moments(&x, inputs) * share;
        let chance = chance(&x, &moments).max(1.0 - tokens as f32 / ENOUGH_TOKENS);
        Self { drift, lag, chance, log_variances: log_variances(&x, inputs), moments }
    }

    /// With as much of what channels have in common taken out as is chance: a short text says little of it, and
    /// next to nothing of what they have in common with the residual stream.
    fn shrunk(mut self) -> Self {
        shrink(&mut self.moments, self.chance);
        self.drift.iter_mut().for_each(|drift| shrink(drift, self.chance));
        self.lag = self.lag.map(|lag| lag * (1.0 - self.chance));
        self
    }

    /// What a weight is coded as.
    fn target(&self, weight: &Weight, factor: &Factor) -> Vec<f32> {
        let original = DMatrix::from_row_slice(weight.rows, weight.cols, &weight.values);
        let asked = self.drift.as_ref().map(|drift| original * drift);
        let asked = match (asked, &self.lag) {
            (Some(asked), Some(lag)) => asked + lag,
            (Some(asked), None) => asked,
            (None, _) => return weight.values.clone(),
        };
        let change = factor.solve(&asked.transpose().cast::<f64>());
        // A column of the solution is a row of the weight.
        weight.values.iter().zip(change.iter()).map(|(w, c)| w + *c as f32).collect()
    }
}

pub(crate) struct Task<'a> {
    pub coding: &'a Coding,
    pub text: &'a Text,
    /// Who codes weights, and keeps them.
    pub keeper: &'a dyn Keeper,
    /// The bits per value of a weight by name; none where it is kept as it is.
    pub budget: &'a (dyn Fn(&str) -> Option<f64> + Sync),
    /// Hears of values done.
    pub done: &'a dyn Fn(usize),
}

/// Codes every linear weight of `model` for what it reads on the text.
pub(crate) fn code(model: &mut Model, task: &Task<'_>) -> Result<CodedWeights, Error> {
    code_from(&model.clone(), model, task)
}

/// As [`code`], of a `model` whose embedding may differ from the original's already.
pub(crate) fn code_from(original: &Model, model: &mut Model, task: &Task<'_>) -> Result<CodedWeights, Error> {
    let Task { coding, text, .. } = task;
    let stream =
        |model: &Model, tokens: &[u32]| Stream { residual: model.embedded(tokens), reads: Vec::new() };
    let follows = coding.follows_inputs();
    let start = |tokens: &[u32]| Pair {
        original: follows.then(|| stream(original, tokens)),
        coded: stream(model, tokens),
    };
    let mut pairs: Vec<Pair> = text.windows.par_iter().map(|window| start(&window.tokens)).collect();
    let (tokens, longest) = (text.tokens(), text.longest());
    let mut accumulator = Accumulator::default();
    for n in 0..original.config().num_hidden_layers {
        for part in Part::ALL {
            let models = (original, &*model);
            pairs.par_iter_mut().try_for_each_init(
                || original.workspace(longest),
                |work, pair| pair.read(models, n, part, work),
            )?;
            let weights = original.part_weights(n, part);
            if weights.iter().any(|weight| (task.budget)(&weight.name).is_some()) {
                let makes_good = follows && original.adds_as_it_is(n, part);
                let hidden = makes_good.then_some(original.config().hidden_size);
                let seen = Seen::over(&pairs, original.part_inputs(n, part), hidden, tokens);
                let coded = code_part(&weights, seen, task, &mut accumulator)?;
                model.replace_part(n, part, &coded);
            }
            weights.iter().for_each(|weight| (task.done)(weight.values.len()));
            let models = (original, &*model);
            pairs.par_iter_mut().for_each(|pair| pair.pass(models, n, part));
        }
    }
    Ok(accumulator.into())
}

/// Codes weights that read the same.
fn code_part(
    weights: &[Weight],
    seen: Seen,
    task: &Task<'_>,
    accumulator: &mut Accumulator,
) -> Result<Vec<Weight>, Error> {
    let follows = task.coding.follows_inputs();
    // Quantizers of papers take moments as they come.
    let seen = if follows { seen.shrunk() } else { seen };
    let costs = if follows { likely(&seen.moments, &seen.log_variances) } else { seen.moments.clone() };
    let known = InputMoments::new(&costs);
    let factor = follows.then(|| Factor::new(damped(&seen.moments))).flatten();
    let code = |weight: &Weight| {
        let Some(bits) = (task.budget)(&weight.name) else { return Ok((weight.clone(), None)) };
        let values =
            factor.as_ref().map_or_else(|| weight.values.clone(), |factor| seen.target(weight, factor));
        let mut coded = Weight { values, ..weight.clone() };
        let spent = task.keeper.code(&mut coded, bits, Some(known));
        let spent = spent.map_err(|reason| Error::of_weight(weight, reason))?;
        Ok((coded, Some(spent)))
    };
    let coded = weights.par_iter().map(code).collect::<Result<Vec<(Weight, Option<u64>)>, Error>>()?;
    for (weight, (coded, spent)) in weights.iter().zip(&coded) {
        spent.iter().for_each(|spent| accumulator.add(&weight.values, &coded.values, *spent));
    }
    Ok(coded.into_iter().map(|(weight, _)| weight).collect())
}
