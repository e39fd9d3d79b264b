//! A `.tri` container from any bytes: as a whole file, as an index, as a coded slab of each codec,
//! and as damage to a slab that a codec wrote. Checksums are put right, or nothing behind them would
//! ever be reached.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use trinity_tensor::codec::{Target, codec};
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

const CODECS: [&str; 21] = [
    "zstd",
    "uniform+ac",
    "rtn",
    "rtn-128g",
    "nf4",
    "mxfp4",
    "mxint8",
    "int+huffman",
    "int+deflate",
    "int+lz4",
    "int+cabac",
    "mxfp+zstd",
    "trinity",
    "trinity-lite",
    "paper",
    "paper-cabac",
    "h265",
    "h264",
    "h265-444",
    "hadamard/uniform+ac",
    "residual/uniform+ac/rtn-128g",
];

/// What each codec makes of a small matrix: streams to damage, so that an input
/// gets past the headers that it would hardly guess.
static WHOLE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let values: Vec<f32> = (0..ROWS as u32 * COLS as u32)
        .map(|i| (i as f32 * 0.11).sin() + (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0)
        .collect();
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = vec![usize::from(ROWS), usize::from(COLS)];
    let tensor = Tensor::new("t", Class::Weight, Dtype::F32, shape, data).unwrap();
    let slab = |name: &&str| {
        let target = if *name == "zstd" { Target::Lossless } else { Target::Nmse(0.03) };
        codec(name).unwrap().encode(&tensor, target).unwrap().bytes
    };
    CODECS.iter().map(slab).collect()
});
const ROWS: u8 = 40;
const COLS: u8 = 48;

fuzz_target!(|input: &[u8]| {
    read_all(input.to_vec());
    read_all(container(&[], input));
    let [codec, rows, cols, rest @ ..] = input else { return };
    let index = usize::from(*codec & 0x7f) % CODECS.len();
    if codec & 0x80 == 0 {
        read_all(with_slab(CODECS[index], *rows, *cols, rest));
    } else {
        read_all(with_slab(CODECS[index], ROWS, COLS, &damaged(&WHOLE[index], rest)));
    }
});

/// A stream with every four bytes of an input as one change: a place, then
/// bits to flip, or what to cut off or put in.
fn damaged(whole: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut slab = whole.to_vec();
    for &[low, high, kind, value] in changes.as_chunks::<4>().0 {
        let place = usize::from(u16::from_le_bytes([low, high])) % (slab.len() + 1);
        match (kind % 8, slab.get_mut(place)) {
            (0, _) => slab.truncate(place),
            (1, _) => slab.insert(place, value),
            (_, Some(byte)) => *byte ^= value,
            (_, None) => slab.push(value),
        }
    }
    slab
}

/// A file of one tensor with one slab.
fn with_slab(codec: &str, rows: u8, cols: u8, slab: &[u8]) -> Vec<u8> {
    let mut index = vec![0; 4]; // no texts
    index.extend(1u32.to_le_bytes());
    index.extend(1u16.to_le_bytes());
    index.push(b't');
    index.push(codec.len() as u8);
    index.extend(codec.as_bytes());
    index.extend([0, 1, 2]); // class, number format, dimensions
    index.extend(u64::from(rows).to_le_bytes());
    index.extend(u64::from(cols).to_le_bytes());
    index.extend((1u32 << 21).to_le_bytes());
    index.extend(1u32.to_le_bytes());
    index.extend((slab.len() as u32).to_le_bytes());
    index.extend(crc(slab).to_le_bytes());
    container(slab, &index)
}

/// Slabs and an index with the header that belongs to them.
fn container(slabs: &[u8], index: &[u8]) -> Vec<u8> {
    let mut bytes = b"TRIN\x01\0\0\0".to_vec();
    bytes.extend((32 + slabs.len() as u64).to_le_bytes());
    bytes.extend((index.len() as u64).to_le_bytes());
    bytes.extend(crc(index).to_le_bytes());
    bytes.extend(crc(&bytes).to_le_bytes());
    bytes.extend(slabs);
    bytes.extend(index);
    bytes
}

/// CRC-32, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn read_all(bytes: Vec<u8>) {
    if let Ok(file) = TensorFile::from_bytes(bytes, "t") {
        for entry in file.entries() {
            // A file may state sizes that it does not hold; values are only asked for where they fit.
            if entry.len() < 1 << 20 {
                let _ = entry.read();
            }
        }
    }
}
