//! The decoder: NAL units in, pictures in output order out.
//!
//! [`Decoder`] keeps parameter sets and the picture in the making; slices are
//! parsed by [`slice`] and [`tree`], blocks rebuilt by [`reconstruct`] with
//! the crate's stage functions.

mod decoded;
mod layout;
mod output;
mod picture;
mod reconstruct;
mod residual;
mod scaling;
mod slice;
mod tree;

use std::sync::Arc;

use trinity_bits::nal::{self, NalUnit};
use trinity_bits::{Chroma, Colour, Frame, Plane, Presentation, invalid};

pub use crate::syntax::HashCheck;
pub use decoded::Decoded;
pub use slice::BitCounts;

use crate::Error;
use crate::syntax::picture_hash::{self, PictureHash};
use crate::syntax::{BitstreamError, NalHeader, NalType, Pps, SliceHeader, SliceType, Sps, Vui};
use layout::Layout;
use output::OutputQueue;
use picture::Picture;
use scaling::Factors;
use slice::SliceDecoder;

/// Decodes a whole Annex B stream into frames in output order.
pub fn decode(stream: &[u8]) -> Result<Vec<Frame>, Error> {
    frames(stream).map(|decoded| Ok(decoded?.frame)).collect()
}

/// Decodes as far as the stream allows: the frames before the first error,
/// and that error.
pub fn decode_keep_going(stream: &[u8]) -> (Vec<Frame>, Option<Error>) {
    let mut good = Vec::new();
    for decoded in frames(stream) {
        match decoded {
            Ok(decoded) => good.push(decoded.frame),
            Err(error) => return (good, Some(error)),
        }
    }
    (good, None)
}

/// Decodes an Annex B stream one picture at a time, in output order. Ends
/// after the first error; pictures complete before it come first.
pub fn frames(stream: &[u8]) -> Frames<'_> {
    Frames { units: Box::new(nal::units(stream)), decoder: Some(Decoder::new(stream.len())), error: None }
}

/// The iterator behind [`frames`].
pub struct Frames<'a> {
    units: Box<dyn Iterator<Item = NalUnit<'a>> + 'a>,
    decoder: Option<Decoder>,
    error: Option<Error>,
}

impl std::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Decoded, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(decoded) = self.decoder.as_mut()?.next_picture() {
                return Some(Ok(decoded));
            }
            if let Some(error) = self.error.take() {
                self.decoder = None;
                return Some(Err(error));
            }
            let decoder = self.decoder.as_mut()?;
            let step = match self.units.next() {
                Some(unit) => decoder.push(unit),
                None if decoder.finished => {
                    self.decoder = None;
                    return None;
                }
                None => decoder.finish(),
            };
            if let Err(error) = step {
                decoder.abandon();
                self.error = Some(error);
            }
        }
    }
}

type Stored<T> = Option<Result<Arc<T>, Error>>;

/// A decoder that is fed NAL units and gives pictures.
#[derive(Debug)]
pub struct Decoder {
    sps: [Stored<Sps>; 16],
    pps: [Stored<Pps>; 64],
    current: Option<Current>,
    output: OutputQueue,
    /// NAL units seen so far.
    units: usize,
    /// Bytes of stream still to come, as far as known.
    bytes_left: u64,
    stream_bytes: usize,
    /// The next picture begins a sequence (start of stream, or after EOS).
    starts_sequence: bool,
    /// RASL pictures of the last CRA refer to pictures before it that are gone.
    skip_rasl: bool,
    /// prevTid0Pic's POC.
    previous_poc: i32,
    any_picture: bool,
    finished: bool,
}

/// The picture whose slices are coming in.
#[derive(Debug)]
struct Current {
    /// One, or one a colour plane where planes are coded apart.
    pictures: Vec<Picture>,
    /// Which of them the last slice belongs to.
    plane: usize,
    factors: Option<Arc<Factors>>,
    hash: Option<PictureHash>,
    bits: BitCounts,
    slices: Vec<SliceType>,
    nal: usize,
    offset: u64,
}

impl Decoder {
    /// A decoder for a stream of about `stream_bytes`: no picture is believed
    /// that could not be coded in that many.
    pub fn new(stream_bytes: usize) -> Self {
        Self {
            sps: std::array::from_fn(|_| None),
            pps: std::array::from_fn(|_| None),
            current: None,
            output: OutputQueue::default(),
            units: 0,
            bytes_left: stream_bytes as u64,
            stream_bytes,
            starts_sequence: true,
            skip_rasl: false,
            previous_poc: 0,
            any_picture: false,
            finished: false,
        }
    }

