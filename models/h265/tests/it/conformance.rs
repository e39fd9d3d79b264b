//! Every all-intra stream of the shared conformance set decodes to the MD5 in
//! its manifest. The set is not part of the project; without it the test says
//! so and passes.

use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use trinity_h265::Error;
use trinity_h265::HashCheck;

/// `shared/conformance` beside the repository.
pub fn conformance_dir() -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = manifest.ancestors().map(|dir| dir.join("shared/conformance")).find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: no shared/conformance beside the repository");
    }
    found
}

/// (file, expected MD5 or its prefix) of every H.265 stream.
pub fn streams(dir: &Path) -> Vec<(PathBuf, String)> {
    let manifest = std::fs::read_to_string(dir.join("manifest.csv")).unwrap();
    let h265 = manifest.lines().skip(1).filter(|line| line.split(',').nth(1) == Some("h265"));
    h265.map(|line| {
        let fields: Vec<_> = line.split(',').collect();
        (dir.join(fields[0]), fields[7].to_string())
    })
    .collect()
}

/// Why the stream does not decode as promised, if it does not.
fn disagreement(stream: &[u8], expected: &str) -> Option<String> {
    let mut hasher = Md5::new();
    let mut raw = Vec::new();
    for (index, decoded) in trinity_h265::frames(stream).enumerate() {
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return Some(format!("frame {index}: {error}")),
        };
        if let HashCheck::Mismatch { component } = decoded.hash {
            return Some(format!("frame {index}: component {component} differs from its picture hash"));
        }
        raw.clear();
        decoded.frame.write_raw(&mut raw);
        hasher.update(&raw);
    }
    let md5: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    (!md5.starts_with(expected)).then(|| format!("MD5 {md5}, expected {expected}"))
}

/// Palette mode, a screen-content tool. The MD5 in the manifest is that of the
/// wrong picture a decoder shows that does not know sps_scc_extension().
const PALETTE_STREAM: &str = "oxide_r413-palette-init.hevc";

#[test]
fn screen_content_is_refused_with_the_nal_unit_named() {
    let Some(dir) = conformance_dir() else { return };
    let stream = std::fs::read(dir.join("h265").join(PALETTE_STREAM)).unwrap();
    let error = trinity_h265::decode(&stream).unwrap_err();
    assert_eq!(
        error,
        Error::Unsupported { tool: "screen content coding (palette mode)", nal: 3, offset: 86 }
    );
}

#[test]
fn every_stream_decodes_to_the_md5_in_its_manifest() {
    let Some(dir) = conformance_dir() else { return };
    let only = std::env::var("TRINITY_STREAM").unwrap_or_default();
    let mut broken = Vec::new();
    let mut streams = streams(&dir);
    assert!(streams.len() > 100);
    streams.retain(|(path, _)| !path.ends_with(PALETTE_STREAM));
    for (path, expected) in streams.iter().filter(|(path, _)| path.to_string_lossy().contains(&only)) {
        let bytes = std::fs::read(path).unwrap();
        let outcome = std::panic::catch_unwind(|| disagreement(&bytes, expected));
        let outcome = outcome.unwrap_or_else(|_| Some("panicked".into()));
        if let Some(why) = outcome {
            broken.push(format!("{}: {why}", path.file_name().unwrap().to_string_lossy()));
        }
    }
    assert!(broken.is_empty(), "{} of {} streams:\n{}", broken.len(), streams.len(), broken.join("\n"));
}
