//! A stream decoded as it is written, and held against what the encoder saw:
//! no encoder's mistake leaves the command as a file.

use super::FrameDecoder;
use crate::failure::Failure;
use std::collections::VecDeque;
use trinity_bits::Frame;
use trinity_bits::nal::NalUnit;

/// Decodes units in the order in which they are written.
#[derive(Debug)]
pub struct Verifier<D> {
    decoder: D,
    /// Frames that were coded and have not been decoded yet.
    expected: VecDeque<Frame>,
    /// Frames that came back as they should.
    held: usize,
}

impl<D: FrameDecoder> Default for Verifier<D> {
    fn default() -> Self {
        // The decoder's limit is for streams of strangers.
        Self { decoder: D::new(usize::MAX), expected: VecDeque::new(), held: 0 }
    }
}

impl<D: FrameDecoder> Verifier<D> {
    /// A unit without its start code, about `offset` bytes into the stream.
    pub fn unit(&mut self, bytes: &[u8], offset: usize) -> Result<(), Failure> {
        let pushed = self.decoder.push(NalUnit { offset, bytes });
        pushed.map_err(|error| self.wrong(&error))
    }

    /// The frame that the units so far end with.
    pub fn expect(&mut self, frame: &Frame) -> Result<(), Failure> {
        self.expected.push_back(frame.clone());
        self.compare()
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        let finished = self.decoder.finish();
        finished.map_err(|error| self.wrong(&error))?;
        self.compare()?;
        if self.expected.is_empty() { Ok(()) } else { Err(self.wrong("it is not shown")) }
    }

    fn compare(&mut self) -> Result<(), Failure> {
        while let Some(shown) = self.decoder.next_frame() {
            if let Some(component) = shown.wrong {
                return Err(self.wrong(&format!("its {component} differs from its hash")));
            }
            if self.expected.pop_front().as_ref() != Some(&shown.frame) {
                return Err(self.wrong("its samples differ"));
            }
            self.held += 1;
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::run(format_args!(
            "frame {} does not decode to what the encoder saw: {what}; nothing was written",
            self.held
        ))
        .help(
            "this is a mistake of the encoder: please report the input and the command; other options may do",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::{Chroma, nal};
    use trinity_h264::{Decoder, Params, encode};

    fn verified(stream: &[u8], frames: &[Frame]) -> Result<(), Failure> {
        let mut verifier = Verifier::<Decoder>::default();
        for unit in nal::units(stream) {
            verifier.unit(unit.bytes, unit.offset)?;
        }
        for frame in frames {
            verifier.expect(frame)?;
        }
        verifier.finish()
    }

    #[test]
    fn a_stream_that_shows_another_picture_is_refused() {
        let frame = Frame::filled(32, 16, Chroma::C420, 8, 90);
        let coded = encode(&[frame.clone(), frame], &Params::default()).unwrap();
        verified(&coded.stream, &coded.recon).unwrap();
        let mut other = coded.recon.clone();
        other[1].planes[2].samples[3] ^= 1;
        let said = format!("{:?}", verified(&coded.stream, &other).unwrap_err());
        assert!(said.contains("frame 1") && said.contains("samples differ"), "{said}");
        let more = [coded.recon.clone(), coded.recon.clone()].concat();
        assert!(format!("{:?}", verified(&coded.stream, &more)).contains("not shown"));
        let cut = &coded.stream[..coded.stream.len() - 2];
        assert!(verified(cut, &coded.recon).is_err());
    }
}
