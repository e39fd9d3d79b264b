//! `cargo xtask peers encode`: what the user types, file to file: `trinity encode` and `trinity decode` of one
//! file on one thread, with planning, rate control and the reported error, beside x264's fastest preset on as many
//! samples and `zstd -d` of the same file.
//!
//! Runs take turns and the least user CPU time of each counts. `--quick` takes a file a quarter as large, once.

// The table is the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::matrix::Matrix;
use super::video;
use crate::numeric::random::SplitMix64;
use crate::{files, tools};
use std::path::Path;

/// Codecs, and the multiple of x264's samples per second that each is to reach, where there is one.
const CODECS: [(&str, Option<f64>); 5] = [
    ("trinity-lite", Some(1.0)),
    ("line-fast", None),
    ("line-uniform", Some(3.0)),
    ("uniform+ac", None),
    ("trinity", None),
];
const BITS: &str = "3";
const TURNS: usize = 3;

pub fn run(args: &[&str]) -> Result<(), String> {
    let (rows, turns) = if video::is_quick("encode", args)? { (1024, 1) } else { (4096, TURNS) };
    tools::ensure_or_say(&[tools::X264]);
    let trinity = bench::build_trinity()?;
    let scratch = bench::Scratch::new("encode")?;
    let matrix = gaussian(rows, 4096);
    write_npy(&matrix, &scratch.path.join("in.npy"))?;
    let millions = matrix.values.len() as f64 / 1e6;
    let mut x264 = 0.0f64;
    let mut zstd = f64::INFINITY;
    let mut seconds = [[f64::INFINITY; 2]; CODECS.len()];
    if tools::find("zstd").is_some() {
        bench::cpu_s("zstd -q -f in.npy -o in.zst", &scratch.path)?;
    }
    for _ in 0..turns {
        x264 = x264.max(bench::x264_ultrafast(&scratch.path, &matrix, 0.3 * matrix.rms())?);
        if tools::find("zstd").is_some() {
            zstd = zstd.min(bench::cpu_s("zstd -q -d -f in.zst -o out.npy", &scratch.path)?);
        }
        for ((codec, _), [encode, decode]) in CODECS.iter().zip(&mut seconds) {
            let at = trinity.display();
            let options = format!("--codec {codec} --bits {BITS} --threads 1 --quiet --force");
            let coded = bench::cpu_s(&format!("{at} encode in.npy {options} -o {codec}.tri"), &scratch.path)?;
            let back = format!("{at} decode {codec}.tri --threads 1 --quiet --force -o out.npy");
            *encode = encode.min(coded);
            *decode = decode.min(bench::cpu_s(&back, &scratch.path)?);
        }
    }
    println!(
        "{millions:.1} million Gaussian values, f32, at {BITS} bits: one thread, user CPU time, least of {turns}; 10⁶ values per second\n"
    );
    println!("x264 ultrafast {x264:.0}, zstd -d {:.0}\n", millions / zstd);
    println!("{:<14}{:>10}{:>10}{:>8}{:>10}{:>10}", "", "encode", "× x264", "bar", "decode", "× zstd -d");
    for ((codec, bar), [encode, decode]) in CODECS.iter().zip(seconds) {
        let bar = bar.map_or(String::new(), |bar| format!("{bar:.1}"));
        println!(
            "{codec:<14}{:>10.1}{:>10.2}{bar:>8}{:>10.1}{:>10.2}",
            millions / encode,
            millions / encode / x264,
            millions / decode,
            zstd / decode
        );
    }
    Ok(())
}

fn gaussian(rows: usize, cols: usize) -> Matrix {
    let mut random = SplitMix64(11);
    let values = (0..rows * cols).map(|_| random.gaussian() as f32).collect();
    Matrix { name: "Gaussian values".into(), rows, cols, values }
}

/// The matrix as npy of version 1.0.
fn write_npy(matrix: &Matrix, path: &Path) -> Result<(), String> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", matrix.rows, matrix.cols);
    // Values begin at a multiple of 64 bytes.
    while (11 + header.len()) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(matrix.values.iter().flat_map(|value| value.to_le_bytes()));
    files::write(path, bytes)
}
