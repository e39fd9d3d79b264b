//! The line-rate codec over a scale map that both sides know.
//!
//! Values are coded over their scales and multiplied by them again; nothing of the
//! map is in the stream. Knows host arrays alone: on a GPU the division and the
//! product are PyTorch's, which round as these do.

use crate::array::Memory;
use crate::cuda::plan_options;
use crate::failure::Failure;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trinity_codec::line::{Rate, Scale, Settings};

/// One scale for each row, or one for each value where there are as many.
fn scale_of(scales: &[f32], values: usize) -> Scale<'_> {
    if scales.len() == values { Scale::Values(scales) } else { Scale::Rows(scales) }
}

/// Codes values over their scales at `bits` per value at most.
#[pyfunction]
#[pyo3(signature = (values, scales, rows, cols, bits, best=false))]
pub fn line_encode_scaled<'py>(
    py: Python<'py>,
    values: PyBuffer<f32>,
    scales: PyBuffer<f32>,
    rows: usize,
    cols: usize,
    bits: f64,
    best: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (values, scales) = (values.to_vec(py)?, scales.to_vec(py)?);
    let stream = py.detach(|| {
        let (scale, rate) = (scale_of(&scales, values.len()), Rate::Bits(bits));
        let options = plan_options(best);
        trinity_codec::line::encode_scaled(&values, (rows, cols), scale, rate, &options, &Settings::default())
    });
    Ok(PyBytes::new(py, &stream.map_err(Failure::input)?))
}

/// What was coded over scales: rows, columns and values as bytes of f32.
#[pyfunction]
pub fn line_decode_scaled(
    py: Python<'_>,
    stream: Vec<u8>,
    scales: PyBuffer<f32>,
    values: usize,
) -> PyResult<(usize, usize, Memory)> {
    let scales = scales.to_vec(py)?;
    let decoded = py.detach(|| trinity_codec::line::decode_scaled(&stream, scale_of(&scales, values)));
    let (rows, cols, values) = decoded.map_err(Failure::input)?;
    Ok((rows, cols, Memory::of(&values)))
}
