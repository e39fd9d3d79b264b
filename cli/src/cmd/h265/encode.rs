//! `trinity h265 encode`: frames to an Annex B stream.

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::video_io::{self, RawFormat};
use std::path::PathBuf;
use trinity_h265::{Params, Preset, Rate};

/// Encode frames as an all-intra H.265 stream
///
/// Every frame stands alone. The stream carries the MD5 of every picture, so
/// any decoder can check that it sees what the encoder saw.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h265 encode photo.png --qp 27 -o photo.265
  trinity h265 encode weights.gray --size 1024x1024 --bits 3 --preset best -o weights.265
  trinity h265 encode clip.yuv --size 352x288 --chroma 420 --depth 10 --lossless -o clip.265")]
pub struct Args {
    /// Frames: .gray or .yuv (raw, luma first), .y4m, .png or .pgm
    input: PathBuf,
    #[command(flatten)]
    raw: RawFormat,
    #[command(flatten)]
    rate: RateArgs,
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
    /// Also write what a decoder will show, as raw frames
    #[arg(long, value_name = "FILE.yuv")]
    recon: Option<PathBuf>,
    /// The stream to write
    #[arg(long, short, value_name = "FILE.265")]
    output: PathBuf,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct RateArgs {
    /// A fixed quantization parameter, from -6 * (depth - 8) to 51
    #[arg(long, allow_negative_numbers = true)]
    qp: Option<i32>,
    /// Bits per sample of the stream, met from below
    #[arg(long)]
    bits: Option<f64>,
    /// Mean squared error over all samples, met from below
    #[arg(long)]
    mse: Option<f64>,
    /// Every sample as it was
    #[arg(long)]
    lossless: bool,
}

impl RateArgs {
    fn rate(&self) -> Rate {
        match *self {
            Self { qp: Some(qp), .. } => Rate::Qp(qp),
            Self { bits: Some(bits), .. } => Rate::Bits(bits),
            Self { mse: Some(mse), .. } => Rate::Mse(mse),
            _ => Rate::Lossless,
        }
    }
}

#[derive(serde::Serialize)]
struct Summary {
    frames: usize,
    width: usize,
    height: usize,
    depth: u32,
    bytes: usize,
    bits_per_sample: f64,
    mse: f64,
    qp: Option<f64>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let frames = video_io::read(&args.input, &args.raw)?;
    let params = Params {
        rate: args.rate.rate(),
        preset: args.preset,
        threads: ctx.threads,
        deblock: args.deblock,
        sao: args.sao,
        wavefront: args.wavefront,
        range_extensions: !args.no_range_extensions,
        ..Params::default()
    };
    let coded = trinity_h265::encode(&frames, &params)
        .map_err(|error| Failure::input(format_args!("`{}`: {error}", args.input.display())))?;
    output::write(&args.output, &coded.stream)?;
    if let Some(path) = &args.recon {
        let mut raw = Vec::new();
        for frame in &coded.recon {
            frame.write_raw(&mut raw);
        }
        output::write(path, &raw)?;
    }
    let summary = Summary {
        frames: frames.len(),
        width: frames[0].width(),
        height: frames[0].height(),
        depth: frames[0].depth,
        bytes: coded.stream.len(),
        bits_per_sample: coded.bits_per_sample(&frames),
        mse: coded.mse,
        qp: (params.rate != Rate::Lossless).then_some(coded.qp),
    };
    if ctx.json {
        return ctx.print_json(&summary);
    }
    let qp = summary.qp.map_or("lossless".into(), |qp| format!("QP {qp:.2}"));
    ctx.print(format!(
        "{:.4} bits/sample, MSE {:.4}, {qp}: {} bytes, {} frame{} of {}×{} at {} bit\n",
        summary.bits_per_sample,
        summary.mse,
        summary.bytes,
        summary.frames,
        if summary.frames == 1 { "" } else { "s" },
        summary.width,
        summary.height,
        summary.depth,
    ))
}
