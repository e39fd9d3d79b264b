//! `trinity h265 decode`: an Annex B stream to raw frames.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::Draft;
use md5::{Digest, Md5};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use trinity_h265::Decoded;
use trinity_h265::dec::HashCheck;

/// Decode an all-intra H.265 stream to raw frames
///
/// Writes planar samples, luma first, cropped to the conformance window and in
/// output order: 8-bit samples as bytes, deeper ones as 16-bit little-endian;
/// 4:0:0 writes luma alone. Where the stream carries picture hashes, every
/// picture is checked against its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h265 decode clip.265 -o clip.yuv
  trinity h265 decode clip.265 --md5
  trinity h265 decode damaged.265 --keep-going -o rescued.yuv")]
pub struct Args {
    /// The stream, Annex B (`.265`, `.hevc`, `.bit`)
    input: PathBuf,
    /// Print the MD5 of each frame's raw samples
    #[arg(long)]
    md5: bool,
    /// At the first error keep the frames before it instead of failing
    #[arg(long)]
    keep_going: bool,
    /// The raw frames to write
    #[arg(long, short, value_name = "FILE.yuv", required_unless_present = "md5")]
    output: Option<PathBuf>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let stream = super::read(&args.input)?;
    let mut draft = args.output.as_deref().map(Draft::create).transpose()?;
    let mut hashes = Vec::new();
    let mut wrong = Vec::new();
    let mut raw = Vec::new();
    let mut frames = 0;
    for decoded in trinity_h265::frames(&stream) {
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) if args.keep_going && frames > 0 => {
                ctx.remark(format!("warning: {}: {error}; kept {frames} frames", args.input.display()));
                break;
            }
            Err(error) => return Err(super::undecodable(&args.input, &error, frames)),
        };
        raw.clear();
        decoded.frame.write_raw(&mut raw);
        if args.md5 {
            hashes.push(hex(&Md5::digest(&raw)));
        }
        if let Some(draft) = &mut draft {
            draft
                .write_all(&raw)
                .map_err(|error| Failure::run(format_args!("cannot write the frames: {error}")))?;
        }
        wrong.extend(mismatch(&decoded, frames));
        frames += 1;
    }
    if let Some(draft) = draft {
        draft.finish()?;
    }
    if args.md5 && ctx.json {
        ctx.print_json(&json!({ "frames": frames, "md5": hashes }))?;
    } else if args.md5 {
        ctx.print(hashes.iter().map(|hash| format!("{hash}\n")).collect::<String>())?;
    }
    match wrong.first() {
        None => Ok(()),
        Some(first) => Err(Failure::run(format_args!(
            "{} of {frames} pictures differ from the hash sent with them, first {first}",
            wrong.len()
        ))
        .help("the stream is damaged, or this decoder is wrong about it: please report the stream")),
    }
}

/// A picture that differs from its hash, in words.
pub fn mismatch(decoded: &Decoded, frame: usize) -> Option<String> {
    match decoded.hash {
        HashCheck::Absent | HashCheck::Match => None,
        HashCheck::Mismatch { component } => {
            Some(format!("frame {frame} in {}", ["luma", "Cb", "Cr"][component]))
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
