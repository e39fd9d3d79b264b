//! Many tensors in one launch: equal to the CPU's one by one, and how fast.

use super::{Checked, ROOM_BITS, energies, first_difference, from_bf16, median_s, to_bf16};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::line::{Batch, Decoder, Encoder, Faulty, Format, HEAD_BYTES, Lengths, LineCodec, Places, Room};
use crate::measure::made_up::{mix, plan_at, weights};
use crate::recording::Speed;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;
use trinity_codec::line::{Effort, Options, Plan, Settings, TILE_VALUES};

/// Tensors of one plan with all they need on the device.
pub(super) struct Many {
    stream: Arc<CudaStream>,
    encoder: Encoder,
    decoder: Decoder,
    values: Vec<CudaSlice<u8>>,
    coded: Vec<CudaSlice<u8>>,
    decoded: Vec<CudaSlice<u8>>,
    lengths: CudaSlice<u64>,
    gains: CudaSlice<f32>,
    encoding: CudaSlice<u8>,
    decoding: CudaSlice<u8>,
}

impl Many {
    /// With `relative_step`, steps follow the tensors.
    fn new(
        gpu: &Gpu,
        codec: &LineCodec,
        plan: &Plan,
        relative_step: Option<f32>,
        tensors: &[Vec<u8>],
    ) -> Result<Self, Error> {
        let stream = gpu.stream()?;
        let encoder =
            Encoder::on(codec, plan, &Settings::default(), Format::Bf16, ROOM_BITS, codec.multiprocessors())?;
        let encoder = match relative_step {
            Some(step) => encoder.following(step)?,
            None => encoder,
        };
        let mut header = Vec::new();
        plan.write(&mut header);
        // Who reads a head wants to see that a stream of its size can follow.
        header.resize(header.len() + plan.rows * plan.cols / 256, 0);
        let decoder = Decoder::on(codec, &header, Format::Bf16, codec.multiprocessors())?;
        let room = |bytes: usize| stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        let count = tensors.len();
        let each = |bytes: usize| tensors.iter().map(|_| room(bytes)).collect::<Result<Vec<_>, _>>();
        let up = |values: &Vec<u8>| stream.clone_htod(values).during("cuMemcpyHtoD");
        Ok(Self {
            // Backwards, so that they lie nowhere as evenly as they were taken.
            values: tensors.iter().rev().map(up).collect::<Result<Vec<_>, _>>()?.into_iter().rev().collect(),
            coded: each(encoder.bound_bytes())?,
            decoded: each(decoder.output_bytes())?,
            lengths: stream.alloc_zeros::<u64>(count).during("cuMemAlloc")?,
            gains: stream.clone_htod(&vec![1.0f32; count]).during("cuMemcpyHtoD")?,
            encoding: room(encoder.workspace_bytes_of(count))?,
            decoding: room(decoder.workspace_bytes_of(count))?,
            encoder,
            decoder,
            stream,
        })
    }

    /// The values, their streams and what is decoded.
    fn addresses(&self) -> [Vec<u64>; 3] {
        let at = |one: &CudaSlice<u8>| one.device_ptr(&self.stream).0;
        [&self.values, &self.coded, &self.decoded].map(|list| list.iter().map(at).collect())
    }

    fn encode(&self) -> Result<(), Error> {
        let [values, out, _] = self.addresses();
        let lengths = self.lengths.device_ptr(&self.stream).0;
        let batch = Batch { values: Places::of(&values), out: Places::of(&out), lengths };
        let workspace = self.encoding.device_ptr(&self.stream).0;
        // SAFETY: buffers of the sizes that were stated, alive with `self`, whose owner waits.
        unsafe { self.encoder.encode_many(&batch, workspace, self.stream.cu_stream()) }
    }

    fn encode_within(&self, bytes: usize) -> Result<(), Error> {
        let [values, out, _] = self.addresses();
        let batch = Batch { values: Places::of(&values), out: Places::of(&out), lengths: 0 };
        let room = Room { bytes, gains: self.gains.device_ptr(&self.stream).0 };
        let workspace = self.encoding.device_ptr(&self.stream).0;
        // SAFETY: as above; rooms are smaller than the places for streams.
        unsafe { self.encoder.encode_within(&batch, &room, workspace, self.stream.cu_stream()) }
    }

    fn decode(&self, lengths: Lengths<'_>) -> Result<(), Error> {
        let [_, sources, out] = self.addresses();
        let workspace = self.decoding.device_ptr(&self.stream).0;
        // SAFETY: as above.
        unsafe {
            self.decoder.decode_many(
                Places::of(&sources),
                lengths,
                Places::of(&out),
                workspace,
                self.stream.cu_stream(),
            )
        }
    }

    fn down(&self, what: &CudaSlice<u8>) -> Result<Vec<u8>, Error> {
        self.stream.clone_dtoh(what).during("cuMemcpyDtoH")
    }

