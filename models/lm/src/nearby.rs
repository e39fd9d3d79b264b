//! How far predictions, and the residual stream behind half a layer, move when weights are changed a little.
//!
//! To second order the KL divergence is half of the variance, over the tokens that a model
//! holds likely, of what their logits gain. Some tokens drawn from each distribution tell
//! that variance, so that no head is multiplied for weights that were changed, and all
//! layers before them stay what they were. Knows nothing of codecs.

use crate::model::{LOGIT_ROWS, Part, Workspace};
use crate::{Error, Model, NoHooks, Text};
use nalgebra::{DMatrixView, DVector, DVectorView};
use rayon::prelude::*;

/// Tokens drawn from each distribution.
const DRAWN: usize = 32;

/// A model's predictions on a text, and how they move.
pub(crate) struct Nearby {
    windows: Vec<Window>,
    hidden_size: usize,
}

/// One window as the model left it.
struct Window {
    residuals: Vec<Vec<f32>>,
    hidden: Vec<f32>,
    /// For each prediction the rows of the head that were drawn, less their mean.
    drawn: Vec<f32>,
}

impl Nearby {
    pub fn measure(model: &Model, text: &Text) -> Result<Self, Error> {
        let hidden_size = model.config().hidden_size;
        let windows = text.windows.par_iter().map(|window| {
            let tokens = &window.tokens;
            let mut work = model.workspace(tokens.len());
            let mut residuals = Vec::new();
            model.forward_from(0, &model.embedded(tokens), &mut work, |own| residuals.push(own.to_vec()))?;
            let (hidden, logits) = work.hidden_and_logits();
            let hidden = hidden.to_vec();
            // Nothing follows the last token.
            let read = &hidden[..(tokens.len() - 1) * hidden_size];
            let drawn = read.chunks(LOGIT_ROWS * hidden_size).flat_map(|some| {
                let logits = model.logits(some, logits);
                let rows = logits.chunks_exact(model.config().vocab_size);
                rows.flat_map(|row| centred(model, &drawn(row))).collect::<Vec<f32>>()
            });
            Ok(Window { residuals, drawn: drawn.collect(), hidden })
        });
        Ok(Self { windows: windows.collect::<Result<_, Error>>()?, hidden_size })
    }

    /// The mean KL divergence, in nats, of a model whose layers before `layer` are the same.
    pub fn divergence(&self, changed: &Model, layer: usize, work: &mut Workspace) -> Result<f64, Error> {
        let (mut sum, mut count) = (0.0, 0);
        for Window { residuals, hidden, drawn } in &self.windows {
            changed.forward_from(layer, &residuals[layer], work, |_| ())?;
            let (now, _) = work.hidden_and_logits();
            let moved: Vec<f32> = now.iter().zip(hidden).map(|(a, b)| a - b).collect();
            let each = moved.chunks_exact(self.hidden_size).zip(drawn.chunks_exact(DRAWN * self.hidden_size));
            for (moved, drawn) in each {
                let drawn = DMatrixView::from_slice(drawn, self.hidden_size, DRAWN);
                let gained: DVector<f32> = drawn.tr_mul(&DVectorView::from_slice(moved, self.hidden_size));
                sum += f64::from(gained.norm_squared()) / (2 * DRAWN) as f64;
                count += 1;
            }
        }
        Ok(sum / count.max(1) as f64)
    }
}

/// One half of a layer, attention or what follows it: what weights in it do to the residual stream.
pub(crate) struct Half {
    layer: usize,
    /// The part whose output ends it.
    out: Part,
    /// The residual stream before and behind it, of each window.
    windows: Vec<(Vec<f32>, Vec<f32>)>,
    hidden_size: usize,
}

impl Nearby {
    /// The half of `layer` that the output of `out` ends, in the model as it was.
    pub fn half(&self, model: &Model, layer: usize, out: Part, work: &mut Workspace) -> Result<Half, Error> {
        let windows = self.windows.iter().map(|window| {
            let mut entry = window.residuals[layer].clone();
            if out == Part::FeedOut {
                model.pass((layer, Part::AttentionOut), &mut entry, work, &NoHooks)?;
            }
            let mut exit = entry.clone();
            model.pass((layer, out), &mut exit, work, &NoHooks)?;
            Ok((entry, exit))
        });
        Ok(Half {
            layer,
            out,
            windows: windows.collect::<Result<_, Error>>()?,
            hidden_size: self.hidden_size,
        })
    }
}

