//! profile_tier_level() (H.265 clause 7.3.3).

use trinity_bits::{BitReader, BitWriter};

use super::BitstreamError;

/// The general profile, tier and level; sub-layers are read over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileTierLevel {
    pub profile_space: u8,
    /// general_tier_flag: the High tier.
    pub high_tier: bool,
    pub profile_idc: u8,
    /// general_profile_compatibility_flag\[j\] in bit 31 − j.
    pub compatibility: u32,
    /// The 48 bits from general_progressive_source_flag on, first bit highest.
    pub constraints: u64,
    /// 30 times the level number.
    pub level_idc: u8,
}

impl ProfileTierLevel {
    pub fn parse(r: &mut BitReader<'_>, sub_layers: u32) -> Result<Self, BitstreamError> {
        let profile_space = r.bits(2)? as u8;
        let high_tier = r.flag()?;
        let profile_idc = r.bits(5)? as u8;
        let compatibility = r.bits(32)?;
        let constraints = (u64::from(r.bits(16)?) << 32) | u64::from(r.bits(32)?);
        let level_idc = r.bits(8)? as u8;
        let below = sub_layers.saturating_sub(1);
        let mut present = Vec::with_capacity(below as usize);
        for _ in 0..below {
            present.push((r.flag()?, r.flag()?));
        }
        if below > 0 {
            r.skip(2 * (8 - below))?;
        }
        for (profile, level) in present {
            if profile {
                r.skip(88)?;
            }
            if level {
                r.skip(8)?;
            }
        }
        Ok(Self { profile_space, high_tier, profile_idc, compatibility, constraints, level_idc })
    }

    /// Writes the structure for one sub-layer.
    pub fn write(&self, w: &mut BitWriter) {
        w.bits(u32::from(self.profile_space), 2);
        w.flag(self.high_tier);
        w.bits(u32::from(self.profile_idc), 5);
        w.bits(self.compatibility, 32);
        w.bits((self.constraints >> 32) as u32 & 0xffff, 16);
        w.bits(self.constraints as u32, 32);
        w.bits(u32::from(self.level_idc), 8);
    }

    /// The profile's name, as Annex A groups them.
    pub fn name(&self) -> &'static str {
        match self.profile_idc {
            1 => "Main",
            2 => "Main 10",
            3 => "Main Still Picture",
            4 => "format range extensions",
            5 => "high throughput",
            9 => "screen content",
            11 => "high throughput screen content",
            _ => "another profile",
        }
    }
}
