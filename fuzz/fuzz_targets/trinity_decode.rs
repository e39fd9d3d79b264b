//! The target `trinity_decode` under libFuzzer; what it does is in `fuzz/targets`.
#![no_main]

trinity_fuzz::fuzz!("trinity_decode");
