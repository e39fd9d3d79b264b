//! GGUF from any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_tensor::TensorFile;

fuzz_target!(|input: &[u8]| {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend_from_slice(input);
    if let Ok(file) = TensorFile::from_bytes(bytes, "t") {
        for entry in file.entries() {
            let _ = entry.read();
        }
    }
});
