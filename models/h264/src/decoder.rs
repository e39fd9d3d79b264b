//! The decoder: NAL units in, frames in output order out (clauses 7.4.1.2, 8).
//!
//! Finds the pictures in the stream, activates parameter sets, and hands each
//! slice to [`slice`]; [`order`] decides when a frame leaves.

mod inspect;
mod inspection;
mod order;
mod slice;

use crate::Error;
use crate::deblock::{PictureFilter, SliceFilter};
use crate::entropy::cabac::CabacReader;
use crate::entropy::cavlc::CavlcReader;
use crate::macroblock::{MbInfo, MbMap};
use crate::picture::Picture;
use crate::quant::LevelScale;
use crate::reconstruct::Rebuild;
use crate::syntax::parameter_sets::{Pps, Sps};
use crate::syntax::slice_header::{Deblocking, NalHeader, SliceHeader, Structure};
pub use inspect::inspect;
pub use inspection::{BitUse, Inspection, SliceSummary};
use order::{OrderCount, OutputOrder};
use slice::SliceDecoder;
use std::collections::HashMap;
use std::rc::Rc;
use trinity_bits::nal::{self, NalUnit};
use trinity_bits::{BitReader, BitstreamError, Chroma, Colour, Frame, Presentation, invalid};

/// Decodes a whole Annex B stream to its frames in output order.
///
/// # Errors
/// The first fault found, with the NAL unit it is in.
pub fn decode(stream: &[u8]) -> Result<Vec<Frame>, Error> {
    frames(stream).collect()
}

/// Decodes as far as the stream allows: the frames up to the first fault, and that fault.
pub fn decode_keep_going(stream: &[u8]) -> (Vec<Frame>, Option<Error>) {
    let mut good = Vec::new();
    for frame in frames(stream) {
        match frame {
            Ok(frame) => good.push(frame),
            Err(error) => return (good, Some(error)),
        }
    }
    (good, None)
}

/// Decodes an Annex B stream one frame at a time, in output order. Ends after
/// the first error; frames complete before it come first.
pub fn frames(stream: &[u8]) -> Frames<'_> {
    Frames { units: Box::new(nal::units(stream)), decoder: Decoder::new(stream.len()), error: None }
}

/// The iterator behind [`frames`].
pub struct Frames<'a> {
    units: Box<dyn Iterator<Item = NalUnit<'a>> + 'a>,
    decoder: Decoder,
    error: Option<Error>,
}

impl std::fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Some(Ok(frame));
            }
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            if self.decoder.finished {
                return None;
            }
            let step = match self.units.next() {
                Some(unit) => self.decoder.push(unit),
                None => self.decoder.finish(),
            };
            self.error = step.err();
        }
    }
}

/// A decoder that is fed NAL units and gives frames.
///
/// After an error it takes nothing more; frames that were complete before it
/// can still be had.
pub struct Decoder {
    state: State,
    /// NAL units seen so far.
    units: usize,
    any_frame: bool,
    finished: bool,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("units", &self.units).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder for a stream of about `stream_bytes`: no frame is believed
    /// that could not be coded in that many.
    pub fn new(stream_bytes: usize) -> Self {
        let state = State { stream_bytes, ..State::default() };
        Self { state, units: 0, any_frame: false, finished: false }
    }

    pub fn next_frame(&mut self) -> Option<Frame> {
        self.state.output.pop()
    }

    /// What the stream says its planes are, as far as it has been read.
    pub fn colour(&self) -> Colour {
        let said = self.state.sps.values().find_map(|sps| sps.matrix_coefficients);
        Colour::from_matrix_coefficients(said)
    }

    /// How the stream says its pictures are to be shown, as far as it has been read.
    pub fn presentation(&self) -> Presentation {
        let said = self.state.sps.values().map(|sps| sps.shown);
        said.into_iter().find(|shown| *shown != Presentation::default()).unwrap_or_default()
    }

    /// Takes in one NAL unit.
    ///
    /// # Errors
    /// The fault found in it, or in the picture that it ends.
    pub fn push(&mut self, unit: NalUnit<'_>) -> Result<(), Error> {
        let nal = self.units;
        self.units += 1;
        let taken = if self.finished { Ok(()) } else { self.state.unit(unit, nal) };
        self.any_frame |= !self.state.output.is_empty();
        self.end_on_error(taken)
    }

