//! An Annex B stream to frames, one at a time.

use crate::context::Context;
use crate::failure::Failure;
use crate::input::{self, unreadable};
use crate::output::{self, Draft, Named};
use crate::video_io;
use md5::{Digest, Md5};
use serde_json::json;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use trinity_bits::nal::{NalUnit, UnitReader};
use trinity_bits::{Colour, Frame, Presentation};

/// Arguments of `decode` in both standards.
#[derive(Debug, clap::Args)]
pub struct DecodeArgs {
    /// The stream, Annex B; `-` is stdin
    input: PathBuf,
    /// Print the MD5 of each frame's raw samples
    #[arg(long)]
    md5: bool,
    /// At the first error keep the frames before it instead of failing
    #[arg(long)]
    keep_going: bool,
    /// The frames to write: raw as .yuv or .gray, else .y4m, .png or .pgm;
    /// `-` writes them raw to stdout
    #[arg(long, short, value_name = "FILE.yuv", required_unless_present = "md5")]
    output: Option<PathBuf>,
}

/// A frame to show and, where it is not what the stream says it should be, in
/// which component.
#[derive(Debug)]
pub struct Shown {
    pub frame: Frame,
    pub wrong: Option<&'static str>,
}

/// A standard's decoder, fed with NAL units.
pub trait FrameDecoder {
    /// The command's name, as the user types it.
    const COMMAND: &'static str;
    /// A decoder for a stream of so many bytes.
    fn new(stream_bytes: usize) -> Self;
    fn push(&mut self, unit: NalUnit<'_>) -> Result<(), String>;
    fn finish(&mut self) -> Result<(), String>;
    /// What the stream says its planes are, as far as it has been read.
    fn colour(&self) -> Colour;
    /// How the stream says its frames are to be shown, as far as it has been read.
    fn presentation(&self) -> Presentation;
    /// The next frame due; after an error, those that were complete before it.
    fn next_frame(&mut self) -> Option<Shown>;
}

/// A stream that stopped decoding after `frames` good ones.
pub fn undecodable(command: &str, path: &Path, error: &str, frames: usize) -> Failure {
    let failure = Failure::input(format_args!("{}: {error}", path.display()));
    match frames {
        0 => misread_from(command, path).unwrap_or(failure),
        _ => failure.help(format_args!(
            "{frames} frames before it are good: `trinity {command} decode --keep-going` keeps them"
        )),
    }
}

/// Whether the beginning of a file says that it is of the other standard.
fn misread_from(command: &str, path: &Path) -> Option<Failure> {
    const LOOK: u64 = 4096;
    let mut beginning = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    // A pipe has nothing left to look at.
    file.metadata().ok().filter(|found| found.is_file())?;
    file.take(LOOK).read_to_end(&mut beginning).ok()?;
    super::misread(command, path, &beginning)
}

/// Decodes file to file.
pub fn decode<D: FrameDecoder>(args: &DecodeArgs, ctx: &Context) -> Result<(), Failure> {
    if args.md5 && args.output.as_deref().is_some_and(output::is_stdout) {
        return Err(Failure::input("the frames and --md5 both go to stdout")
            .help("name a file for the frames with -o, or leave --md5 out"));
    }
    let (source, bytes) = open(&args.input)?;
    let mut units = UnitReader::new(source);
    let mut decoder = D::new(bytes);
    let mut sink = Sink::create(args)?;
    let mut ended = false;
    while !ended {
        let step = match units.next_unit().map_err(|error| unreadable(&args.input, &error))? {
            Some(unit) => decoder.push(unit),
            None => {
                ended = true;
                decoder.finish()
            }
        };
        while let Some(shown) = decoder.next_frame() {
            sink.frame(&shown, decoder.colour(), &decoder.presentation())?;
        }
        if let Err(error) = step {
            if !args.keep_going || sink.frames == 0 {
                return Err(undecodable(D::COMMAND, &args.input, &error, sink.frames));
            }
            ctx.remark(format!("warning: {}: {error}; kept {} frames", args.input.display(), sink.frames));
            break;
        }
    }
    sink.finish(ctx)
}

/// The stream and its length. What does not say how long it is, such as a
/// pipe, is read whole: the decoder believes no more than that can hold.
fn open(path: &Path) -> Result<(Box<dyn Read>, usize), Failure> {
    let (mut file, length) = input::open(path).map_err(|error| unreadable(path, &error))?;
    if let Some(length) = length {
        return Ok((file, usize::try_from(length).unwrap_or(usize::MAX)));
    }
    let mut whole = Vec::new();
    file.read_to_end(&mut whole).map_err(|error| unreadable(path, &error))?;
    let bytes = whole.len();
    Ok((Box::new(Cursor::new(whole)), bytes))
}

/// How frames are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Raw,
    Y4m,
    Png,
    Pgm,
}

