//! Speed of the line codec on one matrix of bf16:
//! `cargo run --release -p trinity-codec --example line_measure -- FILE.bf16 ROWS COLS BITS [THREADS]`.
//!
//! For each kind of encoder, and for each width of registers, one line: name,
//! width, bits per value, NMSE, seconds of encoding with its search for the rate,
//! of encoding at a known plan, of decoding to bf16. Least of several rounds, each
//! long enough for the clock; CPU time on one thread, time by the clock on more.

// The lines are the result.
#![allow(clippy::print_stdout)]

use rayon::prelude::*;
use std::time::Instant;

use trinity_codec::line::{
    Bf16, Coder, Effort, Options, Rate, Settings, Stream, Width, encode_under, encode_with,
};

const ROUNDS: usize = 5;
/// What a round takes at least: the kernel counts CPU time in ticks.
const ROUND_NS: u64 = 60_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, rows, cols, bits, threads @ ..] = words.as_slice() else {
        return Err("usage: measure FILE.bf16 ROWS COLS BITS [THREADS]".into());
    };
    let (rows, cols, bits): (usize, usize, f64) = (rows.parse()?, cols.parse()?, bits.parse()?);
    let threads: usize = threads.first().map_or(Ok(1), |threads| threads.parse())?;
    rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build_global()?;
    let raw = std::fs::read(file)?;
    let bf16: Vec<u16> = raw.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    // By all threads, as whoever reads a file with several would.
    let widen = || bf16.par_iter().map(|&b| f32::from_bits(u32::from(b) << 16)).collect::<Vec<f32>>();
    let kinds =
        [("uniform", Effort::Fast, 0), ("8-states", Effort::Fast, 3), ("8-states-best", Effort::Best, 3)];
    for (name, effort, log2_states) in kinds {
        let options = Options { effort, log2_states, ..Options::default() };
        let settings = Settings::default();
        let encode = || encode_under(&widen(), rows, cols, Rate::Bits(bits), &options, &settings);
        let (searched_s, bytes) = least(threads, if effort == Effort::Best { 1 } else { ROUNDS }, encode);
        let bytes = bytes?;
        let coder = Coder::new(Stream::open(&bytes)?.plan().clone())?;
        let (known_s, again) = least(threads, ROUNDS, || encode_with(&coder, &widen(), &settings));
        assert!(again? == bytes, "the same plan gives the same bytes");
        let found = 8.0 * bytes.len() as f64 / bf16.len() as f64;
        for width in Width::available() {
            let decode = || Stream::open(&bytes)?.numbers::<Bf16>(width);
            let (decode_s, decoded) = least(threads, ROUNDS, decode);
            let nmse = nmse(&bf16, &decoded?);
            println!("{name} {width:?} {found:.4} {nmse:.6} {searched_s:.6} {known_s:.6} {decode_s:.6}");
        }
    }
    Ok(())
}

/// Nanoseconds that this thread has spent on a core; by the clock where the
/// kernel does not tell.
fn cpu_ns(start: Instant) -> u64 {
    std::fs::read_to_string("/proc/self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

/// The least seconds of some rounds, and what the last gave.
fn least<T>(threads: usize, rounds: usize, work: impl Fn() -> T) -> (f64, T) {
    let start = Instant::now();
    let now = || if threads == 1 { cpu_ns(start) } else { start.elapsed().as_nanos() as u64 };
    let timed = || {
        let (before, mut times) = (now(), 0);
        loop {
            let result = work();
            times += 1;
            let spent = now() - before;
            if spent >= ROUND_NS {
                return (spent as f64 * 1e-9 / f64::from(times), result);
            }
        }
    };
    let mut best = timed();
    for _ in 1..rounds {
        let next = timed();
        best = (best.0.min(next.0), next.1);
    }
    best
}

fn nmse(original: &[u16], decoded: &[Bf16]) -> f64 {
    let value = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
    let (mut squared, mut energy) = (0.0, 0.0);
    for (&a, b) in original.iter().zip(decoded) {
        squared += (value(a) - value(b.0)).powi(2);
        energy += value(a).powi(2);
    }
    squared / energy
}
