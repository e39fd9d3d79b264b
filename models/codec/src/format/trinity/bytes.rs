//! Headers: fixed fields and variable-length integers, read with care.

use crate::Error;

/// Appends an unsigned integer, seven bits per byte, least significant first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated { what })?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn slice(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], Error> {
        let count = usize::try_from(count).map_err(|_| Error::Truncated { what })?;
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Error::Truncated { what })?;
        self.rest = rest;
        Ok(head)
    }

    /// Tiles, and the next bytes of each.
    pub fn tiles<T: Copy>(&mut self, tiles: &[T], lengths: &[u64]) -> Result<Vec<(T, &'a [u8])>, Error> {
        tiles.iter().zip(lengths).map(|(tile, &length)| Ok((*tile, self.slice(length, "tile")?))).collect()
    }

    /// An integer as [`put_varint`] writes it.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = self.array(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Damaged { what: "an integer without an end" })
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}
