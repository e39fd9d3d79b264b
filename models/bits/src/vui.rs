//! The start of vui_parameters(), which both standards have alike (Annex E):
//! how pictures are to be shown. What follows differs, and lives in their own
//! crates. No sample depends on any of it.

use crate::{BitReader, BitWriter, Colour, Error};

/// How pictures are to be shown, as far as anyone said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Presentation {
    /// Frames per second, as a fraction.
    pub frame_rate: Option<(u32, u32)>,
    /// Width to height of a sample, as a fraction.
    pub sample_aspect: Option<(u16, u16)>,
    /// Whether samples span all their codes (video_full_range_flag).
    pub full_range: Option<bool>,
    /// Where chroma samples lie (chroma_sample_loc_type).
    pub chroma_location: Option<u8>,
}

/// From aspect_ratio_info_present_flag to the chroma sample locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    pub sample_aspect: Option<(u16, u16)>,
    pub full_range: Option<bool>,
    /// colour_primaries, transfer_characteristics, matrix_coefficients.
    pub colour: Option<[u8; 3]>,
    pub chroma_location: Option<u8>,
}

/// aspect_ratio_idc from 1 on (Table E-1).
const ASPECTS: [(u16, u16); 16] = [
    (1, 1),
    (12, 11),
    (10, 11),
    (16, 11),
    (40, 33),
    (24, 11),
    (20, 11),
    (32, 11),
    (80, 33),
    (18, 11),
    (15, 11),
    (64, 33),
    (160, 99),
    (4, 3),
    (3, 2),
    (2, 1),
];
const EXTENDED_SAR: u32 = 255;

impl Start {
    pub fn new(colour: Colour, shown: &Presentation) -> Self {
        let codes = colour.code_points();
        Self {
            sample_aspect: shown.sample_aspect,
            // What a screen shows has no head- and footroom.
            full_range: codes.map(|_| true).or(shown.full_range),
            colour: codes,
            chroma_location: shown.chroma_location,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn write(&self, w: &mut BitWriter) {
        w.flag(self.sample_aspect.is_some());
        if let Some(aspect) = self.sample_aspect {
            match ASPECTS.iter().position(|known| *known == aspect) {
                Some(index) => w.bits(index as u32 + 1, 8),
                None => {
                    w.bits(EXTENDED_SAR, 8);
                    w.bits(aspect.0.into(), 16);
                    w.bits(aspect.1.into(), 16);
                }
            }
        }
        w.flag(false); // overscan_info_present_flag
        let signal_type = self.full_range.is_some() || self.colour.is_some();
        w.flag(signal_type);
        if signal_type {
            w.bits(5, 3); // video_format: unspecified
            w.flag(self.full_range.unwrap_or(false));
            w.flag(self.colour.is_some());
            for code in self.colour.into_iter().flatten() {
                w.bits(code.into(), 8);
            }
        }
        w.flag(self.chroma_location.is_some());
        if let Some(location) = self.chroma_location {
            w.ue(location.into()); // of the top field
            w.ue(location.into());
        }
    }

    pub fn parse(r: &mut BitReader<'_>) -> Result<Self, Error> {
        let mut start = Self::default();
        if r.flag()? {
            start.sample_aspect = match r.bits(8)? {
                EXTENDED_SAR => Some((r.bits(16)? as u16, r.bits(16)? as u16)),
                index => ASPECTS.get((index as usize).wrapping_sub(1)).copied(),
            };
        }
        if r.flag()? {
            r.skip(1)?; // overscan_appropriate_flag
        }
        if r.flag()? {
            r.skip(3)?; // video_format
            start.full_range = Some(r.flag()?);
            if r.flag()? {
                start.colour = Some([r.bits(8)? as u8, r.bits(8)? as u8, r.bits(8)? as u8]);
            }
        }
        if r.flag()? {
            start.chroma_location = u8::try_from(r.ue()?).ok();
            r.ue()?; // chroma_sample_loc_type_bottom_field
        }
        Ok(start)
    }

    /// How pictures are to be shown, with the frame rate that the rest of the VUI states.
    pub fn presentation(&self, frame_rate: Option<(u32, u32)>) -> Presentation {
        Presentation {
            frame_rate: frame_rate.filter(|&(frames, seconds)| frames > 0 && seconds > 0),
            sample_aspect: self.sample_aspect.filter(|&(width, height)| width > 0 && height > 0),
            full_range: self.full_range,
            chroma_location: self.chroma_location,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_reads_back() {
        let aspects = [None, Some((1, 1)), Some((2, 1)), Some((128, 117))];
        for sample_aspect in aspects {
            for full_range in [None, Some(false), Some(true)] {
                for chroma_location in [None, Some(0), Some(2)] {
                    let shown = Presentation { frame_rate: None, sample_aspect, full_range, chroma_location };
                    for colour in [Colour::Unstated, Colour::Gbr] {
                        let start = Start::new(colour, &shown);
                        let mut w = BitWriter::new();
                        start.write(&mut w);
                        w.trailing_bits();
                        let bytes = w.into_bytes();
                        assert_eq!(Start::parse(&mut BitReader::new(&bytes)).unwrap(), start);
                    }
                }
            }
        }
    }
}