impl Half {
    /// How far a model whose weights differ in this half moves the residual stream.
    pub fn moved(&self, changed: &Model, work: &mut Workspace) -> Result<f64, Error> {
        let mut sum = 0.0;
        for (entry, exit) in &self.windows {
            let mut now = entry.clone();
            changed.pass((self.layer, self.out), &mut now, work, &NoHooks)?;
            sum += moved(&now, exit, self.hidden_size);
        }
        Ok(sum)
    }
}

/// How far a residual stream is from what it was: squares over those of what each token has, which is what the next
/// norm makes of them.
pub(crate) fn moved(now: &[f32], was: &[f32], hidden_size: usize) -> f64 {
    let tokens = now.chunks_exact(hidden_size).zip(was.chunks_exact(hidden_size));
    let of = |(now, was): (&[f32], &[f32])| {
        let moved: f32 = now.iter().zip(was).map(|(a, b)| (a - b).powi(2)).sum();
        let size: f32 = was.iter().map(|x| x * x).sum();
        f64::from(moved) / f64::from(size).max(f64::MIN_POSITIVE)
    };
    tokens.map(of).sum()
}

/// Tokens at equal distances of probability, so that each comes about as often as it is likely.
fn drawn(logits: &[f32]) -> [u32; DRAWN] {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let likely = |logit: &f32| f64::from((logit - top).exp());
    let all: f64 = logits.iter().map(likely).sum();
    let mut drawn = [0; DRAWN];
    let (mut count, mut below) = (0, 0.0);
    for (token, logit) in logits.iter().enumerate() {
        below += likely(logit);
        while count < DRAWN && (count as f64 + 0.5) * all < below * DRAWN as f64 {
            drawn[count] = token as u32;
            count += 1;
        }
    }
    drawn
}

/// Rows of the head less their mean.
fn centred(model: &Model, tokens: &[u32; DRAWN]) -> Vec<f32> {
    let size = model.config().hidden_size;
    let mut rows = vec![0.0; DRAWN * size];
    rows.chunks_exact_mut(size)
        .zip(tokens)
        .for_each(|(row, &token)| model.head.copy_row(token as usize, row));
    let mut mean = vec![0.0; size];
    for row in rows.chunks_exact(size) {
        mean.iter_mut().zip(row).for_each(|(mean, own)| *mean += own / DRAWN as f32);
    }
    for row in rows.chunks_exact_mut(size) {
        row.iter_mut().zip(&mean).for_each(|(own, mean)| *own -= mean);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reference, builtin, score_against};

    #[test]
    fn a_small_change_moves_predictions_as_far_as_their_divergence_says() {
        let (model, text) = builtin::case(4096, 256);
        let text = text.beginnings(2, 256);
        let (nearby, reference) =
            (Nearby::measure(&model, &text).unwrap(), Reference::measure(&model, &text, &|| ()).unwrap());
        let weights = model.weights();
        let per_layer = weights.len() / model.config().num_hidden_layers;
        for at in [0, 1, 6, weights.len() / 2, weights.len() - 1] {
            let mut weight = weights[at].clone();
            let largest = weight.values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            weight.values.iter_mut().for_each(|v| *v = (*v / largest * 15.0).round() * largest / 15.0);
            let mut changed = model.clone();
            changed.replace_weight(&weight);
            let mut work = model.workspace(256);
            let ours = nearby.divergence(&changed, at / per_layer, &mut work).unwrap();
            let exact = score_against(&reference, &changed, &text, &NoHooks, &|| ()).unwrap();
            let exact = exact.fidelity.unwrap().kl_nats;
            eprintln!("{}: {ours:.3e} nats, {exact:.3e} exactly", weight.name);
            assert!((ours / exact - 1.0).abs() < 0.25, "{}: {ours} against {exact}", weight.name);
            // A later layer than the one that was changed sees no change at all.
            if at / per_layer + 1 < model.config().num_hidden_layers {
                assert_eq!(nearby.divergence(&changed, at / per_layer + 1, &mut work).unwrap(), 0.0);
            }
        }
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let logits = [0.5f32.ln(), f32::NEG_INFINITY, 0.25f32.ln(), 0.25f32.ln()];
        let drawn = drawn(&logits);
        let count = |token: u32| drawn.iter().filter(|own| **own == token).count();
        assert_eq!([count(0), count(1), count(2), count(3)], [DRAWN / 2, 0, DRAWN / 4, DRAWN / 4]);
    }
}
