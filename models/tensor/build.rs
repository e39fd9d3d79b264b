//! A version for the codecs: a hash of what they are made of, so that a result
//! kept on disk is told apart from one that other code would give.

use std::path::{Path, PathBuf};

/// Crates whose code decides what a codec does to a tensor.
const CRATES: [&str; 6] = ["coding", "h264", "h265", "trinity", "line", "tensor"];

fn main() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    let sources = CRATES.iter().map(|name| models.join(name).join("src"));
    // The built-in profiles are part of the Trinity codec.
    for folder in sources.chain([models.join("../configs/codecs")]) {
        println!("cargo::rerun-if-changed={}", folder.display());
        gather(&folder, &mut files);
    }
    // The order of a folder's files is the file system's; that of a sorted list is not.
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for path in files {
        let text = std::fs::read(&path).unwrap_or_default();
        for byte in text.into_iter().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=TRINITY_CODECS={hash:016x}");
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "toml") {
            files.push(path);
        }
    }
}
