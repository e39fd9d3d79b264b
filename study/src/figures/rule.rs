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
pub enum Outcome {
    Holds,
    Fails,
    /// Within the interval, or without one.
    Open,
}

impl Outcome {
    /// The outcome in words.
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
    pub outcome: Outcome,
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
    let (outcome, against, difference) = if let Some(bound) = &rule.above {
        compared(&ours, bound, cells, Outcome::positive)?
    } else if let Some(bound) = &rule.below {
        compared(&ours, bound, cells, |mean| Outcome::positive(Mean { mean: -mean.mean, ..mean }))?
    } else if let Some(bound) = &rule.alike {
        compared(&ours, bound, cells, alike)?
    } else if let Some(part) = rule.near {
        let paper = claim.paper.unwrap_or(f64::NAN);
        (near(ours.mean(), paper, part * paper.abs()), Vec::new(), None)
    } else {
        ordered(&claim.ours, &rule.order, cells)?
    };
    let few = claim.rows.is_some_and(|least| ours.values.len() < least as usize);
    let outcome = if few { Outcome::Open } else { outcome };
    let unit = claim.unit.clone().unwrap_or_default();
    let mut found = sentence(&ours.mean(), &against, difference, &unit, over);
    if let (true, Some(least)) = (few, claim.rows) {
        found += &format!("; {} of the {least} {over} that would decide", ours.values.len());
    }
    Ok(Claim {
        says: claim.says.clone(),
        quote: claim.quote.clone(),
        paper: claim.paper,
        unit: claim.unit.clone(),
        beside: claim.beside,
        outcome,
        ours: ours.mean(),
        against,
        difference,
        found,
    })
}

/// A claim of which nothing was run.
fn unheard(claim: &ClaimFile, over: &str) -> Claim {
    let wanted = claim.rows.map_or(String::new(), |rows| format!(" of the {rows} {over} that would decide"));
    Claim {
        says: claim.says.clone(),
        quote: claim.quote.clone(),
        paper: claim.paper,
        unit: claim.unit.clone(),
        beside: claim.beside,
        outcome: Outcome::Open,
        ours: Mean { mean: f64::NAN, half: None, rows: 0 },
        against: Vec::new(),
        difference: None,
        found: format!("none{wanted}"),
    }
}

type Judged = (Outcome, Vec<(String, Mean)>, Option<Mean>);

/// Ours against a number or a cell.
fn compared(
    ours: &Sample,
    bound: &str,
    cells: &Cells,
    of: impl Fn(Mean) -> Outcome,
) -> Result<Judged, Error> {
    let other = match bound.parse::<f64>() {
        Ok(number) => Sample::constant(number),
        Err(_) => cells.get(bound)?,
    };
    if other.values.is_empty() {
        return Ok((Outcome::Open, Vec::new(), None));
    }
    let difference = ours.minus(&other)?.mean();
    let against = vec![(bound.to_owned(), other.mean())];
    Ok((of(difference), against, Some(difference)))
}

/// No different, as far as the interval shows.
fn alike(difference: Mean) -> Outcome {
    match difference.half {
        Some(half) if difference.mean.abs() <= half => Outcome::Holds,
        Some(_) => Outcome::Fails,
        None => Outcome::Open,
    }
}

fn near(ours: Mean, paper: f64, margin: f64) -> Outcome {
    let Some(half) = ours.half else { return Outcome::Open };
    let away = (ours.mean - paper).abs();
    if away + half <= margin {
        Outcome::Holds
    } else if away - half > margin {
        Outcome::Fails
    } else {
        Outcome::Open
    }
}

/// Ours below the first, which is below the next: as good as the weakest link.
fn ordered(first: &str, rest: &[String], cells: &Cells) -> Result<Judged, Error> {
    let mut outcome = Outcome::Holds;
    let mut against = Vec::new();
    let mut before = cells.get(first)?;
    for name in rest {
        let next = cells.get(name)?;
        let link = Outcome::positive(next.minus(&before)?.mean());
        outcome = match (outcome, link) {
            (Outcome::Fails, _) | (_, Outcome::Fails) => Outcome::Fails,
            (Outcome::Open, _) | (_, Outcome::Open) => Outcome::Open,
            _ => Outcome::Holds,
        };
        against.push((name.clone(), next.mean()));
        before = next;
    }
    Ok((outcome, against, None))
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
