//! A study's progress as bars and remarks on stderr.

use crate::context::Context;
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use trinity_study::Progress;

/// How often a line is written where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Shows what a study reports: as a bar on a terminal, elsewhere as a line now
/// and then, so that the log of a long run tells how far it is.
#[derive(Debug)]
pub struct Watch<'a> {
    ctx: &'a Context,
    bar: Mutex<Option<ProgressBar>>,
    lines: Option<Mutex<Lines>>,
}

/// What the lines of a log are made of.
#[derive(Debug)]
struct Lines {
    what: String,
    total: u64,
    done: u64,
    began: Instant,
    last: Instant,
}

impl Lines {
    fn begin(total: u64, what: &str) -> Self {
        let now = Instant::now();
        Self { what: what.to_owned(), total, done: 0, began: now, last: now }
    }

    /// A line, where the last one is long ago.
    fn advance(&mut self, steps: u64, every: Duration) -> Option<String> {
        self.done += steps;
        if self.last.elapsed() < every {
            return None;
        }
        self.last = Instant::now();
        let seconds = self.began.elapsed().as_secs();
        let share = (self.total > 0).then(|| 100.0 * self.done as f64 / self.total as f64);
        let far = share.map_or(String::new(), |share| format!(" {share:.0} %,"));
        Some(format!("{}:{far} {seconds} s", self.what))
    }
}

impl Context {
    /// Somebody to watch a study run.
    pub fn watch(&self) -> Watch<'_> {
        let logged = !self.quiet && !std::io::stderr().is_terminal();
        let lines = logged.then(|| Mutex::new(Lines::begin(0, "")));
        Watch { ctx: self, bar: Mutex::new(None), lines }
    }
}

impl Watch<'_> {
    fn replace(&self, next: Option<ProgressBar>) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(over) = std::mem::replace(&mut *bar, next) {
            over.finish_and_clear();
        }
    }
}

impl Progress for Watch<'_> {
    fn begin(&self, total: u64, what: &str) {
        self.replace(Some(self.ctx.progress(total, what)));
        if let Some(lines) = &self.lines {
            *lines.lock().unwrap_or_else(PoisonError::into_inner) = Lines::begin(total, what);
        }
    }

    fn advance(&self, steps: u64) {
        if let Some(bar) = &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.inc(steps);
        }
        if let Some(lines) = &self.lines {
            let line = lines.lock().unwrap_or_else(PoisonError::into_inner).advance(steps, LINE_EVERY);
            line.iter().for_each(|line| self.ctx.remark(line));
        }
    }

    fn end(&self) {
        self.replace(None);
    }

    fn remark(&self, text: &str) {
        self.ctx.remark(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_hears_how_far_the_work_is_and_not_too_often() {
        let mut lines = Lines::begin(200, "calibrating");
        assert_eq!(lines.advance(50, Duration::from_secs(60)), None);
        assert_eq!(lines.advance(50, Duration::ZERO).as_deref(), Some("calibrating: 50 %, 0 s"));
        let mut unknown = Lines::begin(0, "running");
        assert_eq!(unknown.advance(1, Duration::ZERO).as_deref(), Some("running: 0 s"));
    }
}
