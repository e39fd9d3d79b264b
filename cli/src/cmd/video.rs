//! What `trinity h264` and `trinity h265` have in common: frames go from file
//! to file a few at a time, whatever the length of the file.
//!
//! Knows files and frames; what a standard calls its tools is said in its own
//! module.

mod decode;
mod encode;

pub use decode::{DecodeArgs, FrameDecoder, Shown, decode, undecodable};
pub use encode::{CodedFrame, EncodeArgs, FrameEncoder, Part, encode};

use crate::failure::Failure;
use crate::input;
use std::path::Path;

/// A whole stream, for commands that look at it more than once.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    input::read(path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format_args!("cannot read `{}`: {error}", path.display()))
}
