//! The decoded picture hash SEI message (H.265 clauses D.2.19 and D.3.19).

use md5::{Digest, Md5};
use trinity_bits::{BitReader, BitWriter, Plane};

/// payloadType of the message.
const DECODED_PICTURE_HASH: u32 = 132;

/// A hash of each component, as sent with a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PictureHash {
    Md5(Vec<[u8; 16]>),
    Crc(Vec<u16>),
    Checksum(Vec<u32>),
}

/// How a decoded picture compares with the hash sent with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashCheck {
    /// The stream carries none.
    Absent,
    /// Every component agrees.
    Match,
    /// This component (0 luma, 1 Cb, 2 Cr) is the first that disagrees.
    Mismatch { component: usize },
}

/// Finds a picture hash among the messages of an SEI RBSP (after the NAL unit
/// header). Damaged messages are none: SEI never changes what is decoded.
pub(crate) fn find(rbsp: &[u8], components: usize) -> Option<PictureHash> {
    let mut r = BitReader::new(rbsp);
    while r.more_rbsp_data() {
        let kind = extended_number(&mut r)?;
        let length = extended_number(&mut r)? as usize;
        let payload = r.rest().get(..length)?;
        if kind == DECODED_PICTURE_HASH {
            return parse(payload, components);
        }
        r.skip(u32::try_from(length * 8).ok()?).ok()?;
    }
    None
}

/// payload_type or payload_size: bytes of 255 and one more.
fn extended_number(r: &mut BitReader<'_>) -> Option<u32> {
    let mut number = 0u32;
    loop {
        let byte = r.bits(8).ok()?;
        number = number.checked_add(byte)?;
        if byte != 255 {
            return Some(number);
        }
    }
}

fn parse(payload: &[u8], components: usize) -> Option<PictureHash> {
    let (&kind, rest) = payload.split_first()?;
    match kind {
        0 => hashes(rest, components, |hash| hash).map(PictureHash::Md5),
        1 => hashes(rest, components, u16::from_be_bytes).map(PictureHash::Crc),
        2 => hashes(rest, components, u32::from_be_bytes).map(PictureHash::Checksum),
        _ => None,
    }
}

/// One hash of `N` bytes for each component.
fn hashes<const N: usize, T>(bytes: &[u8], components: usize, of: fn([u8; N]) -> T) -> Option<Vec<T>> {
    let hashes: Vec<T> = bytes.as_chunks().0.iter().take(components).map(|&hash| of(hash)).collect();
    (hashes.len() == components).then_some(hashes)
}

impl PictureHash {
    /// Compares whole planes, before cropping. `depths` are luma's and chroma's.
    pub fn check(&self, planes: &[&Plane], depths: [u32; 2]) -> HashCheck {
        for (component, plane) in planes.iter().enumerate() {
            let depth = depths[component.min(1)];
            let agrees = match self {
                Self::Md5(hashes) => hashes.get(component) == Some(&md5(plane, depth)),
                Self::Crc(hashes) => hashes.get(component) == Some(&crc(plane, depth)),
                Self::Checksum(hashes) => hashes.get(component) == Some(&checksum(plane, depth)),
            };
            if !agrees {
                return HashCheck::Mismatch { component };
            }
        }
        HashCheck::Match
    }
}

/// The RBSP of a picture hash message: the MD5 of every plane, before cropping.
pub(crate) fn md5_message(planes: &[Plane], depth: u32) -> Vec<u8> {
    let mut w = BitWriter::new();
    w.bits(DECODED_PICTURE_HASH, 8);
    w.bits(1 + 16 * planes.len() as u32, 8);
    w.bits(0, 8); // hash_type: MD5
    for plane in planes {
        w.extend(&md5(plane, depth));
    }
    w.trailing_bits();
    w.into_bytes()
}

/// picture_md5 of one component: samples as bytes, or little-endian pairs
/// above 8 bit.
pub fn md5(plane: &Plane, depth: u32) -> [u8; 16] {
    let mut hasher = Md5::new();
    let mut bytes = Vec::with_capacity(plane.width * 2);
    for y in 0..plane.height {
        bytes.clear();
        if depth <= 8 {
            bytes.extend(plane.row(y).iter().map(|&s| s as u8));
        } else {
            bytes.extend(plane.row(y).iter().flat_map(|s| s.to_le_bytes()));
        }
        hasher.update(&bytes);
    }
    hasher.finalize().into()
}

/// picture_crc of one component: CRC-16-CCITT over the bits of the samples.
fn crc(plane: &Plane, depth: u32) -> u16 {
    let mut crc = 0xffff_u32;
    let mut push = |bit: u32| {
        let carry = (crc >> 15) & 1;
        crc = (((crc << 1) | bit) & 0xffff) ^ (carry * 0x1021);
    };
    for &sample in &plane.samples {
        for bit in (0..8).rev() {
            push(u32::from(sample >> bit) & 1);
        }
        if depth > 8 {
            for bit in (8..16).rev() {
                push(u32::from(sample >> bit) & 1);
            }
        }
    }
    for _ in 0..16 {
        push(0);
    }
    crc as u16
}

fn checksum(plane: &Plane, depth: u32) -> u32 {
    let mut sum = 0u32;
    for y in 0..plane.height {
        for (x, &sample) in plane.row(y).iter().enumerate() {
            let mask = ((x & 0xff) ^ (y & 0xff) ^ (x >> 8) ^ (y >> 8)) as u32;
            sum = sum.wrapping_add((u32::from(sample) & 0xff) ^ mask);
            if depth > 8 {
                sum = sum.wrapping_add((u32::from(sample) >> 8) ^ mask);
            }
        }
    }
    sum
}
