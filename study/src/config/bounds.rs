//! Bounds that a value's type does not state.

use trinity_config::{Complaint, Diagnostic, Document};

/// Complains about each of `values` that is not a positive number.
pub(super) fn positive(document: &Document, at: &str, values: &[(&str, f64)]) -> Result<(), Diagnostic> {
    let wrong = values.iter().filter(|(_, value)| !(*value > 0.0 && value.is_finite()));
    Diagnostic::gather(wrong.map(|(key, value)| {
        Err(document.complain(
            &format!("{at}{key}"),
            &Complaint::new(format_args!("`{key}` is {value}")).expected("more than zero"),
        ))
    }))
}
