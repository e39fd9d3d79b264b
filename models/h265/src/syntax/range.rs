//! Syntax elements that must lie in a range.

use trinity_bits::{BitstreamError, invalid};

/// Fails unless `value` lies in `range`, naming the syntax element.
pub(super) fn in_range<T: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, BitstreamError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (range.start(), range.end());
    invalid(format!("{name} is {value}, outside {least} to {most}"))
}
