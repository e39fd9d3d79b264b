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

/// The encoders known.
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
    const AC_STEPS: [(i32, f64); 14] = [
        (8, 122.0),
        (12, 195.0),
        (16, 267.0),
        (20, 337.0),
        (24, 409.0),
        (28, 539.0),
        (32, 700.0),
        (36, 922.0),
        (40, 1218.0),
        (44, 1631.0),
        (48, 2199.0),
        (52, 2971.0),
        (56, 4028.0),
        (60, 5476.0),
    ];
    AC_STEPS.map(|(qp, step)| Step { qp, even_qp: 4.0 + 6.0 * (step / 128.0).log2() }).into()
}

/// libaom derives a key frame's index from its QP by rules of its own; these
/// are QPs of x265 that gave the same rate on a Gaussian.
fn aom_steps() -> Vec<Step> {
    [(4, 8.2), (8, 15.5), (16, 23.5), (32, 32.0), (63, 44.0)].map(|(qp, even_qp)| Step { qp, even_qp }).into()
}

impl Ffmpeg {
    /// Names of all encoders known.
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
        let mut child = Command::new("ffmpeg")
            .args(["-hide_banner", "-loglevel", "error", "-threads", "1"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
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
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        read.map_err(|error| failed(error.to_string()))?;
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
        let size = format!("{}x{}", first.width(), first.height());
        let mut arguments: Vec<String> = [
            "-f",
            "rawvideo",
            "-pix_fmt",
            self.pixels,
            "-s",
            &size,
            "-r",
            "1",
            "-i",
            "-",
            "-c:v",
            self.encoder,
            "-threads",
            "1",
        ]
        .map(String::from)
        .into();
        let own = self.effort.iter().chain(self.arguments);
        arguments.extend(own.map(|argument| argument.replace("QP", &qp.to_string())));
        arguments.extend(["-f", self.format, "-"].map(String::from));
        self.run(&arguments, &raw)
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