    /// Ends the stream: completes the last picture and releases all.
    ///
    /// # Errors
    /// The fault found in the last picture, or that there was none.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.finished = true;
        let completed = self.state.finish_picture().and_then(|()| {
            self.state.finish_frame();
            self.state.output.flush();
            if self.any_frame || !self.state.output.is_empty() {
                return Ok(());
            }
            Err(Error::NoPicture { bytes: self.state.stream_bytes })
        });
        self.end_on_error(completed)
    }

    /// What was complete before an error is still good: also a picture whose
    /// last slice has come, but not yet the unit that would have told its end.
    fn end_on_error(&mut self, step: Result<(), Error>) -> Result<(), Error> {
        if step.is_err() {
            self.finished = true;
            // A second fault, in that picture, is not the one to report.
            let _ = self.state.finish_whole_picture();
            self.state.output.flush();
        }
        step
    }
}

/// A picture parameter set and the level scales it makes.
struct ActivePps {
    pps: Pps,
    scale: LevelScale,
}

/// A picture parameter set as it came, and as read with its sequence's.
struct StoredPps {
    sps_id: u32,
    rbsp: Vec<u8>,
    parsed: Option<Rc<ActivePps>>,
}

/// What decoding carries from one NAL unit to the next.
#[derive(Default)]
struct State {
    sps: HashMap<u32, Rc<Sps>>,
    pps: HashMap<u32, StoredPps>,
    current: Option<Current>,
    /// A frame with one or both fields in, waiting for the next picture.
    frame: Option<PendingFrame>,
    order: OrderCount,
    output: OutputOrder,
    stream_bytes: usize,
    inspection: Inspection,
}

/// The coded picture (frame or field) whose slices are coming in.
struct Current {
    sps: Rc<Sps>,
    last: SliceHeader,
    /// One map, or one for each colour plane that is coded on its own.
    maps: Vec<MbMap>,
    slices: Vec<Vec<SliceFilter>>,
    /// The macroblock after the last slice of each.
    next_mb: Vec<usize>,
    nal: usize,
    offset: usize,
}

impl Current {
    /// Whether the last macroblock of each plane is there.
    fn is_whole(&self) -> bool {
        self.maps.iter().zip(&self.next_mb).all(|(map, &next)| next == map.infos.len())
    }
}

/// The frame that the current picture is (part of).
struct PendingFrame {
    sps: Rc<Sps>,
    picture: Picture,
    first: SliceHeader,
    fields: [bool; 2],
    order_counts: [i64; 2],
}

impl State {
    fn unit(&mut self, unit: NalUnit, nal: usize) -> Result<(), Error> {
        let header = NalHeader::new(unit.bytes[0]);
        self.inspection.note_unit(header.unit_type, unit.bytes.len());
        let at = |bitstream_error: BitstreamError| bitstream_error.at(nal, unit.offset as u64);
        match header.unit_type {
            1 | 5 => self.slice(unit, header, nal),
            2..=4 => Err(at(BitstreamError::Unsupported("data partitioning"))),
            7 => self.read_sps(unit, nal),
            8 => {
                self.finish_whole_picture()?;
                let rbsp = nal::unescape(&unit.bytes[1..]);
                let (id, sps_id) = Pps::read_ids(&mut BitReader::new(&rbsp)).map_err(at)?;
                self.pps.insert(id, StoredPps { sps_id, rbsp, parsed: None });
                Ok(())
            }
            // 9 delimits access units; 10 and 11 end a sequence or the stream.
            9..=11 => self.finish_picture(),
            // Supplemental information precedes the picture it is about.
            6 => self.finish_whole_picture(),
            // SEI, SPS extension, auxiliary pictures, SVC and MVC layers: not of the base view.
            _ => Ok(()),
        }
    }

    fn read_sps(&mut self, unit: NalUnit, nal: usize) -> Result<(), Error> {
        self.finish_whole_picture()?;
        let rbsp = nal::unescape(&unit.bytes[1..]);
        let sps = Sps::read(&mut BitReader::new(&rbsp))
            .map_err(|bitstream_error| bitstream_error.at(nal, unit.offset as u64))?;
        if self.sps.get(&sps.id).is_none_or(|old| **old != sps) {
            // A changed sequence parameter set may change how picture sets read.
            for stored in self.pps.values_mut().filter(|stored| stored.sps_id == sps.id) {
                stored.parsed = None;
            }
            self.sps.insert(sps.id, Rc::new(sps));
        }
        Ok(())
    }

    fn activate(&mut self, pps_id: u32) -> Result<(Rc<Sps>, Rc<ActivePps>), BitstreamError> {
        let Some(stored) = self.pps.get_mut(&pps_id) else {
            return invalid(format!(
                "the slice refers to picture parameter set {pps_id}, which is not there"
            ));
        };
        let Some(sps) = self.sps.get(&stored.sps_id) else {
            return invalid(format!("sequence parameter set {} is not there", stored.sps_id));
        };
        let parsed = match &stored.parsed {
            Some(parsed) => Rc::clone(parsed),
            None => {
                let pps = Pps::read(&mut BitReader::new(&stored.rbsp), sps)?;
                let scale = LevelScale::new(pps.scaling.as_ref());
                let parsed = Rc::new(ActivePps { pps, scale });
                stored.parsed = Some(Rc::clone(&parsed));
                parsed
            }
        };
        Ok((Rc::clone(sps), parsed))
    }

