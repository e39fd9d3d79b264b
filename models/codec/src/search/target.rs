//! What an encoder is asked for and what it returns.

use crate::search::report::Report;

/// What an encoding has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most this many bits per value, everything counted.
    Bits(f64),
    /// At most this squared error over the squared values.
    Nmse(f64),
    /// This distance between neighbouring reconstruction points.
    Step(f64),
    /// Every bit comes back.
    Lossless,
}

/// A stream, what it decodes to, and how it came about.
#[derive(Debug, Clone)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub recon: Vec<f32>,
    pub report: Report,
}
