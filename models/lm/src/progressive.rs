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

/// Tokens from which on what channels have in common is taken for what it is, but for chance, and those from which on how large
/// they are is: with fewer a text is of one kind, and coding for it was seen to do harm (docs/language_models.md).
const ENOUGH_TOKENS: f32 = 8_192.0;
const ENOUGH_FOR_SIZES: f64 = 16_384.0;

/// Means over a text, of what linear layers read.
struct Seen {
    /// E[x̂ x̂ᵀ].
    moments: DMatrix<f32>,
    /// Where the model as it was is followed.
    behind: Option<Behind>,
    /// How much of the moments off the diagonal is chance.
    chance: f32,
    /// By how much the logarithms of those on the diagonal err, as variances.
    log_variances: Vec<f64>,
}

/// What the coded model is behind the model as it was.
enum Behind {
    /// E[(x − x̂) x̂ᵀ] of what layers read.
    Inputs(DMatrix<f32>),
    /// W E[(x − x̂) x̂ᵀ] + E[(r − r̂) x̂ᵀ] of the one layer that adds to the residual stream r.
    Outputs(DMatrix<f32>),
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

/// E[a x̂ᵀ] of windows of so many channels.
fn beside(a: &[Vec<f32>], channels: usize, coded: &[Stream], inputs: usize) -> DMatrix<f32> {
    let x: Vec<&[f32]> = coded.iter().map(|own| &own.reads[..]).collect();
    let tokens = x.iter().map(|own| own.len()).sum::<usize>() / inputs.max(1);
    outer_products(a, channels, &x, inputs) / tokens.max(1) as f32
}

/// Window by window, what the model as it was has more.
fn more(original: &[Stream], coded: &[Stream], what: fn(&Stream) -> &[f32]) -> Vec<Vec<f32>> {
    let windows = original.par_iter().zip(coded);
    windows.map(|(was, is)| what(was).iter().zip(what(is)).map(|(a, b)| a - b).collect()).collect()
}

/// The diagonal of E[(x − x̂) x̂ᵀ].
fn drift_of_each(original: &[Stream], coded: &[Stream], inputs: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; inputs];
    let mut tokens = 0usize;
    for (was, is) in original.iter().zip(coded) {
        for (was, is) in was.reads.chunks_exact(inputs).zip(is.reads.chunks_exact(inputs)) {
            let each = sums.iter_mut().zip(was.iter().zip(is));
            each.for_each(|(sum, (was, is))| *sum += f64::from((was - is) * is));
            tokens += 1;
        }
    }
    sums.iter().map(|sum| (sum / tokens.max(1) as f64) as f32).collect()
}

impl Seen {
    /// Over all windows of the model as it is coded.
    fn over(coded: &[Stream], inputs: usize) -> Self {
        let x: Vec<&[f32]> = coded.iter().map(|own| &own.reads[..]).collect();
        let tokens = x.iter().map(|own| own.len()).sum::<usize>() / inputs.max(1);
        let moments = second_moments(&x, inputs) / tokens.max(1) as f32;
        let chance = chance(&x, &moments).max(1.0 - tokens as f32 / ENOUGH_TOKENS);
        let missing = (ENOUGH_FOR_SIZES / tokens.max(1) as f64).max(1.0);
        let log_variances = log_variances(&x, inputs).into_iter().map(|own| own * missing).collect();
        Self { behind: None, chance, log_variances, moments }
    }

    /// Beside the model as it was, which reads what is to be coded. As much of what channels have in common is taken out
    /// as is chance: a short text says little of it, and next to nothing of what they have in common with the residual stream.
    fn behind_inputs(mut self, original: &[Stream], coded: &[Stream]) -> Self {
        let inputs = self.moments.nrows();
        let mut drift = beside(&more(original, coded, |own| &own.reads), inputs, coded, inputs);
        shrink(&mut drift, self.chance);
        shrink(&mut self.moments, self.chance);
        Self { behind: Some(Behind::Inputs(drift)), ..self }
    }

