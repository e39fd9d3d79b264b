//! The line-rate codec on a GPU, on memory and a stream of the caller's.
//!
//! Python brings addresses (of PyTorch's tensors) and a stream; kernels are
//! queued there and nothing is waited for. Nothing of CUDA is touched before a
//! device is asked for, so the module imports without it.
#![allow(unsafe_code)]

use crate::array::Memory;
use crate::failure::Failure;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trinity_codec::line::{Effort, Options, Plan, Rate, Settings, Stream, TILE_VALUES};
use trinity_hwcodec::Gpu;
use trinity_hwcodec::line::{Batch, Decoder, Encoder, Faulty, Format, Lengths, LineCodec, Places, Room};

/// What a device does or is asked, without Python's lock.
fn queued<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, trinity_hwcodec::Error> + Send,
) -> PyResult<T> {
    Ok(py.detach(work).map_err(Failure::run)?)
}

fn format_of(name: &str) -> Result<Format, Failure> {
    Ok(match name {
        "f32" => Format::F32,
        "bf16" => Format::Bf16,
        "f16" => Format::F16,
        "f8e4m3" => Format::F8E4M3,
        "f8e5m2" => Format::F8E5M2,
        other => {
            return Err(Failure::input(format_args!("{other} has no kernels"))
                .help("convert to f32, bf16, f16, f8e4m3 or f8e5m2"));
        }
    })
}

/// The plan of a matrix at a rate: the head of a stream that a CPU coded.
#[pyfunction]
#[pyo3(signature = (example, rows, cols, bits, best=false, tile_values=None))]
pub fn line_plan<'py>(
    py: Python<'py>,
    example: PyBuffer<f32>,
    rows: usize,
    cols: usize,
    bits: f64,
    best: bool,
    tile_values: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = Options { tile_values: tile_values.unwrap_or(TILE_VALUES), ..plan_options(best) };
    let values = example.to_vec(py)?;
    let (_, head) = py.detach(|| planned(&values, (rows, cols), bits, &options)).map_err(Failure::input)?;
    Ok(PyBytes::new(py, &head))
}

/// The plan of a matrix at a rate, chosen from a sample: `shape` is the sample's rows and columns, and the matrix's rows. With
/// a trellis where all that pays is chosen, or where `trellis` says so; without means of columns where steps will not stay the plan's.
#[pyfunction]
#[pyo3(signature = (sample, shape, bits, best, trellis=false, means=true))]
pub fn line_plan_of_sample<'py>(
    py: Python<'py>,
    sample: PyBuffer<f32>,
    shape: (usize, usize, usize),
    bits: f64,
    best: bool,
    trellis: bool,
    means: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (rows, cols, of_rows) = shape;
    let mut options = plan_options(best);
    if trellis {
        options.log2_states = TRELLIS_LOG2_STATES;
    }
    if of_rows != rows {
        // A plan of columns stands for any number of rows; one of rows has a class for each of them.
        options.fixed.transposed = Some(false);
    }
    if !means {
        options.fixed.means = Some(false);
    }
    let values = sample.to_vec(py)?;
    let (plan, _) = py.detach(|| planned(&values, (rows, cols), bits, &options)).map_err(Failure::input)?;
    let mut head = Vec::new();
    Plan { rows: of_rows, ..plan }.write(&mut head);
    Ok(PyBytes::new(py, &head))
}

/// Eight states, where there is a trellis.
const TRELLIS_LOG2_STATES: u32 = 3;

/// What a plan chooses from: all that pays, or what is quickly chosen.
pub(crate) fn plan_options(best: bool) -> Options {
    let effort = if best { Effort::Best } else { Effort::Fast };
    Options { effort, log2_states: if best { TRELLIS_LOG2_STATES } else { 0 }, ..Options::default() }
}

