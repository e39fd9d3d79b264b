//! What the tensor layer costs beside the frame codec, and what a second
//! thread brings: `cargo run --release -p trinity-tensor --example layer_cost`.
//!
//! The same samples through H.265 alone, and as a tensor: normalized, turned
//! the better way, aligned, tiled, and back. Processor time, the least of
//! alternating rounds; threads by wall clock, beside what two runs that share
//! nothing reach on this machine.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a program for people at a terminal

use std::time::Instant;

use rayon::prelude::*;
use trinity_bits::{Chroma, Frame};
use trinity_numeric::random::Lcg;
use trinity_tensor::codec::{Limits, Rate, Tiling, codec};
use trinity_tensor::pipeline::{OnNonFinite, encode_file};
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

const ROUNDS: usize = 3;
const ROWS: usize = 1024;
const COLS: usize = 2048;
const QP: f64 = 22.0;

fn main() {
    let codec_name = std::env::args().nth(1).unwrap_or_else(|| "h265-fast".into());
    let preset = codec_name.strip_prefix("h265-").unwrap_or("medium").parse().expect("h265 or h265-PRESET");
    let tensor = gaussian(ROWS, COLS);
    let tensor_codec = codec(&codec_name).unwrap();
    let frames = frames(&tensor);
    let params = trinity_h265::Params {
        rate: trinity_h265::Rate::Qp(QP),
        preset,
        threads: 1,
        picture_hash: false,
        ..Default::default()
    };
    let encode =
        |pool: &rayon::ThreadPool| pool.install(|| tensor_codec.encode(&tensor, Rate::Qp(QP)).unwrap());
    let pools = [1, 2].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());

    let stream = trinity_h265::encode(&frames, &params).unwrap().stream;
    let encoded = encode(&pools[0]);
    let [alone, layered, alone_back, layered_back] = least([
        &mut || drop(trinity_h265::encode(&frames, &params).unwrap()),
        &mut || drop(encode(&pools[0])),
        &mut || drop(trinity_h265::decode(&stream).unwrap()),
        &mut || drop(pools[0].install(|| tensor_codec.decode(&encoded).unwrap())),
    ]);
    let bits = |bytes: usize| 8.0 * bytes as f64 / (ROWS * COLS) as f64;
    println!(
        "{codec_name}, {ROWS} x {COLS} values, QP {QP}: frames {:.3} bits/value, tensor {:.3}",
        bits(stream.len()),
        bits(encoded.bytes.len())
    );
    println!(
        "encode: frames {alone:.2} s, tensor {layered:.2} s of processor: {:.3} of the speed",
        alone / layered
    );
    println!(
        "decode: frames {alone_back:.2} s, tensor {layered_back:.2} s of processor: {:.3} of the speed",
        alone_back / layered_back
    );
    threads(&pools, &codec_name, &frames, &params);
}

/// A file of four slabs, written with one thread and with two.
fn threads(
    pools: &[rayon::ThreadPool; 2],
    codec_name: &str,
    frames: &[Frame],
    params: &trinity_h265::Params,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.npy");
    trinity_tensor::file::write_npy(&path, &gaussian(4 * ROWS, COLS)).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let choice = |_: &trinity_tensor::Entry| (codec_name.to_owned(), Rate::Qp(QP));
    let out = folder.path().join("large.tri");
    let wall = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    let pair = || (0..2).into_par_iter().for_each(|_| drop(trinity_h265::encode(frames, params).unwrap()));
    let mut best = [f64::MAX; 4];
    for _ in 0..ROUNDS {
        for (slot, pool) in pools.iter().enumerate() {
            let write =
                || drop(encode_file(&file, &choice, None, OnNonFinite::Refuse, &out, &|_| ()).unwrap());
            best[slot] = best[slot].min(wall(&mut || pool.install(write)));
            best[2 + slot] = best[2 + slot].min(wall(&mut || pool.install(pair)));
        }
    }
    println!(
        "two threads: {:.2} times one on a file of four slabs; two encoders that share nothing: {:.2} times",
        best[0] / best[1],
        best[2] / best[3]
    );
}

/// The least processor time of each, rounds alternating.
fn least<const N: usize>(mut works: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    for _ in 0..ROUNDS {
        for (best, work) in best.iter_mut().zip(&mut works) {
            let start = processor_s();
            work();
            *best = best.min(processor_s() - start);
        }
    }
    best
}

/// Time that threads of this process ran, as Linux counts it in nanoseconds:
/// ticks of ten milliseconds would be a tenth of a decoding.
fn processor_s() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("a Linux machine");
    let ran_ns = |thread: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(|thread| ran_ns(thread.ok()?)).sum::<f64>() / 1e9
}

/// The samples that the tensor codec makes, as it would tile them.
fn frames(tensor: &Tensor) -> Vec<Frame> {
    let (rows, cols) = tensor.matrix();
    Tiling::new(rows, cols, false, Limits { least: 1, side: 4096, chroma: Chroma::C400, depth: 12 })
        .cut(&tensor.to_f32(), |value| (value * 2047.0 + 2048.0).round() as u16)
}

/// Sums of uniform numbers, within ±1.
fn gaussian(rows: usize, cols: usize) -> Tensor {
    let mut lcg = Lcg(7);
    let mut uniform = || lcg.uniform() - 0.5;
    let values: Vec<f32> = (0..rows * cols).map(|_| (0..8).map(|_| uniform()).sum::<f32>() / 4.01).collect();
    Tensor::of_f32("large", Class::Weight, Dtype::F32, vec![rows, cols], &values).unwrap()
}
