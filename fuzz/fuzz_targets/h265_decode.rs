//! Any bytes as an H.265 stream: no panic, no hang, no allocation that the
//! length of the stream does not justify. Seed it with real streams:
//!
//!   cargo fuzz run -s none h265_decode ../shared/conformance/h265 -- -max_len=4096
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for decoded in trinity_h265::frames(bytes) {
        let Ok(decoded) = decoded else { return };
        let frame = decoded.frame;
        assert_eq!(frame.planes.len(), frame.chroma.planes());
        assert!(frame.planes.iter().all(|plane| plane.samples.len() == plane.width * plane.height));
    }
});
