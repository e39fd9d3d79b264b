//! The line-rate codec on this GPU: whether it agrees with the CPU, and how
//! fast it is beside what else there is.

use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::line::{Decoder, Encoder, Faulty, Format, LineCodec};
use crate::sys::nvcomp::{ALIGNMENT, Chunks, Method, Nvcomp};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trinity_line::{Effort, Options, Plan, Settings, Stream, Target};

/// One encoder and decoder with their buffers.
pub struct Bench {
    stream: Arc<CudaStream>,
    values: CudaSlice<u8>,
    coded: CudaSlice<u8>,
    length: CudaSlice<u64>,
    workspace: CudaSlice<u8>,
    decoded: CudaSlice<u8>,
    encoder: Encoder,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("encoder", &self.encoder).finish_non_exhaustive()
    }
}

/// Runs of which the median counts.
const RUNS: usize = 7;

/// Bits per value that tiles have room for in measurements.
const ROOM_BITS: f64 = 20.0;

impl Bench {
    /// Copies `values`, as they lie in memory, to the GPU.
    pub fn new(
        gpu: &Gpu,
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        values: &[u8],
    ) -> Result<Self, Error> {
        Self::on(gpu, codec, plan, settings, format, values, codec.multiprocessors())
    }

    /// [`Bench::new`] with an encoder on so many multiprocessors.
    pub fn on(
        gpu: &Gpu,
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        values: &[u8],
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        let encoder = Encoder::on(codec, plan, settings, format, ROOM_BITS, multiprocessors)?;
        let room = |bytes: usize| stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        Ok(Self {
            values: stream.clone_htod(values).during("cuMemcpyHtoD")?,
            coded: room(encoder.bound_bytes())?,
            length: stream.alloc_zeros::<u64>(1).during("cuMemAlloc")?,
            workspace: room(encoder.workspace_bytes())?,
            decoded: room(values.len())?,
            encoder,
            stream,
        })
    }

    /// Encodes once and says what it made, or which tiles it could not.
    pub fn encode(&mut self) -> Result<Result<Vec<u8>, Vec<Faulty>>, Error> {
        self.queue_encode()?;
        let workspace = self.workspace.device_ptr(&self.stream).0;
        // SAFETY: the workspace that was just encoded with.
        let faults = unsafe { self.encoder.faults(workspace, self.stream.cu_stream())? };
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        let length = self.stream.clone_dtoh(&self.length).during("cuMemcpyDtoH")?[0] as usize;
        let view = self.coded.slice(..length.min(self.coded.len()));
        Ok(Ok(self.stream.clone_dtoh(&view).during("cuMemcpyDtoH")?))
    }

    fn queue_encode(&mut self) -> Result<(), Error> {
        let stream = &self.stream;
        // SAFETY: buffers of the sizes the encoder stated, on this stream, and alive with `self`.
        unsafe {
            self.encoder.encode(
                self.values.device_ptr(stream).0,
                self.coded.device_ptr_mut(stream).0,
                self.length.device_ptr_mut(stream).0,
                self.workspace.device_ptr_mut(stream).0,
                stream.cu_stream(),
            )
        }
    }

    /// Seconds an encoding takes.
    pub fn encode_s(&mut self) -> Result<f64, Error> {
        let stream = self.stream.clone();
        median_s(&stream, || self.queue_encode())
    }

