//! A file is what its name says.
//!
//! A result under the name of another format (raw planes as `x.png`) misleads
//! whoever opens it next, so such names are refused. Names that stand for no
//! known format are the user's own affair.

use super::place::is_stdout;
use crate::failure::Failure;
use std::path::Path;

/// Formats, and the endings that stand for each.
const FORMATS: [(&str, &str); 22] = [
    ("safetensors", "safetensors"),
    ("npy", "npy"),
    ("npz", "npz"),
    ("GGUF", "gguf"),
    ("PyTorch", "pt pth"),
    ("tri", "tri"),
    ("trp", "trp"),
    ("basis", "basis"),
    ("PNG", "png"),
    ("PGM", "pgm"),
    ("JPEG", "jpg jpeg"),
    ("Y4M", "y4m"),
    ("raw frames", "yuv gray grey raw"),
    ("H.264", "264 h264 avc"),
    ("H.265", "265 h265 hevc"),
    ("MP4", "mp4"),
    ("Matroska", "mkv"),
    ("CSV", "csv"),
    ("JSON", "json"),
    ("HTML", "html"),
    ("SVG", "svg"),
    ("TOML", "toml"),
];

/// The format that a name's ending stands for, where it stands for one.
pub fn format_of(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    FORMATS.iter().find(|(_, own)| own.split(' ').any(|own| own == ending)).map(|(format, _)| *format)
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
                let own = FORMATS.iter().filter(|(own, _)| formats.contains(own));
                let endings: Vec<String> =
                    own.flat_map(|(_, own)| own.split(' ')).map(|own| format!(".{own}")).collect();
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