/// The plan of a matrix at a rate, and the head that states it.
fn planned(
    values: &[f32],
    (rows, cols): (usize, usize),
    bits: f64,
    options: &Options,
) -> Result<(Plan, Vec<u8>), trinity_codec::line::Error> {
    let stream = trinity_codec::line::encode_under(
        values,
        rows,
        cols,
        Rate::Bits(bits),
        options,
        &Settings::default(),
    )?;
    let (plan, length) = Plan::read(&stream)?;
    Ok((plan, stream[..length].to_vec()))
}

/// What a CPU makes of values under a plan: the bytes that a GPU must make, too.
#[pyfunction]
pub fn line_encode<'py>(
    py: Python<'py>,
    plan: &[u8],
    example: PyBuffer<f32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = example.to_vec(py)?;
    let (plan, _) = Plan::read(plan).map_err(Failure::input)?;
    let stream = py.detach(|| trinity_codec::line::encode(&plan, &values, &Settings::default()));
    Ok(PyBytes::new(py, &stream.map_err(Failure::input)?))
}

/// What a CPU decodes of a stream: rows, columns and values as bytes of f32.
#[pyfunction]
pub fn line_decode(py: Python<'_>, stream: Vec<u8>) -> PyResult<(usize, usize, Memory)> {
    let decoded = py.detach(|| trinity_codec::line::decode(&stream));
    let (rows, cols, values) = decoded.map_err(Failure::input)?;
    Ok((rows, cols, Memory::of(&values)))
}

/// Rows, columns and step of a plan, and the bytes its header takes.
#[pyfunction]
pub fn line_plan_info(plan: &[u8]) -> PyResult<(usize, usize, f32, usize)> {
    let (plan, length) = Plan::read(plan).map_err(Failure::input)?;
    Ok((plan.rows, plan.cols, plan.step, length))
}

/// Tiles of a tensor under a plan, each of which is one warp's work.
#[pyfunction]
pub fn line_plan_tiles(plan: &[u8]) -> PyResult<usize> {
    let (plan, _) = Plan::read(plan).map_err(Failure::input)?;
    Ok(plan.tiles())
}

/// Largest exponents of two of values in a format that no rounding takes beyond its largest number.
const SAFE_EXPONENTS: [(&str, i16); 3] = [("f32", 120), ("bf16", 120), ("f16", 14)];
/// The bit of a tile's first word that says that values are kept exactly (FORMAT.md).
const EXCEPTIONS: u16 = 1 << 6;
/// The stream of a slab as kernels decode it to the bits of a CPU, its step in the tensor's own scale; nothing
/// where they would not.
fn on_device(coded: &[u8], dtype: &str) -> Option<Vec<u8>> {
    let (exponent, stream) = trinity_tensor::codec::line_stream(coded)?;
    let most = SAFE_EXPONENTS.iter().find(|(name, _)| *name == dtype)?.1;
    let opened = Stream::open(stream).ok()?;
    let plan = opened.plan();
    let step = plan.step * 2f32.powi(i32::from(exponent));
    // What is kept exactly is not in steps.
    let keeps = |tile| opened.words(tile).first().is_none_or(|&head| head & EXCEPTIONS != 0);
    if exponent > most || exponent < -100 || !step.is_normal() || (0..plan.tiles()).any(keeps) {
        return None;
    }
    let mut scaled = Vec::with_capacity(stream.len());
    Plan { step, ..plan.clone() }.write(&mut scaled);
    let (_, header) = Plan::read(stream).ok()?;
    // Headers that others wrote may be longer than ours.
    (scaled.len() == header).then(|| {
        scaled.extend_from_slice(&stream[header..]);
        scaled
    })
}

/// How many values a slab has, and its stream.
type Slab<'py> = (usize, Bound<'py, PyBytes>);

/// Values and stream of every slab of a container, for decoders on a GPU; nothing where a slab is no stream of
/// the line-rate codec that they decode to a CPU's bits. A slab of zeros has no bytes.
#[pyfunction]
pub fn line_slabs<'py>(py: Python<'py>, container: &[u8]) -> PyResult<Option<Vec<Slab<'py>>>> {
    let entry = crate::coded::only_entry(container.to_vec())?;
    let Some((slab_values, slabs)) = entry.slabs() else { return Ok(None) };
    let mut found = Vec::with_capacity(slabs);
    for index in 0..slabs {
        let coded = entry.coded_slab(index).map_err(Failure::from)?;
        let values = slab_values.min(entry.len() - index * slab_values);
        let stream =
            if coded.is_empty() { Some(Vec::new()) } else { on_device(&coded, entry.dtype().name()) };
        let Some(stream) = stream else { return Ok(None) };
        found.push((values, PyBytes::new(py, &stream)));
    }
    Ok(Some(found))
}

