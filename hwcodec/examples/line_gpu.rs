//! The line-rate codec on this machine's GPU: every byte checked against the
//! CPU, then timed beside nvCOMP and matrix products.
//!
//! `cargo run --release -p trinity-hwcodec --example line_gpu -- [RECORDING.json] [--check | --quick | --beside]`
//!
//! `--check` compares alone; `--quick` times the codec alone, on all of the GPU; `--beside` times it beside
//! products alone and puts that into the recording.
#![allow(clippy::print_stdout)]

use std::{env, fs};
use trinity_bits::Frame;
use trinity_hwcodec::line::LineCodec;
use trinity_hwcodec::measure::line::{Recorded, Speed, beside, check, measure, measure_alone};
use trinity_hwcodec::nvdec::Standard;
use trinity_hwcodec::streams::Spec;
use trinity_hwcodec::{Error, Gpu};

fn main() -> Result<(), Error> {
    let gpu = Gpu::open(0)?;
    let codec = LineCodec::new(&gpu)?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    let asks = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if asks("--quick") {
        print(&measure_alone(&gpu, &codec)?);
        return Ok(());
    }
    if asks("--beside") {
        let path = arguments.first().filter(|path| !path.starts_with("--"));
        let path = path.ok_or_else(|| Error::BadFile {
            file: "--beside".into(),
            reason: "expected a recording before it".into(),
        })?;
        let mut recorded = read(path)?;
        recorded.beside = beside(&gpu, &codec, &mut recorded.left_out)?;
        print(&recorded);
        return write(path, &recorded);
    }
    let rows = check(&gpu, &codec)?;
    let wrong: Vec<_> = rows.iter().filter(|row| !row.agrees()).collect();
    println!("{} of {} cases equal on CPU and GPU", rows.len() - wrong.len(), rows.len());
    wrong.iter().for_each(|row| println!("  {}: {}", row.name, row.outcome));
    if asks("--check") {
        return Ok(());
    }
    let recorded = measure(&gpu, &codec, Some(&encode))?;
    print(&recorded);
    if let Some(path) = arguments.first() {
        write(path, &recorded)?;
    }
    Ok(())
}

fn read(path: &str) -> Result<Recorded, Error> {
    let bad = |reason: String| Error::BadFile { file: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
}

fn write(path: &str, recorded: &Recorded) -> Result<(), Error> {
    let bad = |reason: String| Error::BadFile { file: path.to_owned(), reason };
    let text = serde_json::to_string_pretty(recorded).map_err(|e| bad(e.to_string()))?;
    fs::write(path, text + "\n").map_err(|e| bad(e.to_string()))
}

/// Pictures through our own encoders, for NVDEC.
fn encode(spec: &Spec, frames: &[Frame]) -> Result<(Vec<u8>, Vec<Frame>), String> {
    let coded = match spec.standard {
        Standard::H264 => {
            let rate = trinity_h264::Rate::Qp(spec.qp.into());
            let params =
                trinity_h264::Params { rate, preset: trinity_h264::Preset::Fast, ..Default::default() };
            trinity_h264::encode(frames, &params).map(|coded| (coded.stream, coded.recon))
        }
        Standard::Hevc => {
            let params = trinity_h265::Params {
                rate: trinity_h265::Rate::Qp(spec.qp.into()),
                preset: trinity_h265::Preset::Fast,
                range_extensions: false,
                ..Default::default()
            };
            trinity_h265::encode(frames, &params).map(|coded| (coded.stream, coded.recon))
        }
    };
    coded.map_err(|error| error.to_string())
}

fn print(recorded: &Recorded) {
    println!("codec                         SMs      MiB  enc GB/s  dec GB/s    bits      NMSE");
    let row = |speed: &Speed| {
        println!(
            "{:<28} {:>4} {:>8} {:>9.1} {:>9.1} {:>7.3} {:>9.6}",
            speed.what,
            speed.multiprocessors,
            speed.input_bytes >> 20,
            speed.encode_gb_per_s(),
            speed.decode_gb_per_s(),
            speed.bits_per_value(),
            speed.nmse
        );
    };
    recorded.speeds.iter().for_each(row);
    for beside in &recorded.beside {
        println!(
            "{}{} on {} SMs: product {:.3} -> {:.3} ms, coding of 64 MiB {:.3} -> {:.3} ms",
            beside.what,
            match (beside.urgent, beside.apart) {
                (true, _) => " of higher priority",
                (_, true) => " apart",
                _ => "",
            },
            beside.multiprocessors,
            beside.product_alone_s * 1e3,
            beside.product_beside_s * 1e3,
            beside.codec_alone_s * 1e3,
            beside.codec_beside_s * 1e3
        );
    }
    for energy in &recorded.energy {
        println!(
            "{}: {:.0} W over {:.0} W idle, {:.1} GB/s, {:.3} J/GB",
            energy.what,
            energy.busy_w,
            energy.idle_w,
            energy.gb_per_s,
            energy.j_per_gb()
        );
    }
    for delta in &recorded.deltas {
        println!(
            "delta by {:?}, {} threads: {} bytes, synchronous {:.3} ms, pipelined {:.3} ms, exact: {}",
            delta.decoder,
            delta.threads,
            delta.compressed_bytes,
            delta.synchronous_s.median * 1e3,
            delta.pipelined_s.median * 1e3,
            delta.exact
        );
    }
    recorded.left_out.iter().for_each(|what| println!("left out: {what}"));
}
