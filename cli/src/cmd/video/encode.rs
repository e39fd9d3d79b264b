//! Frames to an Annex B stream, each frame on its own.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Draft, Named};
use crate::video_io::{FrameReader, RawFormat};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use trinity_bits::{Colour, Frame, Rate, nal};

/// Arguments of `encode` in both standards.
#[derive(Debug, clap::Args)]
pub struct EncodeArgs {
    /// Frames: .gray or .yuv (raw, luma first), .y4m, .png or .pgm; `-` is stdin
    input: PathBuf,
    #[command(flatten)]
    raw: RawFormat,
    #[command(flatten)]
    rate: RateArgs,
    /// Also write what a decoder will show, as raw frames
    #[arg(long, value_name = "FILE.yuv")]
    recon: Option<PathBuf>,
    /// The stream to write, Annex B; `-` is stdout
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct RateArgs {
    /// A fixed quantization parameter, from -6 * (depth - 8) to 51
    #[arg(long, allow_negative_numbers = true)]
    qp: Option<i32>,
    /// Bits per sample of the stream, met from below by every frame
    #[arg(long)]
    bits: Option<f64>,
    /// Mean squared error over all samples, met from below by every frame
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

/// How one frame of a stream is to be encoded.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub rate: Rate,
    /// Its place in the stream.
    pub index: usize,
    /// Threads it may use for itself.
    pub threads: usize,
    /// What its planes stand for.
    pub colour: Colour,
}

/// A frame as a stream of its own.
#[derive(Debug)]
pub struct CodedFrame {
    pub stream: Vec<u8>,
    pub recon: Frame,
    pub qp: f64,
    pub mse: f64,
}

/// A standard's encoder with its own arguments.
pub trait FrameEncoder: Sync {
    /// What it writes, as names of files have it.
    const FORMAT: &'static str;
    fn encode(&self, frame: &Frame, part: Part) -> Result<CodedFrame, String>;
    /// Whether the NAL unit that starts with this byte holds for all that follow.
    fn is_parameter_set(header: u8) -> bool;
}

#[derive(Debug, serde::Serialize)]
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

/// Encodes file to file, as many frames at a time as there are threads.
pub fn encode<E: FrameEncoder>(encoder: &E, args: &EncodeArgs, ctx: &Context) -> Result<(), Failure> {
    args.output.named_as(&[E::FORMAT])?;
    if let Some(recon) = &args.recon {
        recon.named_as(&["raw frames"])?;
    }
    ctx.may_write(&args.output)?;
    let mut source = FrameReader::open(&args.input, &args.raw)?;
    let mut out = Sink::create(&args.output, args.recon.as_deref())?;
    let (rate, colour) = (args.rate.rate(), source.colour());
    let bar = ctx.progress(source.frames_if_known().unwrap_or(0), "encoding");
    loop {
        let group: Vec<Frame> = source.by_ref().take(ctx.threads).collect::<Result<_, _>>()?;
        if group.is_empty() {
            break;
        }
        let threads = if group.len() == 1 { ctx.threads } else { 1 };
        let first = out.frames;
        let code = |(at, frame)| encoder.encode(frame, Part { rate, index: first + at, threads, colour });
        // One frame alone stays on this thread, so that it has the workers for itself.
        let coded: Vec<_> = match &group[..] {
            [one] => vec![code((0, one))],
            _ => group.par_iter().enumerate().map(code).collect(),
        };
        for (frame, coded) in group.iter().zip(coded) {
            let coded =
                coded.map_err(|what| Failure::input(format_args!("`{}`: {what}", args.input.display())))?;
            out.frame::<E>(frame, &coded)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    out.finish(rate, &args.output, ctx)
}

/// The files being written and what is in them so far.
struct Sink {
    stream: Draft,
    recon: Option<Draft>,
    raw: Vec<u8>,
    /// Parameter sets in force: the same again need not be written.
    sets: Vec<Vec<u8>>,
    shape: Option<(usize, usize, u32)>,
    frames: usize,
    bytes: usize,
    samples: usize,
    squared_error: f64,
    qp_sum: f64,
}

impl Sink {
    fn create(stream: &Path, recon: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self {
            stream: Draft::create(stream)?,
            recon: recon.map(Draft::create).transpose()?,
            raw: Vec::new(),
            sets: Vec::new(),
            shape: None,
            frames: 0,
            bytes: 0,
            samples: 0,
            squared_error: 0.0,
            qp_sum: 0.0,
        })
    }

    fn frame<E: FrameEncoder>(&mut self, frame: &Frame, coded: &CodedFrame) -> Result<(), Failure> {
        let units: Vec<_> = nal::units(&coded.stream).collect();
        for (at, unit) in units.iter().enumerate() {
            if E::is_parameter_set(unit.bytes[0]) {
                if self.sets.iter().any(|set| set == unit.bytes) {
                    continue;
                }
                self.sets.push(unit.bytes.to_vec());
            }
            // A unit with its start code: from the end of the one before it.
            let start = if at == 0 { 0 } else { units[at - 1].offset + units[at - 1].bytes.len() };
            let bytes = &coded.stream[start..unit.offset + unit.bytes.len()];
            self.stream.put(bytes)?;
            self.bytes += bytes.len();
        }
        if let Some(recon) = &mut self.recon {
            self.raw.clear();
            coded.recon.write_raw(&mut self.raw);
            recon.put(&self.raw)?;
        }
        self.shape.get_or_insert((frame.width(), frame.height(), frame.depth));
        self.frames += 1;
        self.samples += frame.samples();
        self.squared_error += coded.mse * frame.samples() as f64;
        self.qp_sum += coded.qp;
        Ok(())
    }

    fn finish(self, rate: Rate, output: &Path, ctx: &Context) -> Result<(), Failure> {
        self.stream.finish()?;
        self.recon.map_or(Ok(()), Draft::finish)?;
        let (width, height, depth) = self.shape.unwrap_or_default();
        let summary = Summary {
            frames: self.frames,
            width,
            height,
            depth,
            bytes: self.bytes,
            bits_per_sample: self.bytes as f64 * 8.0 / self.samples as f64,
            mse: self.squared_error / self.samples as f64,
            qp: (rate != Rate::Lossless).then_some(self.qp_sum / self.frames as f64),
        };
        let qp = summary.qp.map_or("lossless".into(), |qp| format!("QP {qp:.2}"));
        let text = format!(
            "{:.4} bits/sample, MSE {:.4}, {qp}: {} bytes, {} frame{} of {width}×{height} at {depth} bit\n",
            summary.bits_per_sample,
            summary.mse,
            summary.bytes,
            summary.frames,
            if summary.frames == 1 { "" } else { "s" },
        );
        ctx.outcome(output, &summary, text)
    }
}
