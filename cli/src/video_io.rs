//! Frames from and to the files people have: raw planes, Y4M, PGM and PNG.
//!
//! Knows containers only; samples are passed on as they are, without colour
//! conversion.

use crate::failure::Failure;
use crate::input;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use trinity_bits::{Chroma, Colour, Frame, Plane, Presentation};

/// Endings of the names of files that hold pictures.
pub const ENDINGS: [&str; 7] = ["png", "pgm", "y4m", "yuv", "gray", "grey", "raw"];

/// What a raw file does not say about itself.
#[derive(Debug, Clone, clap::Args)]
pub struct RawFormat {
    /// Width and height of raw frames (.gray, .yuv), as in 1024x768
    #[arg(long, value_name = "WxH", value_parser = parse_size)]
    pub size: Option<(usize, usize)>,
    /// Chroma format of raw frames [default: 400 for .gray, else 420]
    #[arg(long, value_name = "400|420|444", value_parser = parse_chroma)]
    pub chroma: Option<Chroma>,
    /// Bits a sample of raw frames: 8 as bytes, more as 16-bit little-endian [default: 8]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(8..=16))]
    pub depth: Option<u32>,
}

fn parse_size(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("expected WIDTHxHEIGHT such as 1024x768, found `{text}`");
    let (width, height) = text.split_once(['x', 'X', '×']).ok_or_else(wrong)?;
    match (width.parse(), height.parse()) {
        (Ok(width), Ok(height)) if width > 0 && height > 0 => Ok((width, height)),
        _ => Err(wrong()),
    }
}

fn parse_chroma(text: &str) -> Result<Chroma, String> {
    match text.replace(':', "").as_str() {
        "400" => Ok(Chroma::C400),
        "420" => Ok(Chroma::C420),
        "422" => Ok(Chroma::C422),
        "444" => Ok(Chroma::C444),
        _ => Err(format!("expected 400, 420, 422 or 444, found `{text}`")),
    }
}

/// The frames of a file, read as they are asked for.
#[derive(Debug)]
pub struct FrameReader {
    name: String,
    source: Source,
    shown: Presentation,
    /// Frames given out so far.
    count: u64,
}

/// Where frames come from.
enum Source {
    /// Pictures, read already.
    Still(VecDeque<Frame>),
    Video {
        file: BufReader<Box<dyn Read>>,
        layout: Layout,
        frames: Option<u64>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Still(_) => "Still",
            Self::Video { .. } => "Video",
        })
    }
}

/// What every frame of a video file looks like.
#[derive(Debug, Clone, Copy)]
struct Layout {
    width: usize,
    height: usize,
    chroma: Chroma,
    depth: u32,
    /// Bytes of a frame.
    length: usize,
    /// `FRAME` lines precede the samples.
    has_markers: bool,
}

impl Layout {
    fn new(width: usize, height: usize, chroma: Chroma, depth: u32) -> Result<Self, String> {
        let length = Frame::raw_len(width, height, chroma, depth).map_err(|e| e.to_string())?;
        Ok(Self { width, height, chroma, depth, length, has_markers: false })
    }
}

