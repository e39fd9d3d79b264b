//! What became of a step, in memory and as a line of text.

use crate::tools::Failure;

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepOutcome {
    Passed,
    Failed(String),
    LeftOut(String),
}

impl<E: Into<Failure>> From<Result<(), E>> for StepOutcome {
    fn from(result: Result<(), E>) -> Self {
        match result.map_err(Into::into) {
            Ok(()) => Self::Passed,
            Err(Failure::Missing(reason)) => Self::LeftOut(reason),
            Err(Failure::Failed(reason)) => Self::Failed(reason),
        }
    }
}

impl StepOutcome {
    /// As one line, which [`StepOutcome::read`] takes back.
    pub fn written(&self) -> String {
        match self {
            Self::Passed => "passed".into(),
            Self::Failed(reason) => format!("FAILED: {}", reason.replace('\n', " ")),
            Self::LeftOut(reason) => format!("left out: {}", reason.replace('\n', " ")),
        }
    }

    pub fn read(line: &str) -> Option<Self> {
        match line.split_once(": ") {
            None => (line == "passed").then_some(Self::Passed),
            Some(("FAILED", reason)) => Some(Self::Failed(reason.into())),
            Some(("left out", reason)) => Some(Self::LeftOut(reason.into())),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_step_survives_the_way_through_a_file() {
        let outcomes = [
            StepOutcome::Passed,
            StepOutcome::Failed("it: fell".into()),
            StepOutcome::LeftOut("no x: none".into()),
        ];
        for outcome in outcomes {
            assert_eq!(StepOutcome::read(&outcome.written()), Some(outcome));
        }
        assert_eq!(StepOutcome::read(""), None);
        assert_eq!(StepOutcome::read("passed?"), None);
    }
}
