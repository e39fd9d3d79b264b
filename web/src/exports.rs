//! What the page sees of the module: three functions over two buffers.
//!
//! `input(n)` makes room for n bytes and says where; `call()` answers the
//! request in that room; `keep()` keeps the room's bytes as a file for the next
//! request; `output()` says where the answer is, as long as `call()` said. The
//! page runs one call at a time.
// Names that are not mangled count as unsafe: two libraries could export the
// same. Nothing else here is; the page's writes happen between calls.
#![allow(unsafe_code)]

use crate::Engine;
use std::sync::{Mutex, MutexGuard, PoisonError};

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static FILE: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

fn hold<T>(buffer: &'static Mutex<T>) -> MutexGuard<'static, T> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for a request of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn input(bytes: usize) -> *mut u8 {
    let mut room = hold(&INPUT);
    *room = vec![0; bytes];
    room.as_mut_ptr()
}

/// What is in the room is a file that the next request speaks of.
#[unsafe(no_mangle)]
pub extern "C" fn keep() {
    *hold(&FILE) = std::mem::take(&mut *hold(&INPUT));
}

/// Answers the request in the room; the answer's length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn call() -> usize {
    let request = std::mem::take(&mut *hold(&INPUT));
    let file = std::mem::take(&mut *hold(&FILE));
    let answer = hold(&ENGINE).get_or_insert_default().answer(&request, file);
    let bytes = answer.len();
    *hold(&OUTPUT) = answer;
    bytes
}

/// The address of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    hold(&OUTPUT).as_ptr()
}
