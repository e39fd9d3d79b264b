//! Syntax elements that must lie in a range.

use trinity_bits::BitstreamError;

/// Fails unless `value` lies in `range`, naming the syntax element.
pub(super) fn in_range<T: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, BitstreamError> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(BitstreamError::Invalid(format!(
            "{name} is {value}, outside {} to {}",
            range.start(),
            range.end()
        )))
    }
}
