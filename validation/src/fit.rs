//! Deriving constants from rows: a pattern search over named constants.
//!
//! The objective is the mean over sets of (mean absolute error ÷ bar), so a
//! set counts by how far it is from what was promised, not by its size. A
//! pattern search needs no derivatives, takes the kinks of rooflines as they
//! are, and gives the same answer on every machine.

use trinity_study::config::software::Calibrations;

/// A constant that may move, and the constants as they are.
#[derive(Clone, Debug)]
struct Axis {
    path: String,
    low: f64,
    high: f64,
    /// Step as a fraction of the value.
    step: f64,
}

/// How far a fit goes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub rounds: usize,
    /// First step of each constant, as a fraction.
    pub first_step: f64,
}

impl Effort {
    /// A fit from scratch.
    pub const FULL: Self = Self { rounds: 60, first_step: 0.25 };
    /// A fit from constants that are nearly right, as a fold's are.
    pub const FOLD: Self = Self { rounds: 6, first_step: 0.04 };
    /// A fit a long way from constants that saw what is left out.
    pub const LEFT_OUT: Self = Self { rounds: 12, first_step: 0.2 };
}

/// Moves the constants at `paths` to where `objective` is least.
pub fn fit(
    start: &Calibrations,
    paths: &[&str],
    effort: Effort,
    objective: impl Fn(&Calibrations) -> f64,
) -> (Calibrations, f64) {
    let mut best = start.clone();
    let mut least = objective(&best);
    let mut axes: Vec<Axis> = paths
        .iter()
        .filter_map(|path| {
            let (low, high) = Calibrations::range(path)?;
            Some(Axis { path: (*path).to_owned(), low, high, step: effort.first_step })
        })
        .collect();
    for _ in 0..effort.rounds {
        let before = best.clone();
        let least_before = least;
        for axis in &mut axes {
            let improved = [1.0 + axis.step, 1.0 / (1.0 + axis.step)].into_iter().any(|factor| {
                let Some(trial) = moved(&best, axis, factor) else { return false };
                let value = objective(&trial);
                if value < least {
                    (best, least) = (trial, value);
                    return true;
                }
                false
            });
            axis.step = if improved { (axis.step * 1.3).min(0.5) } else { axis.step * 0.6 };
        }
        // Once more along the way the round went: constants trade against
        // each other, and valleys do not run along axes.
        if let Some(trial) = along(&before, &best, &axes) {
            let value = objective(&trial);
            if value < least {
                (best, least) = (trial, value);
            }
        }
        if axes.iter().all(|axis| axis.step < 5e-4) {
            break;
        }
        if least_before - least < 1e-7 {
            axes.iter_mut().for_each(|axis| axis.step *= 0.7);
        }
    }
    (best, least)
}

fn moved(from: &Calibrations, axis: &Axis, factor: f64) -> Option<Calibrations> {
    let mut trial = from.clone();
    let value = trial.get_mut(&axis.path)?;
    // A constant at zero needs a push to leave it.
    let floor = (axis.high - axis.low) * 1e-3;
    let next = if factor > 1.0 { value.max(floor) * factor } else { *value * factor };
    let next = next.clamp(axis.low, axis.high);
    if next == *value {
        return None;
    }
    *value = next;
    Some(trial)
}

fn along(before: &Calibrations, now: &Calibrations, axes: &[Axis]) -> Option<Calibrations> {
    let mut trial = now.clone();
    for axis in axes {
        let (old, new) = (before.get(&axis.path)?, now.get(&axis.path)?);
        *trial.get_mut(&axis.path)? = (2.0 * new - old).clamp(axis.low, axis.high);
    }
    (trial != *now).then_some(trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 2] = ["a100.gpu.gemm_efficiency", "a100.gpu.fp16_efficiency"];

    fn at(calibrations: &Calibrations) -> [f64; 2] {
        PATHS.map(|path| calibrations.get(path).unwrap())
    }

    /// A valley that runs across both axes, with its end inside their ranges.
    #[test]
    fn a_fit_finds_where_the_objective_is_least() {
        let start = Calibrations::load(&[]).unwrap();
        let valley = |calibrations: &Calibrations| {
            let [a, b] = at(calibrations);
            10.0 * (a + b - 1.3).powi(2) + (a - b - 0.1).powi(2)
        };
        let (found, least) = fit(&start, &PATHS, Effort::FULL, valley);
        let [a, b] = at(&found);
        assert!((a - 0.7).abs() < 0.02 && (b - 0.6).abs() < 0.02, "{a} {b}: {least}");
        assert_eq!(least, valley(&found));
        assert!(least < valley(&start));
        let (again, same) = fit(&start, &PATHS, Effort::FULL, valley);
        assert_eq!((at(&again), same), (at(&found), least), "the same on every run");
    }

    #[test]
    fn a_fit_leaves_no_range_and_moves_only_what_it_is_given() {
        let start = Calibrations::load(&[]).unwrap();
        let (found, _) = fit(&start, &PATHS[..1], Effort::FULL, |calibrations| -at(calibrations)[0]);
        let (_, high) = Calibrations::range(PATHS[0]).unwrap();
        assert_eq!(at(&found), [high, at(&start)[1]]);
        let (same, least) = fit(&start, &["a100.gpu.none_such"], Effort::FULL, |_| 7.0);
        assert!(same == start && least == 7.0, "a name that nothing has");
        let (same, _) = fit(&start, &PATHS, Effort::FOLD, |_| f64::NAN);
        assert!(same == start, "nothing is less than what is no number");
    }
}
