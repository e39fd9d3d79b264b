//! What other values of a tuned constant would give: the measure of `cargo xtask tune`.
//!
//! A piece from the middle of every tensor is coded at three errors; bits per value of all together, and the time it
//! took, for the value that was chosen and for others.
//!
//! ```text
//! cargo run --release -p trinity-tensor --features tune --example tune -- h265-dead-zone weights.safetensors
//! ```

#![allow(clippy::print_stdout)] // a program for people at a terminal

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use trinity_numeric::tuned::Tuned;
use trinity_tensor::codec::{Rate, codec};
use trinity_tensor::{Entry, Error, TensorFile, crop};

const NMSE: [f64; 3] = [0.003, 0.01, 0.03];
/// Values of each piece.
const PIECE: usize = 1 << 16;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Every constant that can be tuned.
fn known() -> impl Iterator<Item = &'static Tuned> {
    trinity_h264::TUNED.into_iter().chain(trinity_h265::TUNED).chain(trinity_codec::TUNED)
}

fn run(args: &[String]) -> Result<(), String> {
    let names = || known().map(|tuned| tuned.name).collect::<Vec<_>>().join(", ");
    let [asked, files @ ..] = args else {
        return Err(format!("expected NAME[=VALUE,...] FILE..., with one of: {}", names()));
    };
    let (name, stated) =
        asked.split_once('=').map_or((asked.as_str(), None), |(name, own)| (name, Some(own)));
    let tuned = known()
        .find(|tuned| tuned.name == name)
        .ok_or_else(|| format!("`{name}` is none of: {}", names()))?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
    let others: Vec<f64> = match stated {
        Some(stated) => stated
            .split(',')
            .map(|text| number(text).ok_or_else(|| format!("`{text}`: expected a number")))
            .collect::<Result<_, _>>()?,
        None => tuned.others.to_vec(),
    };
    if !tuned.set(tuned.chosen()) {
        return Err(
            "constants are fixed in this build: `cargo xtask tune` makes one that can set them".into()
        );
    }
    let mut pieces = Vec::new();
    for file in files {
        let why = |error: Error| {
            let cause =
                std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            format!("cannot read {error}{cause}")
        };
        pieces.extend(cut(Path::new(file)).map_err(why)?);
    }
    if pieces.is_empty() {
        return Err("no tensors: name files".into());
    }
    println!("{name}, by {} on {} tensors of {} files", tuned.codec, pieces.len(), files.len());
    println!("{:<12} {:>12} {:>9} {:>9}", "value", "bits/value", "change", "seconds");
    let mut today = None;
    for value in std::iter::once(tuned.chosen()).chain(others) {
        tuned.set(value);
        let (bits, seconds) = measure(tuned.codec, &pieces).map_err(|error| error.to_string())?;
        let change = 100.0 * (bits / *today.get_or_insert(bits) - 1.0);
        println!("{value:<12} {bits:>12.5} {change:>+8.3}% {seconds:>9.1}");
    }
    Ok(())
}

/// A piece of every tensor of a file.
fn cut(path: &Path) -> Result<Vec<trinity_tensor::Tensor>, Error> {
    TensorFile::open(path)?.entries().iter().map(|entry: &Entry| crop(entry, PIECE)).collect()
}

/// Bits per value and seconds.
fn measure(name: &str, pieces: &[trinity_tensor::Tensor]) -> Result<(f64, f64), Error> {
    let codec = codec(name)?;
    let (mut bits, mut values, mut seconds) = (0, 0, 0.0);
    for piece in pieces {
        for nmse in NMSE {
            let start = Instant::now();
            bits += 8 * codec.encode(piece, Rate::Nmse(nmse))?.bytes.len();
            seconds += start.elapsed().as_secs_f64();
            values += piece.len();
        }
    }
    Ok((bits as f64 / values.max(1) as f64, seconds))
}
