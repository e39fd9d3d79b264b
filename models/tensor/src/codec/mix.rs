//! Two neighbouring settings of a quantizer, mixed to any rate in between.
//!
//! A share of the groups takes the finer setting. Spread evenly, they keep the
//! error even; in front, they leave an entropy coder with two homogeneous
//! parts, so that its rate grows with the share and does not jump.

use crate::Error;

/// Where the finer groups are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    Spread,
    Front,
}

/// A setting, and how many groups are one finer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    coarse: i8,
    /// The share of values that go by the finer step, in 1/32768.
    finer_share: u16,
    placement: Placement,
}

const WHOLE_BITS: u32 = 15;

impl Mix {
    /// Bytes of a mix: the setting, then the share above a bit for the placement.
    pub(crate) const BYTES: usize = 3;

    /// The mix that a fractional setting stands for.
    pub(crate) fn new(setting: f64, placement: Placement) -> Self {
        let coarse = setting.floor();
        let finer_share = ((setting - coarse) * f64::from(1 << WHOLE_BITS)) as u16;
        Self { coarse: coarse as i8, finer_share, placement }
    }

    /// The setting of one of so many groups.
    pub(crate) fn setting(self, group: usize, groups: usize) -> i32 {
        let finer = |groups: usize| (groups as u64 * u64::from(self.finer_share)) >> WHOLE_BITS;
        let is_finer = match self.placement {
            Placement::Spread => finer(group + 1) > finer(group),
            Placement::Front => (group as u64) < finer(groups),
        };
        i32::from(self.coarse) + i32::from(is_finer)
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let front = u16::from(self.placement == Placement::Front);
        let [low, high] = (self.finer_share << 1 | front).to_le_bytes();
        [self.coarse as u8, low, high]
    }

    /// The mix at the beginning of side information.
    pub(crate) fn read(side: &[u8]) -> Result<Self, Error> {
        let Some(&[coarse, low, high]) = side.first_chunk() else {
            return Err(Error::corrupt(0, "the header is cut"));
        };
        let share = u16::from_le_bytes([low, high]);
        let placement = if share & 1 == 1 { Placement::Front } else { Placement::Spread };
        Ok(Self { coarse: coarse as i8, finer_share: share >> 1, placement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_placements_make_as_many_groups_finer(setting in -5f64..127.0, groups in 1usize..5000) {
            let counts = [Placement::Spread, Placement::Front].map(|placement| {
                let mix = Mix::new(setting, placement);
                prop_assert_eq!(Mix::read(&mix.to_bytes()).unwrap(), mix);
                let coarse = setting.floor() as i32;
                Ok((0..groups).filter(|&group| mix.setting(group, groups) > coarse).count())
            });
            let [spread, front] = counts;
            let (spread, front) = (spread?, front?);
            prop_assert_eq!(spread, front);
            prop_assert!((spread as f64 - setting.fract().rem_euclid(1.0) * groups as f64).abs() <= 1.0 + groups as f64 / 32768.0);
        }
    }
}
