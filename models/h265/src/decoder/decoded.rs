//! What the decoder gives for each picture.

use trinity_bits::Frame;

use super::slice::BitCounts;
use crate::syntax::{HashCheck, SliceType};

#[derive(Debug, Clone)]
pub struct Decoded {
    pub frame: Frame,
    /// PicOrderCntVal.
    pub poc: i32,
    /// What the picture hash SEI says about it.
    pub hash: HashCheck,
    /// Where its bits went.
    pub bits: BitCounts,
    pub slices: Vec<SliceType>,
}
