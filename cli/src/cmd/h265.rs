//! `trinity h265`: raw frames to and from H.265 streams, for people who know
//! video tools.

mod info;

use super::video::{self, CodedFrame, DecodeArgs, EncodeArgs, FrameDecoder, FrameEncoder, Part, Shown};
use crate::context::Context;
use crate::failure::Failure;
use trinity_bits::nal::NalUnit;
use trinity_bits::{Colour, Frame, Presentation, Preset};
use trinity_h265::Params;
use trinity_h265::{Decoder, HashCheck};

/// H.265 intra streams: encode frames, decode and inspect streams
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Encode(Encode),
    Decode(Decode),
    Info(info::Args),
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.command {
        Command::Encode(args) => video::encode(args, &args.common, ctx),
        Command::Decode(args) => video::decode::<Decoder>(&args.common, ctx),
        Command::Info(args) => info::run(args, ctx),
    }
}

/// Encode frames as an all-intra H.265 stream
///
/// Every frame stands alone. The stream carries the MD5 of every picture, so
/// any decoder can check that it sees what the encoder saw. Frames of 4:2:0 with an
/// odd width or height come back rounded up to even; lossless refuses them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h265 encode photo.png --qp 27 -o photo.265
  trinity h265 encode weights.gray --size 1024x1024 --bits 3 --preset best -o weights.265
  trinity h265 encode clip.yuv --size 352x288 --chroma 420 --depth 10 --lossless -o clip.265")]
struct Encode {
    #[command(flatten)]
    common: EncodeArgs,
    /// How hard to try: fast, medium, slow or best
    #[arg(long, default_value = "medium")]
    preset: Preset,
    /// Deblock the pictures (blurs what is not a picture)
    #[arg(long)]
    deblock: bool,
    /// Correct samples by sample adaptive offset
    #[arg(long)]
    sao: bool,
    /// One substream a row of CTUs, for decoders with many threads
    #[arg(long)]
    wavefront: bool,
    /// Version 1 tools alone, for decoders without range extensions
    #[arg(long)]
    no_range_extensions: bool,
}

impl FrameEncoder for Encode {
    const FORMAT: &'static str = "H.265";
    type Decoder = Decoder;

    fn encode(&self, frame: &Frame, part: Part) -> Result<CodedFrame, String> {
        let params = Params {
            rate: part.rate,
            preset: self.preset,
            threads: part.threads,
            colour: part.colour,
            shown: part.shown,
            deblock: self.deblock,
            sao: self.sao,
            wavefront: self.wavefront,
            range_extensions: !self.no_range_extensions,
            ..Params::default()
        };
        let coded = trinity_h265::encode(std::slice::from_ref(frame), &params);
        coded.map(CodedFrame::from).map_err(|error| error.to_string())
    }

    fn is_parameter_set(header: u8) -> bool {
        matches!(header >> 1 & 63, 32..=34)
    }
}

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
struct Decode {
    #[command(flatten)]
    common: DecodeArgs,
}

impl FrameDecoder for Decoder {
    const COMMAND: &'static str = "h265";

    fn new(stream_bytes: usize) -> Self {
        Self::new(stream_bytes)
    }

    fn push(&mut self, unit: NalUnit<'_>) -> Result<(), String> {
        self.push(unit).map_err(|error| {
            self.abandon();
            error.to_string()
        })
    }

    fn finish(&mut self) -> Result<(), String> {
        self.finish().map_err(|error| {
            self.abandon();
            error.to_string()
        })
    }

    fn colour(&self) -> Colour {
        self.colour()
    }

    fn presentation(&self) -> Presentation {
        self.presentation()
    }

    fn next_frame(&mut self) -> Option<Shown> {
        let decoded = self.next_picture()?;
        let wrong = match decoded.hash {
            HashCheck::Absent | HashCheck::Match => None,
            HashCheck::Mismatch { component } => Some(["luma", "Cb", "Cr"][component]),
        };
        Some(Shown { frame: decoded.frame, wrong })
    }
}
