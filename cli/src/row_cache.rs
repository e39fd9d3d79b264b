//! Rows of a CSV, kept as they arrive, so that a stopped run goes on where it
//! was.
//!
//! Beside the table lies a list of its rows' checksums: a row that was changed
//! since is found anew, and not believed. Knows nothing of what a row says.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Serialize, de::DeserializeOwned};
use trinity_study::Shard;
use trinity_tensor::ContentHash;

use crate::context::Context;
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::{output, shards};

/// Rows on disk; nothing at all without a folder.
#[derive(Debug)]
pub struct RowCache<Row> {
    path: Option<PathBuf>,
    earlier: Vec<Row>,
    writer: Mutex<Option<Writer>>,
}

/// The table and the list of checksums, both growing.
#[derive(Debug)]
struct Writer {
    table: csv::Writer<File>,
    sums: File,
}

impl<Row: Serialize + DeserializeOwned> RowCache<Row> {
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
        let path = folder.join(name);
        // Held from here on: no other run reads half of what this one writes.
        let mut file = output::grow(&path)?;
        let mut earlier: Vec<Row> = read(&path)?;
        // Tables from before there was a list are believed.
        if let Ok(list) = std::fs::read_to_string(sums_path(&path)) {
            let known: HashSet<&str> = list.lines().collect();
            earlier.retain(|row| checksum(row).is_ok_and(|sum| known.contains(sum.as_str())));
        }
        if !belongs(&earlier) {
            earlier.clear();
        }
        let whole = csv_of(&earlier)?;
        if file.metadata().map_or(0, |found| found.len()) != whole.len() as u64 {
            // A run that was stopped may have left half a line at the end.
            output::renew(&path, &whole)?;
            file = output::grow(&path)?;
        }
        output::renew(&sums_path(&path), &sums(&earlier)?)?;
        let sums = output::grow(&sums_path(&path))?;
        crate::interrupt::hint(format!(
            "the same command goes on where this one is, from {}",
            path.display()
        ));
        let table = csv::WriterBuilder::new().has_headers(earlier.is_empty()).from_writer(file);
        Ok(Self { path: Some(path), earlier, writer: Mutex::new(Some(Writer { table, sums })) })
    }

    /// What an earlier run found.
    pub fn earlier(&self) -> &[Row] {
        &self.earlier
    }

    /// Keeps a row. A failed write is no loss: the whole file is written again
    /// at the end, and that failure is reported.
    pub fn add(&self, row: &Row) {
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let kept = writer.table.serialize(row).is_ok() && writer.table.flush().is_ok();
            debug_assert!(kept, "rows serialize");
            // A row whose checksum is missing is found anew.
            let _ = checksum(row).map(|sum| writer.sums.write_all(format!("{sum}\n").as_bytes()));
        }
    }

    /// Writes the rows of this run in order, whole or not at all.
    pub fn finish(&self, rows: &[Row]) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        output::renew(path, &csv_of(rows)?)?;
        output::renew(&sums_path(path), &sums(rows)?)
    }

    /// Writes the rows as a part of the work under its name, which says that they are all, and says so.
    pub fn finish_part(&self, shard: Shard, rows: &[Row], ctx: &Context) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let name = format!("{}.csv", shard.stem());
        let part = path.with_file_name(&name);
        output::write(&part, &shards::sealed(&name, csv_of(rows)?))?;
        // Of no use any more, and in nobody's way if they stay.
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_file(sums_path(path));
        ctx.remark(format!("wrote {}; when all parts are there, run the same with --merge", part.display()));
        ctx.tell(&serde_json::json!({ "part": JsonPath::from(part), "rows": rows.len() }))
    }
}

/// The file that holds the checksums of a table.
fn sums_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".sums");
    path.with_file_name(name)
}

/// The checksum of one row as the table writes it.
fn checksum<Row: Serialize>(row: &Row) -> Result<String, Failure> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.serialize(row).map_err(Failure::run)?;
    Ok(hashed(&writer.into_inner().map_err(Failure::run)?))
}

/// A hash of bytes, as files state it.
pub fn hashed(bytes: &[u8]) -> String {
    let mut hash = ContentHash::default();
    hash.add(bytes);
    format!("{:016x}", hash.finish())
}

fn sums<Row: Serialize>(rows: &[Row]) -> Result<Vec<u8>, Failure> {
    let lines: Result<String, Failure> = rows.iter().map(|row| Ok(checksum(row)? + "\n")).collect();
    Ok(lines?.into_bytes())
}

/// Rows as a CSV, under the names of their fields.
pub fn csv_of<Row: Serialize>(rows: &[Row]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Failure::run)?;
    }
    writer.into_inner().map_err(Failure::run)
}

fn read<Row: DeserializeOwned>(path: &Path) -> Result<Vec<Row>, Failure> {
    let mut reader = csv::Reader::from_path(path).map_err(|error| shards::unread(path, error))?;
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
        output::lock(folder.path(), "pairs").unwrap();
        let open = |mine| RowCache::open(Some(folder.path()), "rows.csv", |_: &[Pair]| mine).unwrap();
        let kept = open(true);
        assert_eq!(kept.earlier().len(), 2);
        kept.add(&Pair { number: 4, word: "z".into() });
        assert!(RowCache::open(Some(folder.path()), "rows.csv", |_: &[Pair]| true).is_err());
        drop(kept);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "number,word\n1,x\n2,y\n4,z\n");
        // A digit that changed since is not believed.
        std::fs::write(&path, "number,word\n1,x\n9,y\n4,z\n").unwrap();
        let numbers: Vec<u32> = open(true).earlier().iter().map(|pair| pair.number).collect();
        assert_eq!(numbers, [1, 4]);
        assert!(open(false).earlier().is_empty() && open(true).earlier().is_empty());
    }
}