impl FrameReader {
    /// Opens a file; its name's ending says what it is.
    pub fn open(path: &Path, raw: &RawFormat) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        let unreadable = |error| Failure::input(format_args!("cannot read `{name}`: {error}"));
        let (file, bytes) = input::open(path).map_err(unreadable)?;
        let mut file = BufReader::new(file);
        let ending =
            if input::is_stdin(path) { sniff(&mut file, raw).map_err(unreadable)? } else { ending.as_str() };
        let mut shown = Presentation::default();
        let source = match ending {
            "y4m" => y4m_source(file).map(|(source, said)| {
                shown = said;
                source
            }),
            "gray" | "grey" | "yuv" | "raw" => {
                let chroma = if ending.starts_with("gr") { Chroma::C400 } else { Chroma::C420 };
                raw_source(file, bytes, raw, chroma)
            }
            "pgm" | "png" => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(unreadable)?;
                let frames = if ending == "pgm" {
                    read_pgms(&bytes)
                } else {
                    read_png(&bytes).map(|frame| VecDeque::from([frame]))
                };
                frames.map(Source::Still)
            }
            "" => {
                Err("nothing says what it holds: neither Y4M, PNG nor PGM, nor raw frames with --size".into())
            }
            _ => Err(format!("its name ends in neither .gray, .yuv, .y4m, .pgm nor .png (`.{ending}`)")),
        };
        match source {
            Ok(source) => Ok(Self { name, source, shown, count: 0 }),
            Err(what) => Err(Failure::input(format_args!("`{name}`: {what}"))),
        }
    }

    /// What the planes stand for.
    pub fn colour(&self) -> Colour {
        // The one format here with three planes that is no video.
        match &self.source {
            Source::Still(frames) if frames.iter().any(|frame| frame.chroma == Chroma::C444) => Colour::Gbr,
            _ => Colour::Unstated,
        }
    }

    /// How the file says that its frames are to be shown.
    pub fn presentation(&self) -> Presentation {
        self.shown
    }

    /// How many frames there are, where the file's length says so.
    pub fn frames_if_known(&self) -> Option<u64> {
        match &self.source {
            Source::Still(frames) => Some(frames.len() as u64),
            Source::Video { frames, .. } => *frames,
        }
    }

    fn read_next(&mut self) -> Result<Option<Frame>, String> {
        let frame = match &mut self.source {
            Source::Still(frames) => frames.pop_front(),
            Source::Video { file, layout, .. } => video_frame(file, *layout, self.count)?,
        };
        if frame.is_none() && self.count == 0 {
            return Err("it holds no frame".into());
        }
        self.count += 1;
        Ok(frame)
    }
}

impl Iterator for FrameReader {
    type Item = Result<Frame, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let frame = self.read_next();
        frame.map_err(|what| Failure::input(format_args!("`{}`: {what}", self.name))).transpose()
    }
}

/// What comes from stdin, as the ending of a file's name would say it.
fn sniff(file: &mut impl BufRead, raw: &RawFormat) -> std::io::Result<&'static str> {
    let start = file.fill_buf()?;
    Ok(match start {
        [b'Y', b'U', b'V', b'4', ..] => "y4m",
        [0x89, b'P', b'N', b'G', ..] => "png",
        [b'P', b'5', ..] => "pgm",
        // Raw frames say nothing about themselves: 4:2:0 unless --chroma says otherwise.
        _ if raw.size.is_some() => "raw",
        _ => "",
    })
}

fn raw_source(
    file: BufReader<Box<dyn Read>>,
    bytes: Option<u64>,
    raw: &RawFormat,
    default_chroma: Chroma,
) -> Result<Source, String> {
    let (width, height) = raw.size.ok_or("a raw file does not say its size; give --size WxH")?;
    let depth = raw.depth.unwrap_or(8);
    let layout = Layout::new(width, height, raw.chroma.unwrap_or(default_chroma), depth)?;
    let length = layout.length as u64;
    if let Some(bytes) = bytes.filter(|bytes| *bytes == 0 || !bytes.is_multiple_of(length)) {
        return Err(format!(
            "{bytes} bytes are not a whole number of frames of {length} bytes ({width}x{height}, {depth} bit)"
        ));
    }
    Ok(Source::Video { file, layout, frames: bytes.map(|bytes| bytes / length) })
}

/// YUV4MPEG2: a header line, then `FRAME` lines each followed by raw planes.
fn y4m_source(mut file: BufReader<Box<dyn Read>>) -> Result<(Source, Presentation), String> {
    let header = read_line(&mut file)?.ok_or("no Y4M header line")?;
    let (layout, shown) = y4m_layout(&header)?;
    Ok((Source::Video { file, layout, frames: None }, shown))
}

