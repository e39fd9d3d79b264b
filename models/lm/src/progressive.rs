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
use crate::model::Part;
use crate::{Error, Model, NoHooks, Text, Weight};
use nalgebra::DMatrix;
use rayon::prelude::*;

/// A window on its way through a model.
struct Stream {
    residual: Vec<f32>,
    /// What the linear layers that come next read.
    reads: Vec<f32>,
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

/// Lets windows go on to what `part` of layer `n` reads.
fn read(model: &Model, streams: &mut [Stream], (n, part): (usize, Part)) -> Result<(), Error> {
    let longest = streams.iter().map(|own| own.residual.len()).max().unwrap_or(0);
    let tokens = longest / model.config().hidden_size;
    streams.par_iter_mut().try_for_each_init(
        || model.workspace(tokens),
        |work, own| {
            own.reads = model.reads(n, part, &own.residual, work, &NoHooks)?;
            Ok(())
        },
    )
}

/// Lets windows go past `part` of layer `n`.
fn pass(model: &Model, streams: &mut [Stream], (n, part): (usize, Part)) {
    streams.par_iter_mut().for_each_init(Vec::new, |buffer, own| {
        model.add_output(n, part, &own.reads, buffer, &mut own.residual);
    });
}

impl Seen {
    /// Over all windows of the model as it is coded, and as it was where that is followed; `hidden` channels in a
    /// residual stream that is made good, none where it is not.
    fn over(original: &[Stream], coded: &[Stream], inputs: usize, hidden: Option<usize>) -> Self {
        let x: Vec<&[f32]> = coded.iter().map(|own| &own.reads[..]).collect();
        let tokens = x.iter().map(|own| own.len()).sum::<usize>() / inputs.max(1);
        let share = 1.0 / tokens.max(1) as f32;
        // What the model as it was has more, of so many channels, beside what the coded one reads.
        let beside = |what: fn(&Stream) -> &[f32], channels: usize| {
            let less = |(was, is): (&Stream, &Stream)| -> Vec<f32> {
                what(was).iter().zip(what(is)).map(|(a, b)| a - b).collect()
            };
            let less: Vec<Vec<f32>> = original.par_iter().zip(coded).map(less).collect();
            outer_products(&less, channels, &x, inputs) * share
        };
        let follows = !original.is_empty();
        let (moments, (drift, lag)) = rayon::join(
            || second_moments(&x, inputs) * share,
            || {
                rayon::join(
                    || follows.then(|| beside(|own| &own.reads, inputs)),
                    || hidden.filter(|_| follows).map(|hidden| beside(|own| &own.residual, hidden)),
                )
            },
        );
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
    pub done: &'a (dyn Fn(usize) + Sync),
}

/// Codes every linear weight of `model` for what it reads on the text.
pub(crate) fn code(model: &mut Model, task: &Task<'_>) -> Result<CodedWeights, Error> {
    code_from(&model.clone(), model, task)
}

/// As [`code`], of a `model` whose embedding may differ from the original's already.
pub(crate) fn code_from(original: &Model, model: &mut Model, task: &Task<'_>) -> Result<CodedWeights, Error> {
    let start = |model: &Model| -> Vec<Stream> {
        let windows = task.text.windows.par_iter();
        windows.map(|own| Stream { residual: model.embedded(&own.tokens), reads: Vec::new() }).collect()
    };
    let follows = task.coding.follows_inputs();
    let mut was = if follows { start(original) } else { Vec::new() };
    let mut is = start(model);
    let mut accumulator = Accumulator::default();
    let layers = 0..original.config().num_hidden_layers;
    let places: Vec<(usize, Part)> = layers.flat_map(|n| Part::ALL.map(|part| (n, part))).collect();
    if let Some(&first) = places.first() {
        read(original, &mut was, first)?;
    }
    for (at, &place) in places.iter().enumerate() {
        let (n, part) = place;
        read(model, &mut is, place)?;
        let weights = original.part_weights(n, part);
        let is_coded = weights.iter().any(|weight| (task.budget)(&weight.name).is_some());
        let hidden = original.adds_as_it_is(n, part).then_some(original.config().hidden_size);
        let seen = is_coded.then(|| Seen::over(&was, &is, original.part_inputs(n, part), hidden));
        // A weight alone keeps one thread: the model as it was, which waits for none, goes on meanwhile.
        let (coded, ahead) = rayon::join(
            || seen.map(|seen| code_part(&weights, seen, task, &mut accumulator)).transpose(),
            || {
                let Some(&next) = places.get(at + 1) else { return Ok(()) };
                pass(original, &mut was, place);
                read(original, &mut was, next)
            },
        );
        ahead?;
        if let Some(coded) = coded? {
            model.replace_part(n, part, &coded);
        }
        weights.iter().for_each(|weight| (task.done)(weight.values.len()));
        pass(model, &mut is, place);
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
        let spent = spent.map_err(|reason| Error::of_weight(&weight.name, reason))?;
        Ok((coded, Some(spent)))
    };
    let coded = weights.par_iter().map(code).collect::<Result<Vec<(Weight, Option<u64>)>, Error>>()?;
    for (weight, (coded, spent)) in weights.iter().zip(&coded) {
        spent.iter().for_each(|spent| accumulator.add(&weight.values, &coded.values, *spent));
    }
    Ok(coded.into_iter().map(|(weight, _)| weight).collect())
}
