//! Bits that a codec needs for an error, over the tensors of some files:
//! `cargo run --release -p trinity-tensor --example rate_at_error -- h265 weights.safetensors`.
//!
//! The measure of `cargo xtask tune`: a piece from the middle of every tensor,
//! at three errors; bits per value of all together, and the time it took.

#![allow(clippy::print_stdout)] // a program for people at a terminal

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use trinity_tensor::codec::{Target, codec};
use trinity_tensor::{Error, TensorFile, crop};

const NMSE: [f64; 3] = [0.003, 0.01, 0.03];
/// Values of each piece.
const PIECE: usize = 1 << 16;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, files @ ..] = args.as_slice() else {
        eprintln!("usage: rate_at_error CODEC FILE...");
        return ExitCode::from(2);
    };
    match measure(name, files) {
        Ok((bits_per_value, seconds)) => {
            println!("{bits_per_value:.6} {seconds:.2}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure(name: &str, files: &[String]) -> Result<(f64, f64), Error> {
    let codec = codec(name)?;
    let (mut bits, mut values, mut seconds) = (0, 0, 0.0);
    for file in files {
        for entry in TensorFile::open(Path::new(file))?.entries() {
            let piece = crop(entry, PIECE)?;
            for nmse in NMSE {
                let start = Instant::now();
                bits += 8 * codec.encode(&piece, Target::Nmse(nmse))?.bytes.len();
                seconds += start.elapsed().as_secs_f64();
                values += piece.len();
            }
        }
    }
    Ok((bits as f64 / values.max(1) as f64, seconds))
}
