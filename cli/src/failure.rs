//! Why a command stopped, and the exit code that says so.
//!
//! A failure is a sentence about what is wrong and where, and one about what
//! to do. It is printed once, in `main`, and nowhere else.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Renderer, Snippet};
use std::{fmt::Display, ops::Range, process::ExitCode};

/// Why a command stopped.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    // Boxed: a result that succeeds should not pay for the text of a file.
    place: Option<Box<Place>>,
    help: Option<String>,
    /// What else is wrong, each of the same kind and without others of its own.
    others: Vec<Self>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Exit 1: the input was fine, the run was not.
    Run,
    /// Exit 2: the user can mend it by changing what they gave us.
    Input,
    /// Exit 0 and silence: the reader of our output left (`trinity … | head`).
    ReaderLeft,
}

/// Where in a text file the trouble is; bytes of `text`.
#[derive(Debug)]
struct Place {
    file: String,
    text: String,
    span: Range<usize>,
    label: String,
}

impl Place {
    fn json(&self) -> serde_json::Value {
        let before = self.text.get(..self.span.start).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        serde_json::json!({ "file": self.file, "line": line, "column": column })
    }
}

/// How a failure is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text { colour: bool },
    Json,
}

impl Failure {
    /// Bad arguments, configuration or data: exit 2.
    pub fn input(message: impl Display) -> Self {
        Self::new(Kind::Input, message)
    }

    /// A failed run: exit 1.
    pub fn run(message: impl Display) -> Self {
        Self::new(Kind::Run, message)
    }

    /// Adds what the user can do about it.
    pub fn help(mut self, advice: impl Display) -> Self {
        self.help = Some(advice.to_string());
        self
    }

    /// Adds the place in a text file, shown with its line and a caret.
    pub fn at(
        mut self,
        file: impl Display,
        text: impl Into<String>,
        span: Range<usize>,
        label: impl Display,
    ) -> Self {
        let place = Place { file: file.to_string(), text: text.into(), span, label: label.to_string() };
        self.place = Some(Box::new(place));
        self
    }

    /// A failed write to stdout: a closed pipe is no error of ours.
    pub(crate) fn stdout(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(Kind::ReaderLeft, ""),
            _ => Self::run(format_args!("cannot write to stdout: {error}")),
        }
    }

    fn new(kind: Kind, message: impl Display) -> Self {
        Self { kind, message: message.to_string(), place: None, help: None, others: Vec::new() }
    }

    /// The first of several failures, with the others behind it.
    pub(crate) fn of_all(failures: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut flat = failures.into_iter().flat_map(|mut failure| {
            let others = std::mem::take(&mut failure.others);
            std::iter::once(failure).chain(others)
        });
        let mut first = flat.next()?;
        first.others = flat.collect();
        Some(first)
    }

    /// Prints the failure on stderr, as text or as one JSON object, and gives
    /// the exit code.
    pub(crate) fn report(&self, form: Form) -> ExitCode {
        if self.kind == Kind::ReaderLeft {
            return ExitCode::SUCCESS;
        }
        match form {
            Form::Json => eprintln!("{}", self.json()),
            Form::Text { colour } => {
                for failure in std::iter::once(self).chain(&self.others) {
                    eprintln!("{}", failure.render(colour));
                }
            }
        }
        ExitCode::from(match self.kind {
            Kind::Input => 2,
            Kind::Run | Kind::ReaderLeft => 1,
        })
    }

    /// `error`, `place` and `help`, and the same of `others` where there are any.
    fn json(&self) -> serde_json::Value {
        let one = |failure: &Self| {
            let error = match failure.place.as_ref().map(|place| place.label.as_str()) {
                Some(label) if !label.is_empty() => format!("{}: {label}", failure.message),
                _ => failure.message.clone(),
            };
            serde_json::json!({
                "error": error,
                "place": failure.place.as_ref().map(|place| place.json()),
                "help": failure.help,
            })
        };
        let mut object = one(self);
        if !self.others.is_empty() {
            object["others"] = self.others.iter().map(one).collect();
        }
        object
    }

    fn render(&self, colour: bool) -> String {
        let mut group = Level::ERROR.primary_title(self.message.as_str()).elements(None::<Element<'_>>);
        if let Some(place) = &self.place {
            let annotation =
                AnnotationKind::Primary.span(place.span.clone()).label(Some(place.label.as_str()));
            group = group.element(
                Snippet::source(place.text.as_str()).path(place.file.as_str()).annotation(annotation),
            );
        }
        let mut groups = vec![group];
        if let Some(help) = &self.help {
            groups.push(Group::with_title(Level::HELP.secondary_title(help.as_str())));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&groups)
    }
}

impl From<trinity_config::Diagnostic> for Failure {
    fn from(diagnostic: trinity_config::Diagnostic) -> Self {
        let others: Vec<Self> = diagnostic.others.into_vec().into_iter().map(Self::from).collect();
        let mut failure = match diagnostic.place {
            Some(place) => Self::input(&diagnostic.message).at(
                &place.source.name,
                &place.source.text,
                place.span,
                &diagnostic.label,
            ),
            None if diagnostic.label.is_empty() => Self::input(&diagnostic.message),
            None => Self::input(format_args!("{}; {}", diagnostic.message, diagnostic.label)),
        };
        failure.help = diagnostic.help;
        failure.others = others;
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_line_column_and_caret() {
        let text = "[cluster]\nnic_per_gpu = 2\n";
        let failure = Failure::input("unknown key `nic_per_gpu`")
            .at("study.toml", text, 10..21, "expected one of: nics-per-gpu, gpus")
            .help("did you mean `nics-per-gpu`?");
        assert_eq!(
            failure.render(false),
            "\
error: unknown key `nic_per_gpu`
 --> study.toml:2:1
  |
2 | nic_per_gpu = 2
  | ^^^^^^^^^^^ expected one of: nics-per-gpu, gpus
  |
help: did you mean `nics-per-gpu`?"
        );
    }

    #[test]
    fn json_has_the_error_its_place_and_the_way_out() {
        let failure = Failure::input("unknown key `x`").at("a.toml", "y = 1\nx = 2\n", 6..7, "expected y");
        let failure = Failure::of_all([failure.help("remove it"), Failure::input("second")]).unwrap();
        assert_eq!(
            failure.json(),
            serde_json::json!({
                "error": "unknown key `x`: expected y",
                "place": { "file": "a.toml", "line": 2, "column": 1 },
                "help": "remove it",
                "others": [{ "error": "second", "place": null, "help": null }],
            })
        );
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let failure = Failure::stdout(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(failure.kind, Kind::ReaderLeft);
    }
}
