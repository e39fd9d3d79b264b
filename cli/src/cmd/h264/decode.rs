//! `trinity h264 decode`: an Annex B stream to raw frames.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::Draft;
use md5::{Digest, Md5};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use trinity_coding::Frame;
use trinity_h264::Decoder;

/// Decode an all-intra H.264 stream to raw frames
///
/// Writes planar samples, luma first, cropped and in output order: 8-bit
/// samples as bytes, deeper ones as 16-bit little-endian; 4:0:0 writes luma
/// alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h264 decode clip.264 -o clip.yuv
  trinity h264 decode clip.264 --md5
  trinity h264 decode damaged.264 --keep-going -o rescued.yuv")]
pub struct Args {
    /// The stream, Annex B (`.264`, `.h264`, `.jsv`)
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
    let mut sink = Sink {
        draft: args.output.as_deref().map(Draft::create).transpose()?,
        hashes: args.md5.then(Vec::new),
        raw: Vec::new(),
        frames: 0,
    };
    let mut decoder = Decoder::new(&stream);
    while let Some(item) = decoder.next() {
        match item {
            Ok(frame) => sink.frame(&frame)?,
            Err(error) => {
                if args.keep_going {
                    decoder.drain().iter().try_for_each(|frame| sink.frame(frame))?;
                }
                let frames = sink.frames;
                let what = format!("{}: {error}", args.input.display());
                if !args.keep_going || frames == 0 {
                    let failure = Failure::input(what);
                    return Err(match frames {
                        0 => failure,
                        _ => failure.help(format_args!(
                            "{frames} frames before it are good: `trinity h264 decode --keep-going` keeps them"
                        )),
                    });
                }
                ctx.remark(format!("warning: {what}; kept {frames} frames"));
                break;
            }
        }
    }
    sink.finish(ctx)
}

/// Where decoded frames go.
struct Sink {
    draft: Option<Draft>,
    hashes: Option<Vec<String>>,
    raw: Vec<u8>,
    frames: usize,
}

impl Sink {
    fn frame(&mut self, frame: &Frame) -> Result<(), Failure> {
        self.raw.clear();
        frame.write_raw(&mut self.raw);
        self.frames += 1;
        if let Some(hashes) = &mut self.hashes {
            hashes.push(Md5::digest(&self.raw).iter().map(|byte| format!("{byte:02x}")).collect());
        }
        self.draft.as_mut().map_or(Ok(()), |draft| {
            draft
                .write_all(&self.raw)
                .map_err(|error| Failure::run(format_args!("cannot write the frames: {error}")))
        })
    }

    fn finish(self, ctx: &Context) -> Result<(), Failure> {
        if let Some(draft) = self.draft {
            draft.finish()?;
        }
        match self.hashes {
            Some(hashes) if ctx.json => ctx.print_json(&json!({ "frames": self.frames, "md5": hashes })),
            Some(hashes) => ctx.print(hashes.iter().map(|hash| format!("{hash}\n")).collect::<String>()),
            None => Ok(()),
        }
    }
}
