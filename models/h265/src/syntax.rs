//! High-level syntax (H.265 clause 7.3.1 to 7.3.6): parameter sets and slice
//! headers, read and written bit for bit.
//!
//! Plain data in and out. What a parameter set means for reconstruction is
//! worked out where it is used.

mod nal_type;
pub(crate) mod picture_hash;
mod pps;
mod profile;
mod range;
mod scaling_list;
mod slice_header;
mod sps;
mod vps;
mod vui;
mod window;

pub use nal_type::{NalHeader, NalType};
pub use picture_hash::HashCheck;
pub use pps::{ChromaQpOffsets, DeblockingControl, Pps, PpsRangeExtension, Tiles};
pub use profile::ProfileTierLevel;
pub use scaling_list::ScalingList;
pub use slice_header::{SliceHeader, SliceType};
pub use sps::{DpbLimits, Pcm, ScreenContent, ShortTermRefPicSet, Sps, SpsRangeExtension};
pub use trinity_bits::BitstreamError;
pub use vps::Vps;
pub use vui::Vui;
pub use window::Window;
