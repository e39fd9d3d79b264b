//! `trinity measure`: the host GPU, in numbers the simulator uses.

mod compute;
mod line;

use crate::{
    context::Context,
    failure::Failure,
    output,
    plot::{Axis, Mark, Plot, Series},
    report::Report,
    table::{Table, sig3},
};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use trinity_bits::Frame;
use trinity_hwcodec::{
    Error,
    calibration::Calibration,
    discover::{self, Inventory},
    fit::EngineModel,
    measure::{self, MeasurePlan, Parts, Setting},
    nvdec::Standard,
    recording::{self, EnginePoint, Recording, VerifySummary},
    streams::Spec,
    verify,
};

/// Measure the host GPU: decode and encode engines, copies, overlap
///
/// Decodes streams of our own encoders on NVDEC at many sizes and rates, times
/// copies, matrix products, their overlap, sparse deltas and slow wires, fits
/// a physical model to them, and writes calibration.toml (for `trinity sweep
/// --calibration`), recording.json (every measurement with its spread) and
/// report.html.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity measure --list                     what this machine has
  trinity measure --out h200                 everything, in a few minutes
  trinity measure --compute --out h200       products, memory, attention, launches, power
  trinity measure --line --out h200          the line-rate codec on multiprocessors, beside nvCOMP
  trinity measure --verify                   our streams on NVDEC, sample by sample
  trinity measure --replay h200/recording.json --out again
                                             fits and report of an old recording, on any machine")]
pub struct Args {
    /// Print driver, GPUs and what their engines take, and stop
    #[arg(long, conflicts_with_all = ["verify", "replay"])]
    list: bool,
    /// Only check that NVDEC decodes our streams to our reconstruction
    #[arg(long, conflicts_with = "replay")]
    verify: bool,
    /// Only compute: matrix products, memory, attention, launches and power
    #[arg(long, conflicts_with_all = ["list", "verify", "replay"])]
    compute: bool,
    /// Only the line-rate codec: speed by multiprocessors, beside products, energy
    #[arg(long, conflicts_with_all = ["list", "verify", "replay", "compute"])]
    line: bool,
    /// The interpreter whose PyTorch is asked what its operations cost; `none` asks nobody
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Fewer points: a look, not a calibration
    #[arg(long)]
    quick: bool,
    /// Repetitions of each timing
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=1000))]
    repeats: u32,
    /// Folder for calibration.toml, recording.json and report.html
    #[arg(long, value_name = "DIR", default_value = "measure")]
    out: PathBuf,
    /// Use this recording instead of the GPU
    #[arg(long, value_name = "RECORDING.json")]
    replay: Option<PathBuf>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    if args.list {
        return list(ctx);
    }
    if let Some(path) = &args.replay {
        let recording = Recording::read(path).map_err(Failure::input)?;
        return conclude(&recording, &args.out, ctx);
    }
    let bar = ctx.progress(0, "measure");
    let progress = |what: &str| bar.set_message(what.to_string());
    if args.verify {
        let summary = verify::run(&verify::grid(), &encode, &progress).map_err(failure)?;
        bar.finish_and_clear();
        return show_verify(&summary, ctx);
    }
    let plan = MeasurePlan { repeats: args.repeats as usize, quick: args.quick };
    let parts = match (args.compute, args.line) {
        (true, _) => Parts::Compute,
        (_, true) => Parts::Line,
        _ => Parts::All,
    };
    let unfinished = args.out.join("recording.json");
    // A job that is cut off keeps what it had; the disk's complaints come with the last write.
    let mut save = |recording: &Recording| {
        if let Ok(text) = recording.to_json() {
            let _ = output::renew(&unfinished, text.as_bytes());
        }
    };
    let setting = Setting {
        date: recording::today(),
        encoder: &encode,
        progress: &progress,
        python: (args.python != "none").then_some(args.python.as_str()),
        save: &mut save,
    };
    let mut recording = measure::run(plan, parts, setting).map_err(failure)?;
    if !args.quick && parts == Parts::All {
        progress("verify");
        match verify::run(&verify::grid(), &encode, &progress) {
            Ok(summary) => recording.verify = Some(summary),
            Err(error) => {
                recording.left_out.push(recording::LeftOut { what: "verify".into(), why: error.to_string() })
            }
        }
    }
    bar.finish_and_clear();
    conclude(&recording, &args.out, ctx)
}

