//! Tables as they come: comma-separated lines with a header, read so that
//! every complaint names file, line and column.
//!
//! A line is a record. One that cannot be read is reported, counted and
//! skipped; the ones around it are still read. Knows nothing of what the
//! columns mean.

use std::fmt;
use std::path::Path;

/// Something wrong in a table, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    pub file: String,
    /// The line's number, from one.
    pub line: usize,
    /// Character of the line, from one.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// A table whose header was understood.
#[derive(Clone, Debug)]
pub struct Table {
    file: String,
    header: Vec<String>,
    records: Vec<Record>,
    /// Lines that are no record.
    pub problems: Vec<Problem>,
}

/// One line cut into fields.
#[derive(Clone, Debug)]
struct Record {
    line: usize,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    column: usize,
    text: String,
}

/// Why a table cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot read {file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{file}:1:1: the header has no column `{column}`; expected at least {expected}")]
    NoColumn { file: String, column: &'static str, expected: String },
    #[error("{file} is empty; expected a header line")]
    Empty { file: String },
}

impl Table {
    /// Reads `path` and checks that the header has every column of `needed`, which is written as a header is.
    pub fn read(path: &Path, needed: &'static str) -> Result<Self, Error> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| Error::Read { file: file.clone(), source })?;
        Self::parse(&file, &bytes, needed)
    }

    /// Reads a table from memory; `file` is what complaints call it.
    pub fn parse(file: &str, bytes: &[u8], needed: &'static str) -> Result<Self, Error> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut table =
            Self { file: file.to_owned(), header: Vec::new(), records: Vec::new(), problems: Vec::new() };
        for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            match split(line) {
                Ok(fields) if table.header.is_empty() => {
                    table.header = fields.into_iter().map(|field| field.text).collect();
                }
                Ok(fields) if fields.len() == table.header.len() => {
                    table.records.push(Record { line: i + 1, fields });
                }
                Ok(fields) => {
                    let column = fields.get(table.header.len()).or(fields.last()).map_or(1, |f| f.column);
                    let message = format!("{} fields, the header has {}", fields.len(), table.header.len());
                    table.complain(i + 1, column, message);
                }
                Err((column, message)) => table.complain(i + 1, column, message.to_owned()),
            }
        }
        if table.header.is_empty() {
            return Err(Error::Empty { file: file.to_owned() });
        }
        table.require(needed)?;
        Ok(table)
    }

    /// Whether the header has a column.
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// Checks that the header has every column of `needed`.
    ///
    /// # Errors
    ///
    /// When it lacks one, which the error names.
    pub fn require(&self, needed: &'static str) -> Result<(), Error> {
        match needed.split(',').find(|name| !name.is_empty() && !self.has(name)) {
            Some(column) => {
                let expected = needed.replace(',', ", ");
                Err(Error::NoColumn { file: self.file.clone(), column, expected })
            }
            None => Ok(()),
        }
    }

    fn complain(&mut self, line: usize, column: usize, message: String) {
        self.problems.push(Problem { file: self.file.clone(), line, column, message });
    }

    /// What `read` makes of all rows, and what is wrong with lines and rows.
    pub fn each<T>(&self, read: impl Fn(&CsvRow<'_>) -> Result<T, Problem>) -> (Vec<T>, Vec<Problem>) {
        let (mut found, mut problems) = (Vec::new(), self.problems.clone());
        for row in self.rows() {
            match read(&row) {
                Ok(own) => found.push(own),
                Err(problem) => problems.push(problem),
            }
        }
        (found, problems)
    }

    /// Rows to read fields from.
    pub fn rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        self.records.iter().map(|record| CsvRow { table: self, record })
    }
}

/// One record of a table.
#[derive(Clone, Copy, Debug)]
pub struct CsvRow<'a> {
    table: &'a Table,
    record: &'a Record,
}

