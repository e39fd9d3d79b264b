//! Engines and coded wires against the recording of an H200.
//!
//! Decoding is predicted by a fit that never saw the picture size or the bit
//! rate it is asked about; a tensor that is encoded, sent and decoded picture
//! by picture, by the closed form that sweeps use for every coded message.

use crate::Error;
use crate::score::Pair;
use trinity_hwcodec::fit;
use trinity_hwcodec::recording::Recording;
use trinity_sim::compression::Stages;

/// The committed recording, as it is on disk.
pub static RECORDING: &str = include_str!("../data/h200/recording.json");

/// Values of one picture that crossed the wire: 1024 × 1024 samples.
const PICTURE_VALUES: f64 = 1024.0 * 1024.0;
/// Raw bits of a value on the wire.
const RAW_BITS: f64 = 16.0;

/// The committed recording.
pub fn recording() -> Result<Recording, Error> {
    Recording::parse(RECORDING).map_err(|why| Error::Data { file: "h200/recording.json", why })
}

/// Seconds a picture, for points that the fit did not see.
pub fn decoders(recording: &Recording) -> Vec<Pair> {
    fit::decode_unseen(recording)
        .into_iter()
        .map(|unseen| {
            let point = &unseen.point;
            Pair {
                what: format!(
                    "{} decode, {}×{} at {:.2} bits a value",
                    point.standard.name(),
                    point.width,
                    point.height,
                    point.bits_per_value
                ),
                predicted: unseen.predicted_s,
                measured: point.seconds_per_picture.median,
            }
        })
        .collect()
}

/// Seconds a tensor takes from encoder to decoder over a wire, the three
/// overlapped picture by picture.
pub fn wires(recording: &Recording) -> Vec<Pair> {
    recording
        .wires
        .iter()
        .map(|point| {
            let stages = Stages {
                encode_s: point.encode_s,
                wire_s: point.coded_bits / point.wire_bits_per_s,
                decode_s: point.decode_s,
                chunks: (point.raw_bits / RAW_BITS / PICTURE_VALUES).max(1.0),
            };
            Pair {
                what: format!(
                    "{} over {} Mbit/s, encoded by {}",
                    point.standard.name(),
                    point.wire_bits_per_s / 1e6,
                    point.encoder
                ),
                predicted: stages.pipelined_s(),
                measured: point.dual_lane_s,
            }
        })
        .collect()
}
