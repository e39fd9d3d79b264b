//! `trinity h264`: raw frames to and from H.264 streams, for people who know
//! video tools.

mod info;

use super::video::{self, CodedFrame, DecodeArgs, EncodeArgs, FrameDecoder, FrameEncoder, Part, Shown};
use crate::context::Context;
use crate::failure::Failure;
use trinity_bits::nal::NalUnit;
use trinity_bits::{Colour, Frame, Presentation, Preset};
use trinity_h264::{Decoder, Entropy, Params};

/// H.264 intra streams: encode frames, decode and inspect streams
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

/// Encode frames as an all-intra H.264 stream
///
/// Every frame stands alone. Frames of 4:2:0 with an odd width or height come
/// back rounded up to even: H.264 crops in chroma samples. Lossless refuses them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h264 encode photo.png --qp 24 --deblock -o photo.264
  trinity h264 encode weights.gray --size 1024x1024 --bits 3 --preset best -o weights.264
  trinity h264 encode clip.yuv --size 352x288 --chroma 420 --depth 10 --lossless -o clip.264")]
struct Encode {
    #[command(flatten)]
    common: EncodeArgs,
    /// How hard to try: fast, medium, slow or best
    #[arg(long, default_value = "medium")]
    preset: Preset,
    /// Deblock the pictures (blurs what is not a picture)
    #[arg(long)]
    deblock: bool,
    /// Entropy coder: cabac, or cavlc for cheap decoders
    #[arg(long, default_value = "cabac")]
    entropy: Entropy,
    /// Slices a frame, coded in parallel; each costs a few bits
    #[arg(long, value_name = "N", default_value_t = 1)]
    slices: usize,
}

impl FrameEncoder for Encode {
    const FORMAT: &'static str = "H.264";
    type Decoder = Decoder;

    fn encode(&self, frame: &Frame, part: Part) -> Result<CodedFrame, String> {
        let params = Params {
            rate: part.rate,
            preset: self.preset,
            threads: part.threads,
            colour: part.colour,
            shown: part.shown,
            entropy: self.entropy,
            deblock: self.deblock,
            slices: self.slices,
            first_index: part.index,
        };
        let coded = trinity_h264::encode(std::slice::from_ref(frame), &params);
        coded.map(CodedFrame::from).map_err(|error| error.to_string())
    }

    fn is_parameter_set(header: u8) -> bool {
        matches!(header & 31, 7 | 8)
    }
}

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
struct Decode {
    #[command(flatten)]
    common: DecodeArgs,
}

impl FrameDecoder for Decoder {
    const COMMAND: &'static str = "h264";

    fn new(stream_bytes: usize) -> Self {
        Self::new(stream_bytes)
    }

    fn push(&mut self, unit: NalUnit<'_>) -> Result<(), String> {
        self.push(unit).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<(), String> {
        self.finish().map_err(|error| error.to_string())
    }

    fn colour(&self) -> Colour {
        self.colour()
    }

    fn presentation(&self) -> Presentation {
        self.presentation()
    }

    fn next_frame(&mut self) -> Option<Shown> {
        self.next_frame().map(|frame| Shown { frame, wrong: None })
    }
}