    pub fn next_picture(&mut self) -> Option<Decoded> {
        self.output.pop()
    }

    /// What the stream says its planes are, as far as it has been read.
    pub fn colour(&self) -> Colour {
        let said = self.vuis().find_map(|vui| vui.start.colour).map(|[_, _, matrix]| matrix);
        Colour::from_matrix_coefficients(said)
    }

    /// How the stream says its pictures are to be shown, as far as it has been read.
    pub fn presentation(&self) -> Presentation {
        let shown = |vui: &Vui| vui.start.presentation(vui.timing.map(|(ticks, scale)| (scale, ticks)));
        self.vuis().next().map(shown).unwrap_or_default()
    }

    fn vuis(&self) -> impl Iterator<Item = &Vui> {
        self.sps.iter().flatten().filter_map(|sps| sps.as_ref().ok()?.vui.as_ref())
    }

    pub fn push(&mut self, unit: NalUnit<'_>) -> Result<(), Error> {
        let nal = self.units;
        self.units += 1;
        self.bytes_left = (self.stream_bytes as u64).saturating_sub(unit.offset as u64);
        let located = |error: BitstreamError| error.at(nal, unit.offset as u64);
        let Some(header) = NalHeader::parse(unit.bytes) else {
            return Err(located(BitstreamError::invalid("the NAL unit header is damaged")));
        };
        // Other layers hold other views or qualities of the same pictures.
        if header.layer_id > 0 {
            return Ok(());
        }
        match header.nal_type {
            kind if kind.is_slice() => self.slice(unit, header, nal),
            NalType::SPS => {
                self.finish_picture()?;
                let rbsp = nal::unescape(&unit.bytes[2..]);
                let sps = Sps::parse(&rbsp).map(Arc::new);
                if let Some(id) = sps.as_ref().map_or_else(|_| peek_sps_id(&rbsp), |sps| Some(sps.id)) {
                    self.sps[usize::from(id) & 15] = Some(sps.map_err(located));
                }
                Ok(())
            }
            NalType::PPS => {
                self.finish_picture()?;
                let rbsp = nal::unescape(&unit.bytes[2..]);
                let pps = Pps::parse(&rbsp).map(Arc::new);
                if let Some(id) = pps.as_ref().map_or_else(|_| peek_pps_id(&rbsp), |pps| Some(pps.id)) {
                    self.pps[usize::from(id) & 63] = Some(pps.map_err(located));
                }
                Ok(())
            }
            NalType::PREFIX_SEI | NalType::AUD | NalType::VPS => self.finish_picture(),
            NalType::SUFFIX_SEI => {
                if let Some(current) = &mut self.current {
                    let components = current.components();
                    let found = picture_hash::find(&nal::unescape(&unit.bytes[2..]), components);
                    current.hash = found.or(current.hash.take());
                }
                Ok(())
            }
            NalType::EOS | NalType::EOB => {
                self.finish_picture()?;
                self.output.flush();
                self.starts_sequence = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// After an error: releases what was complete before it and is still good,
    /// also a picture whose end no unit has told yet.
    pub fn abandon(&mut self) {
        // A picture that lacks slices goes; the error before is the one to report.
        let _ = self.finish_picture();
        self.output.flush();
    }

    /// Ends the stream: completes the last picture and releases all.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.finished = true;
        self.finish_picture()?;
        self.output.flush();
        if self.any_picture { Ok(()) } else { Err(Error::NoPicture { bytes: self.stream_bytes }) }
    }

    fn slice(&mut self, unit: NalUnit<'_>, header: NalHeader, nal: usize) -> Result<(), Error> {
        let offset = unit.offset as u64;
        let rbsp = nal::unescape(&unit.bytes[2..]);
        let located = |bitstream_error: BitstreamError| bitstream_error.at(nal, offset);
        let (first, pps_id) = SliceHeader::peek(&rbsp, header.nal_type).map_err(located)?;
        if first {
            self.finish_picture()?;
        }
        if header.nal_type.is_rasl() && self.skip_rasl {
            return Ok(());
        }
        let (sps, pps) = self.parameter_sets(pps_id, nal, offset)?;
        let previous =
            self.current.as_ref().and_then(|current| current.pictures[current.plane].last_header.as_ref());
        let (slice, start) =
            SliceHeader::parse(&rbsp, header.nal_type, &sps, &pps, previous).map_err(located)?;
        if first {
            self.start_picture(&slice, header, sps, pps, nal, offset)?;
        }
        let Some(current) = &mut self.current else {
            let what = "the slice continues a picture whose first slice is missing";
            return Err(located(BitstreamError::invalid(what)));
        };
        current.plane = usize::from(slice.colour_plane_id).min(current.pictures.len() - 1);
        let picture = &mut current.pictures[current.plane];
        let (sps, pps) = (picture.sps.clone(), picture.pps.clone());
        if pps.id != slice.pps_id {
            return Err(located(BitstreamError::invalid(
                "two slices of one picture refer to different PPSs",
            )));
        }
        let factors = current.factors.clone();
        let data = rbsp.get(start..).unwrap_or(&[]);
        let decoder = SliceDecoder::new(data, &sps, &pps, &slice, factors.as_deref(), picture);
        let bits = match decoder.decode() {
            Ok(bits) => bits,
            Err((bitstream_error, byte)) => {
                // What was made of the slice is in the picture: it is not to be shown.
                self.current = None;
                return Err(bitstream_error.at(nal, offset + 2 + (start + byte) as u64));
            }
        };
        current.bits.add(bits, start as u64 * 8 + 16);
        current.slices.push(slice.slice_type);
        current.pictures[current.plane].last_header = Some(slice);
        Ok(())
    }

    fn parameter_sets(&self, pps_id: u8, nal: usize, offset: u64) -> Result<(Arc<Sps>, Arc<Pps>), Error> {
        let missing =
            |what: &str, id: u8| BitstreamError::Invalid(format!("{what} {id} is missing")).at(nal, offset);
        let pps = self.pps[usize::from(pps_id) & 63].clone().ok_or_else(|| missing("PPS", pps_id))??;
        let sps =
            self.sps[usize::from(pps.sps_id) & 15].clone().ok_or_else(|| missing("SPS", pps.sps_id))??;
        Ok((sps, pps))
    }

    fn start_picture(
        &mut self,
        slice: &SliceHeader,
        header: NalHeader,
        sps: Arc<Sps>,
        pps: Arc<Pps>,
        nal: usize,
        offset: u64,
    ) -> Result<(), Error> {
        let layout = self.check_support(&sps, &pps).and_then(|()| Layout::new(&sps, &pps));
        let layout = layout.map_err(|error| error.at(nal, offset))?;
        let kind = header.nal_type;
        let no_rasl_output = kind.is_irap() && (kind.is_idr() || kind.is_bla() || self.starts_sequence);
        if kind.is_irap() {
            self.skip_rasl = no_rasl_output;
        }
        if no_rasl_output && self.any_picture && !self.starts_sequence {
            if slice.no_output_of_prior_pics {
                self.output.discard();
            } else {
                self.output.flush();
            }
        }
        let poc = self.picture_order_count(slice, header, no_rasl_output, &sps);
        self.starts_sequence = false;
        self.any_picture = true;
        let factors = Factors::new(&sps, &pps).map(Arc::new);
        let separate = sps.separate_colour_plane;
        let mut picture = Picture::new(sps.coded_apart().map_or(sps, Arc::new), pps, Arc::new(layout));
        picture.poc = poc;
        picture.output = slice.pic_output;
        self.current = Some(Current {
            pictures: if separate { vec![picture.clone(), picture.clone(), picture] } else { vec![picture] },
            plane: 0,
            factors,
            hash: None,
            bits: BitCounts::default(),
            slices: Vec::new(),
            nal,
            offset,
        });
        Ok(())
    }

    /// PicOrderCntVal (clause 8.3.1).
    fn picture_order_count(
        &mut self,
        slice: &SliceHeader,
        header: NalHeader,
        no_rasl_output: bool,
        sps: &Sps,
    ) -> i32 {
        let period = 1i32 << sps.log2_max_poc_lsb;
        let lsb = slice.poc_lsb as i32;
        let msb = if no_rasl_output {
            0
        } else {
            let previous_lsb = self.previous_poc & (period - 1);
            let previous_msb = self.previous_poc - previous_lsb;
            if lsb < previous_lsb && previous_lsb - lsb >= period / 2 {
                previous_msb.wrapping_add(period)
            } else if lsb > previous_lsb && lsb - previous_lsb > period / 2 {
                previous_msb.wrapping_sub(period)
            } else {
                previous_msb
            }
        };
        let poc = msb.wrapping_add(lsb);
        let kind = header.nal_type;
        if header.temporal_id == 0 && !kind.is_rasl() && !kind.is_radl() && !kind.is_sub_layer_non_reference()
        {
            self.previous_poc = poc;
        }
        poc
    }

    /// Refuses what this decoder leaves out, and pictures that no stream of
    /// this length can hold.
    fn check_support(&self, sps: &Sps, pps: &Pps) -> Result<(), BitstreamError> {
        let tools = &sps.screen_content;
        for (used, tool) in [
            (tools.curr_pic_ref || pps.screen_content, "screen content coding (current picture referencing)"),
            (tools.palette_mode, "screen content coding (palette mode)"),
            (tools.motion_vectors, "screen content coding (adaptive motion vector resolution)"),
            (tools.boundary_filters, "screen content coding (intra boundary filter control)"),
        ] {
            if used {
                return Err(BitstreamError::Unsupported(tool));
            }
        }
        let depth_limit = sps.log2_ctb - sps.log2_min_cb;
        if pps.cu_qp_delta_depth.is_some_and(|depth| depth > depth_limit) {
            return invalid("diff_cu_qp_delta_depth goes below the smallest coding block");
        }
        if let Some(offsets) = &pps.range.chroma_qp_offsets
            && offsets.diff_cu_chroma_qp_offset_depth > depth_limit
        {
            return invalid("diff_cu_chroma_qp_offset_depth goes below the smallest coding block");
        }
        let samples = u64::from(sps.width) * u64::from(sps.height);
        // A coding unit takes a bypass bin for its mode at least, hence a bit
        // for 64×64 samples.
        if samples > MAX_LUMA_SAMPLES || samples > self.bytes_left.saturating_mul(8 << 12) {
            let (Sps { width, height, .. }, left) = (sps, self.bytes_left);
            return invalid(format!("a {width}×{height} picture cannot be coded in the {left} bytes left"));
        }
        Ok(())
    }

    /// Completes the picture in the making, if there is one.
    fn finish_picture(&mut self) -> Result<(), Error> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        for picture in &mut current.pictures {
            let (all, here) = (picture.slice_of.len(), picture.decoded_ctbs);
            if here < all {
                let what = format!("the picture lacks {} of its {all} CTUs", all - here);
                return Err(BitstreamError::Invalid(what).at(current.nal, current.offset));
            }
            picture.filter();
        }
        let hash = current.hash.take().map_or(HashCheck::Absent, |hash| current.check(&hash));
        let Picture { poc, output, ref sps, .. } = current.pictures[0];
        let limits = sps.dpb;
        if output {
            let (bits, slices) = (current.bits, std::mem::take(&mut current.slices));
            let decoded = Decoded { frame: current.into_frame(), poc, hash, bits, slices };
            self.output.push(decoded, limits);
        }
        Ok(())
    }
}

impl Current {
    fn components(&self) -> usize {
        self.pictures.iter().map(|picture| picture.planes.len()).sum()
    }

