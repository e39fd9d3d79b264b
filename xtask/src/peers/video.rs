//! What the comparisons of video codecs share: the inputs, every encoder over
//! them at the same QPs, and the tables of bits at equal error and of speed.
//!
//! Knows commands that read `in.gray` and write `out.bin` and `out.yuv`; which
//! commands those are is each standard's own business.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench::{self, Gray, Point, Scratch};
use crate::{
    files, tools,
    workspace::{captured, shared},
};
use std::path::Path;

/// The presets of x264 and of x265, from quick to thorough.
pub const PRESETS: &str = "ultrafast superfast veryfast faster fast medium slow slower veryslow placebo";
/// Ours, for both standards.
pub const OURS: [&str; 4] = ["fast", "medium", "slow", "best"];

/// The command that encodes an input at a QP.
type EncodeCommand = Box<dyn Fn(&Gray, i32) -> String>;

/// An encoder as a row of the tables.
pub struct Encoder {
    name: String,
    command: EncodeCommand,
}

impl Encoder {
    pub fn new(name: String, command: impl Fn(&Gray, i32) -> String + 'static) -> Self {
        Self { name, command: Box::new(command) }
    }

    /// `trinity STANDARD encode` with a preset, one thread.
    pub fn ours(trinity: &Path, standard: &'static str, preset: &'static str) -> Self {
        let trinity = trinity.display().to_string();
        Self::new(format!("trinity {preset}"), move |Gray { width, height, .. }, qp| {
            format!(
                "{trinity} {standard} encode in.gray --size {width}x{height} --qp {qp} --preset {preset} --threads 1 \
                 --recon out.yuv -o out.bin --force"
            )
        })
    }
}

/// A decoder: its row's name, and its command for the stream `many.bin`.
pub struct Decoder {
    pub name: &'static str,
    pub command: String,
}

impl Decoder {
    /// `trinity STANDARD decode`, one thread.
    pub fn ours(trinity: &Path, standard: &str) -> Self {
        let command =
            format!("{} {standard} decode many.bin --threads 1 -o dec.yuv --force", trinity.display());
        Self { name: "trinity", command }
    }

    /// ffmpeg's own decoder, told the standard since the file's name does not.
    pub fn ffmpeg(demuxer: &str) -> Self {
        let command = format!(
            "ffmpeg -loglevel error -threads 1 -f {demuxer} -i many.bin -pix_fmt gray -f rawvideo -y dec.yuv"
        );
        Self { name: "ffmpeg", command }
    }
}

/// Something to hold the tables against: a sentence, what was measured, and
/// whether that is enough.
pub struct Promise {
    pub what: String,
    pub reached: String,
    pub kept: bool,
}

/// What an encoder came to.
struct Row {
    name: String,
    /// Points by input.
    points: Vec<Vec<Point>>,
}

/// All encoders over all inputs.
pub struct Measured {
    inputs: Vec<Gray>,
    rows: Vec<Row>,
}

/// `--quick` or nothing.
pub fn is_quick(name: &str, args: &[&str]) -> Result<bool, String> {
    match args {
        [] => Ok(false),
        ["--quick"] => Ok(true),
        _ => Err(format!("expected: cargo xtask peers {name} [--quick]")),
    }
}

/// Captured tensors aligned to 8 bit and a natural picture; a made-up tensor
/// where the shared data is not there.
pub fn inputs(folder: &Scratch, quick: bool) -> Result<Vec<Gray>, String> {
    let mut found = Vec::new();
    for file in captured() {
        let mut tensors = bench::tensors(&file)?;
        tensors.truncate(if quick { 1 } else { usize::MAX });
        found.extend(tensors);
    }
    if found.is_empty() {
        eprintln!("no captured tensors beside the project: a Gaussian with row and column scales instead");
        found.push(bench::made_up_weights(768, 256));
    }
    // Rows enough for every encoder to settle, few enough for placebo to end.
    found.iter_mut().for_each(|gray| gray.crop(if quick { 256 } else { 512 }));
    let photo = shared().join("conformance/h265/libheif_example-item20004.265");
    if photo.exists() && tools::find("ffmpeg").is_some() {
        found.push(bench::luma_of(&photo, "natural picture", &folder.path)?);
    }
    Ok(found)
}

