//! Which way a cache goes through a codec: as it is, turned, or in a basis, for each layer's K and V.
//!
//! What a turn gains follows from small errors of tokens that have nothing to do with each other, on the text that it
//! was learned on. A few bits per value leave other errors. So each way is tried, at the rate that is asked for and on
//! a text that no way was learned on, and the one that leaves attention nearest to what it was is taken. Knows
//! nothing of codecs.

use crate::cache_moments::of_kind;
use crate::model::{Part, Workspace};
use crate::nearby;
use crate::{Error, Hooks, Model, NoHooks, Text, TokenRows};
use rayon::prelude::*;

/// Hooks of which one is asked for each layer's K, and one for its V.
#[derive(Debug)]
pub struct ChosenWays<H> {
    /// As it is first.
    ways: Vec<H>,
    /// By layer, of K and of V.
    chosen: Vec<[usize; 2]>,
}

const KINDS: [&str; 2] = ["k", "v"];

/// A way for a window's K or V alone.
struct Try {
    window: usize,
    kind: usize,
    way: usize,
}

impl<H: Hooks> ChosenWays<H> {
    /// Tries every way on a text, a layer after the other, each behind layers whose caches are as they were.
    pub fn measure(model: &Model, text: &Text, ways: Vec<H>) -> Result<Self, Error> {
        let mut residuals: Vec<Vec<f32>> =
            text.windows.iter().map(|window| model.embedded(&window.tokens)).collect();
        let workspace = || model.workspace(text.longest());
        let passed = |half: (usize, Part), residual: &[f32], work: &mut Workspace, hooks: &dyn Hooks| {
            let mut behind = residual.to_vec();
            model.pass(half, &mut behind, work, hooks)?;
            Ok::<_, Error>(behind)
        };
        // Of every window and of the model as it is.
        let all_passed = |half: (usize, Part), residuals: &[Vec<f32>]| {
            let pass = |work: &mut Workspace, own: &Vec<f32>| passed(half, own, work, &NoHooks);
            residuals.par_iter().map_init(workspace, pass).collect::<Result<Vec<_>, Error>>()
        };
        let kinds = (0..residuals.len()).flat_map(|window| (0..KINDS.len()).map(move |kind| (window, kind)));
        let each = |(window, kind)| (0..ways.len()).map(move |way| Try { window, kind, way });
        let tries: Vec<Try> = kinds.flat_map(each).collect();
        let mut chosen = Vec::new();
        for n in 0..model.config().num_hidden_layers {
            let behind = all_passed((n, Part::AttentionOut), &residuals)?;
            let moved = |work: &mut Workspace, &Try { window, kind, way }: &Try| {
                let only = Only { kind: KINDS[kind], hooks: &ways[way] };
                let now = passed((n, Part::AttentionOut), &residuals[window], work, &only)?;
                Ok(nearby::moved(&now, &behind[window], model.config().hidden_size))
            };
            let moved = tries.par_iter().map_init(workspace, moved).collect::<Result<Vec<f64>, Error>>()?;
            let sum = |kind: usize, way: usize| -> f64 {
                let own = tries.iter().zip(&moved).filter(|(at, _)| (at.kind, at.way) == (kind, way));
                own.map(|(_, moved)| moved).sum()
            };
            // The first of equals: what is as it is needs nothing shared ahead.
            let nearest = |kind: usize| {
                let nearer = |best, way| if sum(kind, way) < sum(kind, best) { way } else { best };
                (1..ways.len()).fold(0, nearer)
            };
            chosen.push([0, 1].map(nearest));
            residuals = all_passed((n, Part::FeedOut), &behind)?;
        }
        Ok(Self { ways, chosen })
    }

    /// For each layer which of the ways its K takes, and its V.
    pub fn chosen(&self) -> &[[usize; 2]] {
        &self.chosen
    }
}

/// Hooks of K, or of V, alone.
struct Only<'h> {
    kind: &'static str,
    hooks: &'h dyn Hooks,
}

impl Hooks for Only<'_> {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        if kind == self.kind { self.hooks.kv(layer, kind, matrix) } else { Ok(0) }
    }

    fn behind(&self) -> Option<&dyn Hooks> {
        Some(self.hooks)
    }
}

impl<H: Hooks> Hooks for ChosenWays<H> {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.ways[self.chosen[layer][of_kind(kind)]].kv(layer, kind, matrix)
    }

    fn behind(&self) -> Option<&dyn Hooks> {
        Some(&self.ways[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use trinity_numeric::random::Lcg;

    /// Adds noise of a size to K and V of a layer.
    struct Noise<F>(F);

    impl<F: Fn(usize, &str) -> f32 + Sync> Hooks for Noise<F> {
        fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
            let mut random = Lcg(7);
            let size = self.0(layer, kind);
            matrix.values.iter_mut().for_each(|value| *value += size * random.gaussian());
            Ok(0)
        }

        fn wants_kv(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_way_that_leaves_attention_nearest_is_taken_where_it_does_and_the_first_of_equals() {
        let (model, text) = builtin::case(256, 128);
        // Less noise in K of even layers and in V of odd ones, more in the others; the same in the last.
        let size = |way: usize| {
            move |layer: usize, kind: &str| match (layer % 2 == of_kind(kind), layer, way) {
                (_, 5, _) | (_, _, 0) => 0.1f32,
                (true, ..) => 0.09,
                (false, ..) => 0.11,
            }
        };
        let ways = vec![Noise(size(0)), Noise(size(1)), Noise(size(2))];
        let chosen = ChosenWays::measure(&model, &text, ways).unwrap();
        assert_eq!(chosen.chosen(), [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 0]]);
    }
}
