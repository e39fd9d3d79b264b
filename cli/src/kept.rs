//! Rows of a CSV, kept as they arrive, so that a stopped run goes on where it
//! was. Knows nothing of what a row says.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failure;
use crate::output;

/// Rows on disk; nothing at all without a folder.
#[derive(Debug)]
pub struct Kept<Row> {
    path: Option<PathBuf>,
    earlier: Vec<Row>,
    writer: Mutex<Option<csv::Writer<File>>>,
}

impl<Row: Serialize + DeserializeOwned> Kept<Row> {
    /// Opens `name` in a folder, with those rows of an earlier run that
    /// `belongs` lets through.
    pub fn open(
        folder: Option<&Path>,
        name: &str,
        belongs: impl FnOnce(&[Row]) -> bool,
    ) -> Result<Self, Failure> {
        let Some(folder) = folder else {
            return Ok(Self { path: None, earlier: Vec::new(), writer: Mutex::new(None) });
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::run(format_args!("cannot create {}: {error}", folder.display())))?;
        let path = folder.join(name);
        let mut earlier: Vec<Row> = if path.exists() { read(&path)? } else { Vec::new() };
        if !belongs(&earlier) {
            earlier.clear();
        }
        // Written anew: a run that was stopped may have left half a line at the end.
        output::write(&path, &table(&earlier)?)?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|error| Failure::run(format_args!("cannot write {}: {error}", path.display())))?;
        crate::interrupt::hint(format!(
            "the same command goes on where this one is, from {}",
            path.display()
        ));
        let writer = csv::WriterBuilder::new().has_headers(earlier.is_empty()).from_writer(file);
        Ok(Self { path: Some(path), earlier, writer: Mutex::new(Some(writer)) })
    }

    /// What an earlier run found.
    pub fn earlier(&self) -> &[Row] {
        &self.earlier
    }

    /// Keeps a row. A failed write is no loss: the whole file is written again
    /// at the end, and that failure is reported.
    pub fn add(&self, row: &Row) {
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let kept = writer.serialize(row).is_ok() && writer.flush().is_ok();
            debug_assert!(kept, "rows serialize");
        }
    }

    /// Writes the rows of this run in order, whole or not at all.
    pub fn finish(&self, rows: &[Row]) -> Result<(), Failure> {
        self.path.as_ref().map_or(Ok(()), |path| output::write(path, &table(rows)?))
    }

    /// Writes the rows under a name of their own, which says that they are all.
    pub fn finish_as(&self, name: &str, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        output::write(&path.with_file_name(name), &table(rows)?)?;
        // Of no use any more, and in nobody's way if it stays.
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}

fn table<Row: Serialize>(rows: &[Row]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Failure::run)?;
    }
    writer.into_inner().map_err(Failure::run)
}

fn read<Row: DeserializeOwned>(path: &Path) -> Result<Vec<Row>, Failure> {
    let mut reader = csv::Reader::from_path(path)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", path.display())))?;
    Ok(reader.deserialize::<Row>().filter_map(Result::ok).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Pair {
        number: u32,
        word: String,
    }

    #[test]
    fn rows_outlive_a_run_that_stops_in_the_middle_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "number,word\n1,x\n2,y\n3").unwrap();
        // An earlier run of the same work wrote them.
        std::fs::write(folder.path().join(".trinity-run"), "pairs\nrows.csv\n").unwrap();
        output::claim(folder.path(), "pairs").unwrap();
        let open = |mine| Kept::open(Some(folder.path()), "rows.csv", |_: &[Pair]| mine).unwrap();
        let kept = open(true);
        assert_eq!(kept.earlier().len(), 2);
        kept.add(&Pair { number: 4, word: "z".into() });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "number,word\n1,x\n2,y\n4,z\n");
        assert!(open(false).earlier().is_empty() && open(true).earlier().is_empty());
    }
}
