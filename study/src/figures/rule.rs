//! What decides a claim: a rule over cells, and the sentence that says how.
//!
//! A difference within its interval decides nothing, and neither does one number
//! of which no interval is known.

use super::cells::Cells;
use super::error::Error;
use super::sample::{Mean, Sample};
use crate::config::ClaimFile;
use serde::Serialize;

/// How a claim fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimOutcome {
    Holds,
    Fails,
    /// Within the interval, or without one.
    Open,
}

impl ClaimOutcome {
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Open => "not decided",
        }
    }

    /// Of a rule that asks for something positive, by a mean and its interval.
    fn positive(mean: Mean) -> Self {
        match mean.half {
            Some(half) if mean.mean > half => Self::Holds,
            Some(half) if mean.mean < -half => Self::Fails,
            // Equal without any spread is not larger.
            Some(0.0) => Self::Fails,
            _ => Self::Open,
        }
    }
}

/// One claim, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    pub says: String,
    pub quote: String,
    /// The source's number.
    pub paper: Option<f64>,
    pub unit: Option<String>,
    /// No part of the verdict.
    pub beside: bool,
    pub outcome: ClaimOutcome,
    pub ours: Mean,
    /// What it was held against, name by name.
    pub against: Vec<(String, Mean)>,
    /// Ours less what it was held against, where rows pair.
    pub difference: Option<Mean>,
    /// The numbers in words.
    pub found: String,
}

/// Judges a claim; `over` says what varies from row to row.
pub fn judge(claim: &ClaimFile, cells: &Cells, over: &str) -> Result<Claim, Error> {
    let ours = cells.get(&claim.ours)?;
    let rule = &claim.rule;
    if ours.values.is_empty() {
        return Ok(unheard(claim, over));
    }
    let Judgement { outcome, against, difference, short } = if let Some(bound) = &rule.above {
        compared(&ours, bound, cells, |mean, _| (ClaimOutcome::positive(mean), mean.mean))?
    } else if let Some(bound) = &rule.below {
        compared(&ours, bound, cells, |mean, _| {
            (ClaimOutcome::positive(Mean { mean: -mean.mean, ..mean }), mean.mean)
        })?
    } else if let Some(bound) = &rule.alike {
        let of = rule.of.as_ref().map(|of| cells.get(of)).transpose()?.map(|of| of.mean().mean.abs());
        compared(&ours, bound, cells, |mean, size| alike(mean, of.unwrap_or(size)))?
    } else if let Some(part) = rule.near {
        near(ours.mean(), claim.paper.unwrap_or(f64::NAN), part)
    } else {
        ordered(&claim.ours, &rule.order, cells)?
    };
    let few = claim.rows.filter(|&least| ours.values.len() < least as usize);
    let unit = claim.unit.clone().unwrap_or_default();
    let mut found = sentence(&ours.mean(), &against, difference, &unit, over);
    let outcome = match (few, short) {
        (Some(least), _) => {
            found += &format!("; {} of the {least} {over} that would decide", ours.values.len());
            ClaimOutcome::Open
        }
        (None, Some(short)) if outcome == ClaimOutcome::Open => {
            found += &short.words(over);
            outcome
        }
        _ => outcome,
    };
    Ok(Claim { outcome, ours: ours.mean(), against, difference, found, ..unheard(claim, over) })
}

/// A claim of which nothing was run.
fn unheard(claim: &ClaimFile, over: &str) -> Claim {
    let wanted =
        claim.rows.map_or("not run".into(), |rows| format!("none of the {rows} {over} that would decide"));
    Claim {
        says: claim.says.clone(),
        quote: claim.quote.clone(),
        paper: claim.paper,
        unit: claim.unit.clone(),
        beside: claim.beside,
        outcome: ClaimOutcome::Open,
        ours: Mean { mean: f64::NAN, half: None, rows: 0 },
        against: Vec::new(),
        difference: None,
        found: wanted,
    }
}

/// How a rule fared.
struct Judgement {
    outcome: ClaimOutcome,
    against: Vec<(String, Mean)>,
    difference: Option<Mean>,
    /// What an open outcome lacks.
    short: Option<Short>,
}

/// What would have to be there for a claim to be decided.
enum Short {
    /// Numbers of this cell.
    Other(String),
    /// An interval: there is one number of which none is known.
    Interval,
    /// So many times the rows, as far as the spread stays what it is.
    Rows { times: f64, rows: usize },
}

/// Beyond so many times the data a claim is as good as undecidable, and how many times says nothing.
const MOST_TIMES: f64 = 100.0;

impl Short {
    /// Of a number that has to be as far as `distance` from where a rule changes its mind.
    fn of(mean: Mean, distance: f64) -> Self {
        let times = mean.half.map(|half| (half / distance.abs()).powi(2));
        times.map_or(Self::Interval, |times| Self::Rows { times, rows: mean.rows })
    }

