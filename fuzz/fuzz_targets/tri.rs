//! A `.tri` container from any bytes: as a whole file, as an index, and as a coded slab of each
//! codec. Checksums are put right, or nothing behind them would ever be reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_tensor::TensorFile;

const CODECS: [&str; 18] = [
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
    "h265",
    "h264",
    "h265-444",
    "hadamard/uniform+ac",
    "residual/uniform+ac/rtn-128g",
];

fuzz_target!(|input: &[u8]| {
    read_all(input.to_vec());
    read_all(container(&[], input));
    let [codec, rows, cols, slab @ ..] = input else { return };
    let name = CODECS[usize::from(*codec) % CODECS.len()];
    let mut index = vec![0; 4]; // no texts
    index.extend(1u32.to_le_bytes());
    index.extend(1u16.to_le_bytes());
    index.push(b't');
    index.push(name.len() as u8);
    index.extend(name.as_bytes());
    index.extend([0, 0, 2]); // class, number format, dimensions
    index.extend(u64::from(*rows).to_le_bytes());
    index.extend(u64::from(*cols).to_le_bytes());
    index.extend((1u32 << 21).to_le_bytes());
    index.extend(1u32.to_le_bytes());
    index.extend((slab.len() as u32).to_le_bytes());
    index.extend(crc(slab).to_le_bytes());
    read_all(container(slab, &index));
});

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
