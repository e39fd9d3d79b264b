//! A study's progress as bars and remarks on stderr.

use crate::context::Context;
use indicatif::ProgressBar;
use std::sync::{Mutex, PoisonError};
use trinity_study::Progress;

/// Shows what a study reports.
#[derive(Debug)]
pub struct Watch<'a> {
    ctx: &'a Context,
    bar: Mutex<Option<ProgressBar>>,
}

impl Context {
    /// Somebody to watch a study run.
    pub fn watch(&self) -> Watch<'_> {
        Watch { ctx: self, bar: Mutex::new(None) }
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
    }

    fn advance(&self, steps: u64) {
        if let Some(bar) = &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.inc(steps);
        }
    }

    fn end(&self) {
        self.replace(None);
    }

    fn remark(&self, text: &str) {
        self.ctx.remark(text);
    }
}
