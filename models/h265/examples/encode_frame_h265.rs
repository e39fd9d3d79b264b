//! Encodes a synthetic picture at three rates and decodes it again:
//!
//! ```text
//! cargo run --release -p trinity-h265 --example encode_frame_h265
//! ```
#![allow(clippy::print_stdout)]

use trinity_bits::{Chroma, Frame};
use trinity_h265::{Error, Params, Preset, Rate, decode, encode};

fn main() -> Result<(), Error> {
    let mut frame = Frame::filled(256, 256, Chroma::C400, 8, 0);
    for (i, sample) in frame.planes[0].samples.iter_mut().enumerate() {
        let (x, y) = (i % 256, i / 256);
        *sample = ((x * y / 97 + x) % 251) as u16;
    }
    let frames = [frame];
    for rate in [Rate::Bits(1.0), Rate::Bits(2.5), Rate::Lossless] {
        let coded = encode(&frames, &Params { rate, preset: Preset::Medium, ..Params::default() })?;
        let same = decode(&coded.stream)? == coded.recon;
        let bits = coded.bits_per_sample(&frames);
        println!("{rate:?}: {bits:.3} bits per sample, MSE {:.3}, decodes as promised: {same}", coded.mse);
    }
    Ok(())
}
