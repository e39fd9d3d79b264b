//! Frames to an Annex B stream, each frame on its own.

use super::FrameDecoder;
use super::verify::Verifier;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Draft, Named};
use crate::video_io::{FrameReader, RawFormat};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use trinity_bits::{Chroma, Colour, Frame, Presentation, Rate, nal};

/// Arguments of `encode` in both standards.
#[derive(Debug, clap::Args)]
pub struct EncodeArgs {
    /// Frames: .gray or .yuv (raw, luma first), .y4m, .png or .pgm; `-` is stdin
    input: PathBuf,
    #[command(flatten)]
    raw: RawFormat,
    #[command(flatten)]
    rate: RateArgs,
    /// Decode what is written and compare it with what the encoder saw: the
    /// default for files
    #[arg(long, overrides_with = "no_verify")]
    verify: bool,
    /// Leave that check out
    #[arg(long, overrides_with = "verify")]
    no_verify: bool,
    /// Fail, and leave no file, where a frame misses --bits or --mse
    #[arg(long)]
    strict: bool,
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
    /// Bits per sample of the stream, met from below by every frame; one that
    /// cannot be coded in so few is named
    #[arg(long)]
    bits: Option<f64>,
    /// Mean squared error over all samples, met from below by every frame; what
    /// no QP is fine enough for is coded losslessly
    #[arg(long)]
    mse: Option<f64>,
    /// Every sample as it was
    #[arg(long)]
    lossless: bool,
}

impl RateArgs {
    fn rate(&self) -> Rate {
        match *self {
            Self { qp: Some(qp), .. } => Rate::Qp(qp.into()),
            Self { bits: Some(bits), .. } => Rate::Bits(bits),
            Self { mse: Some(mse), .. } => Rate::Mse(mse),
            _ => Rate::Lossless,
        }
    }
}

