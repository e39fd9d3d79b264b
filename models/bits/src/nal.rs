//! NAL units in an Annex B byte stream, and emulation prevention (Annex B and
//! clause 7.4.1.1 of H.264, clause 7.3.1.1 of H.265).
//!
//! Finds and frames NAL units; what is inside them is the standards' business.

use std::io::{self, Read};

/// One NAL unit found in a byte stream: header and payload, emulation
/// prevention still in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NalUnit<'a> {
    /// Byte offset of the unit's first byte (after the start code).
    pub offset: usize,
    /// The bytes of the unit, without start code and trailing zeros.
    pub bytes: &'a [u8],
}

/// Splits an Annex B byte stream into its NAL units. Bytes before the first
/// start code are skipped, as the standards require.
pub fn units(stream: &[u8]) -> impl Iterator<Item = NalUnit<'_>> {
    let mut next = find_start_code(stream, 0).map(|at| at + 3);
    std::iter::from_fn(move || {
        let start = next?;
        let end = find_start_code(stream, start);
        next = end.map(|at| at + 3);
        let unit = &stream[start..end.unwrap_or(stream.len())];
        // trailing_zero_8bits and the zero_byte of the next start code.
        let length = unit.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        Some(NalUnit { offset: start, bytes: &unit[..length] })
    })
    .filter(|unit| !unit.bytes.is_empty())
}

/// Offset of the next `00 00 01` at or after `from`.
fn find_start_code(stream: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at + 2 < stream.len() {
        match stream[at + 2] {
            0 => at += 1,
            1 if stream[at] == 0 && stream[at + 1] == 0 => return Some(at),
            _ => at += 3,
        }
    }
    None
}

/// The NAL units of a byte stream that is read as it goes: one unit at a time
/// is held, however long the stream is. Finds what [`units`] finds.
#[derive(Debug)]
pub struct UnitReader<R> {
    source: R,
    /// Bytes of the stream from `base` on.
    buffer: Vec<u8>,
    base: usize,
    /// Where in `buffer` the next unit starts; `None` before the first start code.
    start: Option<usize>,
    ended: bool,
}

impl<R: Read> UnitReader<R> {
    /// Bytes asked of the source at a time.
    const CHUNK: usize = 1 << 16;

    pub fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), base: 0, start: None, ended: false }
    }

    /// The next NAL unit, or `None` after the last.
    ///
    /// # Errors
    /// What the source reports.
    pub fn next_unit(&mut self) -> io::Result<Option<NalUnit<'_>>> {
        let (start, length) = loop {
            let Some((start, end)) = self.next_span()? else { return Ok(None) };
            let unit = &self.buffer[start..end];
            if let Some(last) = unit.iter().rposition(|&b| b != 0) {
                break (start, last + 1);
            }
        };
        Ok(Some(NalUnit { offset: self.base + start, bytes: &self.buffer[start..start + length] }))
    }

    /// Where the next unit lies in the buffer, trailing zeros included.
    fn next_span(&mut self) -> io::Result<Option<(usize, usize)>> {
        if self.start.is_none() {
            self.start = self.find_from(0)?.map(|at| at + 3);
        }
        let Some(mut start) = self.start else { return Ok(None) };
        // Units already handed out make room once they are most of the buffer.
        if start > self.buffer.len() / 2 {
            self.buffer.drain(..start);
            self.base += start;
            start = 0;
        }
        self.start = Some(start);
        if start == self.buffer.len() && self.ended {
            return Ok(None);
        }
        let end = self.find_from(start)?;
        self.start = Some(end.map_or(self.buffer.len(), |at| at + 3));
        Ok(Some((start, end.unwrap_or(self.buffer.len()))))
    }

    /// The next start code at or after `from`, reading on as needed.
    fn find_from(&mut self, mut from: usize) -> io::Result<Option<usize>> {
        loop {
            if let Some(at) = find_start_code(&self.buffer, from) {
                return Ok(Some(at));
            }
            if self.ended {
                return Ok(None);
            }
            // A start code may straddle what is there and what comes.
            from = from.max(self.buffer.len().saturating_sub(2));
            let filled = self.buffer.len();
            self.buffer.resize(filled + Self::CHUNK, 0);
            let read = self.source.read(&mut self.buffer[filled..]);
            self.buffer.truncate(filled + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Removes `emulation_prevention_three_byte`s: NAL unit bytes to RBSP.
pub fn unescape(nal: &[u8]) -> Vec<u8> {
    let mut rbsp = Vec::with_capacity(nal.len());
    let mut from = 0;
    let mut at = 2;
    while at < nal.len() {
        if nal[at] > 3 {
            at += 3;
        } else if nal[at] == 3 && nal[at - 1] == 0 && nal[at - 2] == 0 {
            rbsp.extend_from_slice(&nal[from..at]);
            from = at + 1;
            at += 3;
        } else {
            at += 1;
        }
    }
    rbsp.extend_from_slice(&nal[from.min(nal.len())..]);
    rbsp
}

/// Appends a NAL unit with a four-byte start code, inserting emulation
/// prevention. `rbsp` includes the NAL unit header.
pub fn write_unit(stream: &mut Vec<u8>, rbsp: &[u8]) {
    stream.extend_from_slice(&[0, 0, 0, 1]);
    let mut zeros = 0;
    for &byte in rbsp {
        if zeros >= 2 && byte <= 3 {
            stream.push(3);
            zeros = 0;
        }
        stream.push(byte);
        zeros = if byte == 0 { zeros + 1 } else { 0 };
    }
    // cabac_zero_words: a NAL unit must not end in zeros (clause 7.4.1 of H.264).
    if zeros >= 2 {
        stream.push(3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_and_four_byte_start_codes_and_trailing_zeros() {
        let stream = [9, 0, 0, 0, 1, 0x65, 7, 0, 0, 1, 0x41, 0, 0, 0, 0, 1, 0x42];
        let found: Vec<_> = units(&stream).map(|u| (u.offset, u.bytes.to_vec())).collect();
        assert_eq!(found, [(5, vec![0x65, 7]), (10, vec![0x41]), (16, vec![0x42])]);
    }

    #[test]
    fn no_start_code_means_no_units() {
        assert_eq!(units(&[1, 2, 3]).count(), 0);
        assert_eq!(units(&[]).count(), 0);
        assert_eq!(units(&[0, 0, 1]).count(), 0);
    }

    /// Gives one byte, then two, then three… at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = (self.1 % 5 + 1).min(self.0.len()).min(out.len());
            self.1 += 1;
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn units_read_as_they_come_are_those_of_the_whole(
            stream in prop::collection::vec(prop_oneof![4 => Just(0u8), 2 => Just(1), 1 => any::<u8>()], 0..200)
        ) {
            let mut reader = UnitReader::new(Drip(&stream, 0));
            for unit in units(&stream) {
                prop_assert_eq!(reader.next_unit().unwrap(), Some(unit));
            }
            prop_assert_eq!(reader.next_unit().unwrap(), None);
            prop_assert_eq!(reader.next_unit().unwrap(), None);
        }

        #[test]
        fn escaping_round_trips_and_hides_every_start_code(
            payloads in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(3), any::<u8>()], 0..60), 1..5)
        ) {
            let mut stream = Vec::new();
            let units_in: Vec<Vec<u8>> = payloads.into_iter().map(|mut p| { p.insert(0, 0x65); p.push(0x80); p }).collect();
            for unit in &units_in {
                write_unit(&mut stream, unit);
            }
            let out: Vec<Vec<u8>> = units(&stream).map(|u| unescape(u.bytes)).collect();
            prop_assert_eq!(out, units_in);
        }
    }
}
