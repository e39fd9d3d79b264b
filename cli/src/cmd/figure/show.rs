//! Verdicts as text: a list, one figure with its claims, Markdown.

use super::answer::{Answer, Recorded, counts};
use crate::context::Context;
use crate::table::{Table, sig3};
use std::fmt::Write;
use trinity_study::figures::Claim;

/// Every figure in a row.
pub fn list(answers: &[Answer]) -> Table {
    let judged_on = |answer: &Answer| match (&answer.by, answer.claims.is_empty()) {
        (Some(by), _) => by.short(),
        (None, true) => "-".into(),
        (None, false) => "data of the command".into(),
    };
    Table::of(answers)
        .column("figure", |answer| &answer.id)
        .column("verdict", |answer| answer.verdict.words())
        .column("claims", Answer::tally)
        .column("judged on", judged_on)
        .column("s", |answer| answer.seconds.map_or_else(|| "-".into(), |seconds| seconds.to_string()))
        .column("title", |answer| &answer.title)
        .column("remark", remark)
        .end()
}

fn remark(answer: &Answer) -> String {
    let beside = |recording: &Recorded| format!("{}: {}", recording.by.short(), recording.verdict.words());
    let stale = answer.stale.as_ref().map(|stale| format!("stale: {stale}"));
    stale.or_else(|| answer.why.clone()).or_else(|| answer.recording.as_ref().map(beside)).unwrap_or_default()
}

/// The source's number with its unit; a dash where it states none.
pub fn paper(claim: &Claim) -> String {
    let unit = claim.unit.as_deref().map_or(String::new(), |unit| format!(" {unit}"));
    claim.paper.map_or_else(|| "–".into(), |value| format!("{}{unit}", plain(value)))
}

/// A number as its source prints it.
fn plain(value: f64) -> String {
    let text = format!("{value}");
    if text.len() > 8 { sig3(value) } else { text }
}

/// One figure: verdict, claims, the source's numbers beside ours.
pub fn one(answer: &Answer, ctx: &Context) -> String {
    let mut text = format!("{}: {}\n  {}\n", answer.title, answer.verdict.words(), answer.source);
    if let Some(quote) = &answer.quote {
        let _ = writeln!(text, "  “{quote}”");
    }
    if let Some(why) = &answer.why {
        let _ = writeln!(text, "  {why}");
    }
    if !answer.claims.is_empty() {
        let table = Table::of(&answer.claims)
            .column("claim", |claim| &claim.says)
            .column("source", paper)
            .column("here", |claim| &claim.found)
            .column("outcome", |claim| claim.outcome.words())
            .end();
        let _ = write!(text, "\n{}\n", table.render(ctx.colour));
        let mut quotes: Vec<&str> = answer.claims.iter().map(|claim| claim.quote.as_str()).collect();
        quotes.dedup();
        for quote in quotes {
            let _ = writeln!(text, "  “{quote}”");
        }
    }
    if let Some(note) = &answer.note {
        let _ = writeln!(text, "\n  {note}");
    }
    if !answer.claims.is_empty() {
        let _ = writeln!(text, "\n  {}", answer.provenance());
    }
    if let Some(recording) = &answer.recording {
        let _ = writeln!(text, "  {}", recording.words());
    }
    if let Some(stale) = &answer.stale {
        let _ = writeln!(text, "  stale: {stale}; `trinity figure {} --run` judges it anew", answer.id);
    }
    for command in answer.commands.values() {
        let _ = writeln!(text, "  trinity {command}");
    }
    text
}

/// Every figure and claim, for a document.
pub fn markdown(title: &str, answers: &[Answer]) -> String {
    let mut text = format!(
        "# Figures, judged\n\n{title}. Made by `trinity figure --markdown`: no verdict and no number of ours is written by \
         hand.\n\n{}.\n",
        counts(answers)
    );
    for answer in answers {
        let _ = write!(text, "\n## {}: {}\n\n**{}**", answer.id, answer.title, answer.verdict.words());
        if let Some(stale) = &answer.stale {
            let _ = write!(text, " (stale: {stale})");
        }
        let _ = writeln!(text, ". {}.", answer.source);
        if let Some(quote) = &answer.quote {
            let _ = writeln!(text, "\n> {quote}");
        }
        if let Some(why) = &answer.why {
            let _ = writeln!(text, "\n{why}");
        }
        if !answer.claims.is_empty() {
            let _ = writeln!(text, "\n| claim | source | here | |\n|---|---|---|---|");
            for claim in &answer.claims {
                let row = [&claim.says, &paper(claim), &claim.found, &claim.outcome.words().to_owned()]
                    .map(|cell| cell.replace('|', "\\|"));
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
        }
        if let Some(note) = &answer.note {
            let _ = writeln!(text, "\n{note}");
        }
        for command in answer.commands.values() {
            let _ = writeln!(text, "\n`trinity {command}`");
        }
        if !answer.claims.is_empty() {
            let _ = writeln!(text, "\n{}.", answer.provenance());
        }
    }
    text
}
