//! How long work tells how far it is, and learns that nobody wants it any more.

use crate::Error;

/// Somebody who watches a study run. Called from any thread.
pub trait Progress: Sync {
    /// A part begins: `total` steps of what `what` names.
    fn begin(&self, total: u64, what: &str) {
        let _ = (total, what);
    }

    /// `steps` more are done.
    fn advance(&self, steps: u64) {
        let _ = steps;
    }

    /// The part that began last is over.
    fn end(&self) {}

    /// Something worth a line, which changes no result.
    fn remark(&self, text: &str) {
        let _ = text;
    }

    /// Whether to stop: the study then ends in [`Error::Cancelled`].
    fn is_cancelled(&self) -> bool {
        false
    }

    /// [`Error::Cancelled`] where the work is no longer wanted. Fails where
    /// [`Progress::is_cancelled`] says so.
    fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
