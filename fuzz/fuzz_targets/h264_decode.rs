//! Any bytes as an H.264 stream: no panic, no hang, no allocation that the
//! length of the stream does not justify. Seed it with real streams:
//!
//!   cargo fuzz run -s none h264_decode ../shared/conformance/h264 -- -max_len=4096
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for decoded in trinity_h264::frames(bytes) {
        let Ok(frame) = decoded else { return };
        assert_eq!(frame.planes.len(), frame.chroma.planes());
        assert!(frame.planes.iter().all(|plane| plane.samples.len() == plane.width * plane.height));
    }
});