/// The kernels that were compiled for one GPU so far.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct CudaDevice(LineCodec);

#[pymethods]
impl CudaDevice {
    #[new]
    fn new(py: Python<'_>, ordinal: usize) -> PyResult<Self> {
        queued(py, || LineCodec::new(&Gpu::open(ordinal)?)).map(Self)
    }

    /// An encoder under a plan, with room for `most_bits` per value. With `relative_step` steps are so many
    /// roots of each tensor's mean square. It takes all multiprocessors, or so many.
    #[pyo3(signature = (plan, dtype, most_bits, relative_step=None, multiprocessors=None))]
    fn encoder(
        &self,
        py: Python<'_>,
        plan: &[u8],
        dtype: &str,
        most_bits: f64,
        relative_step: Option<f32>,
        multiprocessors: Option<u32>,
    ) -> PyResult<CudaEncoder> {
        let (plan, _) = Plan::read(plan).map_err(Failure::input)?;
        let format = format_of(dtype)?;
        let taken = self.taken(multiprocessors);
        let made = queued(py, || {
            let made = Encoder::on(&self.0, &plan, &Settings::default(), format, most_bits, taken)?;
            match relative_step {
                Some(step) => made.following(step),
                None => Ok(made),
            }
        });
        made.map(CudaEncoder)
    }

    /// A decoder of streams that begin with this plan, on all multiprocessors or so many.
    #[pyo3(signature = (plan, dtype, multiprocessors=None))]
    fn decoder(
        &self,
        py: Python<'_>,
        plan: &[u8],
        dtype: &str,
        multiprocessors: Option<u32>,
    ) -> PyResult<CudaDecoder> {
        let format = format_of(dtype)?;
        let taken = self.taken(multiprocessors);
        queued(py, || Decoder::on(&self.0, plan, format, taken)).map(CudaDecoder)
    }
}

impl CudaDevice {
    /// Multiprocessors that are taken where so many are asked for.
    fn taken(&self, asked: Option<u32>) -> u32 {
        let all = self.0.multiprocessors();
        asked.map_or(all, |asked| asked.clamp(1, all))
    }
}

fn said(faults: Vec<Faulty>) -> Vec<(usize, String)> {
    faults.into_iter().map(|faulty| (faulty.tile, faulty.fault.to_string())).collect()
}

/// Encodes device memory under one plan.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct CudaEncoder(Encoder);

#[pymethods]
impl CudaEncoder {
    /// Bytes that are read, that a stream takes at most, and of workspace for so many tensors.
    #[pyo3(signature = (count=1))]
    fn sizes(&self, count: usize) -> (usize, usize, usize) {
        (self.0.input_bytes(), self.0.bound_bytes(), self.0.workspace_bytes_of(count))
    }

    /// Queues the encoding on a stream.
    fn encode(&self, values: u64, out: u64, length: u64, workspace: u64, stream: usize) -> PyResult<()> {
        // SAFETY: `trinity.torch` passes tensors of the sizes that `sizes` states,
        // and keeps them until PyTorch's allocator knows the stream is past them.
        let done = unsafe { self.0.encode(values, out, length, workspace, stream as *mut _) };
        Ok(done.map_err(Failure::run)?)
    }

    /// Queues the encoding of many tensors, in one launch of each kernel.
    fn encode_many(
        &self,
        py: Python<'_>,
        values: Vec<u64>,
        out: Vec<u64>,
        lengths: u64,
        workspace: u64,
        stream: usize,
    ) -> PyResult<()> {
        let batch = Batch { values: Places::of(&values), out: Places::of(&out), lengths };
        // SAFETY: as `encode`.
        queued(py, || unsafe { self.0.encode_many(&batch, workspace, stream as *mut _) })
    }

