//! Every all-intra H.264 stream of `../shared/conformance` decodes to the MD5
//! in its manifest. Without that folder the test says so and passes.

use md5::{Digest, Md5};
use std::path::PathBuf;

/// The folder of streams, beside the repository.
fn folder() -> Option<PathBuf> {
    let mut at = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    while at.pop() {
        let candidate = at.join("shared/conformance");
        if candidate.join("manifest.csv").exists() {
            return Some(candidate);
        }
    }
    eprintln!("skipped: no shared/conformance above {}", env!("CARGO_MANIFEST_DIR"));
    None
}

fn md5_of(stream: &[u8]) -> Result<String, trinity_h264::Error> {
    let mut hash = Md5::new();
    let mut raw = Vec::new();
    for frame in trinity_h264::frames(stream) {
        raw.clear();
        frame?.write_raw(&mut raw);
        hash.update(&raw);
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// What is wrong with a stream, if anything.
fn verdict(folder: &std::path::Path, row: &csv::StringRecord) -> Result<(), String> {
    let stream = std::fs::read(folder.join(&row[0])).map_err(|error| error.to_string())?;
    let found = md5_of(&stream).map_err(|error| error.to_string())?;
    if found.starts_with(&row[7]) { Ok(()) } else { Err(format!("{found}, expected {}", &row[7])) }
}

/// `TRINITY_STREAM=CAMA` tries those whose name has CAMA in it; with
/// `--nocapture` every stream is named with its result.
#[test]
fn every_stream_of_the_manifest_decodes_to_its_md5() {
    let Some(folder) = folder() else { return };
    let mut manifest = csv::Reader::from_path(folder.join("manifest.csv")).unwrap();
    let wanted = std::env::var("TRINITY_STREAM").unwrap_or_default();
    let rows: Vec<csv::StringRecord> = manifest
        .records()
        .map(|row| row.unwrap())
        .filter(|row| &row[1] == "h264" && row[0].contains(&wanted))
        .collect();
    assert!(!rows.is_empty(), "the manifest names no H.264 stream like `{wanted}`");
    let mut wrong = Vec::new();
    for row in &rows {
        match verdict(&folder, row) {
            Ok(()) => eprintln!("{}: ok", &row[0]),
            Err(what) => wrong.push(format!("{}: {what} ({})", &row[0], &row[9])),
        }
    }
    assert!(wrong.is_empty(), "{} of {} streams:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
