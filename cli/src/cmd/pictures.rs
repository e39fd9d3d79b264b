//! Images and video through the Trinity codec: what `encode` and `decode` do
//! when they are given pictures instead of tensors.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trinity_bits::Presentation;
use trinity_codec::{Coding, Pictures, Pipeline, Profile};
use trinity_tensor::codec::Rate;

use super::video;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::json_path::JsonPath;
use crate::output::{self, Draft, Named};
use crate::video_io::{self, FrameReader, RawFormat};

/// Whether frames of a video may refer to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Motion {
    Intra,
    Inter,
}

/// What `trinity encode` was asked to do with pictures.
#[derive(Debug)]
pub struct Job<'a> {
    pub input: &'a Path,
    pub output: Option<&'a Path>,
    pub codec: Option<&'a str>,
    pub target: Rate,
    pub motion: Motion,
    /// Fail where a rate is not met.
    pub strict: bool,
    pub raw: &'a RawFormat,
}

#[derive(Debug, Serialize)]
struct PicturesOutcome {
    output: JsonPath,
    codec: String,
    frames: usize,
    bytes: usize,
    bits_per_sample: f64,
    /// Whether that is more than was asked for.
    over_target: bool,
    mse: f64,
    /// Against the largest sample; none where nothing was lost.
    psnr_db: Option<f64>,
}

/// Whether a file's name says that it holds pictures.
pub fn is_picture(path: &Path) -> bool {
    input::is_stdin(path) || video_io::ENDINGS.contains(&ending(path).as_str())
}

fn ending(path: &Path) -> String {
    path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase()
}

/// Whether a file starts like a stream of pictures.
pub fn is_stream(path: &Path) -> Result<bool, Failure> {
    let mut head = Vec::new();
    let opened = input::open(path).and_then(|(file, _)| file.take(4).read_to_end(&mut head));
    opened.map_err(|error| input::unreadable(path, &error))?;
    Ok(trinity_codec::starts_pictures(&head))
}

/// Encodes pictures; a video is held in memory.
pub fn encode(job: &Job<'_>, ctx: &Context) -> Result<(), Failure> {
    let place = job.input.display();
    let profile = profile(job)?;
    let plain_h264 = profile.pipeline == Pipeline::Paper;
    let output = job.output.map_or_else(
        || beside(job.input, if plain_h264 { "264" } else { "trp" }),
        |path| Ok(path.to_path_buf()),
    )?;
    output.named_as(if plain_h264 { &["H.264"] } else { &["trp"] })?;
    ctx.may_write(&output)?;
    let mut reader = FrameReader::open(job.input, job.raw)?;
    let mut draft = Draft::create(&output)?;
    let colour = reader.colour();
    unsaid(job, &reader.presentation(), ctx)?;
    let pictures = Pictures { frames: reader.by_ref().collect::<Result<_, _>>()?, colour };
    let coding = match job.motion {
        Motion::Intra => Coding::Intra,
        Motion::Inter => Coding::Inter,
    };
    let coded = trinity_codec::encode_frames(&pictures, &profile, job.target, coding)
        .map_err(|error| Failure::input(format_args!("{place}: {error}")))?;
    let samples = pictures.samples();
    let bits_per_sample = 8.0 * coded.bytes.len() as f64 / samples as f64;
    let over_target = matches!(job.target, Rate::Bits(asked) if bits_per_sample > asked);
    if over_target {
        let said = format!("{place} takes {bits_per_sample:.4} bits/sample, more than asked for");
        if job.strict {
            return Err(
                Failure::run(said).help("ask for more bits, or leave --strict out to keep what was reached")
            );
        }
        ctx.remark(format!("warning: {said}"));
    }
    draft.put(&coded.bytes)?;
    draft.finish()?;
    let mse = coded.squared_error(&pictures) / samples as f64;
    let largest = pictures.frames.first().map_or(1.0, |frame| ((1u32 << frame.depth) - 1) as f64);
    let outcome = PicturesOutcome {
        output: output.into(),
        codec: profile.name,
        frames: pictures.frames.len(),
        bytes: coded.bytes.len(),
        bits_per_sample,
        over_target,
        mse,
        psnr_db: (mse > 0.0).then(|| 10.0 * (largest * largest / mse).log10()),
    };
    ctx.outcome(&outcome.output, &outcome, text(&outcome))
}

/// What neither a .trp nor `--codec paper` says of how pictures are to be shown: refused
/// where everything was to be kept, named where not.
fn unsaid(job: &Job<'_>, shown: &Presentation, ctx: &Context) -> Result<(), Failure> {
    let mut lost = Vec::new();
    if let Some((frames, seconds)) = shown.frame_rate.filter(|rate| *rate != video_io::USUAL_RATE) {
        lost.push(format!("{frames}:{seconds} frames per second"));
    }
    if let Some((width, height)) = shown.sample_aspect.filter(|(width, height)| width != height) {
        lost.push(format!("samples of {width}:{height}"));
    }
    if lost.is_empty() {
        return Ok(());
    }
    let said = format!("`{}` has {}, which the stream does not say", job.input.display(), lost.join(" and "));
    if job.target == Rate::Lossless {
        return Err(Failure::input(said).help("trinity h265 encode --lossless keeps it"));
    }
    ctx.remark(format!("warning: {said}; trinity h265 encode keeps it"));
    Ok(())
}

