//! `cargo xtask peers line`: the line-rate codec's bits at equal error against
//! the full Trinity codec, our H.265 and a uniform quantizer with an arithmetic
//! coder, on every captured tensor; and its speed on one core beside zstd's
//! decoding of the same bf16 file and x264's fastest encoding of as many samples.
//!
//! `--quick` leaves H.265 out and takes one tensor of a file; `--bits` and `--speed`
//! print one of the two tables.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::matrix::{self, Matrix};
use crate::numeric::random::SplitMix64;
use crate::{
    compile, files,
    json::member,
    tools,
    workspace::{captured, captured_of_others},
};
use std::path::Path;
use std::process::Command;

/// The error at which bits are compared.
const NMSE: f64 = 0.01;
/// Bits above the full codec that a class may take, and bits below H.265 that it must.
const BARS: [(&str, f64); 5] = [
    ("weight", 0.10),
    ("activation", 0.10),
    ("kv-cache", 0.15),
    ("weight-gradient", 0.15),
    ("activation-gradient", 0.15),
];
const BELOW_H265: f64 = 0.15;
/// Speeds are taken at about so many bits per value.
const RATE: &str = "3";

pub fn run(args: &[&str]) -> Result<(), String> {
    let (bits, speed, quick) = match args {
        [] => (true, true, false),
        ["--quick"] => (true, true, true),
        ["--bits"] => (true, false, false),
        ["--bits", "--quick"] => (true, false, true),
        ["--speed"] => (false, true, false),
        _ => return Err("expected: cargo xtask peers line [--bits | --speed] [--quick]".into()),
    };
    tools::ensure_or_say(&[tools::X264]);
    if bits {
        print_bits(&bench::build_trinity()?, quick)?;
    }
    if speed { print_speed() } else { Ok(()) }
}

/// One tensor under one codec.
struct Point {
    tensor: String,
    class: String,
    codec: String,
    /// Bits per value at exactly [`NMSE`]: six decibels are a bit.
    bits: f64,
}

fn print_bits(trinity: &Path, quick: bool) -> Result<(), String> {
    let mut tensors = [captured(), captured_of_others()].concat();
    tensors.sort();
    if tensors.is_empty() {
        eprintln!("no captured tensors beside the project: speed alone");
        return Ok(());
    }
    let codecs =
        if quick { "trinity,trinity-lite,uniform+ac" } else { "trinity,trinity-lite,h265-best,uniform+ac" };
    let mut points = Vec::new();
    for file in &tensors {
        let mut command = Command::new(trinity);
        command.args(["compare", "--json", "--codecs", codecs, "--nmse", &NMSE.to_string()]).arg(file);
        if quick && let Some(first) = matrix::matrices(file)?.first() {
            command.args(["--tensor", &first.name]);
        }
        points.extend(compared(&mut command)?);
    }
    println!("Bits per value at NMSE {NMSE}, everything counted\n");
    println!("{:<56}{:>10}{:>14}{:>10}{:>10}", "", "lite", "over trinity", "h265 best", "uniform");
    let mut names: Vec<&str> = points.iter().map(|point| point.tensor.as_str()).collect();
    names.dedup();
    for name in &names {
        let bits = |codec: &str| find(&points, name, codec).unwrap_or(f64::NAN);
        let (lite, full) = (bits("trinity-lite"), bits("trinity"));
        println!(
            "{name:<56}{lite:>10.3}{:>+14.3}{:>10.3}{:>10.3}",
            lite - full,
            bits("h265-best"),
            bits("uniform+ac")
        );
    }
    println!(
        "\nMean over each class: over trinity (bar), below h265 best (bar {BELOW_H265}), least below uniform+ac (bar 0)\n"
    );
    for (class, bar) in BARS {
        let of_class: Vec<&str> =
            names.iter().copied().filter(|name| class_of(&points, name) == Some(class)).collect();
        let differences = |codec: &str| -> Vec<f64> {
            let difference =
                |name: &&str| Some(find(&points, name, codec)? - find(&points, name, "trinity-lite")?);
            of_class.iter().filter_map(difference).collect()
        };
        let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
        let uniform = differences("uniform+ac").into_iter().fold(f64::INFINITY, f64::min);
        println!(
            "{class:<24}{:>+8.3} ({bar:.2}){:>12.3}{uniform:>12.3}",
            -mean(&differences("trinity")),
            mean(&differences("h265-best"))
        );
    }
    Ok(())
}

fn find(points: &[Point], tensor: &str, codec: &str) -> Option<f64> {
    points.iter().find(|point| point.tensor == tensor && point.codec == codec).map(|point| point.bits)
}

fn class_of<'a>(points: &'a [Point], tensor: &str) -> Option<&'a str> {
    points.iter().find(|point| point.tensor == tensor).map(|point| point.class.as_str())
}

/// What `compare --json` printed: one member per line.
fn compared(command: &mut Command) -> Result<Vec<Point>, String> {
    let point = |part: &str| -> Option<Point> {
        let number = |key: &str| member(part, key)?.parse::<f64>().ok();
        let (bits, nmse) = (number("bits_per_value")?, number("nmse")?);
        Some(Point {
            tensor: member(part, "tensor")?.to_owned(),
            class: member(part, "class")?.to_owned(),
            codec: member(part, "codec")?.to_owned(),
            bits: bits + 0.5 * (nmse / NMSE).log2(),
        })
    };
    Ok(tools::printed(command)?.split('{').filter_map(point).collect())
}

