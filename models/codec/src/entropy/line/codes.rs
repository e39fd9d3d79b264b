//! Lists of integers in a header.

use trinity_bits::golomb::{get_golomb, golomb_bits, put_golomb, unzigzag, zigzag};
use trinity_bits::{BitReader, BitWriter};

use crate::format::line::error::Error;

/// Differences of neighbours, in the order that takes the fewest bits. A list
/// of equal numbers takes four bits and one number.
pub fn put_list(out: &mut BitWriter, list: &[i32]) {
    let first = list.first().copied().unwrap_or(0);
    if list.iter().all(|&value| value == first) {
        out.bits(15, 4);
        put_golomb(out, zigzag(first), 4);
        return;
    }
    let codes: Vec<u32> = differences(list).collect();
    let order = best_order(&codes, 15);
    out.bits(order, 4);
    codes.iter().for_each(|&code| put_golomb(out, code, order));
}

/// Bits that [`put_list`] writes.
pub fn list_bits(list: &[i32]) -> u64 {
    let first = list.first().copied().unwrap_or(0);
    if list.iter().all(|&value| value == first) {
        return 4 + golomb_bits(zigzag(first), 4);
    }
    let codes: Vec<u32> = differences(list).collect();
    4 + order_and_bits(&codes, 15).1
}

/// The order below `orders` in which all codes together take the fewest bits, the least of equals.
fn best_order(codes: &[u32], orders: u32) -> u32 {
    order_and_bits(codes, orders).0
}

/// The same, and the bits.
fn order_and_bits(codes: &[u32], orders: u32) -> (u32, u64) {
    /// Differences of neighbours are small, nearly all: codes below this are counted first.
    const SMALL: usize = 64;
    let (mut counts, mut large) = ([0u64; SMALL], Vec::new());
    for &code in codes {
        match counts.get_mut(code as usize) {
            Some(count) => *count += 1,
            None => large.push(code),
        }
    }
    let bits = |order: u32| {
        let small = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let small = small.map(|(code, count)| count * golomb_bits(code as u32, order)).sum::<u64>();
        small + large.iter().map(|&code| golomb_bits(code, order)).sum::<u64>()
    };
    let all = (0..orders).map(|order| (order, bits(order)));
    all.min_by_key(|&(_, bits)| bits).unwrap_or_default()
}

pub fn get_list(bits: &mut BitReader<'_>, count: usize) -> Result<Vec<i32>, Error> {
    let order = bits.bits(4)?;
    if order == 15 {
        return Ok(vec![unzigzag(get_golomb(bits, 4)?); count]);
    }
    // A bit at least for each: the size is checked before it is taken.
    if (count as u64) * (u64::from(order) + 1) > bits.remaining() {
        return Err(Error::Truncated { what: "header" });
    }
    let mut before = 0i32;
    (0..count)
        .map(|_| {
            before = before.wrapping_add(unzigzag(get_golomb(bits, order)?));
            Ok(before)
        })
        .collect()
}

fn differences(list: &[i32]) -> impl Iterator<Item = u32> {
    let before = std::iter::once(0).chain(list.iter().copied());
    list.iter().zip(before).map(|(&value, before)| zigzag(value.wrapping_sub(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        for list in [vec![], vec![7; 9], vec![-3, 4, 100, -20000, 0], (0..40).collect()] {
            let mut out = BitWriter::new();
            put_list(&mut out, &list);
            assert_eq!(out.position(), list_bits(&list));
            let bytes = out.into_bytes();
            assert_eq!(get_list(&mut BitReader::new(&bytes), list.len()).unwrap(), list);
        }
    }

    #[test]
    fn the_best_order_is_the_one_that_takes_the_fewest_bits() {
        let lists =
            [vec![], vec![0; 9], (0..200).collect::<Vec<u32>>(), vec![63, 64, 65, 70_000], vec![3; 50]];
        for codes in lists {
            let bits = |order: u32| codes.iter().map(|&code| golomb_bits(code, order)).sum::<u64>();
            let best = best_order(&codes, 15);
            assert!((0..15).all(|order| bits(best) <= bits(order)), "{codes:?}");
            assert!((0..best).all(|order| bits(best) < bits(order)), "{codes:?}: the least of equals");
        }
    }
}
