//! One figure, judged: what is shown of it, whoever shows it.

use super::asked::Args;
use super::run::{RECORDED, now_with, recorded};
use crate::failure::Failure;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use trinity_study::config::FigureFile;
use trinity_study::figures::{Claim, Judged, Recording, Verdict, judge, read};

/// A figure with its verdict.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub id: String,
    pub title: String,
    pub source: String,
    pub quote: Option<String>,
    pub verdict: Verdict,
    pub claims: Vec<Claim>,
    pub commands: BTreeMap<String, String>,
    /// How long the commands take, by the file.
    pub seconds: Option<u32>,
    /// When, on what and with which data; nothing where nothing was run.
    pub by: Option<By>,
    /// Of a figure that was run just now: its recording, where that has other data.
    pub recording: Option<Recorded>,
    /// Why the recording is not of today's code.
    pub stale: Option<String>,
    pub note: Option<String>,
    pub why: Option<String>,
}

/// The run behind a verdict.
#[derive(Debug, Serialize)]
pub struct By {
    /// Run just now, and not read from a recording.
    pub fresh: bool,
    pub when: String,
    pub on: String,
    pub seconds: f64,
    /// Files and their bytes.
    pub data: Vec<(String, u64)>,
}

impl By {
    fn new(recording: &Recording, fresh: bool) -> Self {
        let inputs = recording.fingerprint.inputs.iter();
        Self {
            fresh,
            when: recording.when.clone(),
            on: recording.on.clone(),
            seconds: recording.seconds,
            data: inputs.map(|input| (input.file.clone(), input.bytes)).collect(),
        }
    }

    /// `, 11 files of 63.8 MB`.
    fn files(&self) -> String {
        let bytes: u64 = self.data.iter().map(|(_, bytes)| bytes).sum();
        match self.data.len() {
            0 => String::new(),
            1 => format!(", a file of {:.1} MB", bytes as f64 / 1e6),
            files => format!(", {files} files of {:.1} MB", bytes as f64 / 1e6),
        }
    }

    /// Run or recorded, and on which data.
    pub fn short(&self) -> String {
        let said = if self.fresh { "run now".into() } else { format!("recorded {}", self.when) };
        format!("{said}{}", self.files())
    }

    /// What was run, when and on what, in one line.
    fn words(&self) -> String {
        let said = if self.fresh { "run" } else { "recorded" };
        let took = if self.seconds > 0.0 { format!(" in {} s", self.seconds) } else { String::new() };
        format!("{said} {} on {}{took}{}", self.when, self.on, self.files())
    }
}

/// A recording and its verdict, beside a run of today.
#[derive(Debug, Serialize)]
pub struct Recorded {
    pub verdict: Verdict,
    pub by: By,
}

impl Recorded {
    fn new(figure: &FigureFile, kept: &Recording, today: &Recording) -> Option<Self> {
        let other = today.lacks_inputs_of(kept) || kept.lacks_inputs_of(today);
        let judged = judge(figure, &kept.cells).ok().filter(|_| other)?;
        Some(Self { verdict: judged.verdict, by: By::new(kept, false) })
    }

    /// When, on what and with which data it was recorded, and its verdict.
    pub fn words(&self) -> String {
        format!("{}: {}", self.by.words(), self.verdict.words())
    }
}

impl Answer {
    /// Judges a figure by a run of today, or else by its recording.
    pub fn new(
        figure: &FigureFile,
        today: Option<&Recording>,
        kept: Option<&Recording>,
        args: &Args,
    ) -> Result<Self, Failure> {
        let (recording, fresh) = (today.or(kept), today.is_some());
        let failed = |error| Failure::run(format_args!("figure {}: {error}", figure.id));
        let built_in = figure.commands.values().all(|command| command.starts_with(RECORDED));
        let mut stale = None;
        let judged = if figure.claims.is_empty() {
            None
        } else if built_in {
            // What is part of the command is never out of date.
            let mut outputs = BTreeMap::new();
            for (name, command) in &figure.commands {
                outputs.insert(name.clone(), recorded(&command[RECORDED.len()..])?);
            }
            Some(judge(figure, &read(figure, &outputs).map_err(failed)?).map_err(failed)?)
        } else if let Some(recording) = recording {
            if !fresh {
                stale = recording.stale(&figure.commands, &now_with(figure, &args.data, recording));
            }
            match judge(figure, &recording.cells) {
                Err(error) if stale.is_some() => {
                    stale = stale.map(|why| format!("{why}, and its cells do not fit: {error}"));
                    None
                }
                other => Some(other.map_err(failed)?),
            }
        } else {
            stale = Some("it was never run".into());
            None
        };
        let (verdict, claims) = match judged {
            Some(Judged { verdict, claims }) => (verdict, claims),
            None if figure.claims.is_empty() => (Verdict::OutOfScope, Vec::new()),
            None => (Verdict::NotDecided, Vec::new()),
        };
        let by = recording.filter(|_| !built_in && !figure.claims.is_empty());
        let by = by.map(|recording| By::new(recording, fresh));
        let recording = kept.zip(today).and_then(|(kept, today)| Recorded::new(figure, kept, today));
        Ok(Self {
            id: figure.id.clone(),
            title: figure.title.clone(),
            source: figure.cited.clone(),
            quote: figure.quote.clone(),
            verdict,
            claims,
            commands: figure.commands.clone(),
            seconds: figure.seconds,
            by,
            recording,
            stale,
            note: figure.scope.clone(),
            why: figure.why.clone(),
        })
    }

    /// How many claims of the verdict hold, fail and are open, in words.
    pub fn tally(&self) -> String {
        use trinity_study::figures::ClaimOutcome;
        let counted = |claim: &&Claim| !claim.beside;
        let count =
            |outcome| self.claims.iter().filter(counted).filter(|claim| claim.outcome == outcome).count();
        let named = [ClaimOutcome::Holds, ClaimOutcome::Fails, ClaimOutcome::Open]
            .map(|outcome| (count(outcome), outcome.words()));
        let parts: Vec<String> = named
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!("{count} {words}"))
            .collect();
        parts.join(", ")
    }

    /// What was run, when and on what, in one line.
    pub fn provenance(&self) -> String {
        self.by.as_ref().map_or_else(|| "data that are part of the command".into(), By::words)
    }
}

/// All answers as one document.
pub fn json(title: &str, answers: &[Answer]) -> Value {
    let counts: BTreeMap<&str, usize> =
        Verdict::ALL.map(|verdict| (verdict.words(), of(answers, verdict))).into();
    json!({ "title": title, "counts": counts, "figures": answers })
}

fn of(answers: &[Answer], verdict: Verdict) -> usize {
    answers.iter().filter(|answer| answer.verdict == verdict).count()
}

/// `12 reproduced, 9 contradicted`, and how many are stale.
pub fn counts(answers: &[Answer]) -> String {
    let mut parts: Vec<String> =
        Verdict::ALL.map(|verdict| format!("{} {}", of(answers, verdict), verdict.words())).into();
    let stale = answers.iter().filter(|answer| answer.stale.is_some()).count();
    if stale > 0 {
        parts.push(format!("{stale} stale"));
    }
    parts.join(", ")
}
