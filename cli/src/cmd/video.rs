//! What `trinity h264` and `trinity h265` have in common: frames go from file
//! to file a few at a time, whatever the length of the file.
//!
//! Knows files and frames; what a standard calls its tools is said in its own
//! module.

mod decode;
mod encode;
mod verify;

pub use decode::{DecodeArgs, FrameDecoder, Shown, decode, undecodable};
pub use encode::{CodedFrame, EncodeArgs, FrameEncoder, Part, encode};

use crate::failure::Failure;
use crate::input;
use std::path::Path;

/// A whole stream, for commands that look at it more than once; an error where it is of the other standard.
pub fn read(command: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let stream = input::read(path)?;
    misread(command, path, &stream).map_or(Ok(stream), Err)
}

/// The standard of a stream by its first NAL unit, where that tells: parameter
/// sets and delimiters of one are nothing in the other.
pub fn standard(stream: &[u8]) -> Option<&'static str> {
    let at = stream.windows(3).position(|bytes| bytes == [0, 0, 1])?;
    match *stream.get(at + 3..at + 5)? {
        // VPS, SPS, PPS and delimiter: two bytes of header, layer 0.
        [first, second] if first & 0x81 == 0 && (32..=35).contains(&(first >> 1)) && second & 0xf8 == 0 => {
            Some("h265")
        }
        [first, _] if first & 0x80 == 0 && matches!(first & 31, 7..=9) => Some("h264"),
        _ => None,
    }
}

/// A stream of the other standard, with the command that reads it.
fn misread(command: &str, path: &Path, stream: &[u8]) -> Option<Failure> {
    let other = standard(stream).filter(|standard| *standard != command)?;
    let name = |command: &str| if command == "h264" { "H.264" } else { "H.265" };
    let sentence =
        format!("{}: this is a stream of {}, not of {}", path.display(), name(other), name(command));
    Some(Failure::input(sentence).help(format_args!("trinity {other} reads it")))
}

#[cfg(test)]
mod tests {
    use super::standard;

    #[test]
    fn standards_are_told_apart_by_their_parameter_sets() {
        assert_eq!(standard(&[0, 0, 0, 1, 0x40, 1, 12]), Some("h265"));
        assert_eq!(standard(&[0, 0, 1, 0x42, 1, 1]), Some("h265"));
        assert_eq!(standard(&[0, 0, 0, 1, 0x67, 0x64, 0]), Some("h264"));
        assert_eq!(standard(&[0, 0, 1, 9, 0x10]), Some("h264"));
        for nothing in [&[][..], &[0, 0, 1], &[0, 0, 1, 0x65, 0], b"not a stream"] {
            assert_eq!(standard(nothing), None, "{nothing:?}");
        }
    }
}
