//! The line-rate codec on a GPU, on memory and a stream of the caller's.
//!
//! Python brings addresses (of PyTorch's tensors) and a stream; kernels are
//! queued there and nothing is waited for. Nothing of CUDA is touched before a
//! device is asked for, so the module imports without it.
#![allow(unsafe_code)]

use crate::failure::Failure;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trinity_codec::line::{Effort, Options, Plan, Settings, Target};
use trinity_hwcodec::Gpu;
use trinity_hwcodec::line::{Decoder, Encoder, Faulty, Format, LineCodec};

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::run(error)
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

/// Single-precision values of a host array.
fn values(py: Python<'_>, buffer: &PyBuffer<f32>) -> PyResult<Vec<f32>> {
    buffer.to_vec(py)
}

/// The plan of a matrix at a rate: the head of a stream that a CPU coded.
#[pyfunction]
#[pyo3(signature = (example, rows, cols, bits, best=false))]
pub fn line_plan<'py>(
    py: Python<'py>,
    example: PyBuffer<f32>,
    rows: usize,
    cols: usize,
    bits: f64,
    best: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = values(py, &example)?;
    let effort = if best { Effort::Best } else { Effort::Fast };
    let options = Options { effort, log2_states: if best { 3 } else { 0 }, ..Options::default() };
    let head = py.detach(|| {
        let target = Target::Bits(bits);
        let stream =
            trinity_codec::line::encode_under(&values, rows, cols, target, &options, &Settings::default())?;
        let (_, length) = Plan::read(&stream)?;
        Ok::<_, trinity_codec::line::Error>(stream[..length].to_vec())
    });
    Ok(PyBytes::new(py, &head.map_err(Failure::input)?))
}

/// What a CPU makes of values under a plan: the bytes that a GPU must make, too.
#[pyfunction]
pub fn line_encode<'py>(
    py: Python<'py>,
    plan: &[u8],
    example: PyBuffer<f32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = values(py, &example)?;
    let (plan, _) = Plan::read(plan).map_err(Failure::input)?;
    let stream = py.detach(|| trinity_codec::line::encode(&plan, &values, &Settings::default()));
    Ok(PyBytes::new(py, &stream.map_err(Failure::input)?))
}

/// What a CPU decodes of a stream: rows, columns and values as bytes of f32.
#[pyfunction]
pub fn line_decode(py: Python<'_>, stream: Vec<u8>) -> PyResult<(usize, usize, crate::array::Memory)> {
    let decoded = py.detach(|| trinity_codec::line::decode(&stream));
    let (rows, cols, values) = decoded.map_err(Failure::input)?;
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok((rows, cols, crate::array::Memory::new(bytes)))
}

/// GPUs that the driver sees; 0 where there is no driver.
#[pyfunction]
pub fn cuda_devices() -> PyResult<usize> {
    Ok(Gpu::count().map_err(failed)?)
}

/// One GPU, with the kernels that were compiled for it so far.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct CudaDevice {
    gpu: Gpu,
    codec: LineCodec,
}

#[pymethods]
impl CudaDevice {
    #[new]
    fn new(py: Python<'_>, ordinal: usize) -> PyResult<Self> {
        let opened = py.detach(|| {
            let gpu = Gpu::open(ordinal)?;
            let codec = LineCodec::new(&gpu)?;
            Ok::<_, trinity_hwcodec::Error>(Self { gpu, codec })
        });
        Ok(opened.map_err(failed)?)
    }

    /// The GPU's name as the driver gives it.
    fn name(&self) -> &str {
        self.gpu.name()
    }

    /// An encoder under a plan, with room for `most_bits` per value.
    fn encoder(&self, py: Python<'_>, plan: &[u8], dtype: &str, most_bits: f64) -> PyResult<CudaEncoder> {
        let (plan, _) = Plan::read(plan).map_err(Failure::input)?;
        let format = format_of(dtype)?;
        let made = py.detach(|| Encoder::new(&self.codec, &plan, &Settings::default(), format, most_bits));
        Ok(CudaEncoder(made.map_err(failed)?))
    }

    /// A decoder of streams that begin with this plan.
    fn decoder(&self, py: Python<'_>, plan: &[u8], dtype: &str) -> PyResult<CudaDecoder> {
        let format = format_of(dtype)?;
        Ok(CudaDecoder(py.detach(|| Decoder::new(&self.codec, plan, format)).map_err(failed)?))
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
    /// Bytes that are read, that a stream takes at most, and of workspace.
    fn sizes(&self) -> (usize, usize, usize) {
        (self.0.input_bytes(), self.0.bound_bytes(), self.0.workspace_bytes())
    }

    /// Queues the encoding on a stream.
    fn encode(&self, values: u64, out: u64, length: u64, workspace: u64, stream: u64) -> PyResult<()> {
        // SAFETY: `trinity.torch` passes tensors of the sizes that `sizes` states,
        // and keeps them until PyTorch's allocator knows the stream is past them.
        let queued = unsafe { self.0.encode(values, out, length, workspace, stream as usize as *mut _) };
        Ok(queued.map_err(failed)?)
    }

    /// Tiles that could not be held, and why; waits for the stream.
    fn faults(&self, py: Python<'_>, workspace: u64, stream: u64) -> PyResult<Vec<(usize, String)>> {
        // SAFETY: as above.
        let found = py.detach(|| unsafe { self.0.faults(workspace, stream as usize as *mut _) });
        Ok(said(found.map_err(failed)?))
    }
}

/// Decodes device memory under one plan.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct CudaDecoder(Decoder);

#[pymethods]
impl CudaDecoder {
    /// Bytes that come out, and of workspace.
    fn sizes(&self) -> (usize, usize) {
        (self.0.output_bytes(), self.0.workspace_bytes())
    }

    /// Queues the decoding on a stream.
    fn decode(&self, source: u64, bytes: usize, values: u64, workspace: u64, stream: u64) -> PyResult<()> {
        // SAFETY: as `CudaEncoder::encode`.
        let queued = unsafe { self.0.decode(source, bytes, values, workspace, stream as usize as *mut _) };
        Ok(queued.map_err(failed)?)
    }

    /// Tiles that are damaged, and why; waits for the stream.
    fn faults(&self, py: Python<'_>, workspace: u64, stream: u64) -> PyResult<Vec<(usize, String)>> {
        // SAFETY: as above.
        let found = py.detach(|| unsafe { self.0.faults(workspace, stream as usize as *mut _) });
        Ok(said(found.map_err(failed)?))
    }
}