impl Format {
    /// What a file's name asks for.
    fn of(path: &Path) -> Result<Self, Failure> {
        path.named_as(&["raw frames", "Y4M", "PNG", "PGM"])?;
        Ok(match output::format_of(path) {
            Some("Y4M") => Self::Y4m,
            Some("PNG") => Self::Png,
            Some("PGM") => Self::Pgm,
            _ => Self::Raw,
        })
    }
}

/// The file that frames go to, as its name asks.
fn open_output(path: &Path) -> Result<(Draft, Format, PathBuf), Failure> {
    let format = Format::of(path)?;
    Ok((Draft::create(path)?, format, path.to_path_buf()))
}

/// Where decoded frames go.
struct Sink {
    draft: Option<(Draft, Format, PathBuf)>,
    /// The first frame, which those of a Y4M file must be like.
    first: Option<Frame>,
    hashes: Option<Vec<String>>,
    raw: Vec<u8>,
    frames: usize,
    wrong: usize,
    first_wrong: Option<String>,
}

impl Sink {
    fn create(args: &DecodeArgs) -> Result<Self, Failure> {
        Ok(Self {
            draft: args.output.as_deref().map(open_output).transpose()?,
            first: None,
            hashes: args.md5.then(Vec::new),
            raw: Vec::new(),
            frames: 0,
            wrong: 0,
            first_wrong: None,
        })
    }

    fn frame(&mut self, shown: &Shown, colour: Colour, said: &Presentation) -> Result<(), Failure> {
        if let Some(component) = shown.wrong {
            self.wrong += 1;
            self.first_wrong.get_or_insert_with(|| format!("frame {} in {component}", self.frames));
        }
        self.frames += 1;
        self.raw.clear();
        shown.frame.write_raw(&mut self.raw);
        if let Some(hashes) = &mut self.hashes {
            hashes.push(Md5::digest(&self.raw).iter().map(|byte| format!("{byte:02x}")).collect());
        }
        self.write(&shown.frame, colour, said)
    }

    /// Writes a frame, which `raw` holds already, as the file's name asks.
    fn write(&mut self, frame: &Frame, colour: Colour, said: &Presentation) -> Result<(), Failure> {
        let Some((draft, format, path)) = &mut self.draft else { return Ok(()) };
        let wrong = |what: String| Failure::input(format_args!("`{}`: {what}", path.display()));
        let made = match format {
            Format::Raw => None,
            Format::Png if self.frames > 1 => {
                return Err(wrong(
                    "it holds one picture, and the stream has more; write .y4m or .yuv".into(),
                ));
            }
            Format::Png => Some(video_io::write_png(frame, colour).map_err(wrong)?),
            Format::Pgm => Some(video_io::write_pgm(frame).map_err(wrong)?),
            Format::Y4m => {
                let mut bytes = match self.first {
                    None => video_io::y4m_header(frame, colour, said).map_err(wrong)?,
                    Some(_) => Vec::new(),
                };
                let first = self.first.get_or_insert_with(|| frame.clone());
                video_io::y4m_frame(frame, first, &mut bytes).map_err(wrong)?;
                Some(bytes)
            }
        };
        draft.put(made.as_deref().unwrap_or(&self.raw))
    }

    fn finish(self, ctx: &Context) -> Result<(), Failure> {
        self.draft.map_or(Ok(()), |(draft, ..)| draft.finish())?;
        match self.hashes {
            hashes if ctx.json => {
                ctx.print_json(&json!({ "frames": self.frames, "md5": hashes }))?;
            }
            Some(hashes) => ctx.print(hashes.iter().map(|hash| format!("{hash}\n")).collect::<String>())?,
            None => {}
        }
        match self.first_wrong {
            None => Ok(()),
            Some(first) => Err(Failure::run(format_args!(
                "{} of {} pictures differ from the hash sent with them, first {first}",
                self.wrong, self.frames
            ))
            .help("the stream is damaged, or this decoder is wrong about it: please report the stream")),
        }
    }
}