    fn words(&self, over: &str) -> String {
        match self {
            Self::Other(name) => format!("; nothing of {} to hold it against", name.replace('_', " ")),
            Self::Interval => "; one run has no interval".into(),
            Self::Rows { times, rows } => {
                let data = if *rows > 1 { format!("as many {over}") } else { "as much data".into() };
                if times.is_finite() && *times <= MOST_TIMES {
                    format!("; about {times:.1} times {data} would decide")
                } else {
                    format!("; more than {MOST_TIMES} times {data} would decide")
                }
            }
        }
    }
}

/// Ours against a number or a cell; `of` is told the difference and the size of the larger, and answers how far the
/// difference lies from where it would be decided, too.
fn compared(
    ours: &Sample,
    bound: &str,
    cells: &Cells,
    of: impl Fn(Mean, f64) -> (ClaimOutcome, f64),
) -> Result<Judgement, Error> {
    let other = match bound.parse::<f64>() {
        Ok(number) => Sample::constant(number),
        Err(_) => cells.get(bound)?,
    };
    if other.values.is_empty() {
        let short = Some(Short::Other(bound.to_owned()));
        return Ok(Judgement { outcome: ClaimOutcome::Open, against: Vec::new(), difference: None, short });
    }
    let difference = ours.minus(&other)?.mean();
    let size = ours.mean().mean.abs().max(other.mean().mean.abs());
    let (outcome, distance) = of(difference, size);
    let short = Some(Short::of(difference, distance));
    Ok(Judgement {
        outcome,
        against: vec![(bound.to_owned(), other.mean())],
        difference: Some(difference),
        short,
    })
}

/// An interval wider than this part of what is compared cannot show that two are alike.
const POWER: f64 = 0.1;

/// No different, by an interval that would have shown a difference of a tenth of `size`.
fn alike(difference: Mean, size: f64) -> (ClaimOutcome, f64) {
    let outcome = match difference.half {
        Some(half) if difference.mean.abs() > half => ClaimOutcome::Fails,
        Some(half) if half <= POWER * size => ClaimOutcome::Holds,
        _ => ClaimOutcome::Open,
    };
    (outcome, POWER * size)
}

/// Within a part of the source's number.
fn near(ours: Mean, paper: f64, part: f64) -> Judgement {
    let (away, margin) = ((ours.mean - paper).abs(), part * paper.abs());
    let outcome = match ours.half {
        Some(half) if away + half <= margin => ClaimOutcome::Holds,
        Some(half) if away - half > margin => ClaimOutcome::Fails,
        _ => ClaimOutcome::Open,
    };
    Judgement { outcome, against: Vec::new(), difference: None, short: Some(Short::of(ours, margin - away)) }
}

/// Ours below the first, which is below the next: as good as the weakest link.
fn ordered(first: &str, rest: &[String], cells: &Cells) -> Result<Judgement, Error> {
    let mut outcome = ClaimOutcome::Holds;
    let mut against = Vec::new();
    let mut before = cells.get(first)?;
    for name in rest {
        let next = cells.get(name)?;
        if next.values.is_empty() {
            let short = Some(Short::Other(name.clone()));
            return Ok(Judgement { outcome: ClaimOutcome::Open, against, difference: None, short });
        }
        let link = ClaimOutcome::positive(next.minus(&before)?.mean());
        outcome = match (outcome, link) {
            (ClaimOutcome::Fails, _) | (_, ClaimOutcome::Fails) => ClaimOutcome::Fails,
            (ClaimOutcome::Open, _) | (_, ClaimOutcome::Open) => ClaimOutcome::Open,
            _ => ClaimOutcome::Holds,
        };
        against.push((name.clone(), next.mean()));
        before = next;
    }
    Ok(Judgement { outcome, against, difference: None, short: None })
}

/// `2.49 ± 0.05`, with the digits that mean something.
pub fn number(mean: Mean) -> String {
    // What no digit would show is no interval.
    let half = mean.half.filter(|half| *half > 1e-4 * mean.mean.abs());
    let smallest = half.map_or(mean.mean.abs() / 10.0, |half| half.min(mean.mean.abs().max(half)));
    let digits = if smallest > 0.0 { (1.0 - smallest.log10().floor()).clamp(0.0, 6.0) as usize } else { 2 };
    let digits = if mean.mean.abs() >= 1000.0 { 0 } else { digits };
    match half {
        Some(half) => format!("{:.digits$} ± {half:.digits$}", mean.mean),
        None => format!("{:.digits$}", mean.mean),
    }
}

fn sentence(
    ours: &Mean,
    against: &[(String, Mean)],
    difference: Option<Mean>,
    unit: &str,
    over: &str,
) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let mut text = format!("{}{unit}", number(*ours));
    let named: Vec<String> = against
        .iter()
        .filter(|(name, _)| name.parse::<f64>().is_err())
        .map(|(name, mean)| format!("{} {}", name.replace('_', " "), number(*mean)))
        .collect();
    if !named.is_empty() {
        text += &format!(" against {}", named.join(", "));
    }
    let varied = |rows: usize| if rows > 1 { format!(", {rows} {over}") } else { String::new() };
    match difference.filter(|_| !named.is_empty()) {
        Some(difference) => {
            text += &format!(" (difference {}{})", number(difference), varied(difference.rows))
        }
        None if ours.rows > 1 => text += &format!(" ({} {over})", ours.rows),
        None => (),
    }
    text
}
