//! The Trinity codec: matrices of numbers and pictures through one chain of
//! stages, each chosen by rate–distortion cost and signalled in the stream.
//!
//! ```
//! use trinity_codec::{Profile, Rate, decode, encode};
//! let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
//! let profile = Profile::named("trinity")?;
//! let encoded = encode(&values, 64, 96, &profile, Rate::Bits(3.0))?;
//! assert!(8 * encoded.bytes.len() <= 3 * values.len());
//! assert_eq!(decode(&encoded.bytes)?.values, encoded.recon);
//! # Ok::<(), trinity_codec::Error>(())
//! ```
//!
//! The key decision: nothing that a value's parsing needs comes from its own
//! row. Contexts are running column scales of the rows above times a signalled
//! row class; the learned transform turns levels into values after parsing.
//! So trellis search sees exact rates, the entropy decoder runs without
//! waiting, and every integer that decides a bit is an integer.
//!
//! Knows matrices and frames; knows no files and no tensors' names. The
//! bitstream is described in `src/format/trinity/FORMAT.md`.
// The written-out kernels for AVX2 and AVX-512, each beside its scalar twin, need it.
#![deny(unsafe_code)]

mod bits;
mod entropy;
mod error;
mod format;
pub mod line;
mod matrix;
mod search;
mod stage;

pub use bits::Bits;
pub use error::Error;
pub use format::trinity::decoder::{decode, decode_with_basis, decode_words};
pub use format::trinity::lossless::Words;
pub use format::trinity::pictures::{
    Coding, EncodedFrames, Pictures, decode_frames, encode_frames, starts_pictures,
};
pub use format::trinity::plan::{Entropy, Plan, Prediction};
pub use matrix::Matrix;
pub use search::profile::{
    EntropyChoice, Orientation, Paper, PaperEntropy, Parallel, Pipeline, Profile, Quantization, Stages,
};
pub use search::report::{Encoded, Report, StageCost};
pub use search::rules::{Rule, Rules, TUNED};
pub use search::weighted::{Inputs, Moments};
pub use stage::basis::Basis;
pub use stage::means::MeanOf;
pub use stage::precondition::{Preconditioning, hadamard};
pub use stage::transform::{Family, Transform};
pub use trinity_bits::Rate;

/// Encodes a matrix in row order.
///
/// `Rate::Lossless`, or a profile of the lossless pipeline, keeps every bit
/// of the values, NaN payloads included; otherwise values must be finite.
pub fn encode(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Rate,
) -> Result<Encoded, Error> {
    if let Rate::Qp(_) | Rate::Mse(_) = target {
        return Err(Error::BadTarget { what: format!("{target} is for pictures") });
    }
    match (profile.pipeline, target) {
        (_, Rate::Lossless) | (Pipeline::Lossless, _) => {
            format::trinity::lossless::encode(values, rows, cols)
        }
        (Pipeline::Trinity, _) => search::lossy::encode(values, rows, cols, profile, target, None),
        (Pipeline::Paper, _) => format::trinity::paper::encode(values, rows, cols, profile, target),
    }
}

/// As [`encode`], of values that are first expressed in a basis both sides have, if that
/// costs less than leaving them. The stream then names the basis by its hash
/// and can be decoded with it alone.
pub fn encode_with_basis(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Rate,
    basis: &Basis,
) -> Result<Encoded, Error> {
    match (profile.pipeline, target) {
        (Pipeline::Trinity, Rate::Bits(_) | Rate::Nmse(_) | Rate::Step(_)) => {
            search::lossy::encode(values, rows, cols, profile, target, Some(basis))
        }
        _ => Err(Error::Unsupported {
            tool: "a basis",
            reason: "it belongs to the lossy pipeline of the trinity profiles",
        }),
    }
}

/// As [`encode`], for a weight: the error is weighed by the second moments of
/// the inputs that it is multiplied with, which are its columns or its rows, and
/// what coding does to one input's weights is made good by those after it. The
/// stream is like any other; [`decode`] needs no moments.
pub fn encode_weighted(
    values: &[f32],
    rows: usize,
    cols: usize,
    profile: &Profile,
    target: Rate,
    moments: Moments<'_>,
) -> Result<Encoded, Error> {
    match (profile.pipeline, target) {
        (Pipeline::Trinity, Rate::Bits(_) | Rate::Nmse(_)) => {
            search::weighted::encode(values, rows, cols, profile, target, moments)
        }
        _ => Err(Error::Unsupported {
            tool: "calibrated coding",
            reason: "it belongs to the lossy pipeline of the trinity profiles, to a rate or an error",
        }),
    }
}

/// Encodes 32-bit words exactly, each read as the pattern of a
/// single-precision value. Integers of up to 24 bits and half-precision
/// formats, converted to single precision, pay for their own bits only.
pub fn encode_words(words: &[u32], rows: usize, cols: usize) -> Result<Vec<u8>, Error> {
    format::trinity::lossless::encode_words(words, rows, cols)
}
