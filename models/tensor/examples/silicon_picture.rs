//! Bits of a picture through the codec in gates beside our H.264 at equal PSNR:
//! `cargo run --release -p trinity-tensor --example silicon_picture -- 35,40,45 picture.265...`.
//!
//! The luma of the first picture of each stream, of H.264 or H.265, is what both
//! code: `line-rtl-picture` as a matrix, its values back rounded and clipped to
//! samples, and H.264 as a picture, intra. Prints rows of picture, PSNR, codec and
//! bits per sample, between measured points along a line.

#![allow(clippy::print_stdout)] // rows for another program

use std::path::Path;
use std::process::ExitCode;

use trinity_bits::{Chroma, Frame};
use trinity_codec::line::{Number, Sample};
use trinity_h264::Params;
use trinity_tensor::codec::{Rate, codec};
use trinity_tensor::{Class, Dtype, Tensor};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// PSNR in decibels, and bits per sample.
type Point = (f64, f64);

/// What gates code, and the same without what picture mode adds.
const CODECS: [&str; 3] = ["line-rtl-picture", "line-rtl-dct", "line-rtl-1"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let run = || -> Outcome<()> {
        let (goals, streams) = args.split_first().ok_or("usage: silicon_picture PSNR,... STREAM...")?;
        let goals: Vec<f64> = goals.split(',').map(str::parse).collect::<Result<_, _>>()?;
        println!("picture,psnr_db,codec,bits_per_sample");
        streams.iter().try_for_each(|stream| measure(Path::new(stream), &goals))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure(path: &Path, goals: &[f64]) -> Outcome<()> {
    let stream = std::fs::read(path)?;
    let frame = match path.extension().is_some_and(|ending| ending == "265") {
        true => trinity_h265::frames(&stream).next().ok_or("no picture")??.frame,
        false => trinity_h264::frames(&stream).next().ok_or("no picture")??,
    };
    let luma = &frame.planes[0];
    let (width, height) = (luma.width, luma.height);
    if frame.depth != 8 {
        return Err(format!("{}: samples of {} bits", path.display(), frame.depth).into());
    }
    let samples: Vec<u16> = luma.samples.clone();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let gray = Frame { chroma: Chroma::C400, depth: 8, chroma_depth: 8, planes: vec![luma.clone()] };
    let mut curves = vec![("h264", h264(&gray, &samples)?)];
    for name in CODECS {
        curves.push((name, line(name, &samples, width, height)?));
    }
    for &goal in goals {
        for (name, curve) in &curves {
            if let Some(bits) = at(curve, goal) {
                println!("{stem} {width}x{height},{goal},{name},{bits:.4}");
            }
        }
    }
    Ok(())
}

fn psnr(original: &[u16], back: impl Iterator<Item = u16>) -> f64 {
    let squared: f64 = original.iter().zip(back).map(|(&a, b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    10.0 * (255.0f64.powi(2) * original.len() as f64 / squared.max(f64::MIN_POSITIVE)).log10()
}

fn h264(gray: &Frame, samples: &[u16]) -> Outcome<Vec<Point>> {
    let of = |qp: i32| -> Outcome<Point> {
        let coded = trinity_h264::encode(
            std::slice::from_ref(gray),
            &Params { rate: Rate::Qp(qp.into()), ..Params::default() },
        )?;
        let back = trinity_h264::decode(&coded.stream)?;
        let quality = psnr(samples, back[0].planes[0].samples.iter().copied());
        Ok((quality, 8.0 * coded.stream.len() as f64 / samples.len() as f64))
    };
    (8..=44).step_by(3).map(of).collect()
}

fn line(name: &str, samples: &[u16], width: usize, height: usize) -> Outcome<Vec<Point>> {
    let values: Vec<f32> = samples.iter().map(|&sample| sample.into()).collect();
    let plane = Tensor::of_f32("luma", Class::Activation, Dtype::F32, vec![height, width], &values)?;
    let energy = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / values.len() as f64;
    let codec = codec(name)?;
    let of = |goal: i32| -> Outcome<Point> {
        let error = 255.0f64.powi(2) / 10f64.powf(f64::from(goal) / 10.0);
        let encoded = codec.encode(&plane, Rate::Nmse(error / energy))?;
        let back = codec.decode(&encoded)?;
        let decoded = back.to_f32();
        let quality = psnr(samples, decoded.iter().map(|&value| Sample::<8>::rounded(value).0));
        Ok((quality, encoded.bits_per_value()))
    };
    (28..=52).step_by(3).map(of).collect()
}

/// Bits at a PSNR, between two points of a curve.
fn at(curve: &[Point], goal: f64) -> Option<f64> {
    let mut points = curve.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pair = points.windows(2).find(|pair| pair[0].0 <= goal && goal <= pair[1].0)?;
    let share = (goal - pair[0].0) / (pair[1].0 - pair[0].0).max(f64::MIN_POSITIVE);
    Some(pair[0].1 + share * (pair[1].1 - pair[0].1))
}
