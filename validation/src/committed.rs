//! Tables that are part of the project: read whole, or an error.

use crate::Error;
use crate::csv::{CsvRow, Problem, Table};

/// Every row of such a table, through `read`.
pub fn rows<T>(
    file: &'static str,
    bytes: &[u8],
    needed: &'static str,
    read: impl Fn(&CsvRow<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, Error> {
    let (rows, problems) = Table::parse(file, bytes, needed)?.each(read);
    match problems.first() {
        Some(problem) => Err(Error::Data { file, why: problem.to_string() }),
        None => Ok(rows),
    }
}
