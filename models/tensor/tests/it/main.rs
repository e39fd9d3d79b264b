//! Promises of the tensor crate that need files.

#![allow(clippy::unwrap_used)] // helpers of tests, as good as tests

mod carried;
mod codecs;
#[path = "../../../bits/tests/support/draw.rs"]
mod draw;
mod files;
mod golden;
mod hostile;
mod laws;
mod profiles;
mod promises;
mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trinity_tensor::codec::{Rate, TensorCodec};
use trinity_tensor::file::{SafetensorsWriter, Spec};
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

/// The sample of captured tensors that the repository carries.
pub fn sample_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../validation/data/captured/sample.safetensors")
}

/// The first rows of one of its tensors.
pub fn sample(which: usize, rows: usize) -> Tensor {
    let file = TensorFile::open(&sample_path()).unwrap();
    let tensor = file.entries()[which].read().unwrap();
    let cols = tensor.matrix().1;
    let data = tensor.data()[..rows * cols * tensor.dtype().bytes()].to_vec();
    Tensor::new(tensor.name(), tensor.class(), tensor.dtype(), vec![rows, cols], data).unwrap()
}

pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// What was asked of whom, for messages.
pub fn task(codec: &dyn TensorCodec, tensor: &Tensor, target: Rate) -> String {
    let (name, dtype, shape) = (tensor.name(), tensor.dtype(), tensor.shape());
    format!("{} on `{name}` ({dtype} {shape:?}) at {target}", codec.name())
}

/// A tensor of pseudo-random bytes: every bit pattern of its format may occur.
pub fn noise(name: &str, dtype: Dtype, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = shape.iter().product::<usize>() * dtype.bytes();
    let data = (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    Tensor::new(name, Class::Other, dtype, shape.to_vec(), data).unwrap()
}

pub fn write_safetensors(path: &Path, tensors: &[Tensor]) {
    let specs: Vec<Spec> = tensors
        .iter()
        .map(|tensor| Spec {
            name: tensor.name().into(),
            class: tensor.class(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        })
        .collect();
    let mut writer = SafetensorsWriter::create(path, &specs, &BTreeMap::new()).unwrap();
    for tensor in tensors {
        writer.write(tensor.data()).unwrap();
    }
    writer.finish().unwrap();
}
