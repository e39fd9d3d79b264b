//! Tensor files of others from any bytes: safetensors, npy, npz, PyTorch, GGUF.

use std::collections::BTreeMap;

use trinity_tensor::file::{SafetensorsWriter, Spec, write_npy};
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

use crate::RunOutcome;
use crate::damage::{crc, values};

/// Accepted: every value was read. Reached: the parser found something to read.
pub fn read_all(bytes: Vec<u8>, format: &str) -> RunOutcome {
    let Ok(file) = TensorFile::from_bytes(bytes, "t") else { return RunOutcome::Refused };
    if file.format() != format {
        return RunOutcome::Refused;
    }
    // A file may state sizes that it does not hold; values are only asked for where they fit.
    let small = file.entries().iter().filter(|entry| entry.len() < 1 << 20);
    // All of them are read, also after one that cannot be.
    let unread = small.filter(|entry| entry.read().is_err()).count();
    if unread == 0 { RunOutcome::Accepted } else { RunOutcome::Reached }
}

/// A tensor of every number format.
fn tensors() -> Vec<Tensor> {
    let values = values(24);
    let make = |dtype: Dtype| {
        let mut data = Vec::new();
        dtype.extend_from_f32(&values, &mut data);
        Tensor::new(dtype.name(), Class::Weight, dtype, vec![2, 3, 4], data)
    };
    Dtype::ALL.into_iter().filter_map(|dtype| make(dtype).ok()).collect()
}

/// What a writer of files leaves, in memory.
fn written(write: impl FnOnce(&std::path::Path) -> Result<(), trinity_tensor::Error>) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let path = folder.path().join("seed");
    write(&path).ok()?;
    std::fs::read(path).ok()
}

fn safetensors_file(tensors: &[Tensor]) -> Option<Vec<u8>> {
    let spec = |tensor: &Tensor| Spec {
        name: tensor.name().into(),
        class: tensor.class(),
        dtype: tensor.dtype(),
        shape: tensor.shape().to_vec(),
    };
    let specs: Vec<Spec> = tensors.iter().map(spec).collect();
    written(|path| {
        let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        let mut writer = SafetensorsWriter::create(path, &specs, &texts)?;
        tensors.iter().try_for_each(|tensor| writer.write(tensor.data()))?;
        writer.finish()
    })
}

pub fn safetensors_seeds() -> Vec<Vec<u8>> {
    let tensors = tensors();
    [&tensors[..], &tensors[..1], &[]].into_iter().filter_map(safetensors_file).collect()
}

pub fn safetensors(input: &[u8]) -> RunOutcome {
    let whole = read_all(input.to_vec(), "safetensors");
    // A random length prefix is nearly always wrong: also try the right one.
    let mut framed = (input.len() as u64).to_le_bytes().to_vec();
    framed.extend_from_slice(input);
    framed.extend_from_slice(&[0x3c; 64]);
    whole.max(read_all(framed, "safetensors"))
}

pub fn npy_seeds() -> Vec<Vec<u8>> {
    tensors().iter().filter_map(|tensor| written(|path| write_npy(path, tensor))).collect()
}

pub fn npy(input: &[u8]) -> RunOutcome {
    let mut framed = b"\x93NUMPY\x01\x00".to_vec();
    framed.extend_from_slice(input);
    read_all(input.to_vec(), "npy").max(read_all(framed, "npy"))
}

/// A stored zip archive, which nothing here writes; checksums are right, so that members are reached.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let mut fields = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        fields.extend(crc(content).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        let offset = bytes.len() as u32;
        bytes.extend([&b"PK\x03\x04"[..], &fields, name.as_bytes(), content].concat());
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 10], &offset.to_le_bytes()].concat());
        directory.extend(name.as_bytes());
    }
    let (start, count) = (bytes.len() as u32, (members.len() as u16).to_le_bytes());
    bytes.extend(&directory);
    bytes.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count].concat());
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

pub fn npz_seeds() -> Vec<Vec<u8>> {
    let members = npy_seeds();
    members.iter().map(|member| archive(&[("a.npy", member)])).chain(members.iter().cloned()).collect()
}

/// An archive, or a member that an archive is put around.
pub fn npz(input: &[u8]) -> RunOutcome {
    read_all(input.to_vec(), "npz").max(read_all(archive(&[("a.npy", input)]), "npz"))
}

/// Nothing here writes GGUF files; these are put together by hand, and accepted.
pub fn gguf_seeds() -> Vec<Vec<u8>> {
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    // Number format, values in a block, bytes of a block.
    let formats = [(0u32, 1u64, 4usize), (1, 1, 2), (8, 32, 34), (2, 32, 18), (14, 256, 210), (12, 256, 144)];
    let seed = |&(format, values, block): &(u32, u64, usize)| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        text(&mut bytes, "general.name");
        bytes.extend(8u32.to_le_bytes());
        text(&mut bytes, "test");
        text(&mut bytes, "w");
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(values.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        bytes.extend(format.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend((0..2 * block).map(|i| (i * 7) as u8 & 0x3f));
        bytes
    };
    formats.iter().map(seed).collect()
}

pub fn gguf(input: &[u8]) -> RunOutcome {
    let mut framed = b"GGUF\x03\0\0\0".to_vec();
    framed.extend_from_slice(input);
    read_all(input.to_vec(), "GGUF").max(read_all(framed, "GGUF"))
}

/// A GGUF of one tensor in that format, of rows of 256 values.
fn gguf_of(kind: u32, rows: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend([1u64, 0, 1].iter().flat_map(|count| count.to_le_bytes()));
    bytes.push(b't');
    bytes.extend(2u32.to_le_bytes());
    bytes.extend([256, rows].iter().flat_map(|dim| dim.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    bytes
}

/// Bytes of 256 values in the format that takes most of them.
const LONGEST_ROW: usize = 292;

/// The numbers that GGUF gives its block formats, from Q4_0 to MXFP4.
const BLOCK_FORMATS: [u8; 21] =
    [2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 29, 39];

/// Every block format: its number, then a row of blocks.
pub fn block_seeds() -> Vec<Vec<u8>> {
    let row: Vec<u8> = (0..LONGEST_ROW).map(|i| (i * 29) as u8 & 0x3f).collect();
    BLOCK_FORMATS.iter().map(|kind| [&[*kind][..], &row].concat()).collect()
}

/// Blocks of any format, of which the first byte says which.
pub fn blocks(input: &[u8]) -> RunOutcome {
    let Some((&kind, data)) = input.split_first() else { return RunOutcome::Refused };
    let file = gguf_of(u32::from(kind % 48), (data.len() / LONGEST_ROW) as u64, data);
    let Ok(file) = TensorFile::from_bytes(file, "t") else { return RunOutcome::Refused };
    for entry in file.entries() {
        // Whatever the bytes, a block stands for numbers.
        let values = entry.read().map(|tensor| tensor.len());
        assert_eq!(values.ok(), Some(entry.len()));
    }
    RunOutcome::Accepted
}

/// Files that PyTorch wrote; nothing here does.
pub fn pt_seeds() -> Vec<Vec<u8>> {
    let files = [
        &include_bytes!("../../../models/tensor/tests/data/lone.pt")[..],
        include_bytes!("../../../models/tensor/tests/data/state.pt"),
    ];
    files.iter().map(|file| file.to_vec()).collect()
}

/// An archive, or the pickle of one with a storage for it to point into.
pub fn pt(input: &[u8]) -> RunOutcome {
    let around = archive(&[("t/data.pkl", input), ("t/data/0", &[7; 96])]);
    read_all(input.to_vec(), "PyTorch").max(read_all(around, "PyTorch"))
}
