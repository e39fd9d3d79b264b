//! What the answer rests on: how far a link, the bits or the budget may move
//! until another codec is the best, and what each assumption does to it.

use super::contest::{Change, Contest};
use super::ranking::WinningInterval;
use crate::{Error, Progress};
use serde::Serialize;

/// How far something may move while the best stays the best.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    pub what: String,
    /// The path that is moved; none of bits.
    pub path: Option<String>,
    /// As it is.
    pub value: Option<f64>,
    pub unit: &'static str,
    /// The nearest factors, below and above 1, at which another is best.
    pub below: Option<Turn>,
    pub above: Option<Turn>,
    /// The factors that were tried.
    pub from: f64,
    pub to: f64,
}

/// A factor, and who is best beyond it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    pub factor: f64,
    pub scenario: String,
}

/// The answer with one assumption at each end of its range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AssumptionSensitivity {
    pub assumption: String,
    pub low: End,
    pub high: End,
}

/// The answer at one end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct End {
    pub value: String,
    /// Who is best there; nobody where nothing fits or runs.
    pub best: Option<String>,
    /// What was best, over what has no codec.
    pub over_baseline: Option<f64>,
}

impl AssumptionSensitivity {
    /// How far the gain over the baseline moves.
    pub fn width(&self) -> f64 {
        match (self.low.over_baseline, self.high.over_baseline) {
            (Some(low), Some(high)) => (high - low).abs(),
            _ => 0.0,
        }
    }
}

/// Links and budgets are tried up to so many times as large, and as small.
const FARTHEST: f64 = 16.0;
const SLOWER: [f64; 4] = [0.5, 0.25, 0.125, 1.0 / FARTHEST];
const FASTER: [f64; 4] = [2.0, 4.0, 8.0, FARTHEST];
/// Bits are tried up to so many times as many.
const MOST_BITS: f64 = 2.0;
/// Halvings of the interval in which the best changes: to about 1 %.
const HALVINGS: u32 = 5;

/// How far links and bits may move.
pub(super) fn limits(
    contest: &Contest<'_>,
    best: &str,
    progress: &dyn Progress,
) -> Result<Vec<Limit>, Error> {
    let mut limits = Vec::new();
    let links = contest.baseline_study.links();
    progress.begin(links.len() as u64 + 1, "looking for where the answer turns");
    for (what, path, gbit_per_s) in links {
        let at = |factor: f64| Change {
            set: Some(format!("{path}={} Gbit/s", gbit_per_s * factor)),
            ..Change::default()
        };
        let probe = Probe { contest, best, change: &at, progress };
        // A link that nothing goes over moves nothing.
        if probe.matters()? {
            limits.push(Limit {
                what: what.into(),
                path: Some(path.into()),
                value: Some(gbit_per_s),
                unit: "Gbit/s",
                below: probe.turn(&SLOWER)?,
                above: probe.turn(&FASTER)?,
                from: 1.0 / FARTHEST,
                to: FARTHEST,
            });
        }
        progress.advance(1);
    }
    if best != contest.baseline_study.baseline {
        let at = |factor: f64| Change { bits: Some((Some(best.to_owned()), factor)), ..Change::default() };
        let probe = Probe { contest, best, change: &at, progress };
        limits.push(Limit {
            what: format!("bits of {best}"),
            path: None,
            value: None,
            unit: "",
            below: None,
            above: probe.turn(&[1.1, 1.25, 1.5, MOST_BITS])?,
            from: 1.0,
            to: MOST_BITS,
        });
    }
    progress.end();
    Ok(limits)
}

/// Who is best at which budget, around the one that was asked for: `best`, and
/// who takes over where another does. Nothing without a budget.
pub(super) fn winning_intervals(
    contest: &Contest<'_>,
    best: &str,
    progress: &dyn Progress,
) -> Result<Vec<WinningInterval>, Error> {
    let Some(budget) = contest.baseline_study.budget_mm2 else { return Ok(Vec::new()) };
    let at = |factor: f64| Change { budget: Some(factor), ..Change::default() };
    let probe = Probe { contest, best, change: &at, progress };
    let (below, above) = (probe.turn(&SLOWER)?, probe.turn(&FASTER)?);
    let winning = |scenario: &str, from: f64, to: f64| WinningInterval {
        scenario: scenario.to_owned(),
        from_mm2: budget * from,
        to_mm2: Some(budget * to),
    };
    let fits = |factor: &f64| contest.moved(&at(*factor)).is_some();
    let least = SLOWER.into_iter().take_while(fits).last().unwrap_or(1.0);
    let from = below.as_ref().map_or(least, |turn| turn.factor);
    let to = above.as_ref().map_or(FARTHEST, |turn| turn.factor);
    let mut winning_intervals: Vec<WinningInterval> =
        below.iter().map(|turn| winning(&turn.scenario, least.min(from), from)).collect();
    winning_intervals.push(winning(best, from, to));
    winning_intervals.extend(above.iter().map(|turn| winning(&turn.scenario, to, FARTHEST)));
    Ok(winning_intervals)
}

