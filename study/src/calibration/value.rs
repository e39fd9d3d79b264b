//! How sure a measured value is, in words.

use trinity_hwcodec::calibration::Measured;

pub(super) fn spread(measured: &Measured, unit: &str) -> String {
    format!("95 % interval {:.4} to {:.4} {unit}", measured.low, measured.high)
}
