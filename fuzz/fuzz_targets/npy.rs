//! npy and npz from any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_tensor::TensorFile;

fuzz_target!(|input: &[u8]| {
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    npy.extend_from_slice(input);
    read_all(npy);
    let mut npz = b"PK\x03\x04".to_vec();
    npz.extend_from_slice(input);
    read_all(npz);
});

fn read_all(bytes: Vec<u8>) {
    if let Ok(file) = TensorFile::from_bytes(bytes, "t") {
        for entry in file.entries() {
            let _ = entry.read();
        }
    }
}
