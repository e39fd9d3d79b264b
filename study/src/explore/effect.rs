//! What coding costs a model that is trained with it, as the recorded training
//! runs have it: the loss that is made up for by more tokens.
//!
//! A codec that sends a step in less time and needs more steps has gained less
//! than its time says. Knows recorded runs; nothing of clusters.

use super::recorded::Lost;
use crate::trained::{self, Run};

/// How fast the loss of the recorded uncoded runs falls with tokens at the end
/// of training: its relative change over that of tokens, from step 400 to 500
/// (`validation/data/training/curves.csv`, runs `none`).
pub const LOSS_PER_TOKENS: f64 = 0.207;

/// Recipes of coded gradients by their bits, fewest first: the line-rate codec over
/// the root of AdamW's second moment, 13 M parameters.
const GRADIENTS: [&str; 4] = ["t0.4-v", "t0.8-v", "t1.4-v", "t2.6-v"];
/// The recipe of coded pipelines: 3 bits for activations, 5 for their gradients.
const PIPELINE: &str = "pp-a3-g5-basis-rows";

impl Lost {
    /// The time that it takes to make up for the loss at a quantile of it, as a
    /// factor on speed. A model that came out better by chance is not counted on.
    pub fn factor(&self, quantile: f64) -> f64 {
        let lost = (self.mean + self.deviation * quantile).max(0.0);
        1.0 / (1.0 + lost / LOSS_PER_TOKENS)
    }
}

/// What gradients at so many bits cost: the recorded recipe of the most bits
/// that are no more than these.
pub(super) fn gradients(bits: f64) -> Option<Lost> {
    let runs = trained::recorded().ok()?;
    let of = |name: &str| runs.iter().find(|run| run.name == name).and_then(|run| run.weight_gradient_bits);
    let within = |name: &&&str| of(name).is_some_and(|own| own <= bits);
    let name = GRADIENTS.iter().rev().find(within).unwrap_or(&GRADIENTS[0]);
    lost(&runs, name, "none")
}

/// What coded activations and their gradients between stages cost.
pub(super) fn pipeline() -> Option<Lost> {
    lost(&trained::recorded().ok()?, PIPELINE, "pp-none")
}

fn lost(runs: &[Run], name: &str, uncoded: &str) -> Option<Lost> {
    let of = |name: &str, seed: u64| runs.iter().find(|run| run.name == name && run.seed == seed);
    let own = runs.iter().filter(|run| run.name == name);
    let pairs: Vec<f64> =
        own.filter_map(|run| Some(run.bits_per_byte / of(uncoded, run.seed)?.bits_per_byte - 1.0)).collect();
    let lost = Lost::of(&pairs);
    // One run says nothing of how runs differ; those of several seeds differ by about this.
    let deviation = if lost.seeds > 1 { lost.deviation } else { ONE_SEED };
    (lost.seeds > 0).then_some(Lost { deviation, ..lost })
}

/// The widest spread over seeds among the recorded recipes (`t0.8-v`).
const ONE_SEED: f64 = 0.0113;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_recording() {
        let few = gradients(0.5).unwrap();
        let enough = gradients(3.4).unwrap();
        assert!(few.mean > 0.05 && few.seeds == 1, "{few:?}");
        assert!(enough.mean < 0.0 && enough.seeds == 3, "{enough:?}");
        // docs/training.md: +0.93 ± 0.45 % over six seeds.
        let pipeline = pipeline().unwrap();
        assert!((pipeline.mean - 0.0093).abs() < 0.0005 && pipeline.seeds == 6, "{pipeline:?}");
    }

    #[test]
    fn what_was_lost_takes_time_and_what_was_won_by_chance_gives_none() {
        let lost = Lost { mean: 0.01, deviation: 0.005, seeds: 3 };
        assert!((lost.factor(0.0) - 1.0 / (1.0 + 0.01 / LOSS_PER_TOKENS)).abs() < 1e-12);
        assert_eq!(lost.factor(-4.0), 1.0);
        assert!(lost.factor(1.0) < lost.factor(0.0));
    }

    #[test]
    fn the_slope_of_the_loss_is_that_of_the_recorded_curves() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/training/curves.csv");
        let text = std::fs::read_to_string(path).unwrap();
        let loss = |seed: u32, step: u32| -> f64 {
            let begins = format!("none@{seed},{step},");
            let row = text.lines().find(|line| line.starts_with(&begins)).unwrap();
            row.rsplit(',').next().unwrap().parse().unwrap()
        };
        let slope = |seed| (loss(seed, 400) / loss(seed, 500)).ln() / (500.0_f64 / 400.0).ln();
        let mean = (slope(1) + slope(2) + slope(3)) / 3.0;
        assert!((mean - LOSS_PER_TOKENS).abs() < 0.01, "{mean}");
    }
}
