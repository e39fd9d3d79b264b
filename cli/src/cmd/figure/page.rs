//! Verdicts as a page: the source's values beside ours.

use super::answer::{Answer, counts};
use super::show::{list, paper};
use crate::report::Report;
use crate::table::Table;
use serde_json::{Value, json};
use trinity_study::figures::Claim;

pub fn report(title: &str, answers: &[Answer]) -> Report {
    let mut report = Report::new(title);
    report.paragraph(format!("{}. Every verdict follows from a run or a recording of one.", counts(answers)));
    let stated = points(answers, |claim| {
        let paper = claim.paper.filter(|paper| *paper != 0.0)?;
        Some((claim.ours.mean / paper, claim.ours.half.unwrap_or(0.0) / paper.abs()))
    });
    report.chart(
        "Ours over the source's number, with 95 % intervals; the line is the source",
        chart(&stated, 1.0, "ours / source"),
    );
    let compared = points(answers, |claim| {
        let (difference, against) = (claim.difference?, claim.against.first()?.1.mean);
        // Shares of a loss are differences already.
        let share = claim.unit.as_deref().is_some_and(|unit| unit.starts_with('%'));
        let size = if share { 100.0 } else { against.abs() };
        (size > 0.0).then(|| (difference.mean / size, difference.half.unwrap_or(0.0) / size))
    });
    report.chart(
        "Ours less what it is held against, as a part of that, with 95 % intervals; the line is no difference",
        chart(&compared, 0.0, "difference"),
    );
    report.add("Every figure", &list(answers));
    for answer in answers.iter().filter(|answer| !answer.claims.is_empty()) {
        report.heading(format!("{}: {}, {}", answer.id, answer.title, answer.verdict.words()));
        let claims = Table::of(&answer.claims)
            .column("claim", |claim| &claim.says)
            .column("quoted", |claim| &claim.quote)
            .column("source", paper)
            .column("here", |claim| &claim.found)
            .column("outcome", |claim| claim.outcome.words())
            .end();
        report.add(&answer.source, &claims);
        report.paragraph(answer.provenance());
        report.paragraphs(&answer.note);
    }
    report
}

/// What is drawn of each claim: where it lies and half of its interval.
fn points(answers: &[Answer], of: impl Fn(&Claim) -> Option<(f64, f64)>) -> Vec<Value> {
    let claims = answers.iter().flat_map(|answer| answer.claims.iter().map(move |claim| (answer, claim)));
    let drawn = claims.filter_map(|(answer, claim)| {
        let (at, half) = of(claim).filter(|(at, _)| at.is_finite())?;
        Some(json!({
            "claim": format!("{}: {}", answer.id, claim.says),
            "at": at, "low": at - half, "high": at + half,
            "said": claim.found, "outcome": claim.outcome.words(),
        }))
    });
    drawn.collect()
}

/// Claims in rows, with a line where `line` says.
fn chart(values: &[Value], line: f64, title: &str) -> Value {
    json!({
        "data": {"values": values},
        "width": 420,
        "encoding": {"y": {"field": "claim", "type": "nominal", "sort": null, "title": null,
                           "axis": {"labelLimit": 420}}},
        "layer": [
            {"mark": {"type": "rule", "color": "#888"}, "encoding": {"x": {"datum": line}, "y": null}},
            {"mark": "rule", "encoding": {
                "x": {"field": "low", "type": "quantitative", "title": title}, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": true}, "encoding": {
                "x": {"field": "at", "type": "quantitative"},
                "color": {"field": "outcome", "type": "nominal", "title": null},
                "tooltip": [{"field": "claim"}, {"field": "said"}]}},
        ],
    })
}
