//! What every measurement needs of the machine, and how it repeats a timing.

use crate::discover::{self, Power};
use crate::gpu::Gpu;
use crate::nvdec::Standard;
use crate::streams::{self, Encoder, Spec, TestStream};
use crate::{Error, stats::Spread};
use nvml_wrapper::Nvml;

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasurePlan {
    pub repeats: usize,
    /// Only the points a quick look needs.
    pub quick: bool,
}

/// What a measurement needs of the machine.
pub(crate) struct Bench<'b> {
    pub(super) gpu: &'b Gpu,
    pub(super) nvml: Option<Nvml>,
    pub(super) plan: MeasurePlan,
    pub(super) encoder: &'b Encoder<'b>,
    pub(super) progress: &'b (dyn Fn(&str) + Sync),
}

impl Bench<'_> {
    pub(super) fn power(&self) -> Option<Power> {
        self.nvml.as_ref().and_then(|nvml| discover::power(nvml, 0))
    }

    pub(super) fn stream(&self, spec: Spec) -> Result<TestStream, Error> {
        streams::make(spec, 1, self.encoder)
    }

    /// Repeats a timing after one warm-up.
    pub(super) fn repeat(&self, once: impl FnMut() -> Result<f64, Error>) -> Result<Spread, Error> {
        repeat(self.plan.repeats, once)
    }
}

/// Repeats a timing after one warm-up.
pub(super) fn repeat(repeats: usize, mut once: impl FnMut() -> Result<f64, Error>) -> Result<Spread, Error> {
    once()?;
    let times = (0..repeats).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    Spread::timed("timing", &times)
}

/// About 2.9 bits a value on weight-like frames, the paper's operating point.
pub(crate) const TYPICAL_QP: i32 = 20;

/// A weight-like stream at the paper's operating point.
pub(crate) fn typical(standard: Standard, size: usize, pictures: usize) -> Spec {
    Spec { pictures, ..Spec::plain(standard, (size, size), TYPICAL_QP) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_timing_warms_up_once_and_stops_at_the_first_failure() {
        let mut calls = 0;
        let spread = repeat(3, || {
            calls += 1;
            // The first call, which compiles and allocates, is not counted.
            Ok(if calls == 1 { 1000.0 } else { f64::from(calls) })
        });
        assert_eq!((spread.unwrap(), calls), (Spread { median: 3.0, low: 2.0, high: 4.0, n: 3 }, 4));
        let mut calls = 0;
        let failed = repeat(9, || {
            calls += 1;
            if calls == 3 { Err(Error::Nvcomp { call: "decode", status: 5 }) } else { Ok(1.0) }
        });
        assert!(matches!(failed, Err(Error::Nvcomp { status: 5, .. })) && calls == 3);
        assert!(repeat(0, || Ok(1.0)).unwrap_err().to_string().contains("no repetitions"));
    }
}
