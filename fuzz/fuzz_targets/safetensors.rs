//! safetensors from any bytes: the input is a header; its length and some data are put around it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_tensor::TensorFile;

fuzz_target!(|input: &[u8]| {
    read_all(input.to_vec());
    // A random length prefix is nearly always wrong: also try the right one.
    let mut framed = (input.len() as u64).to_le_bytes().to_vec();
    framed.extend_from_slice(input);
    framed.extend_from_slice(&[0x3c; 64]);
    read_all(framed);
});

fn read_all(bytes: Vec<u8>) {
    if let Ok(file) = TensorFile::from_bytes(bytes, "t") {
        for entry in file.entries() {
            let _ = entry.read();
        }
    }
}