    /// Seconds a decoding of `coded` takes on so many multiprocessors, what
    /// comes out, and which tiles are damaged.
    pub fn decode(
        &mut self,
        codec: &LineCodec,
        coded: &[u8],
        format: Format,
        multiprocessors: u32,
    ) -> Result<(f64, Vec<u8>, Vec<Faulty>), Error> {
        let stream = self.stream.clone();
        let decoder = Decoder::on(codec, coded, format, multiprocessors)?;
        let source = stream.clone_htod(coded).during("cuMemcpyHtoD")?;
        let mut workspace = stream.alloc_zeros::<u8>(decoder.workspace_bytes()).during("cuMemAlloc")?;
        stream.memset_zeros(&mut self.decoded).during("cuMemset")?;
        let decoded = self.decoded.device_ptr_mut(&stream).0;
        let place = workspace.device_ptr_mut(&stream).0;
        let from = source.device_ptr(&stream).0;
        let seconds = median_s(&stream, || {
            // SAFETY: `source` is the stream the decoder was made of, the others have the sizes it
            // stated; all live beyond the synchronize below.
            unsafe { decoder.decode(from, coded.len(), decoded, place, stream.cu_stream()) }
        })?;
        // SAFETY: the workspace that was just decoded with.
        let faults = unsafe { decoder.faults(place, stream.cu_stream())? };
        let values = stream.clone_dtoh(&self.decoded).during("cuMemcpyDtoH")?;
        Ok((seconds, values, faults))
    }
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

/// A made-up tensor and how it is to be coded.
struct Case {
    name: String,
    rows: usize,
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
    let mut rows = Vec::new();
    for case in cases() {
        for bits in [1.6, 3.0, 5.5] {
            rows.push(check_case(gpu, codec, &case, bits)?);
        }
    }
    Ok(rows)
}

fn check_case(gpu: &Gpu, codec: &LineCodec, case: &Case, bits: f64) -> Result<Checked, Error> {
    let failed = |e: trinity_line::Error| Error::Encode { what: case.name.clone(), reason: e.to_string() };
    let settings = Settings { tile_budget: case.budget, ..Settings::default() };
    let options = Options { effort: case.effort, log2_states: case.log2_states, ..Options::default() };
    let bf16 = to_bf16(&case.values);
    let values = from_bf16(&bf16);
    let plain = trinity_line::encode_under(
        &values,
        case.rows,
        case.cols,
        Target::Bits(bits),
        &options,
        &Settings::default(),
    )
    .map_err(failed)?;
    let plan = Stream::open(&plain).map_err(failed)?.plan().clone();
    let expected = trinity_line::encode(&plan, &values, &settings);
    let mut bench = Bench::new(gpu, codec, &plan, &settings, Format::Bf16, &bf16)?;
    let made = bench.encode()?;
    let outcome = match (&expected, &made) {
        (Err(_), Err(_)) => "equal".to_string(),
        (Err(e), Ok(_)) => format!("the CPU refuses: {e}"),
        (Ok(_), Err(faults)) => format!("the GPU refuses: tile {}: {}", faults[0].tile, faults[0].fault),
        (Ok(expected), Ok(made)) => match first_difference(expected, made) {
            Some(at) => format!("streams differ at byte {at} of {} and {}", expected.len(), made.len()),
            None => decode_outcome(&mut bench, codec, expected)?,
        },
    };
    let coded_bytes = expected.map_or(0, |bytes| bytes.len());
    Ok(Checked { name: format!("{} at {bits}", case.name), values: values.len(), coded_bytes, outcome })
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b).or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

/// Compares the values of a stream, then of damaged copies of it.
fn decode_outcome(bench: &mut Bench, codec: &LineCodec, coded: &[u8]) -> Result<String, Error> {
    let all = codec.multiprocessors();
    let corrupt = |e: trinity_line::Error| Error::CorruptStream { what: e.to_string() };
    let (_, values, faults) = bench.decode(codec, coded, Format::Bf16, all)?;
    if let Some(faulty) = faults.first() {
        return Ok(format!("the GPU refuses tile {}: {}", faulty.tile, faulty.fault));
    }
    let expected = to_bf16(&trinity_line::decode(coded).map_err(corrupt)?.2);
    if let Some(at) = first_difference(&expected, &values) {
        return Ok(format!("values differ at {}", at / 2));
    }
    let (_, header) = Plan::read(coded).map_err(corrupt)?;
    for seed in 0..6u64 {
        let mut damaged = coded.to_vec();
        let at = header + (mix(seed) as usize) % (coded.len() - header);
        damaged[at] ^= 1 << (mix(seed + 99) % 8);
        let (_, values, faults) = bench.decode(codec, &damaged, Format::Bf16, all)?;
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

fn to_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
}

fn from_bf16(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

/// A well-mixed number (SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A standard normal draw.
fn normal(seed: u64) -> f32 {
    let uniform = |n: u64| ((mix(n) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (uniform(2 * seed), uniform(2 * seed + 1));
    ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
}

/// Gaussian values with scales of rows and columns, as weights have.
pub fn weights(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let row: Vec<f32> = (0..rows).map(|r| (0.25 * normal(seed ^ (r as u64 + 7) << 32)).exp()).collect();
    let col: Vec<f32> = (0..cols).map(|c| (0.35 * normal(seed ^ (c as u64 + 9) << 40)).exp()).collect();
    (0..rows * cols).map(|i| 0.02 * row[i / cols] * col[i % cols] * normal(seed + i as u64)).collect()
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
    let tall = |values: Vec<f32>, rows: usize, cols: usize| {
        let mut out = vec![0.0; values.len()];
        for r in 0..rows {
            for c in 0..cols {
                out[c * rows + r] = values[r * cols + c];
            }
        }
        out
    };
    let mut cases = Vec::new();
    for log2_states in [0, 2, 3] {
        for effort in [Effort::Fast, Effort::Best] {
            let mut add = |name: &str, rows: usize, cols: usize, values: Vec<f32>, budget: Option<usize>| {
                let name = format!("{name} {rows}x{cols}, {} states, {effort:?}", 1 << log2_states);
                cases.push(Case { name, rows, cols, values, log2_states, effort, budget });
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

/// Speed of one arrangement, values counted as bf16.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    pub what: String,
    pub multiprocessors: u32,
    pub input_bytes: usize,
    pub coded_bytes: usize,
    pub encode_s: f64,
    pub decode_s: f64,
    /// Noise over signal of what came back; 0 where bytes are kept as they are.
    pub nmse: f64,
}

impl Speed {
    pub fn encode_gb_per_s(&self) -> f64 {
        self.input_bytes as f64 / self.encode_s / 1e9
    }

    pub fn decode_gb_per_s(&self) -> f64 {
        self.input_bytes as f64 / self.decode_s / 1e9
    }

    pub fn bits_per_value(&self) -> f64 {
        16.0 * self.coded_bytes as f64 / self.input_bytes as f64
    }
}

/// Speeds of the line-rate codec on `mib` MiB of bf16 at about three bits,
/// for every count of multiprocessors asked for.
pub fn speeds(
    gpu: &Gpu,
    codec: &LineCodec,
    mib: usize,
    log2_states: u32,
    multiprocessors: &[u32],
) -> Result<Vec<Speed>, Error> {
    let cols = 4096;
    let rows = (mib << 20) / 2 / cols;
    let made = weights(rows.min(2048), cols, 17);
    let bf16: Vec<u8> = to_bf16(&made).into_iter().cycle().take(mib << 20).collect();
    let values = from_bf16(&bf16);
    let failed = |e: trinity_line::Error| Error::Encode { what: "weights".into(), reason: e.to_string() };
    let options = Options { effort: Effort::Fast, log2_states, ..Options::default() };
    let settings = Settings::default();
    let stream =
        trinity_line::encode_under(&values, rows, cols, Target::Bits(3.0), &options, &settings).map_err(failed)?;
    let plan = Stream::open(&stream).map_err(failed)?.plan().clone();
    let (signal, _) = energies(&bf16, &bf16);
    let mut found = Vec::new();
    for &count in multiprocessors {
        let mut bench = Bench::on(gpu, codec, &plan, &settings, Format::Bf16, &bf16, count)?;
        let coded = bench.encode()?.map_err(|faults| Error::Encode {
            what: format!("tile {}", faults[0].tile),
            reason: faults[0].fault.to_string(),
        })?;
        if let Some(at) = first_difference(&stream, &coded) {
            return Err(Error::CorruptStream { what: format!("GPU and CPU differ at byte {at}") });
        }
        let encode_s = bench.encode_s()?;
        let (decode_s, values, faults) = bench.decode(codec, &coded, Format::Bf16, count)?;
        if let Some(faulty) = faults.first() {
            return Err(Error::CorruptStream { what: format!("tile {}: {}", faulty.tile, faulty.fault) });
        }
        found.push(Speed {
            what: format!("trinity-lite, {} states", 1 << log2_states),
            multiprocessors: count,
            input_bytes: bf16.len(),
            coded_bytes: coded.len(),
            encode_s,
            decode_s,
            nmse: energies(&bf16, &values).1 / signal,
        });
    }
    Ok(found)
}

/// Energy of the first and of the difference.
fn energies(original: &[u8], other: &[u8]) -> (f64, f64) {
    let value = |b: &[u8]| f64::from(half::bf16::from_le_bytes([b[0], b[1]]).to_f32());
    original.chunks_exact(2).zip(other.chunks_exact(2)).fold((0.0, 0.0), |(signal, noise), (a, b)| {
        let (a, b) = (value(a), value(b));
        (signal + a * a, noise + (a - b) * (a - b))
    })
}

/// nvCOMP on the levels of a uniform quantizer, one byte each, at the same
/// error as `nmse`: what a general-purpose compressor makes of the same task.
pub fn nvcomp(gpu: &Gpu, method: Method, mib: usize, nmse: f64) -> Result<Speed, Error> {
    let cols = 4096;
    let rows = (mib << 20) / 2 / cols;
    let made = weights(rows.min(2048), cols, 17);
    let square = made.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / made.len() as f64;
    // A uniform quantizer's error is its squared step over twelve.
    let step = (12.0 * nmse * square).sqrt() as f32;
    let levels: Vec<u8> = made.iter().map(|&v| (v / step).round().clamp(-127.0, 127.0) as i8 as u8).collect();
    let levels: Vec<u8> = levels.into_iter().cycle().take((mib << 20) / 2).collect();
    let nvcomp = Nvcomp::load(method)?;
    let stream = gpu.stream()?;
    let longest = 1usize << 16;
    let count = levels.len().div_ceil(longest);
    let bound = nvcomp.bound(longest)?.next_multiple_of(ALIGNMENT);
    let plain = stream.clone_htod(&levels).during("cuMemcpyHtoD")?;
    let packed = stream.alloc_zeros::<u8>(count * bound).during("cuMemAlloc")?;
    let back = stream.alloc_zeros::<u8>(levels.len()).during("cuMemAlloc")?;
    let up = |values: Vec<u64>| stream.clone_htod(&values).during("cuMemcpyHtoD");
    let every = |base: u64, stride: usize| (0..count).map(|i| base + (i * stride) as u64).collect::<Vec<u64>>();
    let sizes: Vec<u64> =
        (0..count).map(|i| (levels.len() - i * longest).min(longest) as u64).collect();
    let plain_at = up(every(plain.device_ptr(&stream).0, longest))?;
    let back_at = up(every(back.device_ptr(&stream).0, longest))?;
    let packed_at = up(every(packed.device_ptr(&stream).0, bound))?;
    let plain_bytes = up(sizes)?;
    let packed_bytes = stream.alloc_zeros::<u64>(count).during("cuMemAlloc")?;
    let found_bytes = stream.alloc_zeros::<u64>(count).during("cuMemAlloc")?;
    let statuses = stream.alloc_zeros::<i32>(count).during("cuMemAlloc")?;
    let scratch_bytes = nvcomp.scratch_bytes(count, longest)?;
    let scratch = stream.alloc_zeros::<u8>(scratch_bytes.max(16)).during("cuMemAlloc")?;
    let mut chunks = Chunks {
        count,
        longest,
        plain: plain_at.device_ptr(&stream).0,
        plain_bytes: plain_bytes.device_ptr(&stream).0,
        packed: packed_at.device_ptr(&stream).0,
        packed_bytes: packed_bytes.device_ptr(&stream).0,
        found_bytes: found_bytes.device_ptr(&stream).0,
        statuses: statuses.device_ptr(&stream).0,
        scratch: scratch.device_ptr(&stream).0,
        scratch_bytes,
    };
    // SAFETY: every array has `count` entries, chunks lie in the buffers above, which outlive the
    // waits inside `median_s`.
    let encode_s = median_s(&stream, || unsafe { nvcomp.compress(&chunks, stream.cu_stream().cast()) })?;
    chunks.plain = back_at.device_ptr(&stream).0;
    // SAFETY: as above.
    let decode_s = median_s(&stream, || unsafe { nvcomp.decompress(&chunks, stream.cu_stream().cast()) })?;
    if stream.clone_dtoh(&back).during("cuMemcpyDtoH")? != levels {
        return Err(Error::CorruptStream { what: format!("nvCOMP {} gave other bytes back", method.name()) });
    }
    let sizes = stream.clone_dtoh(&packed_bytes).during("cuMemcpyDtoH")?;
    Ok(Speed {
        what: format!("nvCOMP {} on levels", method.name()),
        multiprocessors: 0,
        input_bytes: 2 * levels.len(),
        coded_bytes: sizes.iter().sum::<u64>() as usize,
        encode_s,
        decode_s,
        nmse,
    })
}
