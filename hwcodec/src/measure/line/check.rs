//! Every byte and every value against the CPU, for every kind of plan.

use super::{Checked, ROOM_BITS, decode, first_difference, from_bf16, to_bf16};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::line::{Encoder, Encoding, Faulty, Format, LineCodec};
use crate::measure::made_up::{mix, plan_at, weights};
use cudarc::driver::CudaStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use trinity_codec::line::{Effort, Options, Plan, Settings, Stream};

/// A made-up tensor and how it is to be coded.
struct Case {
    name: String,
    cols: usize,
    values: Vec<f32>,
    log2_states: u32,
    effort: Effort,
    budget: Option<usize>,
}

/// Codes made-up tensors of every kind of plan on the GPU and on the CPU:
/// every byte and every value must be equal, and damaged streams must be
/// found out by both or by neither.
pub fn check(gpu: &Gpu, codec: &LineCodec) -> Result<Vec<Checked>, Error> {
    let cases = cases();
    let work: Vec<(&Case, f64)> = cases
        .iter()
        .flat_map(|case| {
            let rates: &[f64] = if case.log2_states == 3 { &[1.6, 3.0, 5.5] } else { &[3.0] };
            rates.iter().map(move |&bits| (case, bits))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(work.len()));
    // Most of the time goes into plans and compilers, which are the CPU's.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(case, bits)) = work.get(at) else { break };
                    let bound = gpu.context.bind_to_thread().during("cuCtxSetCurrent");
                    let row = bound.and_then(|()| check_case(gpu, codec, case, bits));
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((at, row));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|&(at, _)| at);
    let mut rows = found.into_iter().map(|(_, row)| row).collect::<Result<Vec<_>, Error>>()?;
    rows.extend(super::many::check(gpu, codec)?);
    Ok(rows)
}

fn check_case(gpu: &Gpu, codec: &LineCodec, case: &Case, bits: f64) -> Result<Checked, Error> {
    let settings = Settings { tile_budget: case.budget, ..Settings::default() };
    let options = Options { effort: case.effort, log2_states: case.log2_states, ..Options::default() };
    let bf16 = to_bf16(&case.values);
    let values = from_bf16(&bf16);
    let plan = plan_at(&case.name, &values, case.cols, bits, &options)?;
    let expected = trinity_codec::line::encode(&plan, &values, &settings);
    let encoder = Encoder::on(codec, &plan, &settings, Format::Bf16, ROOM_BITS, codec.multiprocessors())?;
    let mut encoding = Encoding::new(encoder, &gpu.stream()?, &bf16)?;
    encoding.queue()?;
    let made = encoding.finish()?;
    let outcome = match (&expected, &made) {
        (Err(_), Err(_)) => "equal".to_string(),
        (Err(e), Ok(_)) => format!("the CPU refuses: {e}"),
        (Ok(_), Err(faults)) => format!("the GPU refuses: {}", faults[0]),
        (Ok(expected), Ok(made)) => match first_difference(expected, made) {
            Some(at) => format!("streams differ at byte {at} of {} and {}", expected.len(), made.len()),
            None => decode_outcome(&encoding.stream, codec, expected)?,
        },
    };
    let coded_bytes = expected.map_or(0, |bytes| bytes.len());
    Ok(Checked { name: format!("{} at {bits}", case.name), values: values.len(), coded_bytes, outcome })
}

/// Compares the values of a stream, then of damaged copies of it.
fn decode_outcome(stream: &Arc<CudaStream>, codec: &LineCodec, coded: &[u8]) -> Result<String, Error> {
    let all = codec.multiprocessors();
    let corrupt = |e: trinity_codec::line::Error| Error::CorruptStream { what: e.to_string() };
    let (_, values, faults) = decode(codec, stream, coded, all)?;
    if let Some(faulty) = faults.first() {
        return Ok(format!("the GPU refuses {faulty}"));
    }
    let expected = to_bf16(&trinity_codec::line::decode(coded).map_err(corrupt)?.2);
    if let Some(at) = first_difference(&expected, &values) {
        return Ok(format!("values differ at {}", at / 2));
    }
    let (_, header) = Plan::read(coded).map_err(corrupt)?;
    for seed in 0..6u64 {
        let mut damaged = coded.to_vec();
        let at = header + (mix(seed) as usize) % (coded.len() - header);
        damaged[at] ^= 1 << (mix(seed + 99) % 8);
        let (_, values, faults) = decode(codec, stream, &damaged, all)?;
        if let Some(problem) = compare_damaged(&damaged, &values, &faults) {
            return Ok(format!("byte {at} damaged: {problem}"));
        }
    }
    Ok("equal".into())
}