/// The input's name with another ending; what comes from stdin has none.
fn beside(source: &Path, ending: &str) -> Result<PathBuf, Failure> {
    if input::is_stdin(source) {
        return Err(Failure::input("pictures from stdin have no name to call the result by")
            .help("name it with -o FILE; -o - is stdout"));
    }
    Ok(source.with_extension(ending))
}

/// The profile asked for, by name or as a file.
fn profile(job: &Job<'_>) -> Result<Profile, Failure> {
    let default = if job.target == Rate::Lossless { "lossless" } else { "trinity" };
    let name = job.codec.unwrap_or(default);
    let found = if name.ends_with(".toml") {
        return Profile::load(name).map_err(|error| match error {
            trinity_codec::Error::Profile(diagnostic) => diagnostic.into(),
            other => Failure::input(format_args!("codec profile {name}: {other}")),
        });
    } else if matches!(name, "h264" | "h265") {
        return Err(Failure::input(format_args!("`{name}` is a codec of tensors here"))
            .help(format_args!("trinity {name} encode takes pictures")));
    } else {
        Profile::named(name)
    };
    found.map_err(|error| {
        Failure::input(error).help(format_args!(
            "codecs of pictures: {}; or a profile as FILE.toml",
            Profile::names().collect::<Vec<_>>().join(", ")
        ))
    })
}

fn text(outcome: &PicturesOutcome) -> String {
    format!(
        "{}: {} bytes, {:.4} bits/sample, {}, {} frame{} through {}\n",
        outcome.output.display(),
        outcome.bytes,
        outcome.bits_per_sample,
        outcome.psnr_db.map_or("lossless".into(), |psnr| format!("PSNR {psnr:.2} dB")),
        outcome.frames,
        if outcome.frames == 1 { "" } else { "s" },
        outcome.codec,
    )
}

/// Decodes a stream of pictures to the kind of file its output's name asks for.
pub fn decode(source: &Path, output: Option<&Path>, ctx: &Context) -> Result<(), Failure> {
    let place = source.display();
    let bytes = input::read(source)?;
    if !trinity_codec::starts_pictures(&bytes) {
        return Err(Failure::input(format_args!("`{place}` is no stream of pictures"))
            .help("a .tri container is read here and there: name the file instead of stdin"));
    }
    if video::standard(&bytes) == Some("h265") {
        return Err(Failure::input(format_args!("{place}: this is a stream of H.265"))
            .help("`trinity h265 decode` reads it"));
    }
    let pictures = trinity_codec::decode_frames(&bytes)
        .map_err(|error| Failure::input(format_args!("{place}: {error}")))?;
    let still =
        matches!(&pictures.frames[..], [frame] if video_io::png_takes(frame, pictures.colour).is_ok());
    let usual = if still { "png" } else { "y4m" };
    // A name of its own: the picture that was encoded may well lie beside.
    let output =
        output.map_or_else(|| beside(source, &format!("decoded.{usual}")), |path| Ok(path.to_path_buf()))?;
    let format = if output::is_stdout(&output) { usual.to_owned() } else { ending(&output) };
    let written = to_file(&pictures, &format)
        .map_err(|what| Failure::input(format_args!("`{}`: {what}", output.display())))?;
    output::write(&output, &written)?;
    ctx.remark(format!("wrote {} frames to {}", pictures.frames.len(), output.display()));
    ctx.tell(&serde_json::json!({ "output": JsonPath::from(output), "frames": pictures.frames.len() }))
}

fn to_file(pictures: &Pictures, ending: &str) -> Result<Vec<u8>, String> {
    match (ending, &pictures.frames[..]) {
        ("png", [frame]) => video_io::write_png(frame, pictures.colour),
        ("pgm", frames) => {
            let pictures: Result<Vec<_>, _> = frames.iter().map(video_io::write_pgm).collect();
            Ok(pictures?.concat())
        }
        ("png", frames) => {
            Err(format!("holds one picture, and there are {}; write .y4m or .yuv", frames.len()))
        }
        ("y4m", frames) => video_io::write_y4m(frames, pictures.colour),
        ("yuv" | "gray" | "grey" | "raw", frames) => {
            let mut raw = Vec::new();
            frames.iter().for_each(|frame| frame.write_raw(&mut raw));
            Ok(raw)
        }
        _ => Err("its name ends in neither .png, .pgm, .y4m, .yuv nor .gray".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::{Chroma, Colour, Frame};

    #[test]
    fn names_say_what_is_a_picture() {
        assert!(is_picture(Path::new("a/B.PNG")) && is_picture(Path::new("x.y4m")));
        assert!(!is_picture(Path::new("model.safetensors")) && !is_picture(Path::new("png")));
    }

    #[test]
    fn a_file_that_cannot_hold_the_pictures_is_an_error() {
        let frame = Frame::filled(4, 4, Chroma::C420, 8, 7);
        let two = Pictures { frames: vec![frame.clone(); 2], colour: Colour::Unstated };
        assert!(to_file(&two, "png").unwrap_err().contains("one picture"));
        let one = Pictures { frames: vec![frame], colour: Colour::Unstated };
        assert!(to_file(&one, "png").unwrap_err().contains("y4m"));
        assert!(to_file(&one, "jpg").is_err());
        assert_eq!(to_file(&one, "yuv").unwrap().len(), 24);
    }
}