fn y4m_layout(header: &str) -> Result<(Layout, Presentation), String> {
    let mut words = header.split(' ');
    if words.next() != Some("YUV4MPEG2") {
        return Err("it does not start with YUV4MPEG2".into());
    }
    let (mut width, mut height, mut format) = (0, 0, "420".to_string());
    let mut shown = Presentation::default();
    for word in words {
        let value = word.get(1..).unwrap_or("");
        match word.chars().next() {
            Some('W') => width = value.parse().map_err(|_| format!("bad width `{word}`"))?,
            Some('H') => height = value.parse().map_err(|_| format!("bad height `{word}`"))?,
            Some('C') => format = value.to_string(),
            // Both standards say rates as two numbers of 32 bits, H.264 twice the first.
            Some('F') => {
                let rate = fraction(value).filter(|&(frames, _)| frames <= u32::MAX / 2);
                shown.frame_rate = known(rate.ok_or_else(|| format!("bad frame rate `{word}`"))?);
            }
            Some('A') => {
                let aspect = fraction(value).ok_or_else(|| format!("bad sample aspect ratio `{word}`"))?;
                let narrow = |(a, b): (u32, u32)| Some((u16::try_from(a).ok()?, u16::try_from(b).ok()?));
                shown.sample_aspect = known(aspect).and_then(narrow);
            }
            Some('I') if !matches!(value, "p" | "?" | "") => {
                return Err(format!(
                    "its frames are interlaced (`{word}`), and a stream of frames does not say so; \
                     deinterlace them first (`ffmpeg -i IN.y4m -vf yadif OUT.y4m`)"
                ));
            }
            _ if word == "XCOLORRANGE=FULL" => shown.full_range = Some(true),
            _ if word == "XCOLORRANGE=LIMITED" => shown.full_range = Some(false),
            _ => {}
        }
    }
    let (chroma, depth) = y4m_format(&format)?;
    shown.chroma_location = SITINGS.iter().position(|name| *name == format).map(|index| index as u8);
    Ok((Layout { has_markers: true, ..Layout::new(width, height, chroma, depth)? }, shown))
}

/// What Y4M calls chroma_sample_loc_type 0 to 2.
const SITINGS: [&str; 3] = ["420mpeg2", "420jpeg", "420paldv"];

/// Two numbers with a colon between them.
fn fraction(text: &str) -> Option<(u32, u32)> {
    let (above, below) = text.split_once(':')?;
    Some((above.parse().ok()?, below.parse().ok()?))
}

/// A fraction that says something: with a zero in it, Y4M means that nobody knows.
fn known(fraction: (u32, u32)) -> Option<(u32, u32)> {
    (fraction.0 > 0 && fraction.1 > 0).then_some(fraction)
}

/// Frame number `count` of a video file, or `None` at its end.
fn video_frame(file: &mut impl BufRead, layout: Layout, count: u64) -> Result<Option<Frame>, String> {
    if layout.has_markers {
        match read_line(file)? {
            None => return Ok(None),
            Some(marker) if marker.starts_with("FRAME") => {}
            Some(_) => return Err(format!("expected FRAME before frame {count}")),
        }
    }
    let mut bytes = Vec::new();
    file.take(layout.length as u64).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.is_empty() && !layout.has_markers {
        return Ok(None);
    }
    if bytes.len() < layout.length {
        return Err(format!("frame {count} is cut short: {} of {} bytes", bytes.len(), layout.length));
    }
    let frame = Frame::from_raw(&bytes, layout.width, layout.height, layout.chroma, layout.depth);
    frame.map(Some).map_err(|e| e.to_string())
}

/// A line of a Y4M file without its end, or `None` at the end of the file.
fn read_line(file: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    file.take(4096).read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err("the file ends inside a line of its header or of a frame's".into());
    }
    String::from_utf8(line).map(Some).map_err(|_| "a header line is not text".into())
}

fn y4m_format(format: &str) -> Result<(Chroma, u32), String> {
    let unknown = || format!("colour format C{format} is not known");
    let (chroma, rest) = if let Some(rest) = format.strip_prefix("mono") {
        (Chroma::C400, rest)
    } else {
        let digits = format.get(..3).ok_or_else(unknown)?;
        (parse_chroma(digits).map_err(|_| unknown())?, format.get(3..).unwrap_or(""))
    };
    if rest == "alpha" {
        return Err(format!("C{format} has a plane of transparency, which no codec here keeps"));
    }
    // Siting only, and no depth.
    if ["", "jpeg", "mpeg2", "paldv"].contains(&rest) {
        return Ok((chroma, 8));
    }
    // 420p10, mono12.
    let depth = rest.strip_prefix('p').unwrap_or(rest).parse().map_err(|_| unknown())?;
    Ok((chroma, depth))
}