    fn slice(&mut self, unit: NalUnit, nal_header: NalHeader, nal: usize) -> Result<(), Error> {
        let at = |bitstream_error: BitstreamError| bitstream_error.at(nal, unit.offset as u64);
        let rbsp = nal::unescape(&unit.bytes[1..]);
        let mut bits = BitReader::new(&rbsp);
        let pps_id = SliceHeader::read_pps_id(&mut bits.clone()).map_err(at)?;
        let (sps, parsed) = self.activate(pps_id).map_err(at)?;
        let header = SliceHeader::read(&mut bits, nal_header, &sps, &parsed.pps).map_err(at)?;
        if header.redundant_pic_cnt > 0 {
            return Ok(());
        }
        // Streams joined end to end may repeat every field that tells pictures apart.
        let begins = |c: &Current| c.is_whole() || c.sps != sps || header.begins_picture_after(&c.last);
        if self.current.as_ref().is_none_or(begins) {
            self.finish_picture()?;
            self.begin_picture(&header, &sps, nal, unit.offset).map_err(at)?;
        }
        self.slice_data(header, &parsed.pps, &parsed.scale, &rbsp, bits).map_err(at)
    }

    /// Makes room for a picture: a new frame, or the second field of one.
    fn begin_picture(
        &mut self,
        header: &SliceHeader,
        sps: &Rc<Sps>,
        nal: usize,
        offset: usize,
    ) -> Result<(), BitstreamError> {
        let parity = usize::from(header.structure == Structure::BottomField);
        let second = self.frame.as_ref().is_some_and(|frame| {
            header.structure != Structure::Frame
                && frame.first.structure != Structure::Frame
                && !frame.fields[parity]
                && frame.first.frame_num == header.frame_num
                && frame.sps == *sps
                && (!header.nal.is_idr() || frame.first.nal.is_idr())
        });
        if !second {
            self.finish_frame();
        }
        let counts = self.order.next(header, sps);
        let (width, height) = (sps.width_mbs as usize, sps.height_mbs() as usize);
        self.justify(width * height)?;
        match (&mut self.frame, second) {
            (Some(frame), true) => frame.order_counts[parity] = counts[parity],
            _ => {
                if header.nal.is_idr() || header.resets_memory {
                    self.output.flush();
                }
                let separate = sps.separate_colour_plane;
                let depths =
                    [sps.bit_depth_luma, if separate { sps.bit_depth_luma } else { sps.bit_depth_chroma }];
                self.frame = Some(PendingFrame {
                    sps: Rc::clone(sps),
                    picture: Picture::new(sps.chroma, width, height, depths),
                    first: header.clone(),
                    fields: [false; 2],
                    order_counts: match header.structure {
                        Structure::Frame => counts,
                        Structure::TopField => [counts[0], i64::MAX],
                        Structure::BottomField => [i64::MAX, counts[1]],
                    },
                });
            }
        }
        let planes = if sps.separate_colour_plane { 3 } else { 1 };
        let count = width * if header.structure == Structure::Frame { height } else { height / 2 };
        let mbaff = sps.mb_adaptive_frame_field && header.structure == Structure::Frame;
        let chroma_blocks = match sps.chroma_array_type() {
            Chroma::C420 => (2, 2),
            Chroma::C422 => (2, 4),
            Chroma::C400 | Chroma::C444 => (4, 4),
        };
        let map = || MbMap { infos: vec![MbInfo::default(); count], width, mbaff, chroma_blocks };
        self.current = Some(Current {
            sps: Rc::clone(sps),
            last: header.clone(),
            maps: (0..planes).map(|_| map()).collect(),
            slices: vec![Vec::new(); planes],
            next_mb: vec![0; planes],
            nal,
            offset,
        });
        Ok(())
    }

    /// A few bytes must not make us reserve the largest frame there is: no
    /// macroblock takes less than a quarter of a bit.
    fn justify(&self, mbs: usize) -> Result<(), BitstreamError> {
        const ALWAYS: usize = 8_192;
        if mbs > ALWAYS && mbs / 32 > self.stream_bytes {
            return invalid(format!("{mbs} macroblocks a frame do not fit {} bytes", self.stream_bytes));
        }
        Ok(())
    }

