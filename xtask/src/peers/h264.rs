//! `cargo xtask peers h264`: bits at equal error and speed, against x264 and
//! ffmpeg, on the same frames in the same run.
//!
//! `--quick` takes three presets of x264 and a few inputs.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench::{self, Gray, Point};
use crate::{root, tools};
use std::path::{Path, PathBuf};

const PRESETS: [&str; 10] = [
    "ultrafast",
    "superfast",
    "veryfast",
    "faster",
    "fast",
    "medium",
    "slow",
    "slower",
    "veryslow",
    "placebo",
];
const QUICK_PRESETS: [&str; 3] = ["veryfast", "medium", "placebo"];
const OURS: [&str; 4] = ["fast", "medium", "slow", "best"];

/// An encoder as a row of the table.
struct Row {
    name: String,
    /// Points by input.
    points: Vec<Vec<Point>>,
}

impl Row {
    /// Samples per CPU second over everything it encoded, in 10⁶.
    fn speed(&self, inputs: &[Gray]) -> f64 {
        let seconds: f64 = self.points.iter().flatten().map(|p| p.cpu_s).sum();
        let samples: usize = inputs.iter().zip(&self.points).map(|(i, p)| i.samples.len() * p.len()).sum();
        samples as f64 / seconds.max(1e-9) / 1e6
    }
}

pub fn run(args: &[&str]) -> Result<(), String> {
    let quick = match args {
        [] => false,
        ["--quick"] => true,
        _ => return Err("expected: cargo xtask peers h264 [--quick]".into()),
    };
    for (tool, reason) in tools::ensure(&[tools::FFMPEG, tools::X264]) {
        eprintln!("left out: {} ({reason})", tool.found_as[0]);
    }
    let trinity = bench::build_trinity()?;
    let folder = bench::Scratch::new("peers-h264")?;
    let inputs = inputs(&folder.path, quick)?;
    let mut rows = Vec::new();
    if tools::find("x264").is_some() {
        for preset in if quick { &QUICK_PRESETS[..] } else { &PRESETS[..] } {
            let encode = |i: &Gray, qp: i32, at: &Path| x264(preset, i, qp, at);
            rows.push(measure(format!("x264 {preset}"), &inputs, &folder.path, &encode)?);
        }
    }
    for preset in OURS {
        let encode = |i: &Gray, qp: i32, at: &Path| ours(&trinity, preset, i, qp, at);
        rows.push(measure(format!("trinity {preset}"), &inputs, &folder.path, &encode)?);
    }
    print_efficiency(&rows, &inputs);
    print_encoding_speed(&rows, &inputs);
    print_decoding_speed(&trinity, &inputs[0], &folder.path)
}

/// Captured tensors aligned to 8 bit and a natural picture; a made-up tensor
/// where the shared data is not there.
fn inputs(folder: &Path, quick: bool) -> Result<Vec<Gray>, String> {
    let shared = root().join("../shared");
    let mut files: Vec<PathBuf> = std::fs::read_dir(shared.join("captured"))
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let mut tensors = bench::tensors(&file)?;
        tensors.truncate(if quick { 1 } else { usize::MAX });
        found.extend(tensors);
    }
    if found.is_empty() {
        eprintln!("no captured tensors beside the project: a Gaussian with row and column scales instead");
        found.push(bench::made_up_weights(768, 256));
    }
    found.iter_mut().for_each(|gray| gray.crop(if quick { 256 } else { 512 }));
    let photo = shared.join("conformance/h265/libheif_example-item20004.265");
    if photo.exists() && tools::find("ffmpeg").is_some() {
        found.push(bench::luma_of(&photo, "natural picture", 1280, 856, folder)?);
    }
    Ok(found)
}

/// One encoder over all inputs at four QPs each.
fn measure(
    name: String,
    inputs: &[Gray],
    folder: &Path,
    encode: &dyn Fn(&Gray, i32, &Path) -> Result<Point, String>,
) -> Result<Row, String> {
    eprintln!("{name}");
    let points = inputs
        .iter()
        .map(|input| {
            input.write(&folder.join("in.gray"))?;
            input.qps().iter().map(|&qp| encode(input, qp, folder)).collect()
        })
        .collect::<Result<_, String>>()?;
    Ok(Row { name, points })
}