/// Our encoders, as the measurements want them: one thread a picture row of the
/// machine, no tools that hardware may lack.
fn encode(spec: &Spec, frames: &[Frame]) -> Result<(Vec<u8>, Vec<Frame>), String> {
    let coded = match spec.standard {
        Standard::H264 => {
            let params = trinity_h264::Params {
                rate: trinity_h264::Rate::Qp(spec.qp.into()),
                preset: trinity_h264::Preset::Fast,
                ..Default::default()
            };
            trinity_h264::encode(frames, &params).map_err(|e| e.to_string())?
        }
        Standard::Hevc => {
            let params = trinity_h265::Params {
                rate: trinity_h265::Rate::Qp(spec.qp.into()),
                preset: trinity_h265::Preset::Fast,
                range_extensions: false,
                ..Default::default()
            };
            trinity_h265::encode(frames, &params).map_err(|e| e.to_string())?
        }
    };
    Ok((coded.stream, coded.recon))
}

/// No driver is the user's to mend (exit 2); anything else is a failed run.
fn failure(error: Error) -> Failure {
    match error {
        Error::NoDriver { .. } => Failure::run(&error)
            .help("run this on a machine with an NVIDIA GPU, or use --replay with a recording"),
        other => Failure::run(other),
    }
}

fn list(ctx: &Context) -> Result<(), Failure> {
    let inventory = match discover::inventory() {
        Ok(inventory) => inventory,
        // Nothing to list is an answer, not a failure.
        Err(error @ Error::NoDriver { .. }) => {
            let nothing = serde_json::json!({ "gpus": [], "reason": error.to_string() });
            return ctx.show(&nothing, || format!("{error}\n"));
        }
        Err(error) => return Err(Failure::run(error)),
    };
    ctx.show(&inventory, || list_text(&inventory, ctx.colour))
}

fn list_text(inventory: &Inventory, colour: bool) -> String {
    let mut text = format!(
        "driver {}, CUDA {}\n",
        inventory.driver.as_deref().unwrap_or("unknown"),
        inventory.cuda.as_deref().unwrap_or("unknown")
    );
    for gpu in &inventory.gpus {
        let (major, minor) = gpu.compute_capability;
        text += &format!(
            "\nGPU {}: {}, compute {major}.{minor}, {} MiB ({} MiB free)\n",
            gpu.ordinal, gpu.name, gpu.memory_total_mib, gpu.memory_free_mib
        );
        if let Some(power) = gpu.power {
            text += &format!(
                "power {} of {} W; clocks: SM {} MHz, memory {} MHz, video {} of {} MHz\n",
                sig3(power.draw_w),
                sig3(power.limit_w),
                power.sm_clock_mhz,
                power.memory_clock_mhz,
                power.video_clock_mhz,
                power.max_video_clock_mhz
            );
        }
        match &gpu.decode {
            Err(why) => text += &format!("decode: {why}\n"),
            Ok(rows) => {
                let able = |yes: bool, what: String| if yes { what } else { String::new() };
                let table = Table::of(rows.iter().map(|row| (row, &row.capabilities)))
                    .column("decode", |(row, _)| row.standard.name())
                    .column("chroma", |(row, _)| chroma(row.chroma_idc))
                    .column("bit", |(row, _)| row.depth)
                    .column("engines", |(_, can)| match can.supported {
                        true => can.engines.to_string(),
                        false => "no".into(),
                    })
                    .column("smallest", |(_, can)| able(can.supported, size(can.min_width, can.min_height)))
                    .column("largest", |(_, can)| able(can.supported, size(can.max_width, can.max_height)))
                    .end();
                text += &table.render(colour);
            }
        }
        match &gpu.encode {
            Err(why) => text += &format!("encode: {why}\n"),
            Ok(rows) => {
                let yes = |b: bool| if b { "yes" } else { "no" };
                let table = Table::of(rows)
                    .column("encode", |row| row.standard.name())
                    .column("engines", |row| row.capabilities.engines)
                    .column("largest", |row| size(row.capabilities.max_width, row.capabilities.max_height))
                    .column("4:0:0", |row| yes(row.capabilities.monochrome))
                    .column("4:4:4", |row| yes(row.capabilities.yuv444))
                    .column("10 bit", |row| yes(row.capabilities.ten_bit))
                    .column("lossless", |row| yes(row.capabilities.lossless))
                    .end();
                text += &table.render(colour);
            }
        }
    }
    text
}

