//! Ctrl-C, and memory that runs out: the end of a process in a sentence.
//!
//! A command that keeps what it has says so here, once, before it begins its
//! work; everything else is left to the system.

use crate::context::Context;
use signal_hook::consts::{SIGABRT, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// What whoever stops the command should know.
static HINT: Mutex<Option<String>> = Mutex::new(None);

/// Exit codes of a process that a signal ended, as shells count them.
const SIGNAL_BASE: i32 = 128;

/// Says what becomes of the work if the command is stopped from here on.
pub fn hint(text: impl Into<String>) {
    *HINT.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
}

/// Starts to listen. Where that fails, signals do what they always did.
pub(crate) fn watch(ctx: &Context) {
    // A failed allocation prints its size and aborts; that is a failed run, not
    // a crash to keep a core of.
    let _ = signal_hook::flag::register_conditional_shutdown(SIGABRT, 1, Arc::new(AtomicBool::new(true)));
    let quiet = ctx.quiet;
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let hint = HINT.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match hint {
                    Some(hint) if !quiet => eprintln!("\nstopped: {hint}"),
                    _ => eprintln!("\nstopped"),
                }
                // At once: what a library does at the end of a process may wait for the work that is stopped here.
                signal_hook::low_level::exit(SIGNAL_BASE + signal);
            }
        });
    }
}
