//! Memory that Python and Rust share: arrays come in as they lie, results go
//! out as they were made.
#![allow(unsafe_code)]

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use trinity_tensor::{Class, Dtype, Entry};

use crate::failure::Failure;

/// An array's bytes, which stay where they are while this lives.
#[derive(Debug)]
struct Lent(PyBuffer<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, which `Array::entry` saw to, and its
        // owner may neither free nor move it before it is given back. A thread
        // that writes into an array while it is being encoded gets what it
        // deserves: other bytes, as with every library that lends memory.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// An array as Python hands it over: name, class, number format, shape, and a
/// flat view of its bytes.
#[derive(Debug, FromPyObject)]
pub struct Array(String, Option<String>, String, Vec<usize>, PyBuffer<u8>);

impl Array {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.4.len_bytes()
    }

    /// The tensor that it is, without a copy.
    pub fn entry(self) -> Result<Entry, Failure> {
        let Self(name, class, dtype, shape, buffer) = self;
        if !buffer.is_c_contiguous() {
            return Err(Failure::input(format_args!("tensor `{name}`: its bytes do not lie in a row")));
        }
        let dtype: Dtype = dtype.parse().map_err(Failure::input)?;
        let entry = Entry::in_memory(name, dtype, shape, Arc::new(Lent(buffer)))?;
        match class {
            Some(class) => Ok(entry.with_class(class.parse::<Class>().map_err(Failure::input)?)),
            None => Ok(entry),
        }
    }
}

/// The tensors that arrays are.
pub fn entries(arrays: Vec<Array>) -> Result<Vec<Entry>, Failure> {
    arrays.into_iter().map(Array::entry).collect()
}

/// Bytes that Rust made and Python reads and writes in place.
#[pyclass(frozen, module = "trinity._core")]
#[derive(Debug)]
pub struct Memory {
    bytes: std::cell::UnsafeCell<Vec<u8>>,
}

// SAFETY: after it is made, Rust never looks into the vector again; Python's
// buffer protocol leaves races between its own threads to them.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into() }
    }

    /// Of values in single precision.
    pub fn of(values: &[f32]) -> Self {
        Self::new(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        // SAFETY: the length never changes.
        unsafe { (*self.bytes.get()).len() }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        // SAFETY: the vector lives as long as the object, which the view refers
        // to, and is never resized; `view` is Python's to fill.
        let status = unsafe {
            let bytes = slf.get().bytes.get();
            let (start, len) = ((*bytes).as_mut_ptr().cast::<c_void>(), (*bytes).len());
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len as ffi::Py_ssize_t, 0, flags)
        };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