fn show_verify(summary: &VerifySummary, ctx: &Context) -> Result<(), Failure> {
    ctx.show(summary, || {
        format!(
            "{} streams: {} equal to the last sample, {} of a kind NVDEC refuses\n",
            summary.streams, summary.equal, summary.refused
        )
    })?;
    agreed(Some(summary))
}

/// A failed run where a stream came back as something else.
fn agreed(verified: Option<&VerifySummary>) -> Result<(), Failure> {
    match verified.and_then(|summary| summary.first_difference.as_ref()) {
        None => Ok(()),
        Some(difference) => {
            Err(Failure::run(format_args!("NVDEC disagrees with our reconstruction: {difference}")))
        }
    }
}

/// Files, tables, and the exit code.
fn conclude(recording: &Recording, out: &Path, ctx: &Context) -> Result<(), Failure> {
    output::renew(&out.join("recording.json"), recording.to_json().map_err(Failure::run)?.as_bytes())?;
    let calibration = Calibration::from_recording(recording).map_err(Failure::run)?;
    output::write(&out.join("calibration.toml"), calibration.to_toml().map_err(Failure::run)?.as_bytes())?;
    report(recording, &calibration).write(&out.join("report.html"))?;
    ctx.show(&calibration, || {
        let device = &recording.device;
        let mut text = format!("{}, driver {}, {}\n\n", device.gpu, device.driver, device.date);
        for (_, table) in tables(recording, &calibration) {
            text += &(table.render(ctx.colour) + "\n");
        }
        for left_out in &recording.left_out {
            text += &format!("left out: {} — {}\n", left_out.what, left_out.why);
        }
        text
    })?;
    ctx.remark(format!("wrote {}", out.join("{calibration.toml,recording.json,report.html}").display()));
    agreed(recording.verify.as_ref())
}

/// What was measured, under captions; what was not is left out.
fn tables(recording: &Recording, calibration: &Calibration) -> impl Iterator<Item = (&'static str, Table)> {
    let all = [
        ("Decode throughput", engine_table("decode", &recording.decode)),
        ("Encode throughput", engine_table("encode", &recording.encode)),
        ("Fitted model of one engine", fit_table(calibration)),
        ("Overlap", overlap_table(recording)),
        ("Everything else", other_table(recording)),
        ("Compute", compute::table(calibration)),
        ("The line-rate codec on multiprocessors, values counted as bf16", line::table(recording)),
        ("Multiprocessors that a rate takes", line::needed(calibration)),
    ];
    all.into_iter().filter(|(_, table)| !table.rows().is_empty())
}

fn engine_table(what: &str, points: &[EnginePoint]) -> Table {
    Table::of(points)
        .column(what, |point| point.standard.name())
        .column("chroma", |point| chroma(point.chroma_idc))
        .column("bit", |point| point.depth)
        .column("picture", |point| size(point.width, point.height))
        .column("bits/value", |point| sig3(point.bits_per_value))
        .column("sessions", |point| point.sessions)
        .column("Mvalues/s", |point| sig3(point.values_per_s().median / 1e6))
        .column("± %", |point| sig3(100.0 * point.values_per_s().relative()))
        .end()
}