    fn lengths(&self) -> Result<Vec<usize>, Error> {
        let lengths = self.stream.clone_dtoh(&self.lengths).during("cuMemcpyDtoH")?;
        Ok(lengths.into_iter().map(|length| length as usize).collect())
    }

    fn faults(&self) -> Result<Vec<Faulty>, Error> {
        let (count, stream) = (self.values.len(), self.stream.cu_stream());
        // SAFETY: the workspaces that were coded with.
        let mut found =
            unsafe { self.encoder.faults_of(count, self.encoding.device_ptr(&self.stream).0, stream)? };
        // SAFETY: as above.
        found.extend(unsafe {
            self.decoder.faults_of(count, self.decoding.device_ptr(&self.stream).0, stream)?
        });
        Ok(found)
    }
}

fn root_mean_square(values: &[f32]) -> f32 {
    let square = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>();
    (square / values.len() as f64).sqrt() as f32
}

/// What a CPU makes of a tensor under the plan that a stream states; nothing where they agree.
fn disagreement(stream: &[u8], bf16: &[u8], decoded: &[u8]) -> Option<String> {
    let (plan, _) = match Plan::read(stream) {
        Ok(read) => read,
        Err(e) => return Some(format!("no header: {e}")),
    };
    match trinity_codec::line::encode(&plan, &from_bf16(bf16), &Settings::default()) {
        Err(e) => return Some(format!("the CPU refuses: {e}")),
        Ok(expected) => {
            if let Some(at) = first_difference(&expected, stream) {
                return Some(format!("streams differ at byte {at} of {}", expected.len()));
            }
        }
    }
    match trinity_codec::line::decode(stream) {
        Err(e) => Some(format!("the CPU does not decode: {e}")),
        Ok((_, _, values)) => {
            first_difference(&to_bf16(&values), decoded).map(|at| format!("values differ at {}", at / 2))
        }
    }
}

/// Tensors of many scales and kinds, the last of them none that a plan foresaw.
fn strangers(rows: usize, cols: usize) -> Vec<Vec<u8>> {
    let made = |seed: u64, scale: f32| {
        weights(rows, cols, seed).into_iter().map(|value| value * scale).collect::<Vec<f32>>()
    };
    let spiky: Vec<f32> = (0..rows * cols)
        .map(|i| if mix(i as u64).is_multiple_of(50) { 30.0 } else { 0.01 * (mix(i as u64 + 7) % 3) as f32 })
        .collect();
    let flat: Vec<f32> =
        (0..rows * cols).map(|i| if mix(i as u64).is_multiple_of(2) { 0.5 } else { -0.5 }).collect();
    [made(1, 1.0), made(2, 3e-5), made(3, 7e8), vec![0.0; rows * cols], spiky, flat]
        .iter()
        .map(|values| to_bf16(values))
        .collect()
}

/// Lists of tensors under one plan, evenly placed or not, at the plan's step and at their own, and in rooms.
pub(super) fn check(gpu: &Gpu, codec: &LineCodec) -> Result<Vec<Checked>, Error> {
    let (rows, cols) = (384, 512);
    let mut found = Vec::new();
    for (log2_states, effort) in [(0, Effort::Fast), (3, Effort::Fast), (3, Effort::Best)] {
        let options = Options { effort, log2_states, ..Options::default() };
        let example = from_bf16(&to_bf16(&weights(rows, cols, 1)));
        let plan = plan_at("weights", &example, cols, 3.0, &options)?;
        let relative = plan.step / root_mean_square(&example);
        let name = |what: &str| format!("{what} {rows}x{cols}, {} states, {effort:?}", 1 << log2_states);
        let alike: Vec<Vec<u8>> = (0..5).map(|seed| to_bf16(&weights(rows, cols, seed))).collect();
        found.push(check_list(&name("a list"), &Many::new(gpu, codec, &plan, None, &alike)?, &alike)?);
        let mut others = strangers(rows, cols);
        let many = Many::new(gpu, codec, &plan, Some(relative), &others)?;
        found.push(check_list(&name("a list of all scales"), &many, &others)?);
        let mut broken = to_bf16(&weights(rows, cols, 9));
        broken[2000..2002].copy_from_slice(&half::bf16::NAN.to_le_bytes());
        others.push(broken);
        for bits in [1.4, 3.0] {
            // A little below what there is room for, as who fills rooms does.
            let plan = plan_at("weights", &example, cols, 0.98 * bits, &options)?;
            let relative = plan.step / root_mean_square(&example);
            let many = Many::new(gpu, codec, &plan, Some(relative), &others)?;
            let room = HEAD_BYTES + ((rows * cols) as f64 * bits / 128.0) as usize * 16;
            found.push(check_rooms(&name(&format!("rooms of {bits} bits")), &many, &others, room)?);
        }
    }
    Ok(found)
}

fn checked(name: &str, values: usize, coded_bytes: usize, problem: Option<String>) -> Checked {
    Checked { name: name.into(), values, coded_bytes, outcome: problem.unwrap_or_else(|| "equal".into()) }
}