impl CsvRow<'_> {
    /// A problem with this row's field `name`.
    pub fn problem(&self, name: &str, message: impl Into<String>) -> Problem {
        let column = self.field(name).map_or(1, |field| field.column);
        Problem {
            file: self.table.file.clone(),
            line: self.record.line,
            column,
            message: format!("{name}: {}", message.into()),
        }
    }

    fn field(&self, name: &str) -> Option<&Field> {
        let index = self.table.header.iter().position(|h| h == name)?;
        self.record.fields.get(index)
    }

    /// A number that is not infinite.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn number(&self, name: &str) -> Result<f64, Problem> {
        let found = self.text(name).parse::<f64>().ok().filter(|number| number.is_finite());
        found.ok_or_else(|| self.problem(name, "expected a number"))
    }

    /// The text of `name`, empty when the column is absent.
    pub fn text(&self, name: &str) -> &str {
        self.field(name).map_or("", |field| field.text.trim())
    }

    /// A finite number above zero; `None` for an empty field.
    pub fn positive(&self, name: &str) -> Result<Option<f64>, Problem> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(Some(value)),
            Ok(value) => Err(self.problem(name, format!("expected a positive number, found {value}"))),
            Err(_) => Err(self.problem(name, format!("expected a positive number, found `{text}`"))),
        }
    }

    /// A whole number from one to four billion; `None` for an empty field.
    pub fn count(&self, name: &str) -> Result<Option<u32>, Problem> {
        match self.positive(name)? {
            None => Ok(None),
            Some(value) if value.fract() == 0.0 && value <= f64::from(u32::MAX) => Ok(Some(value as u32)),
            Some(value) => Err(self.problem(name, format!("expected a whole number, found {value}"))),
        }
    }

    /// A whole number that may be zero, as it is where there is none.
    ///
    /// # Errors
    ///
    /// When the field is no such number.
    pub fn whole(&self, name: &str) -> Result<u32, Problem> {
        match self.text(name) {
            "" | "0" | "0.0" => Ok(0),
            _ => self.required_count(name),
        }
    }

    /// [`CsvRow::count`], an empty field being a problem.
    pub fn required_count(&self, name: &str) -> Result<u32, Problem> {
        self.count(name)?.ok_or_else(|| self.problem(name, "expected a whole number, found nothing"))
    }

    /// [`CsvRow::positive`], an empty field being a problem.
    pub fn required(&self, name: &str) -> Result<f64, Problem> {
        self.positive(name)?.ok_or_else(|| self.problem(name, "expected a positive number, found nothing"))
    }
}

/// Cuts a line at its commas; a quoted field may hold commas, and quotes
/// written twice. Fails with a column and a reason.
fn split(line: &[u8]) -> Result<Vec<Field>, (usize, &'static str)> {
    let line = std::str::from_utf8(line).map_err(|e| (e.valid_up_to() + 1, "not UTF-8"))?;
    let mut fields = Vec::new();
    let mut chars = line.chars().enumerate().peekable();
    loop {
        let column = chars.peek().map_or(line.chars().count(), |&(i, _)| i) + 1;
        let mut text = String::new();
        if chars.next_if(|&(_, c)| c == '"').is_some() {
            loop {
                match chars.next() {
                    None => return Err((column, "the quote is never closed")),
                    Some((_, '"')) if chars.next_if(|&(_, c)| c == '"').is_some() => text.push('"'),
                    Some((_, '"')) => break,
                    Some((_, c)) => text.push(c),
                }
            }
            if let Some(&(i, c)) = chars.peek()
                && c != ','
            {
                return Err((i + 1, "text after a closing quote"));
            }
        } else {
            while let Some((_, c)) = chars.next_if(|&(_, c)| c != ',') {
                text.push(c);
            }
        }
        fields.push(Field { column, text });
        if chars.next().is_none() {
            return Ok(fields);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A table of one plain row, of which some columns are told otherwise.
    pub(crate) fn one_row(
        columns: &str,
        plain: impl Fn(&str) -> &'static str,
        changed: &[(&str, &str)],
    ) -> String {
        for (name, _) in changed {
            assert!(columns.split(',').any(|column| column == *name), "no column {name}");
        }
        let told = |name: &str| changed.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let row = columns.split(',').map(|name| told(name).unwrap_or_else(|| plain(name)));
        format!("{columns}\n{}\n", row.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn quoted_fields_keep_commas_and_quotes() {
        let table = Table::parse("t", b"a,b\n1,\"x, \"\"y\"\"\"\n", "a,b").unwrap();
        let row = table.rows().next().unwrap();
        assert_eq!((row.text("a"), row.text("b")), ("1", "x, \"y\""));
    }

    #[test]
    fn a_bad_line_is_reported_with_its_place_and_the_next_is_still_read() {
        let text = b"a,b\n1\n2,\"open\n3,\xff\n4,5,6\n7,x\n8,9\n";
        let table = Table::parse("t.csv", text, "a").unwrap();
        let places: Vec<_> = table.problems.iter().map(|p| (p.line, p.column)).collect();
        assert_eq!(places, [(2, 1), (3, 3), (4, 3), (5, 5)]);
        let numbers: Vec<_> = table.rows().map(|row| row.required("b")).collect();
        assert_eq!(
            numbers[0].as_ref().unwrap_err().to_string(),
            "t.csv:6:3: b: expected a positive number, found `x`"
        );
        assert_eq!(numbers[1], Ok(9.0));
    }

    #[test]
    fn a_missing_column_is_named() {
        let error = Table::parse("t.csv", b"a\n1\n", "a,bytes").unwrap_err();
        assert!(error.to_string().contains("`bytes`; expected at least a, bytes"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Ok(table) = Table::parse("t", &bytes, "") {
                for row in table.rows() {
                    let _ = row.count("x");
                }
            }
        }
    }
}
