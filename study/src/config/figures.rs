//! Figures in files: what a source claims, in its own numbers; the command that
//! asks the same here; the cells of its output that decide, and the rule.
//!
//! Holds no verdict: that is computed (`crate::figures`) from a run or from a
//! recording of one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trinity_config::{At, Checked, Diagnostic};

/// The figures and tables of some sources.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FiguresFile {
    pub title: String,
    pub figures: Vec<FigureFile>,
}

/// One figure: claims, and how they are judged.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FigureFile {
    pub id: String,
    pub title: String,
    /// The document and the section or page that the quotes are from.
    pub cited: String,
    /// The figure whose commands, cells and recording it shares.
    pub uses: Option<String>,
    /// What a source says that nothing here can judge.
    pub quote: Option<String>,
    /// Arguments of commands, by a short name; `{tensors}`, `{captured}` and the like are filled in. What
    /// begins with `recorded` reads a recording that is part of the command.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
    /// How long they take in a release build on two cores, on the built-in tensors where they name captured ones.
    pub seconds: Option<u32>,
    /// Nothing varies: the numbers are a model's arithmetic, and have no interval.
    #[serde(default)]
    pub exact: bool,
    /// Fields of a row that say what it is of: rows of two cells are paired by them.
    #[serde(default)]
    pub by: Vec<String>,
    /// What varies from row to row, for sentences: "tensors", "seeds".
    pub over: Option<String>,
    /// Values that `{each}` stands for, in turn, in cells and claims.
    #[serde(default)]
    pub each: Vec<String>,
    #[serde(default)]
    pub cells: BTreeMap<String, CellFile>,
    #[serde(default)]
    pub claims: Vec<ClaimFile>,
    /// In what the test here differs from the source's.
    pub scope: Option<String>,
    /// Why nothing is judged.
    pub why: Option<String>,
}

impl FigureFile {
    /// What `{each}` stands for in `texts`, in turn; nothing, once, where none has it.
    pub fn each_in(&self, texts: &[&String]) -> Vec<Option<&str>> {
        if texts.iter().any(|text| text.contains("{each}")) {
            self.each.iter().map(|each| Some(each.as_str())).collect()
        } else {
            vec![None]
        }
    }
}

/// Numbers of a run: read off its output, or made from other cells.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellFile {
    /// The command, where there are several.
    pub run: Option<String>,
    /// Where in its JSON: names, and conditions in brackets (`rows[codec=h265].bits_per_value`).
    pub at: Option<String>,
    /// There may be no such number yet: the cell is empty then.
    #[serde(default)]
    pub optional: bool,
    /// Where halves of the 95 % intervals of these numbers are; without it they follow from the spread.
    pub interval: Option<String>,
    /// The first cell less the second, row by row.
    #[serde(default)]
    pub minus: Vec<String>,
    /// The first cell over the second, row by row.
    #[serde(default)]
    pub ratio: Vec<String>,
    /// The least of these cells, row by row.
    #[serde(default)]
    pub least: Vec<String>,
    /// The most of these cells, row by row.
    #[serde(default)]
    pub most: Vec<String>,
}

/// One sentence of a source, and what decides it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClaimFile {
    /// The claim as the rule puts it.
    pub says: String,
    /// The claim in the source's words.
    pub quote: String,
    /// The source's number.
    pub paper: Option<f64>,
    pub unit: Option<String>,
    /// The cell on trial.
    pub ours: String,
    pub rule: RuleFile,
    /// At least so many rows, or nothing is decided.
    pub rows: Option<u32>,
    /// Shown beside the others, and no part of the verdict: of another codec or setting than the source's.
    #[serde(default)]
    pub beside: bool,
}

/// What has to hold; one of these.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleFile {
    /// Larger than this number or cell.
    pub above: Option<String>,
    /// Smaller than this number or cell.
    pub below: Option<String>,
    /// Within this part of the source's number.
    pub near: Option<f64>,
    /// No different from this number or cell, by an interval that would have shown a tenth of either.
    pub alike: Option<String>,
    /// With `alike`, the cell whose tenth the interval would have shown: for what is held against zero.
    pub of: Option<String>,
    /// Smaller than the first of these cells, which is smaller than the next.
    #[serde(default)]
    pub order: Vec<String>,
}

impl RuleFile {
    /// How many rules were written.
    fn count(&self) -> usize {
        let single = [&self.above, &self.below, &self.alike].into_iter().flatten().count();
        single + usize::from(self.near.is_some()) + usize::from(!self.order.is_empty())
    }