    /// Queues the encoding of many tensors into rooms of one size: addresses of tensors and rooms, bytes of a room and its gains.
    fn encode_within(
        &self,
        py: Python<'_>,
        values: Vec<u64>,
        out: Vec<u64>,
        room: (usize, u64),
        workspace: u64,
        stream: usize,
    ) -> PyResult<()> {
        let batch = Batch { values: Places::of(&values), out: Places::of(&out), lengths: 0 };
        let room = Room { bytes: room.0, gains: room.1 };
        // SAFETY: as `encode`.
        queued(py, || unsafe { self.0.encode_within(&batch, &room, workspace, stream as *mut _) })
    }

    /// Tiles that could not be held, and why; waits for the stream.
    #[pyo3(signature = (workspace, stream, count=1))]
    fn faults(
        &self,
        py: Python<'_>,
        workspace: u64,
        stream: usize,
        count: usize,
    ) -> PyResult<Vec<(usize, String)>> {
        // SAFETY: as above.
        queued(py, || unsafe { self.0.faults_of(count, workspace, stream as *mut _) }).map(said)
    }
}

/// Decodes device memory under one plan.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct CudaDecoder(Decoder);

#[pymethods]
impl CudaDecoder {
    /// Bytes that come out, and of workspace for so many tensors.
    #[pyo3(signature = (count=1))]
    fn sizes(&self, count: usize) -> (usize, usize) {
        (self.0.output_bytes(), self.0.workspace_bytes_of(count))
    }

    /// Queues the decoding on a stream.
    fn decode(&self, source: u64, bytes: usize, values: u64, workspace: u64, stream: usize) -> PyResult<()> {
        // SAFETY: as `CudaEncoder::encode`.
        let done = unsafe { self.0.decode(source, bytes, values, workspace, stream as *mut _) };
        Ok(done.map_err(Failure::run)?)
    }

    /// Queues the decoding of many streams, of so many bytes each.
    fn decode_many(
        &self,
        py: Python<'_>,
        sources: Vec<u64>,
        bytes: Vec<usize>,
        values: Vec<u64>,
        workspace: u64,
        stream: usize,
    ) -> PyResult<()> {
        if bytes.len() != sources.len() {
            return Err(Failure::input(format_args!(
                "{} streams and {} lengths",
                sources.len(),
                bytes.len()
            ))
            .into());
        }
        let same = bytes.first().filter(|&first| bytes.iter().all(|other| other == first));
        let lengths = same.map_or(Lengths::Each(&bytes), |&room| Lengths::Room(room));
        let (sources, values) = (Places::of(&sources), Places::of(&values));
        // SAFETY: as `CudaEncoder::encode`.
        queued(py, || unsafe { self.0.decode_many(sources, lengths, values, workspace, stream as *mut _) })
    }

    /// Queues the decoding of what `CudaEncoder.encode_within` put into rooms of so many bytes.
    fn decode_within(
        &self,
        py: Python<'_>,
        sources: Vec<u64>,
        room_bytes: usize,
        values: Vec<u64>,
        workspace: u64,
        stream: usize,
    ) -> PyResult<()> {
        let (sources, values) = (Places::of(&sources), Places::of(&values));
        let lengths = Lengths::Headed(room_bytes);
        // SAFETY: as `CudaEncoder::encode`.
        queued(py, || unsafe { self.0.decode_many(sources, lengths, values, workspace, stream as *mut _) })
    }

    /// Tiles that are damaged, and why; waits for the stream.
    #[pyo3(signature = (workspace, stream, count=1))]
    fn faults(
        &self,
        py: Python<'_>,
        workspace: u64,
        stream: usize,
        count: usize,
    ) -> PyResult<Vec<(usize, String)>> {
        // SAFETY: as above.
        queued(py, || unsafe { self.0.faults_of(count, workspace, stream as *mut _) }).map(said)
    }
}
