//! Tables that are part of the project: read whole, or an error.

use crate::Error;
use crate::csv::{CsvRow, Problem, Table};

/// Every row of such a table, through `read`.
///
/// # Errors
///
/// When the table, or a row of it, is damaged.
pub fn rows<T>(
    file: &'static str,
    bytes: &[u8],
    needed: &[&'static str],
    read: impl Fn(&CsvRow<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, Error> {
    let damaged = |problem: &Problem| Error::Data { file, why: problem.to_string() };
    let table = Table::parse(file, bytes, needed)?;
    if let Some(problem) = table.problems.first() {
        return Err(damaged(problem));
    }
    table.rows().map(|row| read(&row).map_err(|problem| damaged(&problem))).collect()
}
