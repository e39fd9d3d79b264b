//! The line-rate codec on this GPU: whether it agrees with the CPU (`check`),
//! and how fast it is beside what else there is (`speed`).

mod check;
mod many;
mod speed;
mod video;

pub use super::made_up::weights;
pub use crate::recording::{Beside, Energy, Recorded, Speed};
pub use check::check;
pub use speed::{beside, measure, measure_alone};

use crate::error::{During, Error};
use crate::line::{Decoder, Decoding, Faulty, Format, LineCodec};
use cudarc::driver::{CudaStream, sys::CUevent_flags};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A tensor that the check runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    pub name: String,
    pub values: usize,
    pub coded_bytes: usize,
    pub outcome: String,
}

impl Checked {
    /// Whether both sides agreed.
    pub fn agrees(&self) -> bool {
        self.outcome == "equal"
    }
}

/// Runs of which the median counts.
const RUNS: usize = 7;

/// Bits per value that tiles have room for in measurements.
const ROOM_BITS: f64 = 20.0;

/// Seconds a decoding of `coded` takes on so many multiprocessors, what comes
/// out, and which tiles are damaged.
fn decode(
    codec: &LineCodec,
    stream: &Arc<CudaStream>,
    coded: &[u8],
    multiprocessors: u32,
) -> Result<(f64, Vec<u8>, Vec<Faulty>), Error> {
    let decoder = Decoder::on(codec, coded, Format::Bf16, multiprocessors)?;
    let mut decoding = Decoding::new(decoder, stream, coded)?;
    let seconds = median_s(stream, || decoding.queue())?;
    let (values, faults) = decoding.finish()?;
    Ok((seconds, values, faults))
}

/// Median of a few runs between events, after one to warm up.
fn median_s(stream: &Arc<CudaStream>, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let mut seconds = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(timed).during("cuEventRecord")?;
        work()?;
        let end = stream.record_event(timed).during("cuEventRecord")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        seconds.push(f64::from(start.elapsed_ms(&end).during("cuEventElapsedTime")?) / 1e3);
    }
    seconds.sort_unstable_by(f64::total_cmp);
    Ok(seconds[RUNS / 2])
}

fn to_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
}

fn from_bf16(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b).or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

/// Energy of the first and of the difference.
fn energies(original: &[u8], other: &[u8]) -> (f64, f64) {
    let value = |b: &[u8]| f64::from(half::bf16::from_le_bytes([b[0], b[1]]).to_f32());
    original.chunks_exact(2).zip(other.chunks_exact(2)).fold((0.0, 0.0), |(signal, noise), (a, b)| {
        let (a, b) = (value(a), value(b));
        (signal + a * a, noise + (a - b) * (a - b))
    })
}
