//! Work that Python waits for without holding its lock: it reports how far it
//! is, and stops where somebody pressed Ctrl-C.
//!
//! Small work runs where it was called. Large work runs on a thread of its own,
//! while the calling one looks after signals; whoever is interrupted gets
//! `KeyboardInterrupt` at once, and the work ends at its next step.

use crate::failure::Failure;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trinity_study::Progress;

/// How often a waiting thread looks for signals.
const LOOK: Duration = Duration::from_millis(50);
/// Codecs recurse little, and studies keep tables on the stack.
const STACK_BYTES: usize = 16 << 20;

/// How far the work is.
#[derive(Debug, Default)]
pub struct Watch {
    cancelled: AtomicBool,
    done: AtomicU64,
    part: Mutex<(u64, String)>,
    remarks: Mutex<Vec<String>>,
}

impl Progress for Watch {
    fn begin(&self, total: u64, what: &str) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = (total, what.to_owned());
        self.done.store(0, Ordering::Relaxed);
    }

    fn advance(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    fn remark(&self, text: &str) {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Watch {
    /// Tells Python how far the work is: `report(what, done, total)`, and the
    /// remarks that came up as `report(text, None, None)`.
    fn tell(&self, py: Python<'_>, report: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(report) = report else { return Ok(()) };
        let remarks = std::mem::take(&mut *self.remarks.lock().unwrap_or_else(PoisonError::into_inner));
        for remark in remarks {
            report.call1(py, (remark, py.None(), py.None()))?;
        }
        let (total, what) = self.part.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if total > 0 {
            report.call1(py, (what, self.done.load(Ordering::Relaxed).min(total), total))?;
        }
        Ok(())
    }
}

/// Whether work is worth a thread of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Done in a blink.
    Small,
    Large,
}

/// Does the work and waits for it.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    size: Size,
    report: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let watch = Arc::new(Watch::default());
    if size == Size::Small {
        let outcome = py.detach(|| work(&watch));
        watch.tell(py, report)?;
        return Ok(outcome?);
    }
    let (send, receive) = channel();
    let theirs = watch.clone();
    std::thread::Builder::new()
        .name("trinity".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Nobody listens any more where the caller was interrupted.
            let _ = send.send(work(&theirs));
        })
        .map_err(|error| Failure::run(format_args!("no thread to be had: {error}")))?;
    let receive = Mutex::new(receive);
    loop {
        let waited = py.detach(|| receive.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK));
        let seen = py.check_signals().and_then(|()| watch.tell(py, report));
        if let Err(interrupted) = seen {
            watch.cancelled.store(true, Ordering::Relaxed);
            return Err(interrupted);
        }
        match waited {
            Ok(outcome) => return Ok(outcome?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(
                    Failure::run("the work ended without a result; this is a defect of Trinity").into()
                );
            }
        }
    }
}
