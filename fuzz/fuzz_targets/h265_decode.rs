//! The target `h265_decode` under libFuzzer; what it does is in `fuzz/targets`.
#![no_main]

trinity_fuzz::fuzz!("h265_decode");