/// Every picture of a binary PGM, which may hold several of one size and depth.
fn read_pgms(bytes: &[u8]) -> Result<VecDeque<Frame>, String> {
    let mut frames = VecDeque::new();
    let mut rest = bytes;
    loop {
        let (frame, length) = read_pgm(rest)?;
        let like = |other: &Frame| {
            (other.width(), other.height(), other.depth) == (frame.width(), frame.height(), frame.depth)
        };
        if !frames.front().is_none_or(like) {
            return Err(format!("picture {} differs from the first in size or depth", frames.len()));
        }
        frames.push_back(frame);
        rest = rest[length..].trim_ascii_start();
        if rest.is_empty() {
            return Ok(frames);
        }
        if !rest.starts_with(b"P5") {
            let (after, left) = (frames.len(), rest.len());
            return Err(format!("{left} bytes after picture {after} are no other picture"));
        }
    }
}

/// The binary PGM (P5), up to 16 bits, that bytes begin with, and its length.
fn read_pgm(bytes: &[u8]) -> Result<(Frame, usize), String> {
    if !bytes.starts_with(b"P5") {
        return Err("it is not a binary PGM (P5)".into());
    }
    let mut at = 2;
    let mut numbers = [0usize; 3];
    for number in &mut numbers {
        loop {
            match bytes.get(at) {
                Some(b'#') => at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at),
                Some(b) if b.is_ascii_whitespace() => at += 1,
                _ => break,
            }
        }
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).take(9).count();
        let text = std::str::from_utf8(&bytes[at..at + digits]).unwrap_or("");
        *number = text.parse().map_err(|_| format!("expected a number at byte {at} of the PGM header"))?;
        at += digits;
    }
    let [width, height, limit] = numbers;
    if !(1..=65535).contains(&limit) {
        return Err(format!("a largest value of {limit} is not between 1 and 65535"));
    }
    let depth = (limit.ilog2() + 1).max(8);
    if limit != (1 << depth) - 1 {
        return Err(format!(
            "its largest value is {limit}, and a stream knows whole bits: its samples would come back out of {}; \
             scale them first (`pamdepth {} IN.pgm`), or encode them as raw samples (.gray, --size)",
            (1 << depth) - 1,
            (1 << depth) - 1,
        ));
    }
    Frame::raw_len(width, height, Chroma::C400, depth).map_err(|e| e.to_string())?;
    let data = bytes.get(at + 1..).unwrap_or(&[]);
    let sample_bytes = if limit < 256 { 1 } else { 2 };
    let expected = width * height * sample_bytes;
    if data.len() < expected {
        return Err(format!("the picture is cut short: {} of {expected} bytes", data.len()));
    }
    let samples = unpacked(&data[..expected], sample_bytes == 2);
    if let Some(sample) = samples.iter().find(|&&s| usize::from(s) > limit) {
        return Err(format!("a sample is {sample}, above the largest value {limit}"));
    }
    let planes = vec![Plane { width, height, samples }];
    let frame = Frame { chroma: Chroma::C400, depth, chroma_depth: depth, planes };
    Ok((frame, at + 1 + expected))
}

/// Samples out of bytes, or out of two each, as PGM and PNG have them.
fn unpacked(data: &[u8], deep: bool) -> Vec<u16> {
    match deep {
        true => data.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect(),
        false => data.iter().map(|&b| u16::from(b)).collect(),
    }
}

/// Bytes of samples, one each or two.
fn packed(samples: impl IntoIterator<Item = u16>, deep: bool) -> impl Iterator<Item = u8> {
    samples.into_iter().flat_map(move |sample| sample.to_be_bytes().into_iter().skip(usize::from(!deep)))
}