fn check_list(name: &str, many: &Many, tensors: &[Vec<u8>]) -> Result<Checked, Error> {
    let values = tensors.iter().map(|one| one.len() / 2).sum();
    many.encode()?;
    let lengths = many.lengths()?;
    many.decode(Lengths::Each(&lengths))?;
    if let Some(faulty) = many.faults()?.first() {
        return Ok(checked(name, values, 0, Some(faulty.to_string())));
    }
    for (at, tensor) in tensors.iter().enumerate() {
        let stream = many.down(&many.coded[at])?;
        let stream = &stream[..lengths[at].min(stream.len())];
        if let Some(problem) = disagreement(stream, tensor, &many.down(&many.decoded[at])?) {
            return Ok(checked(name, values, 0, Some(format!("tensor {at}: {problem}"))));
        }
    }
    Ok(checked(name, values, lengths.iter().sum(), None))
}

fn check_rooms(name: &str, many: &Many, tensors: &[Vec<u8>], room: usize) -> Result<Checked, Error> {
    let values = tensors.iter().map(|one| one.len() / 2).sum();
    many.encode_within(room)?;
    many.decode(Lengths::Headed(room))?;
    let mut total = 0;
    for (at, tensor) in tensors.iter().enumerate() {
        let bytes = many.down(&many.coded[at])?;
        let decoded = many.down(&many.decoded[at])?;
        let length = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        let finite = from_bf16(tensor).iter().all(|value| value.is_finite());
        let problem = if !finite {
            let spoiled = from_bf16(&decoded).iter().all(|value| value.is_nan());
            (length != u64::MAX || !spoiled).then(|| "a tensor that is not finite has a stream".into())
        } else if length > (room - HEAD_BYTES) as u64 {
            Some(format!("{length} bytes in a room of {room}"))
        } else {
            total += length as usize;
            disagreement(&bytes[HEAD_BYTES..HEAD_BYTES + length as usize], tensor, &decoded)
        };
        if let Some(problem) = problem {
            return Ok(checked(name, values, 0, Some(format!("tensor {at}: {problem}"))));
        }
    }
    Ok(checked(name, values, total, None))
}

/// Tensors of a list, and the bytes of each as bf16.
const LIST: (usize, usize) = (64, 4 << 20);
/// A page of a cache: tokens by channels.
const PAGE: (usize, usize) = (64, 512);
/// Values of its tiles: few, so that many warps have one.
const PAGE_TILES: [usize; 3] = [4096, 2048, 1024];

/// Speeds of lists, and of one page.
pub(super) fn speeds(gpu: &Gpu, codec: &LineCodec) -> Result<Vec<Speed>, Error> {
    let mut found = Vec::new();
    for log2_states in [0, 3] {
        let (count, bytes) = LIST;
        let what = format!("{count} tensors of {} MiB in a list", bytes >> 20);
        found.push(speed(gpu, codec, &what, log2_states, TILE_VALUES, (count, bytes / 2 / 4096, 4096))?);
        for tile_values in PAGE_TILES {
            let what = format!("a page of 64 KiB in tiles of {tile_values}");
            found.push(speed(gpu, codec, &what, log2_states, tile_values, (1, PAGE.0, PAGE.1))?);
        }
    }
    Ok(found)
}

fn speed(
    gpu: &Gpu,
    codec: &LineCodec,
    what: &str,
    log2_states: u32,
    tile_values: usize,
    (count, rows, cols): (usize, usize, usize),
) -> Result<Speed, Error> {
    let options = Options { effort: Effort::Fast, log2_states, tile_values, ..Options::default() };
    let tensor = to_bf16(&weights(rows, cols, 17));
    let plan = plan_at("weights", &from_bf16(&tensor), cols, 3.0, &options)?;
    let tensors = vec![tensor; count];
    let many = Many::new(gpu, codec, &plan, None, &tensors)?;
    many.encode()?;
    let lengths = many.lengths()?;
    many.decode(Lengths::Each(&lengths))?;
    Faulty::refuse(&many.faults()?)?;
    let last = count - 1;
    let stream = many.down(&many.coded[last])?;
    let decoded = many.down(&many.decoded[last])?;
    if let Some(problem) = disagreement(&stream[..lengths[last]], &tensors[last], &decoded) {
        return Err(Error::CorruptStream { what: problem });
    }
    let (signal, noise) = energies(&tensors[last], &decoded);
    Ok(Speed {
        what: format!("trinity-lite, {} states, {what}", 1 << log2_states),
        multiprocessors: codec.multiprocessors(),
        input_bytes: tensors.iter().map(Vec::len).sum(),
        coded_bytes: lengths.iter().sum(),
        encode_s: median_s(&many.stream, || many.encode())?,
        decode_s: median_s(&many.stream, || many.decode(Lengths::Each(&lengths)))?,
        nmse: noise / signal,
    })
}
