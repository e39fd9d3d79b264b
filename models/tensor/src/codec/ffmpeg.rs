//! External encoders through the `ffmpeg` program, for comparison only.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use trinity_bits::{Chroma, Frame};

use super::frame_codec::{FrameCodec, Step};
use super::tiling::Limits;
use crate::Error;

/// One encoder that ffmpeg wraps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ffmpeg {
    name: &'static str,
    encoder: &'static str,
    /// Container of the elementary stream.
    format: &'static str,
    pixels: &'static str,
    chroma: Chroma,
    depth: u32,
    steps: fn() -> Vec<Step>,
    /// Arguments that say how long to search.
    effort: &'static [&'static str],
    /// The others; `QP` stands for the quantization parameter.
    arguments: &'static [&'static str],
}

const ENCODERS: [Ffmpeg; 4] = [
    Ffmpeg {
        name: "x264",
        encoder: "libx264",
        format: "h264",
        pixels: "gray10le",
        chroma: Chroma::C400,
        depth: 10,
        // Its QPs start at zero for the finest step of ten bits, which is QP −12.
        steps: || (1..=63).map(|qp| Step { qp, even_qp: f64::from(qp - 12) }).collect(),
        // Without a range in the stream, a decoder's gray is stretched to the full one.
        effort: &["-preset", "medium"],
        arguments: &["-g", "1", "-qp", "QP", "-color_range", "pc", "-x264-params", "no-deblock=1:aq-mode=0"],
    },
    Ffmpeg {
        name: "x265",
        encoder: "libx265",
        format: "hevc",
        pixels: "gray12le",
        chroma: Chroma::C400,
        depth: 12,
        steps: || Step::even(0, 51),
        effort: &["-preset", "medium"],
        arguments: &[
            "-x265-params",
            "keyint=1:qp=QP:deblock=0:sao=0:aq-mode=0:cutree=0:ipratio=1:log-level=none:info=0:pools=1:frame-threads=1",
        ],
    },
    Ffmpeg {
        name: "svtav1",
        encoder: "libsvtav1",
        format: "ivf",
        pixels: "yuv420p10le",
        chroma: Chroma::C420,
        depth: 10,
        steps: svt_steps,
        effort: &["-preset", "10"],
        arguments: &["-g", "1", "-qp", "QP", "-svtav1-params", "lp=1"],
    },
    Ffmpeg {
        name: "aom",
        encoder: "libaom-av1",
        format: "ivf",
        pixels: "gray12le",
        chroma: Chroma::C400,
        depth: 12,
        steps: aom_steps,
        effort: &["-cpu-used", "6"],
        arguments: &["-g", "1", "-crf", "QP", "-b:v", "0"],
    },
];

/// Encoders of equal effort, for squared error: preset `slow` of x264 and x265, whose searches and trellises answer to
/// each other, without psychovisual weights, and the one of SVT-AV1 that takes about as long; ten bits in all.
const SLOW: [Ffmpeg; 3] = [
    Ffmpeg { name: "x264-slow", effort: &["-preset", "slow", "-tune", "psnr"], ..ENCODERS[0] },
    Ffmpeg {
        name: "x265-slow",
        pixels: "gray10le",
        depth: 10,
        effort: &["-preset", "slow", "-tune", "psnr"],
        ..ENCODERS[1]
    },
    Ffmpeg { name: "svtav1-slow", effort: &["-preset", "4"], ..ENCODERS[2] },
];

/// AV1's quantizer indices step unevenly: some of SVT-AV1's QPs, with the AC
/// step of ten bits at four times the index (AV1 clause 7.12.2). QPs below 8
/// all give the same stream. At 128, a step is that of QP 4.
fn svt_steps() -> Vec<Step> {
    // Of QPs 8, 12 and so on to 60.
    const AC_STEPS: [f64; 14] = [
        122.0, 195.0, 267.0, 337.0, 409.0, 539.0, 700.0, 922.0, 1218.0, 1631.0, 2199.0, 2971.0, 4028.0,
        5476.0,
    ];
    let steps = (8..).step_by(4).zip(AC_STEPS);
    steps.map(|(qp, step): (i32, f64)| Step { qp, even_qp: 4.0 + 6.0 * (step / 128.0).log2() }).collect()
}

