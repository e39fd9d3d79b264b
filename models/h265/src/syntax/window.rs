//! A window inside a picture.

use trinity_bits::{BitReader, BitWriter};

use super::BitstreamError;

/// Distances from the picture's borders, in chroma units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    pub left: u32,
    pub right: u32,
    pub top: u32,
    pub bottom: u32,
}

impl Window {
    pub(super) fn parse(r: &mut BitReader<'_>) -> Result<Self, BitstreamError> {
        Ok(Self { left: r.ue()?, right: r.ue()?, top: r.ue()?, bottom: r.ue()? })
    }

    pub(super) fn write(&self, w: &mut BitWriter) {
        for distance in [self.left, self.right, self.top, self.bottom] {
            w.ue(distance);
        }
    }
}
