//! Our codecs against external decoders, where one is installed: a picture is
//! encoded here and decoded there, and must come out as our own
//! reconstruction, sample for sample.

use serde::Serialize;
use std::io::Write;
use std::process::{Command, Stdio};
use trinity_bits::{Chroma, Frame};

/// One codec beside one decoder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub decoder: &'static str,
    /// `None` when the decoder is not there to ask.
    pub agrees: Option<bool>,
    pub remark: String,
}

const WIDTH: usize = 64;
const HEIGHT: usize = 48;

/// Checks every codec.
pub fn check() -> Vec<Check> {
    let frame = picture();
    let frames = std::slice::from_ref(&frame);
    let h264 = trinity_h264::encode(frames, &trinity_h264::Params::default())
        .map(|coded| (coded.stream, coded.recon))
        .map_err(|e| e.to_string());
    let h265 = trinity_h265::encode(frames, &trinity_h265::Params::default())
        .map(|coded| (coded.stream, coded.recon))
        .map_err(|e| e.to_string());
    vec![
        against("H.264", "ffmpeg", h264, |stream| ffmpeg("h264", stream)),
        against("H.265", "ffmpeg", h265.clone(), |stream| ffmpeg("hevc", stream)),
        against("H.265", "libde265", h265, libde265),
    ]
}

/// A picture with an edge, a slope and noise.
fn picture() -> Frame {
    let mut frame = Frame::filled(WIDTH, HEIGHT, Chroma::C400, 8, 0);
    let mut state = 1u32;
    for y in 0..HEIGHT {
        for (x, sample) in frame.planes[0].row_mut(y).iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let edge = if x > y { 90 } else { 0 };
            *sample = (x + y + edge + (state >> 28) as usize) as u16;
        }
    }
    frame
}

/// Holds our reconstruction against what `decode` makes of our stream.
fn against(
    name: &'static str,
    decoder: &'static str,
    coded: Result<(Vec<u8>, Vec<Frame>), String>,
    decode: impl Fn(Vec<u8>) -> Result<Vec<u8>, String>,
) -> Check {
    let check = |agrees, remark: String| Check { name, decoder, agrees, remark };
    let (stream, recon) = match coded {
        Ok(coded) => coded,
        Err(error) => return check(Some(false), format!("the encoder failed: {error}")),
    };
    match decode(stream) {
        Err(remark) => check(None, remark),
        Ok(decoded) => {
            let ours: Vec<u8> =
                recon.iter().flat_map(|frame| frame.planes[0].samples.iter().map(|&s| s as u8)).collect();
            // Decoders may add grey chroma to a monochrome picture; luma comes first.
            let agrees = decoded.starts_with(&ours);
            let remark = if agrees { "every sample is equal" } else { "samples differ" };
            check(Some(agrees), remark.to_owned())
        }
    }
}

/// Decodes a stream of one eight-bit picture with libde265's own program,
/// which reads and writes files.
fn libde265(stream: Vec<u8>) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    let (coded, decoded) = (folder.path().join("picture.265"), folder.path().join("picture.yuv"));
    std::fs::write(&coded, stream).map_err(|e| format!("cannot write a stream: {e}"))?;
    let run = |program: &str| {
        Command::new(program)
            .arg("-q")
            .arg("-o")
            .args([&decoded, &coded])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    };
    // Debian prefixes the program's name.
    run("libde265-dec265").or_else(|_| run("dec265")).map_err(|_| "libde265 is not installed".to_owned())?;
    // A stream it cannot decode leaves nothing behind, which equals nothing.
    Ok(std::fs::read(&decoded).unwrap_or_default())
}

/// Decodes a stream of one eight-bit picture, luma first.
fn ffmpeg(format: &str, stream: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut child = Command::new("ffmpeg")
        .args(["-v", "error", "-threads", "1", "-f", format, "-i", "pipe:0"])
        // Its own format: asking for grey would rescale the range of a 4:2:0 picture.
        .args(["-f", "rawvideo", "pipe:1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| "ffmpeg is not installed".to_owned())?;
    let mut stdin = child.stdin.take().ok_or("ffmpeg takes no input")?;
    // A thread feeds it, so that neither side waits for the other's pipe.
    let feeder = std::thread::spawn(move || stdin.write_all(&stream));
    let output = child.wait_with_output().map_err(|e| format!("ffmpeg: {e}"))?;
    let fed = feeder.join().map_err(|_| "the feeding thread failed".to_owned())?;
    match fed {
        Ok(()) if output.status.success() => Ok(output.stdout),
        _ => Ok(Vec::new()),
    }
}
