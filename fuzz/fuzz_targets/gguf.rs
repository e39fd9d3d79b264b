//! The target `gguf` under libFuzzer; what it does is in `fuzz/targets`.
#![no_main]

trinity_fuzz::fuzz!("gguf");