impl Measured {
    /// Runs every encoder at four QPs of each input. Encoders take turns at
    /// each point, so that a machine that slows down slows all of them.
    pub fn new(inputs: Vec<Gray>, encoders: &[Encoder], folder: &Scratch) -> Result<Self, String> {
        let mut rows: Vec<Row> =
            encoders.iter().map(|e| Row { name: e.name.clone(), points: Vec::new() }).collect();
        for input in &inputs {
            eprintln!("{}", input.name);
            input.write(&folder.path.join("in.gray"))?;
            rows.iter_mut().for_each(|row| row.points.push(Vec::new()));
            for qp in input.qps() {
                for (row, encoder) in rows.iter_mut().zip(encoders) {
                    let point = bench::point(&(encoder.command)(input, qp), input, &folder.path)?;
                    row.points.last_mut().ok_or("no input")?.push(point);
                }
            }
        }
        Ok(Self { inputs, rows })
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    fn tensors(&self) -> impl Iterator<Item = usize> {
        (0..self.inputs.len()).filter(|&at| !self.inputs[at].natural)
    }

    /// BD-rate of `test` against `reference` on each tensor, in percent.
    fn differences(&self, reference: &str, test: &str) -> Option<Vec<f64>> {
        let (reference, test) = (self.row(reference)?, self.row(test)?);
        Some(self.tensors().map(|at| bench::bd_rate(&reference.points[at], &test.points[at])).collect())
    }

    /// Samples per CPU second over the tensors, or over the natural picture, in 10⁶.
    fn speed(&self, name: &str, natural: bool) -> Option<f64> {
        let row = self.row(name)?;
        let (mut samples, mut seconds) = (0, 0.0);
        for (input, points) in self.inputs.iter().zip(&row.points).filter(|(i, _)| i.natural == natural) {
            samples += input.samples.len() * points.len();
            seconds += points.iter().map(|p| p.cpu_s).sum::<f64>();
        }
        (seconds > 0.0).then(|| samples as f64 / seconds / 1e6)
    }

    /// Bits at equal error against `reference`.
    pub fn print_efficiency(&self, reference: &str) {
        let Some(reference) = self.row(reference).or(self.rows.first()) else { return };
        println!("Bits at equal error, against {} (BD-rate, %; negative is better)\n", reference.name);
        let columns = |cells: &mut dyn Iterator<Item = String>| cells.map(|c| format!("{c:>18}")).collect();
        let names: String = columns(&mut self.rows.iter().map(|row| row.name.clone()));
        println!("{:<44}{:>14}{names}", "input", "bits/value");
        for (at, input) in self.inputs.iter().enumerate() {
            let rate = |row: &Row| format!("{:.2}", bench::bd_rate(&reference.points[at], &row.points[at]));
            let rates: String = columns(&mut self.rows.iter().map(rate));
            let bits = reference.points[at].iter().map(|p| p.bits);
            let (low, high) = bits.fold((f64::MAX, 0f64), |(a, b), bits| (a.min(bits), b.max(bits)));
            println!("{:<44}{:>14}{rates}", input.name, format!("{low:.2}–{high:.2}"));
        }
        let mean = |row: &Row| {
            let rates = self.differences(&reference.name, &row.name).unwrap_or_default();
            format!("{:.2}", rates.iter().sum::<f64>() / rates.len() as f64)
        };
        let means: String = columns(&mut self.rows.iter().map(mean));
        println!("{:<58}{means}\n", "mean over tensors");
    }

    /// Samples a second, and as ratios to the encoders named in `bases`: over
    /// the tensors, then over the natural picture.
    pub fn print_encoding_speed(&self, bases: [&str; 2]) {
        println!("Encoding speed, one thread, CPU time over the points above, MB/s and as a ratio\n");
        let [first, second] = bases.map(|base| format!("{base} = 1"));
        let heads = |what: &str| format!("{what:>14}{first:>22}{second:>22}");
        println!("{:<20}{}{}", "encoder", heads("tensors"), heads("picture"));
        for row in &self.rows {
            let cells = [false, true].map(|natural| {
                let Some(speed) = self.speed(&row.name, natural) else { return String::new() };
                let ratio = |base| {
                    self.speed(base, natural).map_or(String::new(), |base| format!("{:.2}", speed / base))
                };
                format!("{speed:>14.3}{:>22}{:>22}", ratio(bases[0]), ratio(bases[1]))
            });
            println!("{:<20}{}", row.name, cells.concat());
        }
        println!();
    }

    /// At most `most` percent of bits more than a peer, on average and, where
    /// `on_each` is given, on each tensor.
    pub fn promise_bits(&self, ours: &str, peer: &str, most: f64, on_each: Option<f64>) -> Vec<Promise> {
        let Some(rates) = self.differences(peer, ours).filter(|rates| !rates.is_empty()) else {
            return Vec::new();
        };
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let worst = rates.iter().copied().fold(f64::MIN, f64::max);
        let mut promises = vec![Promise {
            what: format!("{ours} takes at most {most:+.0} % bits of {peer}, on average"),
            reached: format!("{mean:+.2} %"),
            kept: mean <= most,
        }];
        promises.extend(on_each.map(|most| Promise {
            what: format!("{ours} takes at most {most:+.0} % bits of {peer}, on every tensor"),
            reached: format!("{worst:+.2} %"),
            kept: worst <= most,
        }));
        promises
    }

    /// Promises at least `least` times the speed of a peer, over the tensors.
    pub fn promise_speed(&self, ours: &str, peer: &str, least: f64) -> Option<Promise> {
        let ratio = self.speed(ours, false)? / self.speed(peer, false)?;
        Some(Promise {
            what: format!("{ours} encodes at least {least} times as fast as {peer}"),
            reached: format!("{ratio:.2}×"),
            kept: ratio >= least,
        })
    }
}

/// Decodes one picture of `input` coded by `encode`, over and over so that
/// starting up does not count, and promises to be as fast as each peer says.
pub fn decoding_speed(
    title: &str,
    encode: &str,
    decoders: &[Decoder],
    least: &[(&str, f64)],
    input: &Gray,
    folder: &Scratch,
) -> Result<Vec<Promise>, String> {
    let at = &folder.path;
    input.write(&at.join("in.gray"))?;
    bench::cpu_s(encode, at)?;
    let copies = (1 << 23) / input.samples.len() + 1;
    let one = files::bytes(&at.join("out.bin"))?;
    files::write(&at.join("many.bin"), one.repeat(copies))?;
    let mut best = vec![f64::INFINITY; decoders.len()];
    for _ in 0..5 {
        for (decoder, best) in decoders.iter().zip(&mut best) {
            *best = best.min(bench::cpu_s(&decoder.command, at)?);
        }
    }
    let bits = one.len() as f64 * 8.0 / input.samples.len() as f64;
    println!("Decoding speed, {title}, one thread, least CPU time of five runs, {bits:.2} bits a value\n");
    println!("{:<20}{:>14}{:>18}", "decoder", "MB/s", "trinity is");
    for (decoder, seconds) in decoders.iter().zip(&best) {
        let speed = (input.samples.len() * copies) as f64 / seconds / 1e6;
        println!("{:<20}{speed:>14.2}{:>17.2}×", decoder.name, seconds / best[0]);
    }
    println!();
    let promise = |&(name, least): &(&str, f64)| {
        let peer = decoders.iter().position(|decoder| decoder.name == name)?;
        let ratio = best[peer] / best[0];
        Some(Promise {
            what: format!("trinity decodes {title} at least {least} times as fast as {name}"),
            reached: format!("{ratio:.2}×"),
            kept: ratio >= least,
        })
    };
    Ok(least.iter().filter_map(promise).collect())
}

/// Encodes and decodes 16 MB and 64 MB of samples, and promises that a sample
/// of the larger takes no longer.
pub fn linear_cost(trinity: &Path, standard: &str, folder: &Scratch) -> Result<Vec<Promise>, String> {
    let at = &folder.path;
    let (width, height) = (4096, 4096);
    let tile = bench::made_up_weights(width, height / 8).samples;
    let trinity = trinity.display();
    println!("CPU time by size, one thread, ns a sample, least of three runs\n");
    println!("{:<20}{:>14}{:>14}", "samples", "encode fast", "decode");
    let mut costs = Vec::new();
    for frames in [1, 4] {
        let samples = frames * width * height;
        files::write(&at.join("in.gray"), tile.repeat(8 * frames))?;
        let commands = [
            format!(
                "{trinity} {standard} encode in.gray --size {width}x{height} --qp 24 --preset fast --threads 1 \
                 -o out.bin --force"
            ),
            format!("{trinity} {standard} decode out.bin --threads 1 -o dec.yuv --force"),
        ];
        let mut least = [f64::INFINITY; 2];
        for _ in 0..3 {
            for (command, least) in commands.iter().zip(&mut least) {
                *least = least.min(bench::cpu_s(command, at)? / samples as f64 * 1e9);
            }
        }
        println!("{:<20}{:>14.1}{:>14.1}", format!("{} MB", samples >> 20), least[0], least[1]);
        costs.push(least);
    }
    println!();
    let promise = |(what, at): (&str, usize)| {
        let ratio = costs[1][at] / costs[0][at];
        Promise {
            what: format!("trinity {what}s 64 MB at no more than 1.1 times the cost a sample of 16 MB"),
            reached: format!("{ratio:.2}×"),
            kept: ratio <= 1.1,
        }
    };
    Ok([("encode", 0), ("decode", 1)].map(promise).into())
}

/// What was promised and what came of it.
pub fn print_promises(promises: &[Promise]) {
    println!("{:<76}{:>12}", "promised", "measured");
    for promise in promises {
        println!("{:<76}{:>12}{}", promise.what, promise.reached, if promise.kept { "" } else { "  missed" });
    }
}