/// Tile by tile, what the CPU says of a damaged stream against what the GPU said.
fn compare_damaged(damaged: &[u8], values: &[u8], faults: &[Faulty]) -> Option<String> {
    let Ok(stream) = Stream::open(damaged) else {
        return faults.is_empty().then(|| "the CPU refuses the directory, the GPU nothing".into());
    };
    let plan = stream.plan().clone();
    for tile in 0..plan.tiles() {
        let found = faults.iter().any(|faulty| faulty.tile == tile);
        match stream.tile(tile) {
            Err(_) if !found => return Some(format!("the CPU refuses tile {tile}, the GPU does not")),
            Ok(_) if found => return Some(format!("the GPU refuses tile {tile}, the CPU does not")),
            Err(_) => {}
            Ok(expected) => {
                let place = plan.tile(tile);
                for (at, bytes) in to_bf16(&expected).chunks_exact(2).enumerate() {
                    let (row, col) = (place.row + at / place.cols, place.col + at % place.cols);
                    let index = if plan.transposed { col * plan.cols + row } else { row * plan.cols + col };
                    if values[2 * index..2 * index + 2] != *bytes {
                        return Some(format!("tile {tile} differs"));
                    }
                }
            }
        }
    }
    None
}

fn cases() -> Vec<Case> {
    let drift = |rows: usize, cols: usize| {
        let mut values = weights(rows, cols, 3);
        for i in cols..values.len() {
            values[i] = 0.9 * values[i - cols] + 0.4 * values[i];
        }
        values
    };
    let related = |rows: usize, cols: usize| {
        let base = weights(rows, cols / 8, 5);
        let noise = weights(rows, cols, 6);
        (0..rows * cols)
            .map(|i| base[i / cols * (cols / 8) + i % cols / 8] + 0.3 * noise[i])
            .collect::<Vec<f32>>()
    };
    let wild = |rows: usize, cols: usize| {
        let mut values = weights(rows, cols, 11);
        for (i, value) in values.iter_mut().enumerate() {
            match mix(i as u64) % 997 {
                0 => *value = f32::NAN,
                1 => *value = f32::INFINITY,
                2 => *value *= 1e6,
                3 => *value *= 100.0,
                _ => {}
            }
        }
        values
    };
    let tall = |values, rows, cols| trinity_codec::Matrix { rows, cols, values }.transposed().values;
    let mut cases = Vec::new();
    for log2_states in [0, 2, 3] {
        for effort in [Effort::Fast, Effort::Best] {
            let mut add = |name: &str, rows: usize, cols: usize, values: Vec<f32>, budget: Option<usize>| {
                let name = format!("{name} {rows}x{cols}, {} states, {effort:?}", 1 << log2_states);
                cases.push(Case { name, cols, values, log2_states, effort, budget });
            };
            add("weights", 512, 768, weights(512, 768, 1), None);
            add("odd shape", 301, 77, weights(301, 77, 2), None);
            add("drifting", 640, 192, drift(640, 192), None);
            add("drifting, turned", 192, 640, tall(drift(640, 192), 640, 192), None);
            add("related", 700, 256, related(700, 256), None);
            add("wild", 256, 320, wild(256, 320), None);
            add("small", 40, 24, weights(40, 24, 8), None);
            add("one row", 1, 5000, weights(1, 5000, 9), None);
            add("budget", 512, 512, weights(512, 512, 10), Some(4096));
        }
    }
    cases
}
