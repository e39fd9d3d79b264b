//! Columns of a Parquet file, by name. Knows files, not kernels.

use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot open {path}: {why}")]
    Open { path: PathBuf, why: std::io::Error },
    #[error("{path} is not a Parquet file that can be read: {why}")]
    Format { path: PathBuf, why: ParquetError },
    #[error("{path} has no column `{column}` of {expected}")]
    Column { path: PathBuf, column: String, expected: &'static str },
    #[error("{path} lacks values of `{column}` in {missing} rows")]
    Missing { path: PathBuf, column: String, missing: usize },
}

enum Column {
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<String>),
}

/// One table of measured kernels.
pub struct Table {
    path: PathBuf,
    rows: usize,
    columns: BTreeMap<String, Column>,
}

impl Table {
    /// Reads those of `wanted` that the file has.
    pub fn read(path: &Path, wanted: &[&str]) -> Result<Self, Error> {
        let file = File::open(path).map_err(|why| Error::Open { path: path.into(), why })?;
        let format = |why| Error::Format { path: path.into(), why };
        let reader = SerializedFileReader::new(file).map_err(format)?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let mut columns = BTreeMap::new();
        for (at, column) in schema.columns().iter().enumerate() {
            let name = column.name();
            if !wanted.contains(&name) {
                continue;
            }
            let mut read = match column.physical_type() {
                Type::INT64 => Column::Whole(Vec::new()),
                Type::DOUBLE => Column::Real(Vec::new()),
                Type::BYTE_ARRAY => Column::Text(Vec::new()),
                _ => continue,
            };
            for group in 0..reader.num_row_groups() {
                let group = reader.get_row_group(group).map_err(format)?;
                let values = group.get_column_reader(at).map_err(format)?;
                let missing = read.extend(values).map_err(format)?;
                if missing > 0 {
                    return Err(Error::Missing { path: path.into(), column: name.into(), missing });
                }
            }
            columns.insert(name.to_owned(), read);
        }
        let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        Ok(Self { path: path.into(), rows, columns })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the file has the column.
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// A column of whole numbers.
    pub fn whole(&self, column: &str) -> Result<&[i64], Error> {
        match self.columns.get(column) {
            Some(Column::Whole(values)) if values.len() == self.rows => Ok(values),
            _ => Err(self.lacks(column, "whole numbers")),
        }
    }

    /// A column of real numbers.
    pub fn real(&self, column: &str) -> Result<&[f64], Error> {
        match self.columns.get(column) {
            Some(Column::Real(values)) if values.len() == self.rows => Ok(values),
            _ => Err(self.lacks(column, "real numbers")),
        }
    }

    /// A column of words.
    pub fn text(&self, column: &str) -> Result<&[String], Error> {
        match self.columns.get(column) {
            Some(Column::Text(values)) if values.len() == self.rows => Ok(values),
            _ => Err(self.lacks(column, "words")),
        }
    }

    fn lacks(&self, column: &str, expected: &'static str) -> Error {
        Error::Column { path: self.path.clone(), column: column.into(), expected }
    }
}

impl Column {
    /// Appends what a group of rows holds; how many rows hold nothing.
    fn extend(&mut self, reader: ColumnReader) -> Result<usize, ParquetError> {
        match (self, reader) {
            (Self::Whole(values), ColumnReader::Int64ColumnReader(reader)) => all(reader, values),
            (Self::Real(values), ColumnReader::DoubleColumnReader(reader)) => all(reader, values),
            (Self::Text(values), ColumnReader::ByteArrayColumnReader(reader)) => {
                let mut bytes: Vec<ByteArray> = Vec::new();
                let missing = all(reader, &mut bytes)?;
                for word in &bytes {
                    values.push(String::from_utf8_lossy(word.data()).into_owned());
                }
                Ok(missing)
            }
            // The schema said otherwise; such a file has no rows of this column.
            _ => Ok(0),
        }
    }
}

/// Reads a column to its end; how many rows hold nothing.
fn all<T: DataType>(mut reader: ColumnReaderImpl<T>, values: &mut Vec<T::T>) -> Result<usize, ParquetError> {
    const BATCH: usize = 1 << 16;
    let (mut rows, before) = (0, values.len());
    loop {
        let mut levels = Vec::new();
        let (records, _, _) = reader.read_records(BATCH, Some(&mut levels), None, values)?;
        if records == 0 {
            return Ok(rows - (values.len() - before));
        }
        rows += records;
    }
}