    /// As [`Seen::behind_inputs`], of the one layer that adds W x to the residual stream, which the model as it was has
    /// done: r + W x − r̂ is at hand, and of all channels less W x̂ is what is behind. E[(x − x̂) x̂ᵀ] as a whole,
    /// as large as the moments, need not be known; its diagonal, which chance does not touch, does.
    fn behind_outputs(mut self, [original, coded]: [&[Stream]; 2], weight: &Weight, bias: &[f32]) -> Self {
        let inputs = self.moments.nrows();
        let w = DMatrix::from_row_slice(weight.rows, weight.cols, &weight.values);
        let mut ahead = more(original, coded, |own| &own.residual);
        for row in ahead.iter_mut().flat_map(|own| own.chunks_exact_mut(weight.rows)) {
            row.iter_mut().zip(bias).for_each(|(own, bias)| *own -= bias);
        }
        let mut behind = beside(&ahead, weight.rows, coded, inputs) - &w * &self.moments;
        behind *= 1.0 - self.chance;
        for (input, drift) in drift_of_each(original, coded, inputs).into_iter().enumerate() {
            behind.column_mut(input).axpy(self.chance * drift, &w.column(input), 1.0);
        }
        shrink(&mut self.moments, self.chance);
        Self { behind: Some(Behind::Outputs(behind)), ..self }
    }

    /// What a weight is coded as.
    fn target(&self, weight: &Weight, factor: &Factor) -> Vec<f32> {
        let asked = match &self.behind {
            None => return weight.values.clone(),
            Some(Behind::Inputs(drift)) => {
                DMatrix::from_row_slice(weight.rows, weight.cols, &weight.values) * drift
            }
            Some(Behind::Outputs(behind)) => behind.clone(),
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
        // Quantizers of papers take moments as they come.
        let seen = is_coded.then(|| Seen::over(&is, original.part_inputs(n, part)));
        let ends_half = original.adds_as_it_is(n, part);
        let seen = match seen {
            Some(seen) if follows && !ends_half => Some(seen.behind_inputs(&was, &is)),
            seen => seen,
        };
        pass(original, &mut was, place);
        let seen = match (seen, &weights[..]) {
            (Some(seen), [weight]) if follows && ends_half => {
                let bias = original.part_bias(n, part);
                Some(seen.behind_outputs([&was, &is], weight, bias))
            }
            (seen, _) => seen,
        };
        // A weight alone keeps one thread: the model as it was, which waits for none, goes on meanwhile.
        let (coded, ahead) = rayon::join(
            || seen.map(|seen| code_part(&weights, seen, task, &mut accumulator)).transpose(),
            || places.get(at + 1).map_or(Ok(()), |&next| read(original, &mut was, next)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Linear;
    use trinity_numeric::{random::Lcg, tiles::Unit};

    #[test]
    fn what_is_behind_at_a_residual_stream_is_what_its_inputs_and_it_lack() {
        let (rows, inputs, tokens) = (6, 40, 96);
        let mut random = Lcg(7);
        let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| random.gaussian()).collect() };
        let weight = Weight { name: "w".into(), rows, cols: inputs, values: values(rows * inputs) };
        let bias = values(rows);
        let mut streams = || -> Vec<Stream> {
            (0..2)
                .map(|_| Stream { residual: values(tokens * rows), reads: values(tokens * inputs) })
                .collect()
        };
        let (mut was, mut is) = (streams(), streams());
        // Inputs that have much in common with what they were.
        for (was, is) in was.iter().zip(&mut is) {
            is.reads.iter_mut().zip(&was.reads).for_each(|(is, was)| *is = 0.2 * *is + was);
        }
        let lag = beside(&more(&was, &is, |own| &own.residual), rows, &is, inputs);
        let one = Seen::over(&is, inputs).behind_inputs(&was, &is);
        let w = DMatrix::from_row_slice(rows, inputs, &weight.values);
        let Some(Behind::Inputs(drift)) = &one.behind else { panic!("inputs are behind") };
        let plain = &w * drift + lag * (1.0 - one.chance);
        let linear = Linear::from_rows(rows, inputs, &weight.values).with_bias(bias.clone());
        was.iter_mut().for_each(|own| linear.apply(&own.reads, &mut own.residual, 1.0));
        let other = Seen::over(&is, inputs).behind_outputs([&was, &is], &weight, &bias);
        let Some(Behind::Outputs(found)) = &other.behind else { panic!("outputs are behind") };
        assert!(one.chance > 0.1, "chance takes its share");
        assert_eq!(one.moments, other.moments);
        let near = if Unit::get().is_some() { 0.05 } else { 1e-4 };
        assert!((&plain - found).amax() < near * plain.amax(), "{plain} and {found}");
    }
}
