//! How fast: by multiprocessors, beside nvCOMP, beside matrix products, and
//! for how much energy.

use super::many;
use super::video::nvdec;
use super::{ROOM_BITS, RUNS, decode, energies, first_difference, from_bf16, median_s, to_bf16};
use crate::error::{During, Error};
use crate::gemm::Gemm;
use crate::gpu::Gpu;
use crate::line::{self, Decoder, Decoding, Encoding, Faulty, Format, LineCodec};
use crate::measure::delta;
use crate::measure::made_up::{coded_as, weights};
use crate::nvdec::Standard;
use crate::recording::{Beside, Energy, Recorded, Speed};
use crate::streams::Encoder;
use crate::sys::nvcomp::{ALIGNMENT, Chunks, Method, Nvcomp};
use cudarc::driver::{CudaStream, DevicePtr};
use nvml_wrapper::{Nvml, error::NvmlError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trinity_codec::line::{Effort, Options, Plan, Settings, TILE_VALUES};

fn nothing(gpu: &Gpu, codec: &LineCodec) -> Recorded {
    let (gpu, multiprocessors) = (gpu.name().to_owned(), codec.multiprocessors());
    Recorded { gpu, multiprocessors, ..Recorded::default() }
}

/// Speeds on all multiprocessors alone: half a minute.
pub fn measure_alone(gpu: &Gpu, codec: &LineCodec) -> Result<Recorded, Error> {
    let mut recorded = nothing(gpu, codec);
    let all = [codec.multiprocessors()];
    for log2_states in [0, 3] {
        recorded.speeds.extend(speeds(gpu, codec, 256, log2_states, TILE_VALUES, &all)?);
        recorded.speeds.extend(speeds(gpu, codec, 4, log2_states, SMALL_TILE, &all)?);
    }
    recorded.speeds.extend(many::speeds(gpu, codec)?);
    Ok(recorded)
}

/// Measures all of it: about two minutes, most of them the CPU's, which
/// codes everything once more to compare bytes.
/// With a video encoder, NVDEC decodes what it makes of the same tensor.
pub fn measure(gpu: &Gpu, codec: &LineCodec, encoder: Option<&Encoder<'_>>) -> Result<Recorded, Error> {
    let all = codec.multiprocessors();
    let counts: Vec<u32> = (0..).map(|n| 1 << n).take_while(|&n| n < all).chain([all]).collect();
    let mut recorded = nothing(gpu, codec);
    for log2_states in [0, 2, 3] {
        let counts = if log2_states == 2 { &[all][..] } else { &counts };
        recorded.speeds.extend(speeds(gpu, codec, 256, log2_states, TILE_VALUES, counts)?);
        for tile_values in [TILE_VALUES, SMALL_TILE] {
            recorded.speeds.extend(speeds(gpu, codec, 4, log2_states, tile_values, &[all])?);
        }
    }
    // Of eight states on the large tensor.
    let nmse = recorded.speeds.iter().rfind(|row| row.input_bytes == 256 << 20).map_or(0.0, |row| row.nmse);
    for method in [Method::Ans, Method::Bitcomp, Method::Zstd] {
        match nvcomp(gpu, method, 256, nmse) {
            Ok(row) => recorded.speeds.push(row),
            Err(e) => recorded.left_out.push(format!("nvCOMP {}: {e}", method.name())),
        }
    }
    recorded.speeds.extend(many::speeds(gpu, codec)?);
    let piece = weights(1024, COLUMNS, 17);
    for standard in [Standard::Hevc, Standard::H264] {
        let Some(encoder) = encoder else { break };
        match nvdec(gpu, encoder, standard, (&piece, COLUMNS)) {
            Ok(row) => recorded.speeds.push(row),
            Err(e) => recorded.left_out.push(format!("NVDEC {}: {e}", standard.name())),
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (deltas, left_out) = delta::points(gpu, RUNS, threads)?;
    recorded.deltas = deltas;
    recorded.left_out.extend(left_out.into_iter().map(|left| format!("{}: {}", left.what, left.why)));
    recorded.beside = beside(gpu, codec, &mut recorded.left_out)?;
    for log2_states in [0, 3] {
        recorded.energy.extend(energy(gpu, codec, log2_states)?);
    }
    Ok(recorded)
}

/// What a product and the codec lose to one another, however they share the GPU.
pub fn beside(gpu: &Gpu, codec: &LineCodec, left_out: &mut Vec<String>) -> Result<Vec<Beside>, Error> {
    use Sharing::{Apart, Mixed, Urgent};
    let all = codec.multiprocessors();
    let mut rows = Vec::new();
    let shared = [4, 16, all].map(|count| (count, Mixed)).into_iter();
    let urgent = [16, all].map(|count| (count, Urgent));
    for (count, sharing) in shared.chain(urgent).chain([8, 16, 32].map(|count| (count, Apart))) {
        match beside_gemm(gpu, codec, count, sharing) {
            Ok(found) => rows.extend(found),
            // Drivers before CUDA 12.4, and GPUs that cannot be parted.
            Err(error @ (Error::Cuda { .. } | Error::OldDriver { .. })) if sharing == Apart => {
                left_out.push(format!("{count} multiprocessors apart: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

/// Values of a tile where a tensor of some megabytes must fill all of a GPU.
const SMALL_TILE: usize = TILE_VALUES / 4;

/// Made-up weights, their plan at about three bits, and their stream on a CPU.
struct InputTensor {
    bf16: Vec<u8>,
    plan: Plan,
    stream: Vec<u8>,
}

/// Columns of the subject; rows follow from its size.
const COLUMNS: usize = 4096;

impl InputTensor {
    fn new(mib: usize, log2_states: u32, tile_values: usize) -> Result<Self, Error> {
        let rows = (mib << 20) / 2 / COLUMNS;
        // A piece of 16 MiB over and over: neither side looks for repetitions.
        let made = weights(rows.min(2048), COLUMNS, 17);
        let bf16: Vec<u8> = to_bf16(&made).into_iter().cycle().take(mib << 20).collect();
        let options = Options { effort: Effort::Fast, log2_states, tile_values, ..Options::default() };
        let values = from_bf16(&bf16);
        let (plan, stream) = coded_as("weights", &values[..made.len()], &values, COLUMNS, &options)?;
        Ok(Self { bf16, plan, stream })
    }

    /// An encoder of it on so many multiprocessors, with its buffers.
    fn encoding(
        &self,
        codec: &LineCodec,
        stream: &Arc<CudaStream>,
        multiprocessors: u32,
    ) -> Result<Encoding<u8>, Error> {
        let (settings, format) = (Settings::default(), Format::Bf16);
        let encoder = line::Encoder::on(codec, &self.plan, &settings, format, ROOM_BITS, multiprocessors)?;
        Encoding::new(encoder, stream, &self.bf16)
    }

    /// A decoder of its stream likewise.
    fn decoding(
        &self,
        codec: &LineCodec,
        stream: &Arc<CudaStream>,
        multiprocessors: u32,
    ) -> Result<Decoding<u8>, Error> {
        let decoder = Decoder::on(codec, &self.stream, Format::Bf16, multiprocessors)?;
        Decoding::new(decoder, stream, &self.stream)
    }
}

/// Speeds of the line-rate codec on `mib` MiB of bf16 at about three bits, for
/// every count of multiprocessors asked for; every byte is compared with the
/// CPU's.
fn speeds(
    gpu: &Gpu,
    codec: &LineCodec,
    mib: usize,
    log2_states: u32,
    tile_values: usize,
    multiprocessors: &[u32],
) -> Result<Vec<Speed>, Error> {
    let input = InputTensor::new(mib, log2_states, tile_values)?;
    let tiles = if tile_values == TILE_VALUES { String::new() } else { format!(", tiles of {tile_values}") };
    let mut found = Vec::new();
    for &count in multiprocessors {
        let stream = gpu.stream()?;
        let mut encoding = input.encoding(codec, &stream, count)?;
        encoding.queue()?;
        let coded = encoding.finish()?.map_err(|faults| Error::Encode {
            what: format!("tile {}", faults[0].tile),
            reason: faults[0].fault.to_string(),
        })?;
        if let Some(at) = first_difference(&input.stream, &coded) {
            return Err(Error::CorruptStream { what: format!("GPU and CPU differ at byte {at}") });
        }
        let encode_s = median_s(&stream, || encoding.queue())?;
        let (decode_s, values, faults) = decode(codec, &stream, &coded, count)?;
        Faulty::refuse(&faults)?;
        let (signal, noise) = energies(&input.bf16, &values);
        found.push(Speed {
            what: format!("trinity-lite, {} states{tiles}", 1 << log2_states),
            multiprocessors: count,
            input_bytes: input.bf16.len(),
            coded_bytes: coded.len(),
            encode_s,
            decode_s,
            nmse: noise / signal,
        });
    }
    Ok(found)
}

/// How a codec and matrix products share a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Blocks of either go where there is room.
    Mixed,
    /// Products are on a stream of higher priority.
    Urgent,
    /// Each has multiprocessors of its own.
    Apart,
}

/// Times encoding and decoding on so many multiprocessors beside a stream of
/// large matrix products.
fn beside_gemm(
    gpu: &Gpu,
    codec: &LineCodec,
    multiprocessors: u32,
    sharing: Sharing,
) -> Result<Vec<Beside>, Error> {
    let input = InputTensor::new(64, 3, TILE_VALUES)?;
    // Dropped after what holds its streams.
    let partition = (sharing == Sharing::Apart).then(|| gpu.partition(multiprocessors)).transpose()?;
    let (multiprocessors, coding, multiplying) = match (&partition, sharing) {
        (Some(two), _) => (two.part.multiprocessors(), two.part.stream(), two.rest.stream()),
        (None, Sharing::Urgent) => (multiprocessors, gpu.stream()?, gpu.urgent_stream()?),
        (None, _) => (multiprocessors, gpu.stream()?, gpu.stream()?),
    };
    let mut encoding = input.encoding(codec, &coding, multiprocessors)?;
    // What a product takes on the whole GPU.
    let whole = Gemm::new(gpu, 8192)?;
    let gemm = Gemm::on(gpu, 8192, multiplying)?;
    if let Some(two) = &partition {
        gemm.on_multiprocessors(two.rest.multiprocessors())?;
    }
    let mut rows = Vec::new();
    let mut decoding = input.decoding(codec, &coding, multiprocessors)?;
    for (what, decodes) in [("encode", false), ("decode", true)] {
        let mut code = |count: usize| -> Result<(), Error> {
            (0..count).try_for_each(|_| if decodes { decoding.queue() } else { encoding.queue() })
        };
        code(2)?;
        gemm.products_s(1)?;
        whole.products_s(1)?;
        let start = Instant::now();
        code(8)?;
        bench_wait(gpu)?;
        let codec_alone_s = start.elapsed().as_secs_f64() / 8.0;
        let product_alone_s = whole.products_s(32)? / 32.0;
        // As much of both as takes about as long alone.
        let codings = ((32.0 * product_alone_s / codec_alone_s).ceil() as usize).max(4);
        let start = Instant::now();
        code(codings)?;
        gemm.launch(32)?;
        gemm.wait()?;
        let product_beside_s = start.elapsed().as_secs_f64() / 32.0;
        bench_wait(gpu)?;
        let codec_beside_s = start.elapsed().as_secs_f64() / codings as f64;
        rows.push(Beside {
            what: format!("{what} beside 8192³ products"),
            multiprocessors,
            urgent: sharing == Sharing::Urgent,
            apart: sharing == Sharing::Apart,
            product_alone_s,
            product_beside_s,
            codec_alone_s,
            codec_beside_s,
        });
    }
    Ok(rows)
}

fn bench_wait(gpu: &Gpu) -> Result<(), Error> {
    gpu.context.synchronize().during("cuCtxSynchronize")
}

/// Long enough for the counter's own steps.
const WINDOW: Duration = Duration::from_millis(800);

/// Energy of encoding and decoding on all multiprocessors, by NVML's counter.
fn energy(gpu: &Gpu, codec: &LineCodec, log2_states: u32) -> Result<Vec<Energy>, Error> {
    let failed = |e: NvmlError| Error::Fit { what: "energy".into(), reason: e.to_string() };
    let nvml = Nvml::init().map_err(failed)?;
    let device = nvml.device_by_index(0).map_err(failed)?;
    let joules = || device.total_energy_consumption().map(|mj| mj as f64 / 1e3).map_err(failed);
    let input = InputTensor::new(256, log2_states, TILE_VALUES)?;
    let (all, stream) = (codec.multiprocessors(), gpu.stream()?);
    let mut encoding = input.encoding(codec, &stream, all)?;
    let mut decoding = input.decoding(codec, &stream, all)?;
    std::thread::sleep(WINDOW);
    let (before, start) = (joules()?, Instant::now());
    std::thread::sleep(WINDOW);
    let idle_w = (joules()? - before) / start.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    for (what, decodes) in [("encode", false), ("decode", true)] {
        let (before, start) = (joules()?, Instant::now());
        let mut count = 0u32;
        while start.elapsed() < WINDOW {
            for _ in 0..16 {
                if decodes { decoding.queue()? } else { encoding.queue()? }
            }
            count += 16;
            bench_wait(gpu)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        rows.push(Energy {
            what: format!("{what}, {} states", 1 << log2_states),
            idle_w,
            busy_w: (joules()? - before) / seconds,
            gb_per_s: f64::from(count) * input.bf16.len() as f64 / seconds / 1e9,
        });
    }
    Ok(rows)
}

/// nvCOMP on the levels of a uniform quantizer, one byte each, at the same
/// error as `nmse`: what a general-purpose compressor makes of the same task.
fn nvcomp(gpu: &Gpu, method: Method, mib: usize, nmse: f64) -> Result<Speed, Error> {
    let rows = (mib << 20) / 2 / COLUMNS;
    let made = weights(rows.min(2048), COLUMNS, 17);
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
    let every =
        |base: u64, stride: usize| (0..count).map(|i| base + (i * stride) as u64).collect::<Vec<u64>>();
    let sizes: Vec<u64> = (0..count).map(|i| (levels.len() - i * longest).min(longest) as u64).collect();
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