    fn check(&self, hash: &PictureHash) -> HashCheck {
        let sps = &self.pictures[0].sps;
        let planes: Vec<&Plane> = self.pictures.iter().flat_map(|picture| &picture.planes).collect();
        let chroma_depth = if self.pictures.len() > 1 { sps.bit_depth } else { sps.chroma_bit_depth };
        hash.check(&planes, [sps.bit_depth, chroma_depth])
    }

    /// The pictures of all planes as one.
    fn into_frame(self) -> Frame {
        let mut frames = self.pictures.into_iter().map(Picture::into_frame);
        let Some(mut frame) = frames.next() else { return Frame::filled(0, 0, Chroma::C400, 8, 0) };
        for other in frames {
            frame.chroma = Chroma::C444;
            frame.chroma_depth = frame.depth;
            frame.planes.extend(other.planes);
        }
        frame
    }
}

/// MaxLumaPs of level 7.2 (Table A.8), the most any level allows.
const MAX_LUMA_SAMPLES: u64 = 142_606_336;

impl BitCounts {
    /// Adds a slice segment with `header` bits of headers.
    fn add(&mut self, slice: Self, header: u64) {
        self.prediction += slice.prediction;
        self.residual += slice.residual;
        self.pcm += slice.pcm;
        self.side += slice.side + header;
    }

    pub fn total(&self) -> u64 {
        self.prediction + self.residual + self.side + self.pcm
    }
}

/// The id of a parameter set whose rest cannot be read, so that slices which
/// refer to it report the real reason.
fn peek_pps_id(rbsp: &[u8]) -> Option<u8> {
    let id = trinity_bits::BitReader::new(rbsp).ue().ok()?;
    (id < 64).then_some(id as u8)
}

fn peek_sps_id(rbsp: &[u8]) -> Option<u8> {
    let mut r = trinity_bits::BitReader::new(rbsp);
    r.skip(4).ok()?;
    let sub_layers = r.bits(3).ok()? + 1;
    r.skip(1).ok()?;
    crate::syntax::ProfileTierLevel::parse(&mut r, sub_layers).ok()?;
    let id = r.ue().ok()?;
    (id < 16).then_some(id as u8)
}
