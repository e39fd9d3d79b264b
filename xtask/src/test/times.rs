//! How long steps took the last time they passed on this machine, so that a
//! plan can say what to expect.

use crate::{environment::ALL, workspace::target};
use std::{collections::BTreeMap, env, fs, path::PathBuf};

/// The whole of `cargo xtask test`, as a step.
pub const WHOLE: &str = "all";

/// Seconds by step.
#[derive(Debug, Default)]
pub struct Times(BTreeMap<String, u64>);

impl Times {
    /// Those that were kept; none where nothing was.
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string(file()).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, seconds) = line.rsplit_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// A plan is better for them and does without: where they cannot be kept, nothing is said.
    pub fn write(&self) {
        let file = file();
        let _ = file.parent().map(fs::create_dir_all);
        let _ = fs::write(file, self.text());
    }

    fn text(&self) -> String {
        self.0.iter().map(|(name, seconds)| format!("{name} {seconds}\n")).collect()
    }

    pub fn of(&self, step: &str) -> Option<u64> {
        self.0.get(step).copied()
    }

    pub fn keep(&mut self, step: &str, seconds: u64) {
        self.0.insert(step.into(), seconds);
    }
}

fn file() -> PathBuf {
    target().join(if env::var_os(ALL).is_some() { "xtask/times-all" } else { "xtask/times" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_times_are_read_back_and_nonsense_is_nothing() {
        let mut times = Times::default();
        times.keep("tests", 90);
        times.keep("build", 200);
        let read = Times::parse(&times.text());
        assert_eq!((read.of("tests"), read.of("build"), read.of("page")), (Some(90), Some(200), None));
        assert_eq!(Times::parse("tests soon\n\n12").of("tests"), None);
    }
}
