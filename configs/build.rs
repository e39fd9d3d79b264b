//! Lists the TOML files beside this script, so that a new one is embedded
//! without a line of code: the command works from any folder.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    for folder in fs::read_dir(&root)? {
        let folder = folder?.path();
        let is_data = folder.is_dir()
            && !["src", "tests", "schema", "target"].iter().any(|code| folder.ends_with(code));
        if !is_data {
            continue;
        }
        collect(&folder, &mut files)?;
    }
    println!("cargo::rerun-if-changed={root}");
    // By name: `nvenc` comes before `nvenc-5090`, but `nvenc.toml` does not.
    files.sort_by_key(|path: &PathBuf| path.with_extension(""));
    let entries: Vec<String> = files
        .iter()
        .filter_map(|path| Some((path.strip_prefix(&root).ok()?.with_extension(""), path)))
        .map(|(name, path)| {
            let name = name.to_string_lossy().replace('\\', "/");
            format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string())
        })
        .collect();
    let list = format!("[\n{}]", entries.concat());
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("builtin.rs"), list)
}

/// Files of a folder and of those in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // Watching the folder notices files that come and go; `include_str!` notices edits.
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