/// Rows and columns of different scale, as the anchors' weights.
fn made_up_weights() -> Matrix {
    let (rows, cols) = (2048, 2048);
    let mut random = SplitMix64(7);
    let mut scales = |count: usize, spread: f64| -> Vec<f64> {
        (0..count).map(|_| (spread * random.gaussian()).exp()).collect()
    };
    let (row_scales, col_scales) = (scales(rows, 0.25), scales(cols, 0.35));
    let value = |at: usize, random: &mut SplitMix64| {
        (random.gaussian() * row_scales[at / cols] * col_scales[at % cols]) as f32
    };
    let mut random = SplitMix64(8);
    let values = (0..rows * cols).map(|at| value(at, &mut random)).collect();
    Matrix { name: "made-up weights".into(), rows, cols, values }
}

fn print_speed() -> Result<(), String> {
    let measure = compile::released("line_measure", "trinity-codec")?;
    let scratch = bench::Scratch::new("line")?;
    println!(
        "\nSpeed at {RATE} bits per value: one thread, CPU time; 10⁶ values per second, and ratios to the peer in the same run\n"
    );
    let caches = captured().into_iter().find(|file| file.ends_with("kv_cache.safetensors"));
    let cache = caches.and_then(|file| matrix::matrices(&file).ok()?.into_iter().next());
    for subject in std::iter::once(made_up_weights()).chain(cache) {
        print_speed_of(&measure, &scratch, &subject)?;
    }
    println!(
        "\nbars: decode 1 × zstd -d; encode with rate control 2 × x264 ultrafast (uniform), 0.8 × (8 states); two threads 1.9 ×"
    );
    Ok(())
}

fn print_speed_of(measure: &Path, scratch: &bench::Scratch, subject: &Matrix) -> Result<(), String> {
    let file = scratch.path.join("in.bf16");
    let half = |value: &f32| ((value.to_bits() + 0x7fff + (value.to_bits() >> 16 & 1)) >> 16) as u16;
    let bytes: Vec<u8> = subject.values.iter().flat_map(|value| half(value).to_le_bytes()).collect();
    files::write(&file, &bytes)?;
    let count = subject.values.len() as f64 / 1e6;
    let zstd = zstd_decode(scratch, &bytes)? / 2.0;
    let x264 = bench::x264_ultrafast(&scratch.path, subject, 0.3 * subject.rms())?;
    println!("{}: zstd -d {zstd:.0}, x264 ultrafast {x264:.0}", subject.name);
    println!(
        "  {:<16}{:<8}{:>8}{:>10}{:>20}{:>14}{:>18}{:>10}{:>10}",
        "", "", "bits", "NMSE", "encode (× x264)", "known plan", "decode (× zstd)", "2 threads", "encoding"
    );
    let once = lines(measure, &file, subject, 1)?;
    let twice = lines(measure, &file, subject, 2)?;
    for (one, two) in once.iter().zip(&twice) {
        let [name, width, bits, nmse, searched, known, decode] = one;
        let faster =
            |at: usize| -> Option<f64> { Some(one[at].parse::<f64>().ok()? / two[at].parse::<f64>().ok()?) };
        let speed = |seconds: &str| seconds.parse::<f64>().map_or(f64::NAN, |seconds| count / seconds);
        let (searched, known, decode) = (speed(searched), speed(known), speed(decode));
        println!(
            "  {name:<16}{width:<8}{bits:>8}{nmse:>10}{:>20}{known:>14.0}{:>18}{:>10.2}{:>10.2}",
            format!("{searched:.0} ({:.2})", searched / x264),
            format!("{decode:.0} ({:.2})", decode / zstd),
            faster(6).unwrap_or(f64::NAN),
            faster(5).unwrap_or(f64::NAN)
        );
    }
    Ok(())
}

/// What the example prints, word by word.
fn lines(measure: &Path, file: &Path, subject: &Matrix, threads: usize) -> Result<Vec<[String; 7]>, String> {
    let mut command = Command::new(measure);
    let sizes = [subject.rows, subject.cols].map(|side| side.to_string());
    command.arg(file).args(sizes).args([RATE, &threads.to_string()]);
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>().try_into().ok();
    Ok(tools::printed(&mut command)?.lines().filter_map(words).collect())
}

/// Bytes per second, in 10⁶, that `zstd -d` gives back of the file, many times over.
fn zstd_decode(scratch: &bench::Scratch, bytes: &[u8]) -> Result<f64, String> {
    if tools::find("zstd").is_none() {
        return Ok(f64::NAN);
    }
    let copies = (1 << 27) / bytes.len() + 1;
    let [one, packed, many] = ["one.bf16", "one.zst", "many.zst"].map(|name| scratch.path.join(name));
    files::write(&one, bytes)?;
    bench::cpu_s("zstd -q -f one.bf16 -o one.zst", &scratch.path)?;
    // Frames one after the other are a file like any other.
    files::write(&many, files::bytes(&packed)?.repeat(copies))?;
    Ok((bytes.len() * copies) as f64 / 1e6 / bench::cpu_s("zstd -q -d -c many.zst", &scratch.path)?)
}