/// libaom derives a key frame's index from its QP by rules of its own; these
/// are QPs of x265 that gave the same rate on a Gaussian.
fn aom_steps() -> Vec<Step> {
    [(4, 8.2), (8, 15.5), (16, 23.5), (32, 32.0), (63, 44.0)].map(|(qp, even_qp)| Step { qp, even_qp }).into()
}

impl Ffmpeg {
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ENCODERS.iter().map(|encoder| encoder.name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        ENCODERS.into_iter().chain(SLOW).find(|encoder| encoder.name == name)
    }

    /// Whether the program is there at all.
    pub(crate) fn installed() -> bool {
        Command::new("ffmpeg")
            .arg("-version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    }

    fn run(&self, arguments: &[String], input: &[u8]) -> Result<Vec<u8>, Error> {
        let failed =
            |problem: String| Error::External { program: format!("ffmpeg ({})", self.encoder), problem };
        let said = |error: std::io::Error| failed(error.to_string());
        let mut child = Command::new("ffmpeg")
            .args(["-hide_banner", "-loglevel", "error", "-threads", "1"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(said)?;
        let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed("no pipes".into()));
        };
        let mut output = Vec::new();
        let mut message = String::new();
        // Pipes are small: feeding, draining and listening must overlap.
        let read = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            scope.spawn(|| stderr.read_to_string(&mut message));
            stdout.read_to_end(&mut output)
        });
        let status = child.wait().map_err(said)?;
        read.map_err(said)?;
        if !status.success() {
            return Err(failed(format!("{status}: {}", message.lines().last().unwrap_or("no message"))));
        }
        Ok(output)
    }
}

impl FrameCodec for Ffmpeg {
    fn name(&self) -> String {
        self.name.into()
    }

    fn limits(&self) -> Limits {
        // The smallest frame that SVT-AV1 takes; the others take smaller ones.
        Limits { least: 64, side: 4096, chroma: self.chroma, depth: self.depth }
    }

    fn steps(&self) -> Vec<Step> {
        (self.steps)()
    }

    fn encode(&self, frames: &[Frame], qp: i32) -> Result<Vec<u8>, Error> {
        let Some(first) = frames.first() else { return Ok(Vec::new()) };
        let mut raw = Vec::new();
        frames.iter().for_each(|frame| frame.write_raw(&mut raw));
        let (width, height, pixels, encoder) = (first.width(), first.height(), self.pixels, self.encoder);
        let input = format!("-f rawvideo -pix_fmt {pixels} -s {width}x{height} -r 1 -i -");
        let output = format!("-c:v {encoder} -threads 1");
        let plain = input.split(' ').chain(output.split(' ')).map(String::from);
        let own = self.effort.iter().chain(self.arguments);
        let own = own.map(|argument| argument.replace("QP", &qp.to_string()));
        let ends = ["-f", self.format, "-"].map(String::from);
        self.run(&plain.chain(own).chain(ends).collect::<Vec<_>>(), &raw)
    }

    fn decode(&self, stream: &[u8], (width, height): (usize, usize)) -> Result<Vec<Frame>, Error> {
        let arguments =
            ["-f", self.format, "-i", "-", "-f", "rawvideo", "-pix_fmt", self.pixels, "-"].map(String::from);
        let raw = self.run(&arguments, stream)?;
        let failed = |error: trinity_bits::Error| Error::External {
            program: "ffmpeg".into(),
            problem: error.to_string(),
        };
        let len = Frame::raw_len(width, height, self.chroma, self.depth).map_err(failed)?;
        raw.chunks_exact(len)
            .map(|frame| Frame::from_raw(frame, width, height, self.chroma, self.depth).map_err(failed))
            .collect()
    }
}
