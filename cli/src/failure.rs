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
        Self { kind, message: message.to_string(), place: None, help: None }
    }

    /// Prints the failure on stderr and gives the exit code.
    pub(crate) fn report(&self, colour: bool) -> ExitCode {
        if self.kind == Kind::ReaderLeft {
            return ExitCode::SUCCESS;
        }
        eprintln!("{}", self.render(colour));
        ExitCode::from(match self.kind {
            Kind::Input => 2,
            Kind::Run | Kind::ReaderLeft => 1,
        })
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
        failure
    }
}

impl From<trinity_study::Error> for Failure {
    fn from(error: trinity_study::Error) -> Self {
        use trinity_study::Error;
        let error = match error {
            Error::Config(diagnostic) => return diagnostic.into(),
            other => other,
        };
        let mut failure = match &error {
            Error::Model(trinity_lm::Error::Hook { .. }) | Error::Cancelled => Self::run(&error),
            Error::Tensor { subject, error } => return crate::cmd::tensors::bad_input(subject, error),
            _ => Self::input(&error),
        };
        failure.help = error.help().map(str::to_owned);
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
    fn a_closed_pipe_is_not_an_error() {
        let failure = Failure::stdout(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(failure.kind, Kind::ReaderLeft);
    }
}
