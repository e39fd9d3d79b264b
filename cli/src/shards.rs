//! Part of a command's work, left in a folder for a merge.
//!
//! A part is a table of rows under a name that says which part it is of how
//! many. It has that name only when it is whole, so a merge sees what is
//! missing. Knows nothing of what a row says.

use crate::failure::Failure;
use crate::output;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use trinity_study::Shard;
use trinity_tensor::ContentHash;

/// Options of commands whose work many machines can share out.
#[derive(Debug, Clone, clap::Args)]
pub struct ShardArgs {
    /// Do only part I of N, numbered from 0, and leave it for --merge; `slurm`
    /// takes both from the array that the task is of
    #[arg(long, value_name = "I/N", value_parser = parse, conflicts_with = "merge")]
    pub shard: Option<Shard>,
    /// Put all parts together; a part that is missing is named
    #[arg(long)]
    pub merge: bool,
}

/// `I/N`, or `slurm` within a job array.
pub fn parse(text: &str) -> Result<Shard, String> {
    if text != "slurm" {
        return text.parse();
    }
    let number = |name: &str| -> Result<u64, String> {
        let value = std::env::var(name).map_err(|_| format!("`slurm` needs {name}, which is not set"))?;
        value.parse().map_err(|_| format!("{name} is `{value}`, and no number"))
    };
    let first = std::env::var("SLURM_ARRAY_TASK_MIN").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
    let (id, count) = (number("SLURM_ARRAY_TASK_ID")?, number("SLURM_ARRAY_TASK_COUNT")?);
    id.checked_sub(first)
        .and_then(|index| Shard::new(index, count))
        .ok_or_else(|| format!("task {id} is none of the {count} from {first} on; number them without gaps"))
}

impl ShardArgs {
    /// Whether the work is one part of others, or puts them together.
    pub fn are_asked_for(&self) -> bool {
        self.shard.is_some() || self.merge
    }

    /// What a table is called while it grows: a part's name says that it is none yet.
    pub fn growing(&self, whole: &str) -> String {
        self.shard.map_or(whole.into(), |shard| format!("{}.partial.csv", shard.stem()))
    }

    /// The rows of all parts, where they are to be put together.
    pub fn rows<Row: DeserializeOwned>(&self, folder: Option<&Path>) -> Result<Vec<Row>, Failure> {
        folder.filter(|_| self.merge).map_or(Ok(Vec::new()), rows)
    }
}

/// Paths of all parts with this ending in a folder, in order.
///
/// # Errors
///
/// Where there is none, one is missing, or they are of several cuts.
pub fn all(folder: &Path, prefix: &OsStr, ending: &str) -> Result<Vec<PathBuf>, Failure> {
    let files = std::fs::read_dir(folder).map_err(|error| unread(folder, error))?;
    let mut found: Vec<(u64, u64, PathBuf)> = files
        .flatten()
        .filter_map(|file| {
            let name = file.file_name();
            let own = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes())?;
            let stem = std::str::from_utf8(own).ok()?.strip_suffix(ending)?;
            let (index, count) = stem.strip_prefix("shard-")?.split_once("-of-")?;
            Some((index.parse().ok()?, count.parse().ok()?, file.path()))
        })
        .collect();
    found.sort();
    let Some(&(_, count, _)) = found.first() else {
        return Err(Failure::input(format_args!("there are no parts in {}", folder.display()))
            .help("make them with --shard I/N, for every I below N"));
    };
    if let Some((_, other, path)) = found.iter().find(|(_, other, _)| *other != count) {
        return Err(Failure::input(format_args!(
            "{} is one of {other} parts, and others are of {count}",
            path.display()
        ))
        .help("keep the parts of one cut in the folder"));
    }
    let missing: Vec<String> = (0..count)
        .filter(|at| found.iter().all(|(index, ..)| index != at))
        .map(|at| at.to_string())
        .collect();
    if !missing.is_empty() {
        let parts = missing.join(", ");
        return Err(Failure::input(format_args!(
            "part {parts} of {count} is missing in {}",
            folder.display()
        ))
        .help(format_args!("run it: --shard {}/{count}", missing[0])));
    }
    Ok(found.into_iter().map(|(.., path)| path).collect())
}

/// The rows of all parts in a folder.
///
/// # Errors
///
/// Where a part is missing or cannot be read.
fn rows<Row: DeserializeOwned>(folder: &Path) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for path in all(folder, OsStr::new(""), ".csv")? {
        output::protect(&path);
        let bytes = std::fs::read(&path).map_err(|error| unread(&path, error))?;
        let table = unsealed(&path, &bytes).ok_or_else(|| {
            Failure::input(format_args!(
                "{} is damaged, or another part's: its checksum differs",
                path.display()
            ))
            .help("remove it, and run that part again")
        })?;
        for row in csv::Reader::from_reader(table).deserialize() {
            rows.push(row.map_err(|error| unread(&path, error))?);
        }
    }
    Ok(rows)
}

/// A file of the user's that cannot be read.
pub fn unread(path: &Path, error: impl Display) -> Failure {
    Failure::input(format_args!("cannot read {}: {error}", path.display()))
}

/// Begins the last line of a part.
const SEAL: &str = "# checksum ";

fn checksum(name: &str, table: &[u8]) -> u64 {
    let mut hash = ContentHash::default();
    [name.as_bytes(), table].into_iter().for_each(|bytes| hash.add(bytes));
    hash.finish()
}

/// A part's table with a last line by which it is known again: as it is, and
/// under its name.
pub fn sealed(name: &str, mut table: Vec<u8>) -> Vec<u8> {
    let seal = format!("{SEAL}{:016x}\n", checksum(name, &table));
    table.extend(seal.into_bytes());
    table
}

/// The table of a part; nothing where it is not what was sealed.
fn unsealed<'a>(path: &Path, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let name = path.file_name()?.to_str()?;
    let length = bytes.len().checked_sub(SEAL.len() + 16 + 1)?;
    let table = bytes.get(..length)?;
    (sealed(name, table.to_vec()) == bytes).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_and_two_cuts_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str| std::fs::write(folder.path().join(name), "a\n1\n").unwrap();
        let outcome = || format!("{:?}", all(folder.path(), OsStr::new(""), ".csv"));
        assert!(outcome().contains("there are no parts"));
        part("shard-00000-of-00003.csv");
        part("shard-00002-of-00003.csv");
        part("shard-00001-of-00003.partial.csv");
        assert!(outcome().contains("part 1 of 3 is missing"), "{}", outcome());
        part("shard-00001-of-00003.csv");
        assert_eq!(all(folder.path(), OsStr::new(""), ".csv").unwrap().len(), 3);
        part("shard-00000-of-00002.csv");
        assert!(outcome().contains("one of 3 parts, and others are of 2"), "{}", outcome());
    }

    #[test]
    fn a_part_is_known_again_by_every_byte_and_by_its_name() {
        let name = Path::new("out/shard-00000-of-00002.csv");
        let part = sealed("shard-00000-of-00002.csv", b"a\n1\n".to_vec());
        assert_eq!(unsealed(name, &part), Some(&b"a\n1\n"[..]));
        assert_eq!(unsealed(Path::new("out/shard-00001-of-00002.csv"), &part), None);
        for at in 0..part.len() {
            let mut flipped = part.clone();
            flipped[at] ^= 1;
            assert_eq!((unsealed(name, &flipped), unsealed(name, &part[..at])), (None, None), "byte {at}");
        }
    }
}
