//! A shard's part of points.csv: rows in blocks, each with its checksum.
//!
//! A block is a line that says which points it holds, how many bytes follow and
//! what they hash to, then the rows. The hash covers the sweep, the model's
//! version and the shard, too, so that rows of another are no rows of this one.
//! Files from before there were blocks are rows alone; of those the points are
//! counted. Knows files and bytes; what a row says is written elsewhere.

use super::files::State;
use crate::failure::Failure;
use crate::input::unreadable;
use crate::output::{self, cannot};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use trinity_study::sweep::Study;
use trinity_tensor::ContentHash;

/// The longest line that begins a block: four numbers.
const LONGEST_HEADER: u64 = 128;

/// What all blocks of a shard have in common.
#[derive(Debug, Clone)]
struct Key(String);

impl Key {
    fn of(state: &State) -> Self {
        Self(format!("{} {} {}", state.fingerprint, state.version, state.stem))
    }

    /// The line that begins a block.
    fn header(&self, points: &Range<u64>, rows: &[u8]) -> String {
        let mut hash = ContentHash::default();
        let about = format!("{} {} {}", self.0, points.start, points.end);
        [about.as_bytes(), rows].into_iter().for_each(|bytes| hash.add(bytes));
        format!("#block {} {} {} {:016x}\n", points.start, points.end, rows.len(), hash.finish())
    }
}

/// Appends blocks, if rows are wanted.
#[derive(Debug)]
pub struct RowsWriter(Option<Open>);

#[derive(Debug)]
struct Open {
    file: BufWriter<File>,
    path: PathBuf,
    key: Key,
    /// Bytes that were good when it was opened.
    bytes: u64,
}

impl RowsWriter {
    /// Goes on where `state` is. What was written after the last checkpoint is
    /// cut off. Returns the first point whose row is not there: rows that are
    /// missing or damaged are to be written again from there.
    pub fn open(state: &State, out: &Path) -> Result<(Self, u64), Failure> {
        if !state.rows {
            return Ok((Self(None), state.next));
        }
        let path = state.rows_path(out);
        let file = output::grow(&path)?;
        let failed = |error: std::io::Error| cannot("write", &path, &error);
        let key = Key::of(state);
        let mut blocks = Blocks::new(&file, &key, state.start).map_err(failed)?;
        let (mut good_bytes, mut next) = (0, state.start);
        while next < state.next
            && let Some(Ok((points, _))) = blocks.next()
            && points.end <= state.next
        {
            (good_bytes, next) = (blocks.position, points.end);
        }
        file.set_len(good_bytes).map_err(failed)?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok((Self(Some(Open { file, path, key, bytes: good_bytes })), next))
    }

    /// Bytes that were there when it was opened.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.bytes)
    }

    /// Appends the rows of some points; says how many bytes that took.
    pub fn append(&mut self, points: &Range<u64>, rows: &[u8]) -> Result<u64, Failure> {
        let Some(Open { file, path, key, .. }) = &mut self.0 else { return Ok(0) };
        let header = key.header(points, rows);
        let written = file.write_all(header.as_bytes()).and_then(|()| file.write_all(rows));
        written.map_err(|error| cannot("write", path, &error))?;
        Ok((header.len() + rows.len()) as u64)
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.0 {
            None => Ok(()),
            Some(Open { file, path, .. }) => file.flush().map_err(|error| cannot("write", path, &error)),
        }
    }
}

/// The blocks of a file, each checked, from `next` on without a gap.
struct Blocks<'a> {
    reader: BufReader<&'a File>,
    key: &'a Key,
    next: u64,
    /// Bytes of good blocks.
    position: u64,
    length: u64,
}

