//! Shards on disk: where a run stands and what it has seen. Their rows are in
//! `rows.rs`.

use crate::input::unreadable;
use crate::json_path::JsonPath;
use crate::row_cache::hashed;
use crate::{context::Context, failure::Failure, output};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use trinity_sim::sweep::Accumulator;
pub use trinity_study::Shard;
use trinity_study::sweep::Study;

/// Where a shard stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    pub sweep: String,
    pub sets: Vec<String>,
    #[serde(default)]
    pub calibration: Option<JsonPath>,
    pub top: usize,
    pub fingerprint: String,
    /// The model that computed it, see `trinity_sim::VERSION`; empty in files
    /// from before it was written down.
    #[serde(default)]
    pub version: String,
    /// What the files of the shard are called.
    pub stem: String,
    pub start: u64,
    pub end: u64,
    /// The first point not yet seen.
    pub next: u64,
    /// Whether every point is written down, and how many bytes that is.
    pub rows: bool,
    pub rows_bytes: u64,
    /// Whether the rows are in blocks with checksums; not in files from before
    /// there were any.
    #[serde(default)]
    pub in_blocks: bool,
    #[serde(rename = "tally")]
    pub accumulated: Accumulator,
}

impl State {
    /// The state an earlier run left in `out`, or a fresh one.
    pub fn open(study: &Study, shard: Shard, rows: bool, out: &Path, ctx: &Context) -> Result<Self, Failure> {
        let range = shard.range(study.plan.space.len());
        let fresh = Self {
            sweep: study.name.clone(),
            sets: study.sets.clone(),
            calibration: study.measurements.as_ref().map(|measured| measured.path.clone().into()),
            top: study.plan.top,
            fingerprint: study.fingerprint(),
            version: trinity_sim::VERSION.into(),
            stem: shard.stem(),
            start: range.start,
            end: range.end,
            next: range.start,
            rows,
            rows_bytes: 0,
            in_blocks: rows,
            accumulated: Accumulator::new(&study.plan),
        };
        let path = fresh.path(out);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(fresh) };
        let place = path.display();
        match Self::parse(&text) {
            Ok(left) if left.fingerprint == fresh.fingerprint && left.version != fresh.version => {
                ctx.remark(format!("{place} was computed by another version of the model; starting anew"));
                Ok(fresh)
            }
            Ok(left) if left.fingerprint == fresh.fingerprint && left.rows == rows => {
                output::own(&path);
                output::own(&fresh.rows_path(out));
                ctx.remark(format!("going on at point {} of {}", left.next, left.end));
                Ok(left)
            }
            _ if output::forced() => {
                ctx.remark(format!("{place} is of another sweep; starting anew"));
                Ok(fresh)
            }
            Ok(left) if left.fingerprint == fresh.fingerprint => Err(Failure::input(format_args!(
                "`{place}` is of a run {} the rows of points.csv, and this one is {}",
                if left.rows { "with" } else { "without" },
                if rows { "with them" } else { "without" },
            ))
            .help("give the same --points, choose another --out, or start anew with --force")),
            Ok(left) => Err(Failure::input(format_args!(
                "`{place}` is a checkpoint of the sweep `{}` (fingerprint {}), and this is `{}` ({})",
                left.sweep, left.fingerprint, fresh.sweep, fresh.fingerprint,
            ))
            .help("choose another folder with --out, or start anew with --force and lose that checkpoint")),
            Err(error) => {
                Err(Failure::input(format_args!("`{place}` is no checkpoint that can be read: {error}"))
                    .help("choose another folder with --out, or start anew with --force"))
            }
        }
    }

    pub fn path(&self, out: &Path) -> PathBuf {
        out.join(format!("{}.json", self.stem))
    }

    /// The shard's part of points.csv, without the header.
    pub fn rows_path(&self, out: &Path) -> PathBuf {
        out.join(format!("{}.rows", self.stem))
    }

    pub fn save(&self, out: &Path) -> Result<(), Failure> {
        let mut text = serde_json::to_string(self).map_err(Failure::run)?;
        let sum = hashed(text.as_bytes());
        // The last key of the object, so that the file stays one JSON document.
        text.pop();
        text.push_str(&format!("{CHECKSUM_KEY}{sum}\"}}"));
        output::renew(&self.path(out), text.as_bytes())
    }

    /// Reads what [`State::save`] writes, or wrote before there were checksums.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_end();
        let state = match text.rfind(CHECKSUM_KEY) {
            None => text.to_owned(),
            Some(at) => {
                let state = format!("{}}}", &text[..at]);
                if text[at + CHECKSUM_KEY.len()..].strip_suffix("\"}")
                    != Some(hashed(state.as_bytes()).as_str())
                {
                    return Err("its checksum does not match".into());
                }
                state
            }
        };
        serde_json::from_str(&state).map_err(|error| error.to_string())
    }

    /// Removes what only a resumed run would need.
    pub fn discard(&self, out: &Path) {
        let _ = fs::remove_file(self.path(out));
        let _ = fs::remove_file(self.rows_path(out));
    }
}

/// What stands before a checkpoint's checksum.
const CHECKSUM_KEY: &str = ",\"checksum\":\"";

/// Every shard in the folders.
pub fn find(folders: &[PathBuf]) -> Result<Vec<(PathBuf, State)>, Failure> {
    let mut states = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !(name.starts_with("shard-") && name.ends_with(".json")) {
                continue;
            }
            let no_shard = |error: &dyn std::fmt::Display| {
                Failure::input(format_args!("`{}` is no shard of a sweep: {error}", path.display()))
            };
            let text = fs::read_to_string(&path).map_err(|error| no_shard(&error))?;
            let state = State::parse(&text).map_err(|error| no_shard(&error))?;
            if name != format!("{}.json", state.stem) {
                return Err(no_shard(&format_args!("it was written as `{}.json`", state.stem))
                    .help("give the file its name back, or remove it"));
            }
            [state.path(folder), state.rows_path(folder)].iter().for_each(|path| output::protect(path));
            states.push((folder.clone(), state));
        }
    }
    if states.is_empty() {
        return Err(Failure::input("no shards in the folders named")
            .help("run `trinity sweep --shard I/N --out DIR` first"));
    }
    Ok(states)
}
