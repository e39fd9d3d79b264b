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

#[test]
fn every_stream_of_the_manifest_decodes_to_its_md5() {
    let Some(folder) = folder() else { return };
    let mut manifest = csv::Reader::from_path(folder.join("manifest.csv")).unwrap();
    let wanted = std::env::var("TRINITY_STREAM").ok();
    let rows: Vec<csv::StringRecord> = manifest
        .records()
        .map(|row| row.unwrap())
        .filter(|row| &row[1] == "h264" && wanted.as_ref().is_none_or(|w| row[0].contains(w)))
        .collect();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let stream = std::fs::read(folder.join(&row[0])).unwrap();
            match md5_of(&stream) {
                Ok(found) if found.starts_with(&row[7]) => None,
                Ok(found) => Some(format!("{}: {found}, expected {} ({})", &row[0], &row[7], &row[9])),
                Err(error) => Some(format!("{}: {error} ({})", &row[0], &row[9])),
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} streams:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
