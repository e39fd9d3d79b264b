//! Planes of samples with a depth: the only thing a video codec sees.

use crate::Error;

/// How chroma planes relate to luma (`chroma_format_idc` of both standards).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Chroma {
    /// 4:0:0, luma alone.
    C400,
    /// 4:2:0, chroma halved both ways.
    #[default]
    C420,
    /// 4:2:2, chroma halved horizontally.
    C422,
    /// 4:4:4, three planes of one size.
    C444,
}

impl Chroma {
    /// The format that a `chroma_format_idc` stands for.
    pub fn from_idc(idc: u32) -> Option<Self> {
        [Self::C400, Self::C420, Self::C422, Self::C444].get(idc as usize).copied()
    }

    pub fn idc(self) -> u32 {
        self as u32
    }

    /// log2 of SubWidthC and SubHeightC; (0, 0) for 4:0:0, which has no chroma.
    pub fn shift(self) -> (u32, u32) {
        match self {
            Self::C400 | Self::C444 => (0, 0),
            Self::C420 => (1, 1),
            Self::C422 => (1, 0),
        }
    }

    /// 1 or 3.
    pub fn planes(self) -> usize {
        if self == Self::C400 { 1 } else { 3 }
    }

    /// Width and height of plane `c` in a frame of `width` × `height` luma
    /// samples. Odd sizes round up, as raw video files do.
    pub fn plane_size(self, c: usize, width: usize, height: usize) -> (usize, usize) {
        if c == 0 {
            return (width, height);
        }
        let (sx, sy) = self.shift();
        ((width + (1 << sx) - 1) >> sx, (height + (1 << sy) - 1) >> sy)
    }
}

/// What the planes of a frame stand for. The codecs do not care; whoever shows
/// the picture does, so streams carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Colour {
    /// Nobody said: luma and chroma of some video, or no picture at all.
    #[default]
    Unstated,
    /// Green, blue and red as a screen shows them (sRGB).
    Gbr,
}

impl Colour {
    /// colour_primaries, transfer_characteristics and matrix_coefficients, the
    /// same code points in both standards.
    pub fn code_points(self) -> Option<[u8; 3]> {
        match self {
            Self::Unstated => None,
            Self::Gbr => Some([1, 13, 0]),
        }
    }

    /// The colours that matrix_coefficients stand for, where a stream has them.
    pub fn from_matrix_coefficients(code: Option<u8>) -> Self {
        if code == Some(0) { Self::Gbr } else { Self::Unstated }
    }
}

/// One component of a frame, rows without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    pub width: usize,
    pub height: usize,
    /// `width * height` samples, row by row.
    pub samples: Vec<u16>,
}

impl Plane {
    pub fn filled(width: usize, height: usize, value: u16) -> Self {
        Self { width, height, samples: vec![value; width * height] }
    }

    pub fn row(&self, y: usize) -> &[u16] {
        &self.samples[y * self.width..][..self.width]
    }

    /// The samples from a column and row on, so many across and down.
    pub fn crop(&self, (left, top): (usize, usize), (width, height): (usize, usize)) -> Self {
        let mut samples = Vec::with_capacity(width * height);
        (top..top + height).for_each(|y| samples.extend_from_slice(&self.row(y)[left..][..width]));
        Self { width, height, samples }
    }

    /// Row `y`, to write.
    pub fn row_mut(&mut self, y: usize) -> &mut [u16] {
        &mut self.samples[y * self.width..][..self.width]
    }
}

/// A picture: planes of samples with a chroma format and bit depths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub chroma: Chroma,
    /// Bit depth of luma, 8 to 16.
    pub depth: u32,
    /// Bit depth of chroma; equals `depth` in everything we write, but streams may differ.
    pub chroma_depth: u32,
    /// Luma, then Cb and Cr unless 4:0:0.
    pub planes: Vec<Plane>,
}

impl Frame {
    /// A frame of one value in every plane.
    pub fn filled(width: usize, height: usize, chroma: Chroma, depth: u32, value: u16) -> Self {
        let planes = (0..chroma.planes())
            .map(|c| {
                let (w, h) = chroma.plane_size(c, width, height);
                Plane::filled(w, h, value)
            })
            .collect();
        Self { chroma, depth, chroma_depth: depth, planes }
    }

