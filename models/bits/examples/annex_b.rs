//! Writes two NAL units as an Annex B stream and finds them again:
//!
//! ```text
//! cargo run -p trinity-bits --example annex_b
//! ```
#![allow(clippy::print_stdout)]

use trinity_bits::{BitWriter, nal};

fn main() {
    let mut stream = Vec::new();
    for number in [0u32, 1000] {
        let mut payload = BitWriter::new();
        payload.bits(0x4201, 16);
        payload.ue(number);
        payload.trailing_bits();
        nal::write_unit(&mut stream, &payload.into_bytes());
    }
    for unit in nal::units(&stream) {
        println!("NAL unit at byte {}, {} bytes", unit.offset, unit.bytes.len());
    }
}
