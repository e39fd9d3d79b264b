//! Errors by what a question is like: the table that answers quote from.
//!
//! Constants that were fitted to a row flatter it. So each row is predicted three
//! times: by the constants as they are, by constants fitted without its model,
//! and by constants fitted without its GPU.

use crate::fit::Effort;
use crate::runs::Run;
use crate::training::{self, FITTED, Family, Trait, family};
use crate::validate::Truth;
use std::collections::{BTreeMap, BTreeSet};
use trinity_study::config::software::Calibrations;
use trinity_study::measured::{Measured, Question};

/// Parts that a calibration's models are dealt out to; a fit leaves out those of one part.
const PARTS: usize = 8;

/// Mean absolute errors of the rows at hand, by question.
pub fn by_question(truth: &Truth) -> Vec<Measured> {
    let mut errors: BTreeMap<Question, Vec<[f64; 3]>> = BTreeMap::new();
    let unseen = Unseen::of(truth);
    for (at, run) in truth.runs.iter().enumerate() {
        let Some(file) = &run.file else { continue };
        let Ok((_, job)) = run.resolve(&truth.calibrations) else { continue };
        let question = Question::of(file, &job);
        if let (Some(question), Some(error)) = (question, error(&truth.calibrations, run)) {
            // A row that no fit may use is one that none has seen.
            let without_model = unseen.without_model.get(&at).copied().unwrap_or(error);
            // A calibration of one GPU and one source has no row without them.
            let without_gpu = unseen.without_gpu.get(&at).copied().unwrap_or(without_model);
            errors.entry(question).or_default().push([error, without_model, without_gpu]);
        }
    }
    let measured = |(question, errors): (Question, Vec<[f64; 3]>)| {
        let rows = errors.len();
        let mean = |kind: usize| errors.iter().map(|own| own[kind]).sum::<f64>() / rows as f64;
        Measured { question, rows, error: mean(0), model_left_out: mean(1), gpu_left_out: mean(2) }
    };
    errors.into_iter().map(measured).collect()
}

/// How far the seconds of a finished run are from what was measured.
fn error(calibrations: &Calibrations, run: &Run) -> Option<f64> {
    Some((training::predict(calibrations, run).ok()? / run.seconds? - 1.0).abs())
}

/// Errors of rows by constants that were fitted without them, by the rows' places.
#[derive(Default)]
struct Unseen {
    without_model: BTreeMap<usize, f64>,
    without_gpu: BTreeMap<usize, f64>,
}

impl Unseen {
    fn of(truth: &Truth) -> Self {
        let mut unseen = Self::default();
        for constants in &FITTED {
            let fitted = |run: &Run| !constants.runs(std::slice::from_ref(run)).is_empty();
            let own: Vec<(usize, &Run)> =
                truth.runs.iter().enumerate().filter(|(_, run)| fitted(run)).collect();
            let calibrations = &truth.calibrations;
            unseen.without_model.extend(left_out(constants, calibrations, &own, family));
            let dies: BTreeSet<&str> = own.iter().map(|(_, run)| die(run)).collect();
            let beside: Trait = if dies.len() > 1 { die } else { |run| run.set.name() };
            unseen.without_gpu.extend(left_out(constants, calibrations, &own, beside));
        }
        unseen
    }
}

/// The GPU without the size of its memory, which changes no time: `A100-40GB-SXM` is an `A100`.
fn die(run: &Run) -> &str {
    run.gpu.split('-').next().unwrap_or_default()
}

/// The error of each row by constants fitted on the rows of other parts, where all rows that share a
/// trait are in one part.
fn left_out(
    constants: &Family,
    start: &Calibrations,
    runs: &[(usize, &Run)],
    of: Trait,
) -> BTreeMap<usize, f64> {
    let values: BTreeSet<&str> = runs.iter().map(|(_, run)| of(run)).collect();
    let parts: BTreeMap<&str, usize> =
        values.into_iter().enumerate().map(|(at, value)| (value, at % PARTS)).collect();
    let mut errors = BTreeMap::new();
    for part in 0..PARTS.min(parts.len()) {
        let within = |run: &Run| parts.get(of(run)) == Some(&part);
        let rest: Vec<&Run> = runs.iter().map(|(_, run)| *run).filter(|run| !within(run)).collect();
        if rest.is_empty() {
            continue;
        }
        let fitted = training::refit(constants, start, &rest, Effort::LEFT_OUT);
        let out = runs.iter().filter(|(_, run)| within(run));
        errors.extend(out.filter_map(|(at, run)| Some((*at, error(&fitted, run)?))));
    }
    errors
}
