//! What a calibration hands over, and what is answered.

use super::digits::Steps;
use super::kind::Kind;

/// One kernel's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    pub s: f64,
    /// Whether some size lies outside what was measured.
    pub extrapolated: bool,
}

/// One curve as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured<'a> {
    pub kind: Kind,
    /// Least and greatest value of each coordinate among measured kernels.
    pub ranges: Vec<(f64, f64)>,
    pub steps: Steps,
    /// Values of all terms of [`Kind::terms`] in turn, as [`quantize`] writes them.
    pub digits: &'a str,
}
