//! What is wrong, as Python exceptions: the sentences of the command, its help,
//! and the place in a file where there is one.

use pyo3::prelude::*;
use pyo3::types::PyType;
use trinity_config::Diagnostic;
use trinity_study::tensors::{sentence, unknown_codec};

/// Exceptions of Python, where one may be a `ValueError` as well.
const INPUT: &str = "InputError";
const RUN: &str = "RunError";

/// A sentence, what to do about it, and whose it is.
#[derive(Debug)]
pub struct Failure {
    class: &'static str,
    message: String,
    help: Option<String>,
}

impl Failure {
    /// What whoever called can mend.
    pub fn input(message: impl ToString) -> Self {
        Self { class: INPUT, message: message.to_string(), help: None }
    }

    /// What nobody who called did wrong.
    pub fn run(message: impl ToString) -> Self {
        Self { class: RUN, message: message.to_string(), help: None }
    }

    pub fn help(mut self, help: impl ToString) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// What the tensor library refuses, at `place`.
    pub fn tensor(place: &str, error: &trinity_tensor::Error) -> Self {
        use trinity_tensor::Error as E;
        let said = sentence(error);
        // What was opened there names it already.
        let is_named = place.is_empty() || said.starts_with(&format!("{place}: "));
        let said = if is_named { said } else { format!("{place}: {said}") };
        match error.root() {
            E::OutOfMemory { .. } => Self::run(said),
            E::UnknownCodec { name, .. } => unknown_codec(name).into(),
            E::Profile(diagnostic) => Self::from(diagnostic.as_ref().clone()),
            E::Stopped => Self::run(error),
            _ if error.write_failure().is_some() => Self::run(said),
            _ => Self::input(said),
        }
    }
}

impl From<trinity_tensor::Error> for Failure {
    fn from(error: trinity_tensor::Error) -> Self {
        Self::tensor("", &error)
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        let mut message = diagnostic.message.clone();
        if !diagnostic.label.is_empty() {
            message.push_str(&format!("; {}", diagnostic.label));
        }
        if let Some(place) = &diagnostic.place {
            let before = place.source.text.get(..place.span.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            message.push_str(&format!(" ({}:{line}:{column})", place.source.name));
        }
        for other in &diagnostic.others {
            message.push_str(&format!("\n{}", Self::from(other.clone()).message));
        }
        Self { class: INPUT, message, help: diagnostic.help }
    }
}

impl From<trinity_study::Error> for Failure {
    fn from(error: trinity_study::Error) -> Self {
        use trinity_study::Error as E;
        let help = error.help().map(str::to_owned);
        match error {
            E::Config(diagnostic) => diagnostic.into(),
            E::Tensor { subject, error } => Self::tensor(&subject, &error),
            E::Cancelled | E::Model(trinity_lm::Error::Hook { .. }) => Self { help, ..Self::run(error) },
            other => Self { help, ..Self::input(other) },
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let text = match &failure.help {
                Some(help) => format!("{}\nhelp: {help}", failure.message),
                None => failure.message.clone(),
            };
            let made = py.import("trinity._errors").and_then(|module| module.getattr(failure.class));
            match made.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
                Ok(class) => Self::from_type(class, (text, failure.message, failure.help)),
                Err(broken) => broken,
            }
        })
    }
}
