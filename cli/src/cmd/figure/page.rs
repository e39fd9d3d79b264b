//! Verdicts as a page: the source's values beside ours.

use super::answer::{Answer, counts};
use super::show::{list, paper};
use crate::report::Report;
use serde_json::json;

/// The page.
pub fn report(title: &str, answers: &[Answer]) -> Report {
    let mut report = Report::new(title);
    report.paragraph(format!("{}. Every verdict follows from a run or a recording of one.", counts(answers)));
    let values: Vec<_> = answers
        .iter()
        .flat_map(|answer| answer.claims.iter().map(move |claim| (answer, claim)))
        .filter_map(|(answer, claim)| {
            let paper = claim.paper.filter(|paper| *paper != 0.0)?;
            let half = claim.ours.half.unwrap_or(0.0);
            Some(json!({
                "claim": format!("{}: {}", answer.id, claim.says),
                "ours": claim.ours.mean / paper,
                "low": (claim.ours.mean - half) / paper, "high": (claim.ours.mean + half) / paper,
                "source": 1.0, "said": claim.found, "outcome": claim.outcome.words(),
            }))
        })
        .collect();
    report.chart(
        "Ours over the source's number, with 95 % intervals; the line is the source",
        json!({
            "data": {"values": values},
            "width": 420,
            "encoding": {"y": {"field": "claim", "type": "nominal", "sort": null, "title": null,
                               "axis": {"labelLimit": 420}}},
            "layer": [
                {"mark": {"type": "rule", "color": "#888"}, "encoding": {"x": {"datum": 1}, "y": null}},
                {"mark": "rule", "encoding": {
                    "x": {"field": "low", "type": "quantitative", "title": "ours / source"}, "x2": {"field": "high"}}},
                {"mark": {"type": "point", "filled": true}, "encoding": {
                    "x": {"field": "ours", "type": "quantitative"},
                    "color": {"field": "outcome", "type": "nominal", "title": null},
                    "tooltip": [{"field": "claim"}, {"field": "said"}]}},
            ],
        }),
    );
    let table = list(answers);
    report.table("Every figure", table.headers(), table.rows());
    for answer in answers.iter().filter(|answer| !answer.claims.is_empty()) {
        report.heading(format!("{}: {}, {}", answer.id, answer.title, answer.verdict.words()));
        let rows = answer.claims.iter().map(|claim| {
            [
                claim.says.clone(),
                claim.quote.clone(),
                paper(claim),
                claim.found.clone(),
                claim.outcome.words().into(),
            ]
        });
        report.table(&answer.source, ["claim", "quoted", "source", "here", "outcome"], rows);
        report.paragraph(answer.provenance());
        if let Some(note) = &answer.note {
            report.paragraph(note);
        }
    }
    report
}