    fn slice_data(
        &mut self,
        header: SliceHeader,
        pps: &Pps,
        scale: &LevelScale,
        rbsp: &[u8],
        bits: BitReader,
    ) -> Result<(), BitstreamError> {
        let (Some(current), Some(frame)) = (&mut self.current, &mut self.frame) else {
            return invalid("a slice outside any picture");
        };
        let plane = header.colour_plane;
        let sps = Rc::clone(&current.sps);
        let map = &mut current.maps[plane];
        let first = header.first_mb as usize * if map.mbaff { 2 } else { 1 };
        if first < current.next_mb[plane] {
            return Err(BitstreamError::Unsupported("arbitrary slice order"));
        }
        let rebuild = Rebuild {
            chroma: sps.chroma_array_type(),
            depths: [frame.picture.planes[0].depth, frame.picture.planes.last().map_or(8, |p| p.depth)],
            chroma_qp_index_offset: pps.chroma_qp_index_offset,
            lossless_at_qp_prime_0: sps.qpprime_y_zero_transform_bypass,
            colour_plane: plane,
        };
        let slice = current.slices[plane].len() as u32 + 1;
        let planes = &mut frame.picture.planes;
        let mut decoder = SliceDecoder {
            rebuild: &rebuild,
            scale,
            map,
            planes: if sps.separate_colour_plane { &mut planes[plane..=plane] } else { planes },
            structure: header.structure,
            slice,
            transform_8x8_mode: pps.transform_8x8_mode,
            qp: header.qp,
            cabac: pps.entropy_coding_mode_cabac,
            bit_use: BitUse::default(),
        };
        current.next_mb[plane] = if pps.entropy_coding_mode_cabac {
            decoder.run(&mut CabacReader::new(bits, header.qp), first)?
        } else {
            decoder.run(&mut CavlcReader::new(bits), first)?
        };
        let used = decoder.bit_use;
        self.inspection.note_slice(&header, rbsp.len(), used);
        current.slices[plane].push(SliceFilter {
            deblocking: header.deblocking,
            offset: header.filter_offset,
            rebuild,
        });
        current.last = header;
        Ok(())
    }

    /// What may stand before a picture but not within one ends the picture
    /// before it. Encoders that put such units between slices are forgiven.
    fn finish_whole_picture(&mut self) -> Result<(), Error> {
        if self.current.as_ref().is_some_and(Current::is_whole) { self.finish_picture() } else { Ok(()) }
    }

    /// Filters the current picture, if there is one, and marks its frame or field as there.
    fn finish_picture(&mut self) -> Result<(), Error> {
        let Some(current) = self.current.take() else { return Ok(()) };
        for map in &current.maps {
            if let Some(missing) = map.infos.iter().position(|info| info.slice == 0) {
                self.frame = None;
                let what = format!("the picture that begins here lacks macroblock {missing}");
                return Err(BitstreamError::Invalid(what).at(current.nal, current.offset as u64));
            }
        }
        let Some(frame) = &mut self.frame else { return Ok(()) };
        let structure = current.last.structure;
        for (c, (map, slices)) in current.maps.iter().zip(&current.slices).enumerate() {
            if slices.iter().all(|slice| slice.deblocking == Deblocking::Off) {
                continue;
            }
            let filter = PictureFilter { map, slices, structure, chroma: current.sps.chroma_array_type() };
            let planes = &mut frame.picture.planes;
            filter.run(if current.sps.separate_colour_plane { &mut planes[c..=c] } else { planes });
        }
        match structure {
            Structure::Frame => frame.fields = [true; 2],
            Structure::TopField => frame.fields[0] = true,
            Structure::BottomField => frame.fields[1] = true,
        }
        if frame.fields == [true; 2] {
            self.finish_frame();
        }
        Ok(())
    }

    /// Sends the frame on its way out. A field without its other half is shown twice.
    fn finish_frame(&mut self) {
        let Some(mut frame) = self.frame.take() else { return };
        if frame.fields != [true; 2] {
            let present = usize::from(!frame.fields[0]);
            for plane in &mut frame.picture.planes {
                for pair in plane.samples.chunks_exact_mut(2 * plane.stride) {
                    let (top, bottom) = pair.split_at_mut(plane.stride);
                    if present == 0 { bottom.copy_from_slice(top) } else { top.copy_from_slice(bottom) }
                }
            }
        }
        let sps = &frame.sps;
        let (unit_x, unit_y) = sps.crop_units();
        let crop = sps.crop.map(|side| side as usize);
        let (unit_x, unit_y) = (unit_x as usize, unit_y as usize);
        let width = sps.width_mbs as usize * 16 - (crop[0] + crop[1]) * unit_x;
        let height = sps.height_mbs() as usize * 16 - (crop[2] + crop[3]) * unit_y;
        let out = frame.picture.crop(crop[0] * unit_x, crop[2] * unit_y, width, height);
        self.output.push(frame.order_counts[0].min(frame.order_counts[1]), out, sps.reorder_frames());
    }
}