struct Probe<'a> {
    contest: &'a Contest<'a>,
    best: &'a str,
    change: &'a dyn Fn(f64) -> Change,
    progress: &'a dyn Progress,
}

impl Probe<'_> {
    /// Whether moving it to either end moves anything.
    fn matters(&self) -> Result<bool, Error> {
        self.progress.check()?;
        let at = |factor| self.contest.moved(&(self.change)(factor));
        Ok(at(1.0 / FARTHEST) != at(FARTHEST))
    }

    /// Who is best at a factor, where that is another.
    fn other(&self, factor: f64) -> Result<Option<String>, Error> {
        self.progress.check()?;
        let Some(merits) = self.contest.moved(&(self.change)(factor)) else { return Ok(None) };
        Ok(self.contest.instead(self.best, &merits).map(str::to_owned))
    }

    /// The factor nearest to 1 along `factors` at which another is best.
    fn turn(&self, factors: &[f64]) -> Result<Option<Turn>, Error> {
        let mut same = 1.0_f64;
        for &factor in factors {
            let Some(mut scenario) = self.other(factor)? else {
                same = factor;
                continue;
            };
            let mut turned = factor;
            for _ in 0..HALVINGS {
                let middle = (same * turned).sqrt();
                match self.other(middle)? {
                    Some(other) => (turned, scenario) = (middle, other),
                    None => same = middle,
                }
            }
            return Ok(Some(Turn { factor: turned, scenario }));
        }
        Ok(None)
    }
}

/// Every assumption at either end, the widest swing first.
pub(super) fn sensitivities(
    contest: &Contest<'_>,
    best: &str,
    progress: &dyn Progress,
) -> Result<Vec<AssumptionSensitivity>, Error> {
    let mut moves: Vec<(String, [(String, Change); 2])> = Vec::new();
    for assumption in contest.baseline_study.assumptions() {
        let end = |value: &crate::config::Scalar| {
            let set = Some(format!("{}={value}", assumption.path));
            (value.to_string(), Change { set, ..Change::default() })
        };
        moves.push((assumption.name.clone(), [end(&assumption.low), end(&assumption.high)]));
    }
    for (what, path, gbit_per_s) in contest.baseline_study.links() {
        let end = |factor: f64| {
            let value = format!("{} Gbit/s", gbit_per_s * factor);
            let set = Some(format!("{path}={value}"));
            (value, Change { set, ..Change::default() })
        };
        moves.push((format!("speed of {what}"), [end(0.5), end(2.0)]));
    }
    let (low, high) = contest.spread();
    if low < high {
        let end = |factor: f64| {
            (format!("{factor:.2}×"), Change { bits: Some((None, factor)), ..Change::default() })
        };
        moves.push(("bits of every codec, as tensors of one class differ".into(), [end(low), end(high)]));
    }
    if let Some(factor) = contest.area_factor(best) {
        let end = |factor: f64| {
            let area = Some((best.to_owned(), factor));
            (format!("{factor:.2}×"), Change { area, ..Change::default() })
        };
        moves.push((format!("area of {best}"), [end(1.0 / factor), end(factor)]));
    }
    progress.begin(moves.len() as u64, "varying assumptions");
    let vary =
        |(assumption, ends): &(String, [(String, Change); 2])| -> Result<AssumptionSensitivity, Error> {
            progress.check()?;
            let sensitivity = AssumptionSensitivity {
                assumption: assumption.clone(),
                low: end(contest, best, &ends[0]),
                high: end(contest, best, &ends[1]),
            };
            progress.advance(1);
            Ok(sensitivity)
        };
    let sensitivities: Result<Vec<AssumptionSensitivity>, Error> = moves.iter().map(vary).collect();
    progress.end();
    let mut sensitivities = sensitivities?;
    sensitivities.sort_by(|a, b| b.width().total_cmp(&a.width()));
    Ok(sensitivities)
}

fn end(contest: &Contest<'_>, best: &str, (value, change): &(String, Change)) -> End {
    let merits = contest.moved(change).unwrap_or_default();
    let names = contest.names();
    let of = |name: &str| names.iter().position(|own| *own == name).and_then(|at| *merits.get(at)?);
    let holds = of(best).map(|_| best);
    End {
        value: value.clone(),
        best: contest.instead(best, &merits).or(holds).map(str::to_owned),
        over_baseline: of(best).zip(of(&contest.baseline_study.baseline)).map(|(own, none)| own / none),
    }
}
