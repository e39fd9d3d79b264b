//! The numbers that the format and its encoder share with other languages, by the names they have there: kernels are
//! compiled with them, gates are held to them. Each is written down where it belongs, and nowhere twice.

use crate::entropy::line::coder::UNITS;
use crate::entropy::line::table::{ESCAPE, SCALE_BITS};
use crate::entropy::line::tile::{EXCEPTIONS, LEAST_STATE, MAX_GAIN, TAIL};
use crate::format::line::plan::{BASE_CLASSES, CLASSES, MAX_CLASS, UNIT_CLASS};
use crate::stage::line::matrix::ONE;
use crate::stage::line::quantizer::{FAR, NEVER};

/// Those that are compared with numbers below zero.
pub const SIGNED: [(&str, i32); 10] = [
    ("ESCAPE", ESCAPE as i32),
    ("UNIT_CLASS", UNIT_CLASS),
    ("CLASSES", CLASSES as i32),
    ("BASE_CLASSES", BASE_CLASSES as i32),
    ("MOST_COLUMN", MAX_CLASS),
    ("UNITS", UNITS),
    ("ONE", ONE),
    ("TAIL", TAIL as i32),
    ("FAR", FAR),
    ("NEVER", NEVER),
];

/// Those of words and bits.
pub const UNSIGNED: [(&str, u32); 4] = [
    ("SCALE_BITS", SCALE_BITS),
    ("LEAST_STATE", LEAST_STATE),
    ("MAX_GAIN", MAX_GAIN),
    ("EXCEPTIONS", EXCEPTIONS as u32),
];