impl<'a> Blocks<'a> {
    fn new(mut file: &'a File, key: &'a Key, next: u64) -> std::io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let length = file.metadata()?.len();
        Ok(Self { reader: BufReader::with_capacity(1 << 20, file), key, next, position: 0, length })
    }

    /// The next block; `None` where the file ends or is no longer what was written.
    fn block(&mut self) -> Option<(Range<u64>, Vec<u8>)> {
        let mut header = String::new();
        (&mut self.reader).take(LONGEST_HEADER).read_line(&mut header).ok()?;
        let mut fields = header.strip_prefix("#block ")?.split_ascii_whitespace().map(str::parse::<u64>);
        let mut number = || fields.next()?.ok();
        let (points, bytes) = (number()?..number()?, number()?);
        let left = self.length.checked_sub(self.position + header.len() as u64)?;
        if points.start != self.next || points.end <= points.start || bytes > left {
            return None;
        }
        let mut rows = vec![0; usize::try_from(bytes).ok()?];
        self.reader.read_exact(&mut rows).ok()?;
        if self.key.header(&points, &rows) != header {
            return None;
        }
        self.position += header.len() as u64 + bytes;
        self.next = points.end;
        Some((points, rows))
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<(Range<u64>, Vec<u8>), u64>;

    /// A block, or the place of one that is none.
    fn next(&mut self) -> Option<Self::Item> {
        (self.position < self.length).then(|| self.block().ok_or(self.position))
    }
}

/// Hands on the rows of a shard that is done, piece by piece, each checked
/// before it is.
///
/// # Errors
///
/// Where the file is not what the shard's run wrote, with the place.
pub fn read(
    state: &State,
    folder: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let path = state.rows_path(folder);
    let file = File::open(&path).map_err(|error| unreadable(&path, &error).help(AGAIN))?;
    if !state.in_blocks {
        return read_plain(state, &path, file, take);
    }
    let key = Key::of(state);
    let mut blocks = Blocks::new(&file, &key, state.start).map_err(|error| cannot("read", &path, &error))?;
    for block in blocks.by_ref() {
        let (_, rows) = block.map_err(|at| damaged(&path, format_args!("the block at byte {at}")))?;
        take(&rows)?;
    }
    if blocks.next != state.end {
        return Err(damaged(&path, format_args!("the file ends at point {} of {}", blocks.next, state.end)));
    }
    Ok(())
}

/// Rows from before there were blocks: as many bytes as the checkpoint says,
/// and the points in their order.
fn read_plain(
    state: &State,
    path: &Path,
    mut file: File,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cannot_read = |error: std::io::Error| cannot("read", path, &error);
    let length = file.metadata().map_err(cannot_read)?.len();
    if length != state.rows_bytes {
        let expected = state.rows_bytes;
        return Err(damaged(path, format_args!("it has {length} bytes, and should have {expected}")));
    }
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(BufReader::new(&file));
    let mut next = state.start;
    for row in rows.records() {
        let index = row.ok().and_then(|row| row.get(1)?.parse::<u64>().ok());
        if index != Some(next) {
            return Err(damaged(path, format_args!("the row of point {next}")));
        }
        next += 1;
    }
    if next != state.end {
        return Err(damaged(path, format_args!("the file ends at point {next} of {}", state.end)));
    }
    file.seek(SeekFrom::Start(0)).map_err(cannot_read)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(cannot_read)? {
            0 => return Ok(()),
            read => take(&piece[..read])?,
        }
    }
}

const AGAIN: &str = "remove the shard's .json and .rows, and run that shard again";

/// Joins the rows of all shards under one header.
pub fn join_rows(study: &Study, states: &[(PathBuf, State)], path: &Path) -> Result<(), Failure> {
    let mut draft = output::Draft::create(path)?;
    draft.put(trinity_study::sweep::points_header(study).as_bytes())?;
    for (folder, state) in states {
        read(state, folder, |rows| draft.put(rows))?;
    }
    draft.finish()
}

fn damaged(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::input(format_args!(
        "`{}` is damaged, or of another sweep or shard: {what} is not what the run wrote",
        path.display()
    ))
    .help(AGAIN)
}
