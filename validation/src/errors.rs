//! Errors by what a question is like: the table that answers quote from.

use crate::training;
use crate::validate::Truth;
use std::collections::BTreeMap;
use trinity_study::measured::{Measured, Question};

/// Mean absolute errors of the rows at hand, by question.
pub fn by_question(truth: &Truth) -> Vec<Measured> {
    let mut sums: BTreeMap<Question, (f64, usize)> = BTreeMap::new();
    for run in &truth.runs {
        let Some(file) = &run.file else { continue };
        let Ok((_, job)) = run.resolve(&truth.calibrations) else { continue };
        let question = Question::of(file, &job);
        let predicted = training::predict(&truth.calibrations, run);
        if let (Some(question), Some(measured), Ok(predicted)) = (question, run.seconds, predicted) {
            let sum = sums.entry(question).or_default();
            sum.0 += (predicted / measured - 1.0).abs();
            sum.1 += 1;
        }
    }
    let mean = |(question, (sum, rows)): (Question, (f64, usize))| Measured {
        question,
        rows,
        error: sum / rows as f64,
    };
    sums.into_iter().map(mean).collect()
}
