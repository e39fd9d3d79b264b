//! Damage to bytes that a writer made, as an input says: a fuzzer would hardly
//! guess a header, let alone a checksum.

use std::borrow::Cow;

/// Bytes with every four of an input as one change: a place, then bits to
/// flip, or what to cut off or put in. An input without changes leaves them whole.
pub fn damaged(whole: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for &[low, high, kind, value] in changes.as_chunks::<4>().0 {
        let place = usize::from(u16::from_le_bytes([low, high])) % (bytes.len() + 1);
        match (kind % 8, bytes.get_mut(place)) {
            (0, _) => bytes.truncate(place),
            (1, _) => bytes.insert(place, value),
            (_, Some(byte)) => *byte ^= value,
            (_, None) => bytes.push(value),
        }
    }
    bytes
}

/// Values with something to find in them, the same on every machine.
pub fn values(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| (i % 48) as f32 / 24.0 + (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0 - 1.0)
        .collect()
}

/// CRC-32, bit by bit.
pub fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// First byte of an input that names a stream to damage; others are streams themselves.
const NAMED: u8 = 0xff;

/// Streams of the library's own writer, and inputs that name each of them.
pub fn seeds_of(streams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let named = (0..streams.len() as u8).map(|which| vec![NAMED, which]);
    streams.iter().cloned().chain(named).collect()
}

/// The bytes that an input stands for: its own, or those of a stream with damage done to it.
pub fn bytes_of<'a>(input: &'a [u8], streams: &[Vec<u8>]) -> Cow<'a, [u8]> {
    match input {
        [NAMED, which, changes @ ..] if !streams.is_empty() => {
            damaged(&streams[usize::from(*which) % streams.len()], changes).into()
        }
        _ => input.into(),
    }
}
