//! What a codec of frames must do to code tensors. Knows no codec.

use trinity_bits::Frame;

use super::tiling::Limits;
use crate::Error;

/// A codec of frames, all intra.
pub(crate) trait FrameCodec: std::fmt::Debug + Send + Sync {
    fn name(&self) -> String;
    fn limits(&self) -> Limits;
    /// QPs to choose from, steps growing.
    fn steps(&self) -> Vec<Step>;
    fn encode(&self, frames: &[Frame], qp: i32) -> Result<Vec<u8>, Error>;
    fn decode(&self, stream: &[u8], size: (usize, usize)) -> Result<Vec<Frame>, Error>;
}

/// A whole QP of a codec, and the QP of H.265 whose step is as large: six to
/// an octave, zero at the same place for every depth of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    pub qp: i32,
    pub even_qp: f64,
}

impl Step {
    /// QPs that are H.265's own.
    pub(crate) fn even(low: i32, high: i32) -> Vec<Self> {
        (low..=high).map(|qp| Self { qp, even_qp: qp.into() }).collect()
    }
}
