//! `compare.csv`: written as results arrive, read when a run goes on.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use trinity_tensor::compare::Row;

use crate::failure::Failure;
use crate::output;

/// Rows on disk; nothing at all without a folder.
#[derive(Debug)]
pub struct Store {
    path: Option<PathBuf>,
    known: HashMap<[String; 4], Row>,
    writer: Mutex<Option<csv::Writer<File>>>,
}

impl Store {
    /// Opens the file of an earlier run, if there is one.
    pub fn open(folder: Option<&Path>) -> Result<Self, Failure> {
        let Some(folder) = folder else {
            return Ok(Self { path: None, known: HashMap::new(), writer: Mutex::new(None) });
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::run(format_args!("cannot create {}: {error}", folder.display())))?;
        let path = folder.join("compare.csv");
        let known = if path.exists() { read(&path)? } else { HashMap::new() };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| Failure::run(format_args!("cannot write {}: {error}", path.display())))?;
        let fresh = known.is_empty() && file.metadata().is_ok_and(|metadata| metadata.len() == 0);
        let writer = csv::WriterBuilder::new().has_headers(fresh).from_writer(file);
        Ok(Self { path: Some(path), known, writer: Mutex::new(Some(writer)) })
    }

    /// What an earlier run found.
    pub fn known(&self, key: &[String; 4]) -> Option<Row> {
        self.known.get(key).cloned()
    }

    /// Keeps a row. A failed write is no loss: the whole file is written again
    /// at the end, and that failure is reported.
    pub fn add(&self, row: &Row) {
        if self.known.contains_key(&key(row)) {
            return;
        }
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let kept = writer.serialize(row).is_ok() && writer.flush().is_ok();
            debug_assert!(kept, "rows serialize");
        }
    }

    /// Writes the rows of this run in order, whole or not at all.
    pub fn finish(&self, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in rows {
            writer.serialize(row).map_err(Failure::run)?;
        }
        output::write(path, &writer.into_inner().map_err(Failure::run)?)
    }
}

fn key(row: &Row) -> [String; 4] {
    [row.tensor.clone(), row.codec.clone(), row.precondition.clone(), row.target.clone()]
}

fn read(path: &Path) -> Result<HashMap<[String; 4], Row>, Failure> {
    let mut reader = csv::Reader::from_path(path)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", path.display())))?;
    // A run that was stopped may have left half a line at the end.
    Ok(reader.deserialize::<Row>().filter_map(Result::ok).map(|row| (key(&row), row)).collect())
}