/// What people call a chroma_format_idc.
fn chroma(idc: u32) -> &'static str {
    ["4:0:0", "4:2:0", "4:2:2", "4:4:4"][idc.min(3) as usize]
}

fn size(width: impl Display, height: impl Display) -> String {
    format!("{width}×{height}")
}

/// An error at points left out of the fit, where there were enough others.
fn held_out(model: &EngineModel, error: f64) -> String {
    if model.held_out_points == 0 { "–".into() } else { sig3(100.0 * error) }
}

fn fit_table(calibration: &Calibration) -> Table {
    let pair = |c: trinity_hwcodec::fit::Coefficient, unit: f64| {
        format!("{} ± {}", sig3(c.value * unit), sig3(c.error * unit))
    };
    let engines = calibration.nvdec.iter().map(|m| (m, "decode"));
    let values = 1024.0 * 1024.0;
    Table::of(engines.chain(calibration.nvenc.iter().map(|m| (m, "encode"))))
        .column("fit", |(model, what)| format!("{} {what}", model.standard.name()))
        .column("fixed µs", |(model, _)| pair(model.fixed_s, 1e6))
        .column("ps/value", |(model, _)| pair(model.seconds_per_value, 1e12))
        .column("ps/bit", |(model, _)| pair(model.seconds_per_bit, 1e12))
        .column("overlap", |(model, _)| sig3(model.overlap))
        .column("engines", |(model, _)| model.engines)
        .column("contention", |(model, _)| pair(model.contention, 1.0))
        .column("mean error %", |(model, _)| sig3(100.0 * model.mean_error))
        .column("held out %", |(model, _)| held_out(model, model.held_out_mean_error))
        .column("worst %", |(model, _)| held_out(model, model.held_out_worst_error))
        .column("bound at 1024², 2.9 b", |(model, _)| model.bound_by(values, 2.9 * values))
        .end()
}

fn overlap_table(recording: &Recording) -> Table {
    let ms = |s: f64| sig3(1e3 * s);
    Table::of(&recording.overlap)
        .column("overlap", |point| &point.what)
        .column("first ms", |point| ms(point.first_s.median))
        .column("second ms", |point| ms(point.second_s.median))
        .column("serial ms", |point| ms(point.serial_s()))
        .column("parallel ms", |point| ms(point.parallel_s.median))
        .column("ideal ms", |point| ms(point.ideal_s()))
        .column("of ideal %", |point| sig3(100.0 * point.fraction_of_ideal()))
        .column("saved %", |point| sig3(100.0 * point.saved()))
        .column("first slowed ×", |point| sig3(point.first_slowdown))
        .column("second slowed ×", |point| sig3(point.second_slowdown))
        .end()
}

/// Copies, products, energy, deltas and wires: one line each.
fn other_table(recording: &Recording) -> Table {
    let mut table = Table::new(["measured", "value", "unit", "± %"]);
    let mut row = |what: String, value: f64, unit: &str, spread: Option<f64>| {
        let spread = spread.map(|spread| sig3(100.0 * spread)).unwrap_or_default();
        table.row([what, sig3(value), unit.into(), spread]);
    };
    for copy in &recording.copies {
        let kind = if copy.pinned { "pinned" } else { "pageable" };
        let what = format!("copy {}, {kind}, {} MiB", copy.direction, copy.bytes >> 20);
        row(what, copy.bytes_per_s.median / 1e9, "GB/s", Some(copy.bytes_per_s.relative()));
    }
    for gemm in &recording.gemm {
        let what = format!("bf16 product {}³", gemm.size);
        row(what, gemm.flop_per_s.median / 1e12, "TFLOP/s", Some(gemm.flop_per_s.relative()));
    }
    for energy in &recording.energy {
        row(energy.what.clone(), energy.pj_per_sample_bit(), "pJ/bit of samples, above idle", None);
    }
    for delta in &recording.delta {
        let gain = delta.synchronous_s.median / delta.pipelined_s.median;
        row(line::delta(delta), gain, "×", Some(delta.pipelined_s.relative()));
    }
    for wire in &recording.wires {
        let (standard, speed) = (wire.standard.name(), sig3(wire.wire_bits_per_s / 1e9));
        let what = format!("{standard} over {speed} Gb/s, dual lane against raw");
        row(what, wire.raw_s / wire.dual_lane_s, "×", None);
    }
    table
}

