//! What is wrong, in the form that the command prints with `--json`.

use serde_json::{Value, json};
use trinity_config::Diagnostic;
use trinity_study::Error;

/// An answer that is none: a sentence, a place and a way out.
#[derive(Debug)]
pub struct Refusal(pub Value);

impl Refusal {
    pub fn new(message: impl ToString, help: impl ToString) -> Self {
        Self(json!({ "error": message.to_string(), "place": null, "help": help.to_string() }))
    }
}

impl From<Diagnostic> for Refusal {
    fn from(diagnostic: Diagnostic) -> Self {
        let one = |mistake: &Diagnostic| {
            let error = match (&mistake.place, mistake.label.as_str()) {
                (_, "") => mistake.message.clone(),
                (Some(_), label) => format!("{}: {label}", mistake.message),
                (None, label) => format!("{}; {label}", mistake.message),
            };
            let place = mistake.place.as_ref().map(
                |place| json!({ "file": place.source.name, "line": place.line(), "column": place.column() }),
            );
            json!({ "error": error, "place": place, "help": mistake.help })
        };
        let mistakes = diagnostic.flatten();
        let mut all = mistakes.iter().map(one);
        let mut first = all.next().unwrap_or_default();
        let others: Vec<Value> = all.collect();
        if !others.is_empty() {
            first["others"] = others.into();
        }
        Self(first)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Config(diagnostic) => diagnostic.into(),
            Error::Tensor { subject, error } => {
                Self::new(format!("{subject}: {}", trinity_study::tensors::sentence(&error)), "")
            }
            other => {
                let help = other.help().map(str::to_owned);
                Self(json!({ "error": other.to_string(), "place": null, "help": help }))
            }
        }
    }
}
