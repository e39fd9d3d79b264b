//! Any bytes as a stream of the Trinity codec: matrices, words and pictures;
//! and as a basis.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = trinity_codec::decode(bytes);
    let _ = trinity_codec::decode_words(bytes);
    let _ = trinity_codec::Basis::from_bytes(bytes);
    if bytes.starts_with(b"TC") {
        let _ = trinity_codec::decode_frames(bytes);
    }
});