impl EncodeArgs {
    fn verifies(&self) -> bool {
        self.verify || !self.no_verify && !output::is_stdout(&self.output)
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
    /// How it is to be shown.
    pub shown: Presentation,
}

/// A frame as a stream of its own.
#[derive(Debug)]
pub struct CodedFrame {
    pub stream: Vec<u8>,
    pub recon: Frame,
    pub qp: f64,
    pub mse: f64,
    /// Every sample is as it was; the QP says nothing.
    pub lossless: bool,
}

impl From<trinity_bits::Coded> for CodedFrame {
    fn from(mut coded: trinity_bits::Coded) -> Self {
        let recon = coded.recon.remove(0);
        Self { stream: coded.stream, recon, qp: coded.qp, mse: coded.mse, lossless: coded.lossless }
    }
}

/// A standard's encoder with its own arguments.
pub trait FrameEncoder: Sync {
    /// What it writes, as names of files have it.
    const FORMAT: &'static str;
    /// What reads it again.
    type Decoder: FrameDecoder;
    fn encode(&self, frame: &Frame, part: Part) -> Result<CodedFrame, String>;
    /// Whether the NAL unit that starts with this byte holds for all that follow.
    fn is_parameter_set(header: u8) -> bool;
}

#[derive(Debug, Default, serde::Serialize)]
struct Summary {
    frames: usize,
    width: usize,
    height: usize,
    /// What comes back of 4:2:0 with an odd width or height is even.
    decoded_width: usize,
    decoded_height: usize,
    depth: u32,
    bytes: usize,
    bits_per_sample: f64,
    mse: f64,
    /// The mean over frames that are not lossless.
    qp: Option<f64>,
    lossless_frames: usize,
    /// Frames that miss the rate or the error asked for.
    frames_over_target: usize,
    /// Whether the stream was decoded again, to what the encoder saw.
    verified: bool,
}

/// Encodes file to file, as many frames at a time as there are threads.
pub fn encode<E: FrameEncoder>(encoder: &E, args: &EncodeArgs, ctx: &Context) -> Result<(), Failure> {
    args.output.named_as(&[E::FORMAT])?;
    if let Some(recon) = &args.recon {
        recon.named_as(&["raw frames"])?;
    }
    ctx.may_write(&args.output)?;
    let mut source = FrameReader::open(&args.input, &args.raw)?;
    let verifier = args.verifies().then(Verifier::<E::Decoder>::default);
    let mut out = Sink::create(&args.output, args.recon.as_deref(), verifier)?;
    let (rate, colour, shown) = (args.rate.rate(), source.colour(), source.presentation());
    let bar = ctx.progress(source.frames_if_known().unwrap_or(0), "encoding");
    loop {
        let group: Vec<Frame> = source.by_ref().take(ctx.threads).collect::<Result<_, _>>()?;
        if group.is_empty() {
            break;
        }
        let threads = if group.len() == 1 { ctx.threads } else { 1 };
        let first = out.said.frames;
        let code =
            |(at, frame)| encoder.encode(frame, Part { rate, index: first + at, threads, colour, shown });
        if let Some(odd) = group.iter().find(|frame| rate == Rate::Lossless && is_odd(frame)) {
            return Err(not_odd(&args.input, odd));
        }
        // One frame alone stays on this thread, so that it has the workers for itself.
        let coded: Vec<_> = match &group[..] {
            [one] => vec![code((0, one))],
            _ => group.par_iter().enumerate().map(code).collect(),
        };
        for (frame, coded) in group.iter().zip(coded) {
            let coded =
                coded.map_err(|what| Failure::input(format_args!("`{}`: {what}", args.input.display())))?;
            out.frame::<E>(frame, &coded, rate)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if let Some(said) = out.over_target.sentence(rate, out.said.frames) {
        if args.strict {
            return Err(
                Failure::run(said).help("ask for more, or leave --strict out to keep what was reached")
            );
        }
        ctx.remark(format!("warning: {said}"));
    }
    out.finish(&args.output, ctx)
}

/// Whether a stream can only say one column or row more than a frame has.
fn is_odd(frame: &Frame) -> bool {
    frame.chroma == Chroma::C420 && (frame.width() % 2 == 1 || frame.height() % 2 == 1)
}

fn not_odd(input: &Path, frame: &Frame) -> Failure {
    let (width, height) = (frame.width(), frame.height());
    let even = |size: usize| size.next_multiple_of(2);
    Failure::input(format_args!(
        "`{}`: {width}×{height} in 4:2:0 cannot come back as it was: streams crop by whole chroma samples, \
         so {}×{} would",
        input.display(),
        even(width),
        even(height)
    ))
    .help("pad the frames to an even size, or convert them to 4:4:4")
}

/// Frames that miss what was asked for, and the worst of them.
#[derive(Debug, Default)]
struct OverTarget {
    frames: usize,
    worst: f64,
    worst_qp: f64,
}

impl OverTarget {
    fn note(&mut self, frame: &Frame, coded: &CodedFrame, rate: Rate) {
        let (found, asked) = match rate {
            Rate::Bits(bits) => (8.0 * coded.stream.len() as f64 / frame.samples() as f64, bits),
            Rate::Mse(mse) => (coded.mse, mse),
            _ => return,
        };
        if found > asked {
            self.frames += 1;
            if found > self.worst {
                (self.worst, self.worst_qp) = (found, coded.qp);
            }
        }
    }

    fn sentence(&self, rate: Rate, frames: usize) -> Option<String> {
        let (asked, unit) = match rate {
            Rate::Bits(bits) => (bits, "bits per sample"),
            Rate::Mse(mse) => (mse, "mean squared error"),
            _ => return None,
        };
        let Self { frames: over, worst, worst_qp } = self;
        (*over > 0).then(|| {
            format!(
                "{over} of {frames} frames miss {asked} {unit}; the worst has {worst:.4} at QP {worst_qp:.2}"
            )
        })
    }
}

/// The files being written and what is in them so far.
struct Sink<D> {
    stream: Draft,
    verifier: Option<Verifier<D>>,
    recon: Option<Draft>,
    raw: Vec<u8>,
    /// Parameter sets in force: the same again need not be written.
    sets: Vec<Vec<u8>>,
    over_target: OverTarget,
    /// Frames and bytes so far; what is a mean follows at the end.
    said: Summary,
    samples: usize,
    squared_error: f64,
    qp_sum: f64,
}

impl<D: FrameDecoder> Sink<D> {
    fn create(stream: &Path, recon: Option<&Path>, verifier: Option<Verifier<D>>) -> Result<Self, Failure> {
        Ok(Self {
            stream: Draft::create(stream)?,
            verifier,
            recon: recon.map(Draft::create).transpose()?,
            raw: Vec::new(),
            sets: Vec::new(),
            over_target: OverTarget::default(),
            said: Summary::default(),
            samples: 0,
            squared_error: 0.0,
            qp_sum: 0.0,
        })
    }

    fn frame<E: FrameEncoder>(
        &mut self,
        frame: &Frame,
        coded: &CodedFrame,
        rate: Rate,
    ) -> Result<(), Failure> {
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
            if let Some(verifier) = &mut self.verifier {
                verifier.unit(unit.bytes, self.said.bytes)?;
            }
            self.said.bytes += bytes.len();
        }
        if let Some(verifier) = &mut self.verifier {
            verifier.expect(&coded.recon)?;
        }
        if let Some(recon) = &mut self.recon {
            self.raw.clear();
            coded.recon.write_raw(&mut self.raw);
            recon.put(&self.raw)?;
        }
        let said = &mut self.said;
        if said.frames == 0 {
            (said.width, said.height, said.depth) = (frame.width(), frame.height(), frame.depth);
        }
        (said.decoded_width, said.decoded_height) = (coded.recon.width(), coded.recon.height());
        said.frames += 1;
        said.lossless_frames += usize::from(coded.lossless);
        self.over_target.note(frame, coded, rate);
        self.samples += frame.samples();
        self.squared_error += coded.mse * frame.samples() as f64;
        self.qp_sum += if coded.lossless { 0.0 } else { coded.qp };
        Ok(())
    }

    fn finish(self, output: &Path, ctx: &Context) -> Result<(), Failure> {
        let verified = self.verifier.is_some();
        self.verifier.map_or(Ok(()), Verifier::finish)?;
        self.stream.finish()?;
        self.recon.map_or(Ok(()), Draft::finish)?;
        let lossy = self.said.frames - self.said.lossless_frames;
        let summary = Summary {
            bits_per_sample: self.said.bytes as f64 * 8.0 / self.samples as f64,
            mse: self.squared_error / self.samples as f64,
            qp: (lossy > 0).then(|| self.qp_sum / lossy as f64),
            frames_over_target: self.over_target.frames,
            verified,
            ..self.said
        };
        ctx.outcome(output, &summary, summary.text())
    }
}

impl Summary {
    fn text(&self) -> String {
        let Self { width, height, depth, .. } = self;
        let qp = match (self.qp, self.lossless_frames) {
            (None, _) => "lossless".to_owned(),
            (Some(qp), 0) => format!("QP {qp:.2}"),
            (Some(qp), lossless) => format!("QP {qp:.2} and {lossless} lossless"),
        };
        let decoded = match (self.decoded_width, self.decoded_height) {
            same if same == (*width, *height) => String::new(),
            (width, height) => format!(", decoded as {width}×{height}"),
        };
        format!(
            "{:.4} bits/sample, MSE {:.4}, {qp}: {} bytes, {} frame{} of {width}×{height} at {depth} bit{decoded}\n",
            self.bits_per_sample,
            self.mse,
            self.bytes,
            self.frames,
            if self.frames == 1 { "" } else { "s" },
        )
    }
}
