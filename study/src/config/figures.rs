//! Figures in files: what a paper shows, the command behind it here, and how
//! the two compare.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trinity_config::{Checked, Cited, Complaint, Diagnostic, Document};

/// The figures and tables of a paper.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FiguresFile {
    #[schemars(with = "Cited<String>")]
    pub title: String,
    pub figures: Vec<FigureFile>,
}

/// One figure, judged.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FigureFile {
    #[schemars(with = "Cited<String>")]
    pub id: String,
    #[schemars(with = "Cited<String>")]
    pub title: String,
    /// Arguments of the command; `{tensors}` and `{out}` are filled in.
    #[schemars(with = "Option<Cited<String>>")]
    pub command: Option<String>,
    /// How long it takes in a release build on two cores.
    #[schemars(with = "Option<Cited<u32>>")]
    pub seconds: Option<u32>,
    #[schemars(with = "Cited<VerdictName>")]
    pub verdict: VerdictName,
    /// What the paper says.
    #[schemars(with = "Cited<String>")]
    pub paper: String,
    /// What is found here.
    #[schemars(with = "Cited<String>")]
    pub ours: String,
    /// Why it differs, is left out or was not run.
    #[schemars(with = "Option<Cited<String>>")]
    pub why: Option<String>,
    /// Texts that the command's output holds while the verdict stands.
    #[serde(default)]
    #[schemars(with = "Cited<Vec<String>>")]
    pub shows: Vec<String>,
}

/// How a figure fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum VerdictName {
    Reproduced,
    Contradicted,
    /// Nobody has run it here yet.
    NotRun,
    OutOfScope,
}

impl VerdictName {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Contradicted => "contradicted",
            Self::NotRun => "not run here yet",
            Self::OutOfScope => "out of scope",
        }
    }
}

impl Checked for FiguresFile {
    fn check(&self, document: &Document) -> Result<(), Diagnostic> {
        let wrong = self.figures.iter().enumerate().flat_map(|(k, figure)| {
            let twin = self.figures[..k].iter().any(|other| other.id == figure.id);
            let unexplained = figure.verdict != VerdictName::Reproduced && figure.why.is_none();
            let unfounded = figure.verdict == VerdictName::Reproduced && figure.command.is_none();
            [
                (twin, "two figures share this id", "an id of its own"),
                (unexplained, "a verdict without a reason", "`why`"),
                (unfounded, "reproduced by no command", "`command`"),
            ]
            .into_iter()
            .filter(|(wrong, ..)| *wrong)
            .map(move |(_, what, expected)| {
                Err(document.complain(&format!("figures.{k}"), &Complaint::new(what).expected(expected)))
            })
        });
        Diagnostic::gather(wrong)
    }
}
