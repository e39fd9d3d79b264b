//! Integers of headers: Exp-Golomb codes of any order.

use crate::{BitReader, BitWriter, Error};

/// 0, −1, 1, −2, … as 0, 1, 2, 3, ….
pub fn zigzag(value: i32) -> u32 {
    (value << 1 ^ value >> 31) as u32
}

pub fn unzigzag(code: u32) -> i32 {
    (code >> 1) as i32 ^ -((code & 1) as i32)
}

/// Exp-Golomb of an order: the upper bits as ue(v), then `order` bits.
pub fn put_golomb(out: &mut BitWriter, value: u32, order: u32) {
    out.ue(value >> order);
    out.bits(value & ((1 << order) - 1), order);
}

/// What [`put_golomb`] wrote, with an order of at most 15.
pub fn get_golomb(bits: &mut BitReader<'_>, order: u32) -> Result<u32, Error> {
    let bit = bits.position();
    let upper = bits.ue()?;
    if upper > u32::MAX >> 16 {
        return Err(Error::BadExpGolomb { bit });
    }
    Ok(upper << order | bits.bits(order)?)
}

pub fn golomb_bits(value: u32, order: u32) -> u64 {
    u64::from(2 * ((value >> order) + 1).ilog2() + 1 + order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_and_take_the_bits_that_were_said() {
        let values = [0, 1, -1, 7, -300, 32767, -32768];
        for order in 0..16 {
            let mut out = BitWriter::new();
            values.iter().for_each(|&value| put_golomb(&mut out, zigzag(value), order));
            assert_eq!(out.position(), values.iter().map(|&v| golomb_bits(zigzag(v), order)).sum::<u64>());
            let bytes = out.into_bytes();
            let mut bits = BitReader::new(&bytes);
            for value in values {
                assert_eq!(get_golomb(&mut bits, order).map(unzigzag), Ok(value), "{order}");
            }
        }
    }
}
