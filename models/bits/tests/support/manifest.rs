//! The shared conformance streams, which are no part of the project: `shared/conformance` beside
//! the repository, with a manifest that states an MD5 for each. Tests of both standards' codecs
//! include this file by its path.

use md5::{Digest, Md5};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use trinity_bits::Frame;

/// The folder of streams; said aloud where it is not there.
pub fn folder() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = own.ancestors().map(|dir| dir.join("shared/conformance")).find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: no shared/conformance beside the repository");
    }
    found
}

/// The MD5 of raw frames, or what is wrong with one.
pub fn md5_of<E: Display>(frames: impl Iterator<Item = Result<Frame, E>>) -> Result<String, String> {
    let mut hash = Md5::new();
    let mut raw = Vec::new();
    for (index, frame) in frames.enumerate() {
        raw.clear();
        frame.map_err(|error| format!("frame {index}: {error}"))?.write_raw(&mut raw);
        hash.update(&raw);
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// Every stream of a standard, of which there are more than `least`, comes to the MD5 in the manifest,
/// but for `exception`. `TRINITY_STREAM=CAMA` tries those whose name has CAMA in it; with
/// `--nocapture` every stream is named with its result.
pub fn hold(standard: &str, least: usize, exception: &str, md5: impl Fn(&[u8]) -> Result<String, String>) {
    let Some(folder) = folder() else { return };
    let manifest = std::fs::read_to_string(folder.join("manifest.csv")).unwrap();
    let rows = manifest.lines().map(|line| line.splitn(10, ',').collect::<Vec<_>>());
    let mut rows: Vec<_> = rows.filter(|row| row[1] == standard && !row[0].ends_with(exception)).collect();
    assert!(rows.len() > least, "the manifest names {} streams of {standard}", rows.len());
    let wanted = std::env::var("TRINITY_STREAM").unwrap_or_default();
    rows.retain(|row| row[0].contains(&wanted));
    assert!(!rows.is_empty(), "the manifest names no {standard} stream like `{wanted}`");
    let mut wrong = Vec::new();
    for row in &rows {
        let stream = std::fs::read(folder.join(row[0])).unwrap();
        match catch_unwind(AssertUnwindSafe(|| md5(&stream))).unwrap_or_else(|_| Err("panicked".into())) {
            Ok(found) if found.starts_with(row[7]) => eprintln!("{}: ok", row[0]),
            found => wrong.push(format!("{}: {found:?}, expected {} ({})", row[0], row[7], row[9])),
        }
    }
    assert!(wrong.is_empty(), "{} of {} streams:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