/// Grey PNGs as 4:0:0; colour as 4:4:4 with the planes G, B, R, the order
/// H.265 calls matrix_coeffs 0. No codec here keeps transparency, so a picture
/// that has any is refused; an alpha channel that is opaque all over says nothing.
fn read_png(bytes: &[u8]) -> Result<Frame, String> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|e| e.to_string())?;
    let info = reader.info();
    if let Some(animation) = info.animation_control {
        // The picture that old readers show may be none of the animation's.
        let pictures = animation.num_frames + u32::from(info.frame_control.is_none());
        if pictures > 1 {
            return Err(format!(
                "it is an animation of {} frames (APNG), and only one would be kept; \
                 write them apart first (`ffmpeg -i IN.png OUT.y4m`)",
                animation.num_frames
            ));
        }
    }
    let size = reader.output_buffer_size().ok_or("the picture is too large")?;
    let mut data = vec![0; size];
    let info = reader.next_frame(&mut data).map_err(|e| e.to_string())?;
    let (width, height) = (info.width as usize, info.height as usize);
    let deep = info.bit_depth == png::BitDepth::Sixteen;
    let (stride, chroma, order): (usize, Chroma, &[usize]) = match info.color_type {
        png::ColorType::Grayscale => (1, Chroma::C400, &[0]),
        png::ColorType::GrayscaleAlpha => (2, Chroma::C400, &[0]),
        png::ColorType::Rgb => (3, Chroma::C444, &[1, 2, 0]),
        png::ColorType::Rgba => (4, Chroma::C444, &[1, 2, 0]),
        png::ColorType::Indexed => return Err("an indexed PNG did not expand".into()),
    };
    let samples = unpacked(&data, deep);
    let opaque = if deep { u16::MAX } else { 255 };
    if matches!(stride, 2 | 4)
        && samples.iter().skip(stride - 1).step_by(stride).any(|&alpha| alpha != opaque)
    {
        return Err("it has transparent pixels, and an alpha channel would be lost; \
                    flatten it first (`ffmpeg -i IN.png -pix_fmt rgb24 OUT.png`), or encode alpha as a grey picture"
            .into());
    }
    let planes = order
        .iter()
        .map(|&channel| Plane {
            width,
            height,
            samples: samples.iter().skip(channel).step_by(stride).take(width * height).copied().collect(),
        })
        .collect();
    let depth = if deep { 16 } else { 8 };
    Ok(Frame { chroma, depth, chroma_depth: depth, planes })
}

/// Whether a PNG can hold a frame.
pub fn png_takes(frame: &Frame, colour: Colour) -> Result<png::ColorType, String> {
    if !matches!(frame.depth, 8 | 16) {
        return Err(format!("a PNG has 8 or 16 bits a sample, not {}; write .pgm or .y4m", frame.depth));
    }
    match (frame.chroma, colour) {
        (Chroma::C400, _) => Ok(png::ColorType::Grayscale),
        (Chroma::C444, Colour::Gbr) => Ok(png::ColorType::Rgb),
        _ => Err("a PNG holds grey, or red, green and blue, and this is neither; write .y4m".into()),
    }
}

/// Grey, or colour out of the planes G, B, R.
pub fn write_png(frame: &Frame, colour: Colour) -> Result<Vec<u8>, String> {
    let kind = png_takes(frame, colour)?;
    let order: &[usize] = if kind == png::ColorType::Grayscale { &[0] } else { &[2, 0, 1] };
    let pixels = 0..frame.width() * frame.height();
    let samples = pixels.flat_map(|at| order.iter().map(move |&plane| frame.planes[plane].samples[at]));
    let data: Vec<u8> = packed(samples, frame.depth == 16).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, frame.width() as u32, frame.height() as u32);
    encoder.set_color(kind);
    encoder.set_depth(if frame.depth == 16 { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&data))
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Binary PGM (P5) of luma.
pub fn write_pgm(frame: &Frame) -> Result<Vec<u8>, String> {
    if frame.chroma != Chroma::C400 {
        return Err("a PGM is grey, and this has colour; write .png or .y4m".into());
    }
    let limit = (1u32 << frame.depth) - 1;
    let mut bytes = format!("P5\n{} {}\n{limit}\n", frame.width(), frame.height()).into_bytes();
    bytes.extend(packed(frame.planes[0].samples.iter().copied(), limit > 255));
    Ok(bytes)
}

