//! A file is what its name says.
//!
//! A result under the name of another format (raw planes as `x.png`) misleads
//! whoever opens it next, so such names are refused. Names that stand for no
//! known format are the user's own affair.

use super::place::is_stdout;
use crate::failure::Failure;
use std::path::Path;

/// Endings, and the format that each stands for.
const FORMATS: [(&str, &str); 31] = [
    ("safetensors", "safetensors"),
    ("npy", "npy"),
    ("npz", "npz"),
    ("gguf", "GGUF"),
    ("pt", "PyTorch"),
    ("pth", "PyTorch"),
    ("tri", "tri"),
    ("trp", "trp"),
    ("basis", "basis"),
    ("png", "PNG"),
    ("pgm", "PGM"),
    ("jpg", "JPEG"),
    ("jpeg", "JPEG"),
    ("y4m", "Y4M"),
    ("yuv", "raw frames"),
    ("gray", "raw frames"),
    ("grey", "raw frames"),
    ("raw", "raw frames"),
    ("264", "H.264"),
    ("h264", "H.264"),
    ("avc", "H.264"),
    ("265", "H.265"),
    ("h265", "H.265"),
    ("hevc", "H.265"),
    ("mp4", "MP4"),
    ("mkv", "Matroska"),
    ("csv", "CSV"),
    ("json", "JSON"),
    ("html", "HTML"),
    ("svg", "SVG"),
    ("toml", "TOML"),
];

/// The format that a name's ending stands for, where it stands for one.
pub fn format_of(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    FORMATS.iter().find(|(own, _)| *own == ending).map(|(_, format)| *format)
}

/// Checks of a name against what will be written under it.
pub trait Named {
    /// Refuses a name that stands for a format other than these.
    fn named_as(&self, formats: &[&str]) -> Result<(), Failure>;
}

impl Named for Path {
    fn named_as(&self, formats: &[&str]) -> Result<(), Failure> {
        match format_of(self) {
            Some(format) if !formats.contains(&format) && !is_stdout(self) => {
                let endings: Vec<String> = FORMATS
                    .iter()
                    .filter(|(_, own)| formats.contains(own))
                    .map(|(ending, _)| format!(".{ending}"))
                    .collect();
                Err(Failure::input(format_args!(
                    "`{}` is a name for {format}, and this command writes {}",
                    self.display(),
                    formats.join(", ")
                ))
                .help(format_args!("end the name in {}", endings.join(", "))))
            }
            _ => Ok(()),
        }
    }
}
