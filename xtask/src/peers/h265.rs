//! `cargo xtask peers h265`: bits at equal error and speed, against x265,
//! kvazaar, ffmpeg and libde265, on the same frames in the same run; then
//! whether time grows with the input and memory does not.
//!
//! `--quick` takes three presets of x265 and a tensor of each file.

use super::bench::{self, Gray, Scratch};
use super::video::{self, Decoder, Encoder, Measured, OURS, PRESETS, Promise};
use crate::tools;
use std::path::Path;
use std::process::Command;

pub fn run(args: &[&str]) -> Result<(), String> {
    let quick = video::is_quick("h265", args)?;
    tools::ensure_or_say(&[tools::FFMPEG, tools::X265, tools::LIBDE265, tools::KVAZAAR]);
    let trinity = bench::build_trinity()?;
    let folder = Scratch::new("peers-h265")?;
    let inputs = video::inputs(&folder, quick)?;
    let first = inputs[0].clone();
    let mut encoders = Vec::new();
    if tools::find("x265").is_some() {
        let presets = if quick { "ultrafast medium placebo" } else { PRESETS };
        encoders.extend(presets.split(' ').map(x265));
    }
    if tools::find("kvazaar").is_some() {
        encoders.extend(["ultrafast", "medium", "placebo"].map(kvazaar));
    }
    encoders.extend(OURS.map(|preset| Encoder::ours(&trinity, "h265", preset)));
    let measured = Measured::new(inputs, &encoders, &folder)?;
    measured.print_efficiency("x265 placebo");
    measured.print_encoding_speed(["x265 medium", "x265 placebo"]);
    let mut promises = measured.promise_bits("trinity best", "x265 placebo", -3.0, Some(0.0));
    promises.extend(measured.promise_bits("trinity fast", "x265 medium", 0.0, None));
    promises.extend(measured.promise_speed("trinity best", "x265 placebo", 4.0));
    promises.extend(measured.promise_speed("trinity fast", "x265 medium", 8.0));
    let mut decoders = vec![Decoder::ours(&trinity, "h265")];
    decoders.extend(tools::find("ffmpeg").map(|_| Decoder::ffmpeg("hevc")));
    decoders.extend(tools::find("libde265-dec265").map(|_| Decoder {
        name: "libde265",
        command: "libde265-dec265 -q -t 0 many.bin -o dec.yuv".into(),
    }));
    let (at, Gray { width, height, .. }) = (trinity.display(), &first);
    let encode = format!(
        "{at} h265 encode in.gray --size {width}x{height} --bits 3 --preset medium -o out.bin --force"
    );
    let least = [("ffmpeg", 1.0), ("libde265", 1.2)];
    promises.extend(video::decoding_speed("H.265", &encode, &decoders, &least, &first, &folder)?);
    promises.extend(linear(&trinity, &folder)?);
    video::print_promises(&promises);
    Ok(())
}

/// Four times as many frames take four times as long, in the same memory.
fn linear(trinity: &Path, folder: &Scratch) -> Result<[Promise; 2], String> {
    let frame = bench::made_up_weights(1024, 1024);
    let encode = |frames: usize| {
        let input = Gray { samples: frame.samples.repeat(frames), ..frame.clone() };
        input.write(&folder.path.join("in.gray"))?;
        let command =
            "h265 encode in.gray --size 1024x1024 --qp 20 --preset fast --threads 1 -o out.bin --force";
        bench::usage(Command::new(trinity).args(command.split(' ')).current_dir(&folder.path))
    };
    let (few, many) = (encode(16)?, encode(64)?);
    let (time, memory) = (many.cpu_s / few.cpu_s, many.peak_kib as f64 / few.peak_kib as f64);
    Ok([
        Promise {
            what: "encoding 64 MB takes 4 times (±20 %) as long as 16 MB".into(),
            reached: format!("{time:.2}×"),
            kept: (3.2..=4.8).contains(&time),
        },
        Promise {
            what: "and at most 1.2 times the memory".into(),
            reached: format!("{memory:.2}×"),
            kept: memory <= 1.2,
        },
    ])
}

/// Intra only, no psychovisual tools, without filters as ours.
fn x265(preset: &'static str) -> Encoder {
    Encoder::new(format!("x265 {preset}"), move |Gray { width, height, .. }, qp| {
        format!(
            "x265 --input in.gray --input-res {width}x{height} --input-csp i400 --input-depth 8 --fps 1 \
             --preset {preset} --tune psnr --keyint 1 --qp {qp} --ipratio 1 --aq-mode 0 --psy-rd 0 \
             --psy-rdoq 0 --no-cutree --no-deblock --no-sao --no-info --no-wpp --pools 1 --frame-threads 1 \
             --log-level error --recon out.yuv -o out.bin"
        )
    })
}

fn kvazaar(preset: &'static str) -> Encoder {
    Encoder::new(format!("kvazaar {preset}"), move |Gray { width, height, .. }, qp| {
        format!(
            "kvazaar -i in.gray --input-res {width}x{height} --input-format P400 --preset {preset} -p 1 --qp {qp} \
             --threads 0 --no-wpp --no-deblock --sao off --no-info --debug out.yuv -o out.bin"
        )
    })
}
