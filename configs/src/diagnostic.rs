//! What is wrong, where, what was expected, and the nearest right spelling.
//!
//! The library returns [`Diagnostic`]s; drawing the line and the caret is the
//! command's affair.

use std::{fmt, ops::Range, sync::Arc};

/// A text that values were read from: a file, an embedded file, or a `--set`.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// How the text is called in messages, such as `configs/gpus/h100.toml`.
    pub name: String,
    /// The text itself.
    pub text: String,
}

/// A stretch of a [`Source`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The text.
    pub source: Arc<Source>,
    /// Bytes of the text.
    pub span: Range<usize>,
}

impl Place {
    /// Line, counted from one.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// Column in characters, counted from one.
    pub fn column(&self) -> usize {
        self.before().rsplit('\n').next().unwrap_or_default().chars().count() + 1
    }

    fn before(&self) -> &str {
        self.source.text.get(..self.span.start).unwrap_or(&self.source.text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source.name, self.line(), self.column())
    }
}

/// One thing wrong with a configuration, and what else is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, in a sentence.
    pub message: String,
    /// Where, if it has a place (a missing file has none).
    pub place: Option<Place>,
    /// What stands beside the caret: usually what was expected.
    pub label: String,
    /// What to try.
    pub help: Option<String>,
    /// Further mistakes, each without others of its own: who mends a file wants
    /// to see all of them at once.
    pub others: Box<[Self]>,
}

impl Diagnostic {
    /// Without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
            label: String::new(),
            help: None,
            others: Box::default(),
        }
    }

    /// The first of several mistakes, with the others behind it.
    pub fn of_all(mistakes: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut flat = mistakes.into_iter().flat_map(Self::flatten);
        let mut first = flat.next()?;
        first.others = flat.collect();
        Some(first)
    }

    /// Runs every check and gathers what each of them complains about.
    pub fn gather(checks: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        match Self::of_all(checks.into_iter().filter_map(Result::err)) {
            None => Ok(()),
            Some(mistakes) => Err(mistakes),
        }
    }

    /// This mistake and the others, each alone.
    pub fn flatten(mut self) -> Vec<Self> {
        let others = std::mem::take(&mut self.others);
        std::iter::once(self).chain(others.into_vec().into_iter().flat_map(Self::flatten)).collect()
    }

    /// The same, at a place.
    pub fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    /// The same, with this beside the caret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same, with what to try.
    pub fn help(mut self, help: Option<impl Into<String>>) -> Self {
        self.help = help.map(Into::into);
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if !self.label.is_empty() {
            write!(f, ": {}", self.label)?;
        }
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        self.others.iter().try_for_each(|other| write!(f, "\n{other}"))
    }
}

impl std::error::Error for Diagnostic {}

/// A complaint about a value, for `serde::de::Error::custom`: the message, what
/// was expected, and what to try reach the [`Diagnostic`] as separate parts.
///
/// ```
/// # use trinity_config::Complaint;
/// let complaint = Complaint::new("7 experts cannot be shared by 2 devices")
///     .expected("a multiple of 2")
///     .help("set `experts` to 8");
/// assert_eq!(complaint.to_string().lines().count(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Complaint {
    message: String,
    expected: String,
    help: String,
}

impl Complaint {
    /// A diagnostic that says what is wrong.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), ..Self::default() }
    }

    /// What would have been right.
    pub fn expected(mut self, what: impl fmt::Display) -> Self {
        self.expected = format!("expected {what}");
        self
    }

    /// What to try.
    pub fn help(mut self, advice: impl fmt::Display) -> Self {
        self.help = advice.to_string();
        self
    }

    /// The parts of a message written by [`Complaint`]'s `Display`.
    pub(crate) fn split(text: &str) -> Diagnostic {
        let mut lines = text.splitn(3, '\n');
        let mut next = || lines.next().unwrap_or_default().trim();
        let (message, label, help) = (next(), next(), next());
        Diagnostic::new(message).label(label).help((!help.is_empty()).then_some(help))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One part a line: still readable if another deserializer prints it.
        write!(f, "{}\n{}\n{}", self.message, self.expected, self.help)
    }
}

/// The candidate closest to `word`, if it is close enough to be what was meant.
pub fn nearest<S: AsRef<str>>(word: &str, candidates: &[S]) -> Option<String> {
    let folded = word.to_lowercase().replace('_', "-");
    candidates
        .iter()
        .map(|candidate| {
            let candidate = candidate.as_ref();
            let distance = strsim::damerau_levenshtein(&folded, &candidate.to_lowercase().replace('_', "-"));
            // Case decides between candidates that are otherwise as near.
            (distance, strsim::damerau_levenshtein(word, candidate), candidate)
        })
        .min()
        .filter(|(distance, _, candidate)| *distance <= 1 + candidate.chars().count() / 3)
        .map(|(.., candidate)| candidate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let source = Arc::new(Source { name: "a.toml".into(), text: "x = 1\nµ = 2".into() });
        let place = Place { source, span: 9..10 };
        assert_eq!(place.to_string(), "a.toml:2:3");
    }

    #[test]
    fn the_nearest_spelling_ignores_case_and_underscores() {
        let keys = ["nics-per-gpu", "gpus", "budget"];
        assert_eq!(nearest("nic_per_gpu", &keys).as_deref(), Some("nics-per-gpu"));
        assert_eq!(nearest("GPUS", &keys).as_deref(), Some("gpus"));
        assert_eq!(nearest("temperature", &keys), None);
    }

    #[test]
    fn a_complaint_survives_being_a_string() {
        let complaint = Complaint::new("too hot").expected("less").help("cool it");
        let diagnostic = Complaint::split(&complaint.to_string());
        assert_eq!(diagnostic.to_string(), "too hot: expected less; cool it");
        assert_eq!(Complaint::split("plain").to_string(), "plain");
    }
}