/// Intra only, no psychovisual tools, without the deblocking filter as ours.
fn x264(preset: &str, input: &Gray, qp: i32, at: &Path) -> Result<Point, String> {
    let command = format!(
        "x264 --preset {preset} --tune psnr --qp {qp} --keyint 1 --ipratio 1 --aq-mode 0 --no-psy \
         --no-deblock --threads 1 --demuxer raw --input-csp i400 --output-csp i400 --input-res {}x{} \
         --fps 1 --quiet --dump-yuv out.yuv --muxer raw -o out.265 in.gray",
        input.width, input.height
    );
    bench::point(&command, input, at)
}

fn ours(trinity: &Path, preset: &str, input: &Gray, qp: i32, at: &Path) -> Result<Point, String> {
    let command = format!(
        "{} h264 encode in.gray --size {}x{} --qp {qp} --preset {preset} --threads 1 --recon out.yuv -o out.265",
        trinity.display(),
        input.width,
        input.height
    );
    bench::point(&command, input, at)
}

fn print_efficiency(rows: &[Row], inputs: &[Gray]) {
    let Some(reference) = rows.iter().find(|r| r.name == "x264 placebo").or(rows.first()) else { return };
    println!("Bits at equal error, against {} (BD-rate, %; negative is better)\n", reference.name);
    println!("{:<44}{}", "input", rows.iter().map(|r| format!("{:>18}", r.name)).collect::<String>());
    let mut sums = vec![0.0; rows.len()];
    let tensors = inputs.iter().filter(|i| !i.natural).count();
    for (i, input) in inputs.iter().enumerate() {
        let mut line = format!("{:<44}", input.name);
        for (row, sum) in rows.iter().zip(&mut sums) {
            let rate = bench::bd_rate(&reference.points[i], &row.points[i]);
            line.push_str(&format!("{rate:>18.2}"));
            *sum += if input.natural { 0.0 } else { rate };
        }
        println!("{line}");
    }
    let means = sums.iter().map(|sum| format!("{:>18.2}", sum / tensors as f64)).collect::<String>();
    println!("{:<44}{means}\n", "mean over tensors");
}

fn print_encoding_speed(rows: &[Row], inputs: &[Gray]) {
    let of = |name: &str| rows.iter().find(|r| r.name == name).map(|r| r.speed(inputs));
    println!("Encoding speed, one thread, CPU time over all of the above\n");
    println!("{:<20}{:>14}{:>20}{:>20}", "encoder", "MB/s", "x264 veryfast = 1", "x264 placebo = 1");
    for row in rows {
        let speed = row.speed(inputs);
        let ratio = |name| of(name).map_or("".into(), |base| format!("{:.2}", speed / base));
        println!("{:<20}{speed:>14.3}{:>20}{:>20}", row.name, ratio("x264 veryfast"), ratio("x264 placebo"));
    }
    println!();
}

/// Decoding of one stream of ours at about three bits a value.
fn print_decoding_speed(trinity: &Path, input: &Gray, folder: &Path) -> Result<(), String> {
    input.write(&folder.join("in.gray"))?;
    let encode = format!(
        "{} h264 encode in.gray --size {}x{} --bits 3 --preset medium -o out.264",
        trinity.display(),
        input.width,
        input.height
    );
    bench::cpu_s(&encode, folder)?;
    // The same picture over and over, so that starting up does not count.
    let copies = (1 << 23) / input.samples.len() + 1;
    let one = std::fs::read(folder.join("out.264")).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("many.264"), one.repeat(copies)).map_err(|e| e.to_string())?;
    let mut decoders =
        vec![("trinity", format!("{} h264 decode many.264 --threads 1 -o dec.yuv", trinity.display()))];
    if tools::find("ffmpeg").is_some() {
        decoders.push((
            "ffmpeg",
            "ffmpeg -loglevel error -threads 1 -i many.264 -pix_fmt gray -f rawvideo -y dec.yuv".into(),
        ));
    }
    let mut best = vec![f64::INFINITY; decoders.len()];
    for _ in 0..3 {
        for ((_, command), best) in decoders.iter().zip(&mut best) {
            *best = best.min(bench::cpu_s(command, folder)?);
        }
    }
    println!(
        "Decoding speed, one thread, least CPU time of three runs, {:.2} bits a value (CABAC)\n",
        one.len() as f64 * 8.0 / input.samples.len() as f64
    );
    println!("{:<20}{:>14}{:>18}", "decoder", "MB/s", "trinity is");
    for ((name, _), seconds) in decoders.iter().zip(&best) {
        let speed = (input.samples.len() * copies) as f64 / seconds / 1e6;
        println!("{name:<20}{speed:>14.2}{:>17.2}×", seconds / best[0]);
    }
    Ok(())
}
