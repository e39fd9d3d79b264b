//! `cargo xtask peers h264`: bits at equal error and speed, against x264 and
//! ffmpeg, on the same frames in the same run.
//!
//! `--quick` takes three presets of x264 and a tensor of each file.

use super::bench::{self, Gray, Scratch};
use super::video::{self, Decoder, Encoder, Measured, OURS, PRESETS};
use crate::tools;

pub fn run(args: &[&str]) -> Result<(), String> {
    let quick = video::is_quick("h264", args)?;
    tools::ensure_or_say(&[tools::FFMPEG, tools::X264]);
    let trinity = bench::build_trinity()?;
    let folder = Scratch::new("peers-h264")?;
    let inputs = video::inputs(&folder, quick)?;
    let first = inputs[0].clone();
    let mut encoders = Vec::new();
    if tools::find("x264").is_some() {
        let presets = if quick { "veryfast medium placebo" } else { PRESETS };
        encoders.extend(presets.split(' ').map(x264));
    }
    encoders.extend(OURS.map(|preset| Encoder::ours(&trinity, "h264", preset)));
    let measured = Measured::new(inputs, &encoders, &folder)?;
    measured.print_efficiency("x264 placebo");
    measured.print_encoding_speed(["x264 veryfast", "x264 placebo"]);
    let mut promises = measured.promise_bits("trinity best", "x264 placebo", -2.0, Some(0.0));
    promises.extend(measured.promise_bits("trinity fast", "x264 veryfast", 0.0, None));
    promises.extend(measured.promise_speed("trinity best", "x264 placebo", 4.0));
    promises.extend(measured.promise_speed("trinity fast", "x264 veryfast", 0.7));
    let mut decoders = vec![Decoder::ours(&trinity, "h264")];
    decoders.extend(tools::find("ffmpeg").map(|_| Decoder::ffmpeg("h264")));
    let (at, Gray { width, height, .. }) = (trinity.display(), &first);
    for (title, entropy) in [("CABAC", "cabac"), ("CAVLC", "cavlc")] {
        let encode = format!(
            "{at} h264 encode in.gray --size {width}x{height} --bits 3 --preset medium --entropy {entropy} -o out.bin --force"
        );
        let least = [("ffmpeg", 1.0)];
        promises.extend(video::decoding_speed(title, &encode, &decoders, &least, &first, &folder)?);
    }
    promises.extend(video::linear_cost(&trinity, "h264", &folder)?);
    video::print_promises(&promises);
    Ok(())
}

/// Intra only, no psychovisual tools, without the deblocking filter as ours.
fn x264(preset: &'static str) -> Encoder {
    Encoder::new(format!("x264 {preset}"), move |Gray { width, height, .. }, qp| {
        format!(
            "x264 --preset {preset} --tune psnr --qp {qp} --keyint 1 --ipratio 1 --aq-mode 0 --no-psy \
             --no-deblock --threads 1 --demuxer raw --input-csp i400 --output-csp i400 --input-res {width}x{height} \
             --fps 1 --quiet --dump-yuv out.yuv --muxer raw -o out.bin in.gray"
        )
    })
}
