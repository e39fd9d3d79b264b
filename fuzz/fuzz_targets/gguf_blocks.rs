//! Every block format of GGUF from any bytes: the first says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trinity_tensor::TensorFile;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, data)) = input.split_first() else { return };
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.push(b't');
    bytes.extend(2u32.to_le_bytes());
    bytes.extend(256u64.to_le_bytes());
    bytes.extend((data.len() as u64 / 292).to_le_bytes());
    bytes.extend(u32::from(kind % 48).to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    if let Ok(file) = TensorFile::from_bytes(bytes, "t") {
        for entry in file.entries() {
            let values = entry.read().map(|tensor| tensor.len());
            assert_eq!(values.ok(), Some(entry.len()));
        }
    }
});