/// Frames per second, as a fraction, where nothing says otherwise.
pub const USUAL_RATE: (u32, u32) = (25, 1);

/// YUV4MPEG2 of frames of which nothing says how they are to be shown.
pub fn write_y4m(frames: &[Frame], colour: Colour) -> Result<Vec<u8>, String> {
    let first = frames.first().ok_or("there is no frame to write")?;
    let mut bytes = y4m_header(first, colour, &Presentation::default())?;
    for frame in frames {
        y4m_frame(frame, first, &mut bytes)?;
    }
    Ok(bytes)
}

/// The line before all frames.
pub fn y4m_header(first: &Frame, colour: Colour, shown: &Presentation) -> Result<Vec<u8>, String> {
    if colour == Colour::Gbr {
        return Err("Y4M holds luma and chroma, and this is red, green and blue; write .png or .yuv".into());
    }
    let format = match first.chroma {
        Chroma::C400 => "mono",
        // Y4M has no names for sitings of deeper samples.
        Chroma::C420 if first.depth == 8 => {
            shown.chroma_location.and_then(|at| SITINGS.get(usize::from(at)).copied()).unwrap_or("420")
        }
        Chroma::C420 => "420",
        Chroma::C422 => "422",
        Chroma::C444 => "444",
    };
    let depth = match (first.depth, first.chroma) {
        (8, _) => String::new(),
        (depth, Chroma::C400) => depth.to_string(),
        (depth, _) => format!("p{depth}"),
    };
    let (frames, seconds) = shown.frame_rate.unwrap_or(USUAL_RATE);
    let (across, down) = shown.sample_aspect.unwrap_or((0, 0));
    let range = match shown.full_range {
        None => "",
        Some(true) => " XCOLORRANGE=FULL",
        Some(false) => " XCOLORRANGE=LIMITED",
    };
    let (width, height) = (first.width(), first.height());
    let header = format!(
        "YUV4MPEG2 W{width} H{height} F{frames}:{seconds} Ip A{across}:{down} C{format}{depth}{range}\n"
    );
    Ok(header.into_bytes())
}