    /// The cells that it names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let single = [&self.above, &self.below, &self.alike, &self.of].into_iter().flatten();
        single.chain(&self.order).map(String::as_str).filter(|name| name.parse::<f64>().is_err())
    }
}

impl CellFile {
    /// The cells that it is made of.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        [&self.minus, &self.ratio, &self.least, &self.most].into_iter().flatten().map(String::as_str)
    }
}

impl FigureFile {
    /// What is wrong with it, beside what its types say.
    fn mistakes(&self) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        let mut hold = |holds: bool, what: String, expected: &'static str| {
            if !holds {
                found.push((what, expected));
            }
        };
        hold(
            self.claims.is_empty() == self.why.is_some(),
            "claims are judged, or there is a reason why not".into(),
            "`claims` or `why`, not both",
        );
        hold(!self.claims.is_empty() || self.quote.is_some(), "nothing is quoted".into(), "`quote`");
        for (name, cell) in &self.cells {
            let ways = usize::from(cell.at.is_some())
                + [&cell.minus, &cell.ratio, &cell.least, &cell.most]
                    .iter()
                    .filter(|w| !w.is_empty())
                    .count();
            hold(
                ways == 1,
                format!("cell `{name}` comes from {ways} places"),
                "`at`, or one of minus, ratio, least, most",
            );
            let two = |parts: &Vec<String>| parts.is_empty() || parts.len() == 2;
            hold(two(&cell.minus) && two(&cell.ratio), format!("cell `{name}` takes two cells"), "two names");
            for part in cell.parts() {
                hold(
                    self.cells.contains_key(part) && part != name,
                    format!("cell `{name}` is made of `{part}`"),
                    "another cell",
                );
            }
            let known = |run: &str| {
                if run.contains("{each}") {
                    self.each.iter().all(|each| self.commands.contains_key(&run.replace("{each}", each)))
                } else {
                    self.commands.contains_key(run)
                }
            };
            let run = cell.run.as_deref().map_or(self.commands.len() == 1, known);
            hold(
                cell.at.is_none() || run,
                format!("cell `{name}` names no command"),
                "`run`, one of `commands`",
            );
        }
        for claim in &self.claims {
            hold(
                claim.rule.count() == 1,
                format!("`{}` has {} rules", claim.says, claim.rule.count()),
                "one rule",
            );
            let zero = claim.rule.alike.as_deref() == Some("0");
            hold(
                claim.rule.of.is_some() == zero,
                format!("`{}` has nothing to take a tenth of, or two things", claim.says),
                "`of` with `alike = \"0\"`, and there alone",
            );
            hold(
                claim.rule.near.is_none() || claim.paper.is_some(),
                format!("`{}` is near to nothing", claim.says),
                "`paper`",
            );
            for name in std::iter::once(claim.ours.as_str()).chain(claim.rule.names()) {
                hold(self.cells.contains_key(name), format!("`{}` rests on `{name}`", claim.says), "a cell");
            }
        }
        found
    }
}

impl FiguresFile {
    /// The figures, each with the commands and cells of the one that it uses.
    pub fn whole(&self) -> Vec<FigureFile> {
        let whole = |figure: &FigureFile| {
            let lender =
                figure.uses.as_ref().and_then(|id| self.figures.iter().find(|other| other.id == *id));
            let Some(lender) = lender else { return figure.clone() };
            FigureFile {
                commands: lender.commands.clone(),
                cells: lender.cells.clone(),
                each: lender.each.clone(),
                by: lender.by.clone(),
                over: lender.over.clone(),
                exact: lender.exact,
                seconds: lender.seconds,
                ..figure.clone()
            }
        };
        self.figures.iter().map(whole).collect()
    }
}

impl Checked for FiguresFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let figures = self.whole();
        let wrong = figures.iter().enumerate().flat_map(|(k, figure)| {
            let mut mistakes = figure.mistakes();
            if figure.uses.as_ref().is_some_and(|id| !self.figures.iter().any(|other| other.id == *id)) {
                mistakes.push(("it uses a figure that is not there".into(), "an id of this file"));
            }
            if self.figures[..k].iter().any(|other| other.id == figure.id) {
                mistakes.push(("two figures share this id".into(), "an id of its own"));
            }
            mistakes
                .into_iter()
                .map(move |(what, expected)| at.refuse(format_args!("figures.{k}"), what, expected))
        });
        Diagnostic::gather(wrong.collect::<Vec<_>>())
    }
}