    /// A frame out of raw planar samples (luma first), 8-bit as bytes, deeper
    /// ones as 16-bit little-endian: the layout of `.yuv` and `.gray` files.
    pub fn from_raw(
        bytes: &[u8],
        width: usize,
        height: usize,
        chroma: Chroma,
        depth: u32,
    ) -> Result<Self, Error> {
        let expected = Self::raw_len(width, height, chroma, depth)?;
        if bytes.len() != expected {
            return Err(Error::BadFrame {
                what: format!(
                    "{width}×{height} at {depth} bit takes {expected} bytes, found {}",
                    bytes.len()
                ),
            });
        }
        let mut frame =
            Self { chroma, depth, chroma_depth: depth, planes: Vec::with_capacity(chroma.planes()) };
        let mut rest = bytes;
        let limit = ((1u32 << depth) - 1) as u16;
        for c in 0..chroma.planes() {
            let (w, h) = chroma.plane_size(c, width, height);
            let (head, tail) = rest.split_at(w * h * if depth == 8 { 1 } else { 2 });
            rest = tail;
            let samples: Vec<u16> = match depth {
                8 => head.iter().map(|&b| u16::from(b)).collect(),
                _ => head.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect(),
            };
            if let Some(at) = samples.iter().position(|&s| s > limit) {
                return Err(Error::BadFrame {
                    what: format!("sample {at} of plane {c} is {}, above {limit} ({depth} bit)", samples[at]),
                });
            }
            frame.planes.push(Plane { width: w, height: h, samples });
        }
        Ok(frame)
    }

    /// Bytes of one raw frame, or an error where sizes make no sense.
    pub fn raw_len(width: usize, height: usize, chroma: Chroma, depth: u32) -> Result<usize, Error> {
        if width == 0 || height == 0 {
            return Err(Error::BadFrame { what: format!("{width}×{height} has no samples") });
        }
        if !(8..=16).contains(&depth) {
            return Err(Error::BadFrame { what: format!("bit depth {depth} is outside 8 to 16") });
        }
        let overflow = || Error::BadFrame { what: format!("{width}×{height} is too large") };
        (0..chroma.planes())
            .try_fold(0usize, |sum, c| {
                let (w, h) = chroma.plane_size(c, width, height);
                sum.checked_add(w.checked_mul(h)?)
            })
            .and_then(|samples| samples.checked_mul(if depth == 8 { 1 } else { 2 }))
            .ok_or_else(overflow)
    }

    /// Appends the frame as raw planar samples, the inverse of [`Frame::from_raw`].
    ///
    /// A frame is written at one sample size: 16-bit as soon as one component is deeper than 8.
    pub fn write_raw(&self, out: &mut Vec<u8>) {
        let bytes = self.depth.max(if self.planes.len() > 1 { self.chroma_depth } else { 0 }) <= 8;
        for plane in &self.planes {
            if bytes {
                out.extend(plane.samples.iter().map(|&s| s as u8));
            } else {
                out.extend(plane.samples.iter().flat_map(|s| s.to_le_bytes()));
            }
        }
    }

    pub fn width(&self) -> usize {
        self.planes[0].width
    }

    pub fn height(&self) -> usize {
        self.planes[0].height
    }

    pub fn samples(&self) -> usize {
        self.planes.iter().map(|p| p.samples.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_round_trips_for_every_chroma_and_depth() {
        for chroma in [Chroma::C400, Chroma::C420, Chroma::C422, Chroma::C444] {
            for depth in [8, 10, 16] {
                let mut frame = Frame::filled(7, 5, chroma, depth, 0);
                for plane in &mut frame.planes {
                    for (i, s) in plane.samples.iter_mut().enumerate() {
                        *s = ((i * 37) % (1 << depth)) as u16;
                    }
                }
                let mut raw = Vec::new();
                frame.write_raw(&mut raw);
                assert_eq!(Frame::from_raw(&raw, 7, 5, chroma, depth).unwrap(), frame);
            }
        }
    }

    #[test]
    fn a_sample_above_its_depth_is_an_error() {
        let raw = 1024u16.to_le_bytes();
        assert!(Frame::from_raw(&raw, 1, 1, Chroma::C400, 10).is_err());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Frame::raw_len(0, 4, Chroma::C400, 8).is_err());
        assert!(Frame::raw_len(usize::MAX, usize::MAX, Chroma::C444, 16).is_err());
    }
}