/// One frame, of the size and format that the header states.
pub fn y4m_frame(frame: &Frame, first: &Frame, bytes: &mut Vec<u8>) -> Result<(), String> {
    let shape = |frame: &Frame| (frame.width(), frame.height(), frame.chroma, frame.depth);
    if shape(frame) != shape(first) {
        return Err("Y4M holds frames of one size and format, and these differ; write .yuv".into());
    }
    bytes.extend_from_slice(b"FRAME\n");
    frame.write_raw(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y4m_headers_say_chroma_and_depth() {
        assert_eq!(y4m_format("420mpeg2"), Ok((Chroma::C420, 8)));
        assert_eq!(y4m_format("444p10"), Ok((Chroma::C444, 10)));
        assert_eq!(y4m_format("mono12"), Ok((Chroma::C400, 12)));
        assert!(y4m_format("411").is_err());
    }

    #[test]
    fn a_y4m_frame_cut_short_is_an_error() {
        let (layout, _) = y4m_layout("YUV4MPEG2 W2 H2 Cmono").unwrap();
        let cut = video_frame(&mut &b"FRAME\n\x01\x02\x03"[..], layout, 7).unwrap_err();
        assert!(cut.contains("frame 7") && cut.contains("3 of 4 bytes"), "{cut}");
        let frame = video_frame(&mut &b"FRAME\n\x01\x02\x03\x04"[..], layout, 0).unwrap().unwrap();
        assert_eq!(frame.planes[0].samples, [1, 2, 3, 4]);
        assert_eq!(video_frame(&mut &b""[..], layout, 1).unwrap(), None);
        assert!(video_frame(&mut &b"FRAMING"[..], layout, 1).is_err());
    }

    #[test]
    fn what_is_written_reads_back() {
        let with = |chroma, depth| {
            let mut frame = Frame::filled(5, 3, chroma, depth, 9);
            frame.planes.iter_mut().zip([1, 70, 200]).for_each(|(plane, sample)| plane.samples[7] = sample);
            frame
        };
        for depth in [8, 10, 16] {
            let grey = with(Chroma::C400, depth);
            assert_eq!(read_pgms(&write_pgm(&grey).unwrap()).unwrap(), std::slice::from_ref(&grey));
            if depth != 10 {
                assert_eq!(read_png(&write_png(&grey, Colour::Unstated).unwrap()).unwrap(), grey);
                let colour = with(Chroma::C444, depth);
                assert_eq!(read_png(&write_png(&colour, Colour::Gbr).unwrap()).unwrap(), colour);
                assert!(write_png(&colour, Colour::Unstated).is_err());
            }
            for chroma in [Chroma::C400, Chroma::C420, Chroma::C422, Chroma::C444] {
                let mut frame = Frame::filled(6, 4, chroma, depth, 11);
                frame.planes[0].samples[5] = 99;
                let bytes = write_y4m(std::slice::from_ref(&frame), Colour::Unstated).unwrap();
                let mut file = &bytes[..];
                let (layout, _) = y4m_layout(&read_line(&mut file).unwrap().unwrap()).unwrap();
                assert_eq!(video_frame(&mut file, layout, 0).unwrap().unwrap(), frame);
            }
        }
        assert!(write_png(&with(Chroma::C400, 10), Colour::Unstated).is_err());
    }

    #[test]
    fn a_pgm_with_a_comment_and_16_bits() {
        let (frame, _) = read_pgm(b"P5 # why not\n2 1\n1023\n\x01\x02\x03\xff").unwrap();
        assert_eq!((frame.depth, frame.planes[0].samples.clone()), (10, vec![0x102, 0x3ff]));
        assert!(read_pgm(b"P5 2 2 255\n\x01").is_err());
        assert!(read_pgm(b"P5 99999999 99999999 255\n").is_err());
    }

    #[test]
    fn what_a_y4m_header_says_is_said_again() {
        for header in [
            "YUV4MPEG2 W4 H2 F30000:1001 Ip A128:117 C420mpeg2 XCOLORRANGE=LIMITED\n",
            "YUV4MPEG2 W4 H2 F5:1 Ip A1:1 Cmono XCOLORRANGE=FULL\n",
            "YUV4MPEG2 W4 H2 F60:1 Ip A0:0 C444p10\n",
            "YUV4MPEG2 W4 H2 F24:1 Ip A0:0 C420jpeg\n",
        ] {
            let (layout, shown) = y4m_layout(header.trim_end()).unwrap();
            let frame = Frame::filled(4, 2, layout.chroma, layout.depth, 1);
            let written = y4m_header(&frame, Colour::Unstated, &shown).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), header);
        }
        for refused in ["F5", "F5:x", "F4294967295:1", "A1", "It", "Ib", "Im"] {
            assert!(y4m_layout(&format!("YUV4MPEG2 W4 H2 {refused}")).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_pgm_of_two_pictures_keeps_both_and_one_that_cannot_come_back_is_refused() {
        let one = Frame::filled(3, 2, Chroma::C400, 8, 7);
        let two = Frame::filled(3, 2, Chroma::C400, 8, 9);
        let file = [write_pgm(&one).unwrap(), write_pgm(&two).unwrap()].concat();
        assert_eq!(read_pgms(&file).unwrap(), [one.clone(), two]);
        let other = [write_pgm(&one).unwrap(), b"P5 1 1 255\n\x01".to_vec()].concat();
        assert!(read_pgms(&other).unwrap_err().contains("differs"));
        let trailing = [write_pgm(&one).unwrap(), b"more".to_vec()].concat();
        assert!(read_pgms(&trailing).unwrap_err().contains("4 bytes"));
        for limit in ["100", "1", "127", "256", "1000", "65534"] {
            let said = read_pgm(format!("P5 1 1 {limit}\n\0\0").as_bytes()).unwrap_err();
            assert!(said.contains(&format!("largest value is {limit}")), "{said}");
        }
    }
}
