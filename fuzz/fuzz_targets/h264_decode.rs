//! The target `h264_decode` under libFuzzer; what it does is in `fuzz/targets`.
#![no_main]

trinity_fuzz::fuzz!("h264_decode");
