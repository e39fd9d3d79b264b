//! video_parameter_set_rbsp() (H.265 clause 7.3.2.1).
//!
//! Nothing in it changes how a single-layer picture is decoded; it is written
//! because the standard wants one, and read to be shown.

use trinity_bits::{BitReader, BitWriter};

use super::{BitstreamError, DpbLimits, ProfileTierLevel};

/// What a VPS says about its base layer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vps {
    pub id: u8,
    pub max_layers: u8,
    pub max_sub_layers: u8,
    pub profile: ProfileTierLevel,
    pub dpb: DpbLimits,
}

impl Vps {
    /// Reads an RBSP after its NAL unit header.
    pub fn parse(rbsp: &[u8]) -> Result<Self, BitstreamError> {
        let mut r = BitReader::new(rbsp);
        let id = r.bits(4)? as u8;
        r.skip(2)?;
        let max_layers = r.bits(6)? as u8 + 1;
        let max_sub_layers = r.bits(3)? + 1;
        r.skip(1 + 16)?;
        let profile = ProfileTierLevel::parse(&mut r, max_sub_layers)?;
        let dpb = DpbLimits::parse(&mut r, max_sub_layers)?;
        Ok(Self { id, max_layers, max_sub_layers: max_sub_layers as u8, profile, dpb })
    }

    /// The RBSP after the NAL unit header, for one layer and sub-layer.
    pub fn write(&self) -> Vec<u8> {
        let mut w = BitWriter::new();
        w.bits(u32::from(self.id), 4);
        w.bits(0b11, 2); // base layer internal and available
        w.bits(0, 6); // vps_max_layers_minus1
        w.bits(0, 3); // vps_max_sub_layers_minus1
        w.flag(true); // vps_temporal_id_nesting_flag
        w.bits(0xffff, 16);
        self.profile.write(&mut w);
        self.dpb.write(&mut w);
        w.bits(0, 6); // vps_max_layer_id
        w.ue(0); // vps_num_layer_sets_minus1
        w.flag(false); // vps_timing_info_present_flag
        w.flag(false); // vps_extension_flag
        w.trailing_bits();
        w.into_bytes()
    }
}
