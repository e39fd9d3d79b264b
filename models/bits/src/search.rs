//! Meeting a target by whole attempts: what every rate search here shares.
//!
//! A setting is tried, judged, and remembered as the latest on its side of the
//! target; from both sides the next setting is chosen. How that choice is made
//! is each encoder's own (a curve over QPs differs from one over steps), and
//! decides which stream comes out, so it stays with the encoder. Knows neither
//! rates nor errors.

/// What one setting gave.
#[derive(Debug, Clone, Copy)]
pub struct Trial<R, T> {
    /// How far a setting went, in the unit that the choice of the next one reckons with.
    pub cost: f64,
    /// Whether it misses the target: too many bits, too much error.
    pub over: bool,
    /// Good enough to stop.
    pub close: bool,
    /// The least is kept, and the first of equals.
    pub rank: R,
    pub result: T,
}

/// What has been tried: the latest setting on either side of the target, with
/// its cost, and the latest of all.
#[derive(Debug, Clone, Copy)]
pub struct Tried<S> {
    pub under: Option<(S, f64)>,
    pub over: Option<(S, f64)>,
    pub last: (S, f64),
    pub count: usize,
}

/// The best trial's rank and result, and what was tried in all.
#[derive(Debug)]
pub struct Found<S, R, T> {
    pub best: Option<(R, T)>,
    pub tried: Tried<S>,
}

/// Tries `first`, then what `next` makes of the trials so far, until one is
/// close, `next` has no more or `most` have been made.
pub fn search<S: Copy, R: PartialOrd, T, E>(
    first: S,
    most: usize,
    mut attempt: impl FnMut(S) -> Result<Trial<R, T>, E>,
    mut next: impl FnMut(&Tried<S>) -> Option<S>,
) -> Result<Found<S, R, T>, E> {
    let mut best: Option<(R, T)> = None;
    let mut tried = Tried { under: None, over: None, last: (first, 0.0), count: 0 };
    while tried.count < most {
        let setting = tried.last.0;
        let trial = attempt(setting)?;
        tried.count += 1;
        tried.last.1 = trial.cost;
        *(if trial.over { &mut tried.over } else { &mut tried.under }) = Some(tried.last);
        if best.as_ref().is_none_or(|(least, _)| trial.rank < *least) {
            best = Some((trial.rank, trial.result));
        }
        if trial.close {
            break;
        }
        let Some(setting) = next(&tried) else { break };
        tried.last.0 = setting;
    }
    Ok(Found { best, tried })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Halves whatever is left of 0 to 100 for a cost that is the setting.
    fn halved(target: f64, most: usize) -> Found<f64, (bool, f64), f64> {
        let attempt = |setting: f64| -> Result<_, Infallible> {
            let off = (setting - target).abs();
            let over = setting > target;
            Ok(Trial { cost: setting, over, close: !over && off < 0.5, rank: (over, off), result: setting })
        };
        let next = |tried: &Tried<f64>| {
            let (low, high) = (tried.under.map_or(0.0, |t| t.0), tried.over.map_or(100.0, |t| t.0));
            (high - low > 1e-3).then_some((low + high) / 2.0)
        };
        let Ok(found) = search(50.0, most, attempt, next);
        found
    }

    #[test]
    fn what_is_close_ends_the_search_and_what_is_over_is_kept_only_without_better() {
        let found = halved(30.0, 40);
        let (rank, setting) = found.best.unwrap();
        assert!(!rank.0 && setting <= 30.0 && setting > 29.5, "{setting}");
        assert!(found.tried.count < 10);
        // One trial, over the target: better than nothing.
        assert_eq!(halved(30.0, 1).best.unwrap(), ((true, 20.0), 50.0));
        assert!(halved(30.0, 0).best.is_none());
        // No next setting ends it too.
        assert!(halved(-5.0, 1000).tried.count < 30);
    }
}