fn report(recording: &Recording, calibration: &Calibration) -> Report {
    let device = &recording.device;
    let mut report = Report::new(format!("Measured: {}", device.gpu));
    report.paragraph(format!(
        "Driver {}, CUDA {}, {}; {} NVDEC and {} NVENC engines. Medians of repeated runs after a warm-up; bounds are 95 % confidence intervals.",
        device.driver, device.cuda, device.date, device.nvdec_engines, device.nvenc_engines
    ));
    engine_plots(&mut report, recording, calibration);
    wire_plot(&mut report, recording);
    for (caption, table) in tables(recording, calibration) {
        report.add(caption, &table);
    }
    for left_out in &recording.left_out {
        report.paragraph(format!("Left out: {} — {}", left_out.what, left_out.why));
    }
    report
}

/// Throughput of one engine and of several, and how far the model is from both.
fn engine_plots(report: &mut Report, recording: &Recording, calibration: &Calibration) {
    let decode = &recording.decode;
    let alone = |standard: Standard| {
        decode
            .iter()
            .filter(move |p| p.standard == standard && p.sessions == 1 && p.chroma_idc == 1 && p.depth == 8)
    };
    let speed = |p: &EnginePoint| p.values_per_s().median / 1e6;
    let single = [Standard::H264, Standard::Hevc].map(|standard| {
        let points = alone(standard).map(|p| (p.bits() / p.seconds_per_picture.median / 1e6, speed(p)));
        Series::new(format!("{} measured", standard.name()), points, Mark::Points)
    });
    report.plot(
        "One engine: values against coded bits decoded in a second",
        &Plot::new(Axis::log("coded Mbit/s"), Axis::log("Mvalues/s"), single),
    );
    let scaling = [Standard::H264, Standard::Hevc].map(|standard| {
        let points = decode
            .iter()
            .filter(|p| p.standard == standard && (p.width, p.chroma_idc, p.depth) == (1024, 1, 8))
            .filter(|p| p.height == 1024)
            .map(|p| (f64::from(p.sessions), speed(p)));
        Series::new(standard.name(), points, Mark::Points)
    });
    report.plot(
        "Sessions: throughput against how many run at once (1024×1024)",
        &Plot::new(Axis::linear("sessions"), Axis::linear("Mvalues/s"), scaling),
    );
    let residuals = calibration.nvdec.iter().map(|model| {
        let points = alone(model.standard).map(|p| {
            let seconds = p.seconds_per_picture.median;
            (seconds * 1e3, 100.0 * (model.picture_s(p.values(), p.bits()) / seconds - 1.0))
        });
        Series::new(model.standard.name(), points, Mark::Points)
    });
    let y = Axis::linear("predicted − measured, %");
    report.plot(
        "Fit: residuals of the physical model",
        &Plot::new(Axis::log("measured ms a picture"), y, residuals),
    );
}

/// What coding gains over sending values as they are.
fn wire_plot(report: &mut Report, recording: &Recording) {
    let wires = [Standard::H264, Standard::Hevc].into_iter().flat_map(|standard| {
        let wires = recording.wires.iter().filter(move |wire| wire.standard == standard);
        let line = |way: &str, coded: fn(&recording::WirePoint) -> f64| {
            let points = wires.clone().map(|w| (w.wire_bits_per_s / 1e9, w.raw_s / coded(w)));
            Series::new(format!("{} {way}", standard.name()), points, Mark::Line)
        };
        [line("serial", |w| w.serial_s), line("dual lane", |w| w.dual_lane_s)]
    });
    report.plot(
        "Slow wires: speed-up over sending bf16 as it is (encoding on the CPU; above 1 coding pays)",
        &Plot::new(Axis::log("wire Gb/s"), Axis::log("speed-up"), wires),
    );
}
