//! `cargo xtask peers tensor`: bits at equal error and speed of the Trinity
//! codec, against our H.265, x265, MPEG's neural-network coder and the entropy
//! of a uniform quantizer, on the same tensors in the same run.
//!
//! `--quick` takes one tensor a class and its first rows. Points of slow peers
//! are kept under `target/peers` and used again.

// The tables are the result.
#![allow(clippy::print_stdout)]

use super::bench;
use super::matrix::{self, Matrix};
use super::video;
use crate::numeric::random::SplitMix64;
use crate::{
    compile, files,
    regret::newest,
    tools,
    workspace::{captured, root, target},
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One value of a source.
type Draw = fn(&mut SplitMix64) -> f64;

/// Bits per value at which codecs are compared.
const RATES: [f64; 5] = [2.0, 2.5, 3.0, 3.5, 4.0];
/// Samples of video codecs: deep enough that rounding costs them nothing.
const DEPTH: u32 = 12;

/// Everybody but `trinity`, in the order of the columns.
const PEERS: [&str; 5] = ["trinity-static", "h265 best", "x265 placebo", "nncodec", "entropy"];

/// Bits that `trinity` shall save a value on average, by class and peer.
const BARS: [(&str, &str, f64); 13] = [
    ("weights", "h265 best", 0.27),
    ("weights", "x265 placebo", 0.27),
    ("weights", "nncodec", 0.05),
    ("kv_cache", "h265 best", 0.30),
    ("kv_cache", "x265 placebo", 0.30),
    ("kv_cache", "nncodec", 0.15),
    ("activations", "h265 best", 0.30),
    ("activations", "x265 placebo", 0.30),
    ("weight_gradients", "h265 best", 0.30),
    ("weight_gradients", "x265 placebo", 0.30),
    ("activation_gradients", "h265 best", 0.30),
    ("activation_gradients", "x265 placebo", 0.30),
    ("finetune_delta", "h265 best", 0.27),
];

/// A matrix and the class of tensors it stands for.
struct InputTensor {
    class: String,
    matrix: Matrix,
}

/// Bits per value and squared error over energy.
#[derive(Clone, Copy)]
struct Point {
    bits: f64,
    nmse: f64,
}

/// What is measured with, and where.
struct Bench {
    trinity: PathBuf,
    measure: PathBuf,
    /// Python with `nncodec`, where it could be had.
    python: Option<PathBuf>,
    scratch: bench::Scratch,
    kept: PathBuf,
}

pub fn run(args: &[&str]) -> Result<(), String> {
    let quick = video::is_quick("tensor", args)?;
    tools::ensure_or_say(&[tools::FFMPEG, tools::X264, tools::X265]);
    let bench = Bench::new()?;
    let input_tensors = input_tensors(quick)?;
    let curves = input_tensors
        .iter()
        .map(|input| {
            eprintln!("{} {}", input.class, input.matrix.name);
            bench.curves(&input.matrix)
        })
        .collect::<Result<Vec<_>, _>>()?;
    print_points(&input_tensors, &curves);
    print_classes(&input_tensors, &curves);
    bench.print_speed(&input_tensors)
}

/// Captured tensors, and sources of known statistics.
fn input_tensors(quick: bool) -> Result<Vec<InputTensor>, String> {
    let mut found = Vec::new();
    for file in captured() {
        let class = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let mut matrices = matrix::matrices(&file)?;
        matrices.truncate(if quick { 1 } else { usize::MAX });
        found.extend(matrices.into_iter().map(|matrix| InputTensor { class: class.clone(), matrix }));
    }
    if found.is_empty() {
        eprintln!("no captured tensors beside the project: sources alone");
    }
    let mut random = SplitMix64(1);
    let sources: [(&str, Draw); 3] = [
        ("gaussian", SplitMix64::gaussian),
        ("laplace", SplitMix64::laplacian),
        ("student-t, 3 degrees", |random| random.student(3)),
    ];
    for (name, next) in sources {
        let values = (0..1 << 20).map(|_| next(&mut random) as f32).collect();
        let matrix = Matrix { name: name.into(), rows: 1024, cols: 1024, values };
        found.push(InputTensor { class: "source".into(), matrix });
    }
    if quick {
        found.iter_mut().for_each(|input| input.matrix.crop(256));
    }
    Ok(found)
}

impl Bench {
    fn new() -> Result<Self, String> {
        let trinity = bench::build_trinity()?;
        let measure = compile::released("measure", "trinity-codec")?;
        let kept = target().join("peers/tensor");
        files::folder(&kept)?;
        let python = nncodec(&target().join("peers")).map_err(|e| eprintln!("left out: nncodec ({e})")).ok();
        let scratch = bench::Scratch::new("peers-tensor")?;
        Ok(Self { trinity, measure, python, scratch, kept })
    }

    /// Points of `trinity`, then those of every peer.
    fn curves(&self, matrix: &Matrix) -> Result<Vec<Vec<Point>>, String> {
        let path = self.scratch.path.join("in.f32");
        matrix.write(&path)?;
        let ours = self.profile(matrix, "trinity")?;
        let mut curves = vec![ours.clone()];
        for peer in PEERS {
            curves.push(match peer {
                "trinity-static" => self.profile(matrix, peer)?,
                "h265 best" => self.kept(matrix, peer, &h265_age(), || self.video(matrix, &ours, peer))?,
                "x265 placebo" if ["x265", "ffmpeg"].iter().all(|t| tools::find(t).is_some()) => {
                    self.kept(matrix, peer, "", || self.video(matrix, &ours, peer))?
                }
                "nncodec" => match &self.python {
                    Some(python) => self.kept(matrix, peer, "", || self.nncodec(python, matrix, &ours))?,
                    None => Vec::new(),
                },
                "entropy" => entropies(matrix, &ours),
                _ => Vec::new(),
            });
        }
        Ok(curves)
    }

    /// One profile of the codec at every rate.
    fn profile(&self, matrix: &Matrix, name: &str) -> Result<Vec<Point>, String> {
        // A little beyond the rates, so that curves meet where they are read.
        let targets = RATES.iter().map(|b| format!("b{b}")).collect::<Vec<_>>().join(",");
        let ends = if name == "trinity" { "" } else { ",b1.7,b4.4" };
        let lines = self.measured(matrix, name, &format!("{targets}{ends}"), 1)?;
        Ok(sorted(lines.iter().map(|n| Point { bits: n[0], nmse: n[1] }).collect()))
    }

    /// Bits, NMSE, passes, encoding and decoding seconds for each target.
    fn measured(
        &self,
        matrix: &Matrix,
        profile: &str,
        targets: &str,
        repeats: usize,
    ) -> Result<Vec<Vec<f64>>, String> {
        let (rows, cols, repeats) = (matrix.rows.to_string(), matrix.cols.to_string(), repeats.to_string());
        let mut command = Command::new(&self.measure);
        command.args(["in.f32", &rows, &cols, profile, targets, &repeats]).env("RAYON_NUM_THREADS", "1");
        numbers(command.current_dir(&self.scratch.path), 2)
    }

    /// A video codec at QPs around the errors of `ours`.
    fn video(&self, matrix: &Matrix, ours: &[Point], peer: &str) -> Result<Vec<Point>, String> {
        let folder = &self.scratch.path;
        files::write(&folder.join("in.gray"), matrix.samples(DEPTH))?;
        // Error of a value is about the squared step over nine; the step of QP
        // 4 is one at eight bits.
        let qp = |nmse: f64| {
            let steps = (9.0 * nmse).sqrt() * matrix.rms() / matrix.largest() * 127.0;
            4.0 + 6.0 * steps.log2()
        };
        let (high, low) = (qp(ours[0].nmse) + 3.0, qp(ours[ours.len() - 1].nmse) - 2.0);
        let mut points = Vec::new();
        for i in 0..6 {
            let qp = (low + (high - low) * f64::from(i) / 5.0).round() as i32;
            let size = format!("{}x{}", matrix.cols, matrix.rows);
            let command = if peer.starts_with("x265") {
                if qp < 0 {
                    continue;
                }
                format!(
                    "(x265 --input in.gray --input-res {size} --input-csp i400 --input-depth {DEPTH} -D {DEPTH} --fps 1 \
                     --preset placebo --tune psnr --keyint 1 --qp {qp} --ipratio 1 --aq-mode 0 --psy-rd 0 \
                     --psy-rdoq 0 --no-cutree --no-deblock --no-sao --no-info --no-wpp --pools 1 \
                     --frame-threads 1 --log-level error -o out.265 && ffmpeg -loglevel error -y -i out.265 \
                     -pix_fmt gray{DEPTH}le -f rawvideo out.yuv)"
                )
            } else {
                format!(
                    "{} h265 encode in.gray --size {size} --depth {DEPTH} --qp {} --preset best --threads 1 \
                     --recon out.yuv -o out.265 --force",
                    self.trinity.display(),
                    qp.clamp(-6 * (DEPTH as i32 - 8), 51)
                )
            };
            bench::cpu_s(&command, folder)?;
            let bits = 8.0 * files::bytes(&folder.join("out.265"))?.len() as f64 / matrix.values.len() as f64;
            let shown = files::bytes(&folder.join("out.yuv"))?;
            points.push(Point { bits, nmse: matrix.nmse_of_samples(&shown, DEPTH)? });
        }
        Ok(sorted(points))
    }

    fn nncodec(&self, python: &Path, matrix: &Matrix, ours: &[Point]) -> Result<Vec<Point>, String> {
        let step = |nmse: f64| (nmse / 0.25).sqrt() * matrix.rms();
        let (low, high) =
            (nncodec_qp(step(ours[ours.len() - 1].nmse)) - 1, nncodec_qp(step(ours[0].nmse)) + 1);
        let qps: Vec<i32> = (0..7).map(|i| low + (high - low) * i / 6).collect();
        let lines = self.nncodec_lines(python, matrix, &qps, 1)?;
        Ok(sorted(lines.iter().map(|n| Point { bits: n[0], nmse: n[1] }).collect()))
    }

    /// Bits, NMSE, encoding and decoding seconds for each QP.
    fn nncodec_lines(
        &self,
        python: &Path,
        matrix: &Matrix,
        qps: &[i32],
        repeats: usize,
    ) -> Result<Vec<Vec<f64>>, String> {
        let script = self.scratch.path.join("nncodec_peer.py");
        files::write(&script, include_str!("nncodec_peer.py"))?;
        let qps = qps.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let (rows, cols, repeats) = (matrix.rows.to_string(), matrix.cols.to_string(), repeats.to_string());
        let mut command = Command::new(python);
        command.arg(&script).args(["in.f32", &rows, &cols, &qps, &repeats]);
        numbers(command.current_dir(&self.scratch.path), 1)
    }

    /// Points from an earlier run of the same peer on the same matrix, or new ones.
    fn kept(
        &self,
        matrix: &Matrix,
        peer: &str,
        age: &str,
        make: impl Fn() -> Result<Vec<Point>, String>,
    ) -> Result<Vec<Point>, String> {
        let name = format!("{peer} {} {:016x}{age}.txt", matrix.name, matrix.fingerprint());
        let path = self.kept.join(name.replace(['/', ' '], "_"));
        if let Ok(text) = std::fs::read_to_string(&path) {
            let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            return Ok(numbers.chunks_exact(2).map(|n| Point { bits: n[0], nmse: n[1] }).collect());
        }
        let points = make()?;
        let text: String = points.iter().map(|p| format!("{} {:e}\n", p.bits, p.nmse)).collect();
        files::write(&path, text)?;
        Ok(points)
    }

    /// Encoding and decoding, one thread, beside nncodec and x264 ultrafast.
    fn print_speed(&self, input_tensors: &[InputTensor]) -> Result<(), String> {
        println!(
            "\nSpeed, one thread, CPU time, least of {ROUNDS} alternating rounds, at about 3 bits a value; \
             M values a second\n"
        );
        println!(
            "{:<44}{:>10}{:>26}{:>26}{:>26}",
            "", "x264 uf", "nncodec", "trinity (× nncodec)", "trinity-static (× x264 uf)"
        );
        println!("{:<44}{:>10}{}", "", "encode", format!("{:>13}{:>13}", "encode", "decode").repeat(3));
        for of_class in input_tensors.chunk_by(|a, b| a.class == b.class) {
            // One of a class is enough.
            self.print_speed_of(&of_class[0])?;
        }
        println!(
            "\nbars: trinity 5 × nncodec both ways; trinity-static 0.4 × and 0.6 × the samples of x264 ultrafast\n"
        );
        Ok(())
    }

    fn print_speed_of(&self, input: &InputTensor) -> Result<(), String> {
        let matrix = &input.matrix;
        matrix.write(&self.scratch.path.join("in.f32"))?;
        let count = matrix.values.len() as f64 / 1e6;
        // The step of three bits, so that rate control does not count for either.
        let nmse = self.measured(matrix, "trinity", "b3", 1)?[0][1];
        let step = (nmse / 0.25).sqrt();
        let faster = |so_far: [f64; 2], lines: &[Vec<f64>], at: usize| {
            [so_far[0].max(count / lines[0][at]), so_far[1].max(count / lines[0][at + 1])]
        };
        let (mut ours, mut lite, mut theirs, mut x264) = ([0.0; 2], [0.0; 2], [0.0; 2], f64::NAN);
        for _ in 0..ROUNDS {
            ours = faster(ours, &self.measured(matrix, "trinity", &format!("s{step}"), REPEATS)?, 3);
            let lite_step = format!("s{}", step * 0.8);
            lite = faster(lite, &self.measured(matrix, "trinity-static", &lite_step, REPEATS)?, 3);
            theirs = match &self.python {
                Some(python) => {
                    let qp = nncodec_qp(step * matrix.rms());
                    faster(theirs, &self.nncodec_lines(python, matrix, &[qp], REPEATS)?, 2)
                }
                None => [f64::NAN; 2],
            };
            x264 = x264.max(bench::x264_ultrafast(&self.scratch.path, matrix, step * matrix.rms())?);
        }
        let ratio = |speed: f64, base: f64| format!("{speed:.2} ({:.2})", speed / base);
        println!(
            "{:<44}{x264:>10.2}{:>13.2}{:>13.2}{:>13}{:>13}{:>13}{:>13}",
            format!("{} {}", input.class, matrix.name),
            theirs[0],
            theirs[1],
            ratio(ours[0], theirs[0]),
            ratio(ours[1], theirs[1]),
            ratio(lite[0], x264),
            ratio(lite[1], x264)
        );
        Ok(())
    }
}

/// Rounds in which everyone takes a turn, and runs in a turn: a machine that
/// slows down for a while should slow everyone down.
const ROUNDS: usize = 4;
const REPEATS: usize = 3;

/// The QP of nncodec (four to the octave) whose step is nearest.
fn nncodec_qp(step: f64) -> i32 {
    (4.0 * step.log2()).round() as i32
}

/// A Python that has nncodec, in an environment of its own below `folder`.
fn nncodec(folder: &Path) -> Result<PathBuf, String> {
    let venv = folder.join("nncodec-venv");
    let python = venv.join("bin/python");
    let has_it = || {
        Command::new(&python)
            .args(["-c", "from nncodec.extensions import deepCABAC"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if has_it() {
        return Ok(python);
    }
    eprintln!("installing nncodec 2.1.3 (its coding core is compiled: some minutes)");
    tools::succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let pip = |words: &[&str]| {
        tools::succeed(Command::new(&python).args(["-m", "pip", "install", "-q"]).args(words))
    };
    pip(&["numpy<2"])?;
    // Its dependencies are the frameworks around the core, gigabytes of them.
    pip(&["--no-deps", "nncodec==2.1.3"])?;
    if has_it() { Ok(python) } else { Err("installed, but it does not import".into()) }
}

/// When our H.265 last changed, as part of a file's name.
fn h265_age() -> String {
    let newest = ["models/h265/src", "models/bits/src"].map(|folder| newest(&root().join(folder)));
    format!(" {}", newest.into_iter().max().unwrap_or_default())
}

/// The numbers of every line a command prints, after its first words.
fn numbers(command: &mut Command, skip: usize) -> Result<Vec<Vec<f64>>, String> {
    let line = |line: &str| line.split_whitespace().skip(skip).map_while(|word| word.parse().ok()).collect();
    Ok(tools::printed(command)?.lines().map(line).collect())
}

/// Order-0 entropy of uniformly quantized values around the errors of `ours`.
fn entropies(matrix: &Matrix, ours: &[Point]) -> Vec<Point> {
    let octave = |nmse: f64| ((12.0 * nmse).sqrt() * matrix.rms()).log2();
    let (low, high) = (octave(ours[ours.len() - 1].nmse) - 0.4, octave(ours[0].nmse) + 0.8);
    let points = (0..=12).map(|i| {
        let step = (low + (high - low) * f64::from(i) / 12.0).exp2();
        let level = |value: f32| (f64::from(value) / step).round_ties_even();
        let mut counts = std::collections::HashMap::new();
        matrix.values.iter().for_each(|&v| *counts.entry(level(v) as i64).or_insert(0u64) += 1);
        let count = matrix.values.len() as f64;
        let bits = counts.values().map(|&n| n as f64 / count * (count / n as f64).log2()).sum();
        Point { bits, nmse: matrix.nmse(matrix.values.iter().map(|&v| level(v) * step)) }
    });
    sorted(points.collect())
}

/// The points from few bits to many.
fn sorted(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    points
}

/// Bits at which a curve has this error: straight lines over the error's
/// logarithm, a third of an octave beyond the ends; not a number elsewhere.
fn bits_at(curve: &[Point], nmse: f64) -> f64 {
    let octaves = |p: &Point| p.nmse.log2();
    let x = nmse.log2();
    let Some(i) = (1..curve.len()).find(|&i| octaves(&curve[i]) <= x).or(curve.len().checked_sub(1)) else {
        return f64::NAN;
    };
    if i == 0 || x > octaves(&curve[0]) + 0.33 || x < octaves(&curve[curve.len() - 1]) - 0.33 {
        return f64::NAN;
    }
    let (a, b) = (&curve[i - 1], &curve[i]);
    a.bits + (b.bits - a.bits) * (x - octaves(a)) / (octaves(b) - octaves(a))
}

fn print_points(input_tensors: &[InputTensor], curves: &[Vec<Vec<Point>>]) {
    println!("Bits per value at equal error (–: out of the codec's reach)\n");
    let peers: String = PEERS.iter().map(|name| format!("{name:>14}")).collect();
    println!("{:<44}{:>12}{:>10}{peers}", "tensor", "NMSE", "trinity");
    for (input, curves) in input_tensors.iter().zip(curves) {
        for ours in &curves[0] {
            let cells: String = curves[1..].iter().map(|peer| cell(bits_at(peer, ours.nmse), 14)).collect();
            println!("{:<44}{:>12.3e}{:>10.3}{cells}", input.matrix.name, ours.nmse, ours.bits);
        }
    }
}

fn cell(number: f64, width: usize) -> String {
    if number.is_nan() { format!("{:>width$}", "–") } else { format!("{number:>width$.3}") }
}

/// Mean and least saving of `trinity` by class, beside the bars.
fn print_classes(input_tensors: &[InputTensor], curves: &[Vec<Vec<Point>>]) {
    println!("\nBits per value that trinity saves: mean over the class (least at any tensor and rate)\n");
    let peers: String = PEERS.iter().map(|name| format!("{name:>22}")).collect();
    println!("{:<24}{peers}", "class");
    let mut classes: Vec<&str> = input_tensors.iter().map(|s| s.class.as_str()).collect();
    classes.dedup();
    // Bits at every point of `trinity` on a class, where a codec reaches so far.
    let saved = |class: &str, bits: &dyn Fn(&[Vec<Point>], &Point) -> f64| -> Vec<f64> {
        let own = input_tensors.iter().zip(curves).filter(|(input, _)| input.class == class);
        let points = own.flat_map(|(_, curves)| curves[0].iter().map(|ours| bits(curves, ours)));
        points.filter(|bits| !bits.is_nan()).collect()
    };
    for class in &classes {
        let mut line = format!("{class:<24}");
        for (i, peer) in PEERS.iter().enumerate() {
            let saved = saved(class, &|curves, ours| bits_at(&curves[i + 1], ours.nmse) - ours.bits);
            let mean = saved.iter().sum::<f64>() / saved.len() as f64;
            let least = saved.iter().copied().fold(f64::NAN, f64::min);
            let bar = BARS.iter().find(|(c, p, _)| c == class && p == peer);
            let mark = bar.map_or("", |(.., bar)| if mean >= *bar { "✓" } else { "✗" });
            let text = if saved.is_empty() { "–".into() } else { format!("{mean:.3} ({least:.3}) {mark}") };
            line.push_str(&format!("{text:>22}"));
        }
        println!("{line}");
    }
    println!("\n✓ ✗: the mean reaches its bar or not; bars of {}", bars());
    println!("\nSaved by trinity-static against h265 best: mean over the class\n");
    for class in classes {
        let saved =
            saved(class, &|curves, ours| bits_at(&curves[2], ours.nmse) - bits_at(&curves[1], ours.nmse));
        println!("{class:<24}{}", cell(saved.iter().sum::<f64>() / saved.len() as f64, 10));
    }
}

fn bars() -> String {
    let mut classes: Vec<&str> = BARS.iter().map(|(class, ..)| *class).collect();
    classes.dedup();
    let of = |class: &str| {
        let own = BARS.iter().filter(|(c, ..)| *c == class);
        own.map(|(_, peer, bits)| format!("{bits:.2} ({peer})")).collect::<Vec<_>>().join(", ")
    };
    classes.iter().map(|class| format!("{class}: {}", of(class))).collect::<Vec<_>>().join("; ")
}
