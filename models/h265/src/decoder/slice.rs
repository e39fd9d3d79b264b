//! slice_segment_data() (H.265 clause 7.3.8.1): the walk over CTUs, with
//! tiles, wavefronts, dependent segments and SAO parameters.

use trinity_bits::cabac::Decoder as Engine;
use trinity_bits::invalid;

use super::picture::{Entropy, NOT_DECODED, Picture};
use super::residual::Tools;
use super::scaling::Factors;
use crate::entropy::contexts::Contexts;
use crate::intra::MAX_LINE;
use crate::quant::Quantizer;
use crate::sao::{EdgeClass, Sao};
use crate::syntax::{BitstreamError, Pps, SliceHeader, Sps};
use crate::transform::Precision;

/// Where the bits of coded slices went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BitCounts {
    /// Prediction modes.
    pub prediction: u64,
    /// residual_coding().
    pub residual: u64,
    /// Splits, coded-block flags, QP changes, SAO, PCM and end-of-slice flags.
    pub side: u64,
    pub pcm: u64,
}

/// Which share of a [`BitCounts`] bits go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Prediction,
    Residual,
    Side,
    Pcm,
}

pub(super) struct SliceDecoder<'a> {
    pub engine: Engine<'a>,
    pub contexts: Contexts,
    pub stat_coeff: [u8; 4],
    pub sps: &'a Sps,
    pub pps: &'a Pps,
    pub header: &'a SliceHeader,
    pub factors: Option<&'a Factors>,
    pub picture: &'a mut Picture,
    pub tools: Tools,
    /// Luma and chroma.
    pub precision: [Precision; 2],
    /// The CTB being decoded.
    pub ctb: Ctb,
    pub qp: QpState,
    pub scratch: Box<Scratch>,
    counts: BitCounts,
    counted: u64,
}

/// A CTB's place and which of its neighbours may be used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ctb {
    /// Luma position of its corner.
    pub x: usize,
    pub y: usize,
    pub left: bool,
    pub above: bool,
    pub above_left: bool,
    pub above_right: bool,
    /// Loop filters may cross its left and upper border.
    pub filter_left: bool,
    pub filter_above: bool,
}

/// QP bookkeeping (clause 8.6.1).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QpState {
    /// QpY of the coding unit being decoded.
    pub luma: i32,
    /// qPY_PREV: QpY of the last coding unit of the previous quantization group.
    pub previous: i32,
    /// Corner of the quantization group.
    pub group: (usize, usize),
    pub delta_coded: bool,
    pub cu_qp_delta: i32,
    pub chroma_offset_coded: bool,
    /// CuQpOffsetCb and CuQpOffsetCr.
    pub cu_chroma_offset: [i32; 2],
}

/// Buffers of one block, kept to save clearing them.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Coefficients, then residual; all zero between blocks.
    pub block: [i32; 1024],
    /// Luma residual, for cross-component prediction.
    pub luma: [i32; 1024],
    pub line: [u16; MAX_LINE],
    pub smoothed: [u16; MAX_LINE],
    /// The quantizer of each component and block size, and the qP it is for.
    pub quantizers: [[Option<(i32, Quantizer)>; 4]; 3],
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            block: [0; 1024],
            luma: [0; 1024],
            line: [0; MAX_LINE],
            smoothed: [0; MAX_LINE],
            quantizers: [[None; 4]; 3],
        }
    }
}

impl<'a> SliceDecoder<'a> {
    pub fn new(
        data: &'a [u8],
        sps: &'a Sps,
        pps: &'a Pps,
        header: &'a SliceHeader,
        factors: Option<&'a Factors>,
        picture: &'a mut Picture,
    ) -> Self {
        let range = &sps.range;
        let extended = range.extended_precision_processing;
        Self {
            engine: Engine::new(data),
            contexts: Contexts::new(header.qp),
            stat_coeff: [0; 4],
            sps,
            pps,
            header,
            factors,
            picture,
            tools: Tools {
                sign_data_hiding: pps.sign_data_hiding_enabled,
                log2_max_transform_skip: if pps.transform_skip_enabled {
                    pps.range.log2_max_transform_skip_size
                } else {
                    0
                },
                transform_skip_context: range.transform_skip_context_enabled,
                implicit_rdpcm: range.implicit_rdpcm_enabled,
                extended_precision: extended,
                persistent_rice_adaptation: range.persistent_rice_adaptation_enabled,
                cabac_bypass_alignment: range.cabac_bypass_alignment_enabled,
            },
            precision: [0, 1].map(|c| Precision { depth: sps.depth(c), extended }),
            ctb: Ctb::default(),
            qp: QpState { luma: header.qp, previous: header.qp, ..QpState::default() },
            scratch: Box::default(),
            counts: BitCounts::default(),
            counted: 0,
        }
    }

    /// Decodes every CTU of the segment. On failure says where in the
    /// segment's data, in bytes.
    pub fn decode(mut self) -> Result<BitCounts, (BitstreamError, usize)> {
        match self.walk() {
            Ok(()) => Ok(self.counts),
            Err(bitstream_error) => {
                Err((bitstream_error, self.engine.byte_position().min(self.engine.data().len())))
            }
        }
    }

    fn walk(&mut self) -> Result<(), BitstreamError> {
        let layout = self.picture.layout.clone();
        let slice = self.picture.slice_index(self.header);
        let mut address = self.header.segment_address as usize;
        let mut ts = layout.rs_to_ts[address] as usize;
        self.start_segment(address, slice)?;
        loop {
            if self.picture.slice_of[address] != NOT_DECODED {
                return invalid(format!("CTB {address} is coded twice"));
            }
            self.picture.slice_of[address] = slice;
            self.picture.decoded_ctbs += 1;
            self.enter_ctb(address);
            self.coding_tree_unit(address)?;
            if self.engine.overrun() {
                return invalid("the slice data ends before its last CTU");
            }
            if self.pps.entropy_coding_sync_enabled && self.is_second_in_row(address) {
                self.picture.row_above = Some(self.entropy());
            }
            let end = self.engine.terminate();
            self.count(Share::Side);
            ts += 1;
            if end {
                break;
            }
            let Some(&next) = layout.ts_to_rs.get(ts) else {
                return invalid("the slice goes on past the last CTU");
            };
            let crosses_tile = layout.tile[next as usize] != layout.tile[address];
            address = next as usize;
            let starts_row = self.pps.entropy_coding_sync_enabled && layout.starts_row[address];
            if crosses_tile || starts_row {
                if !self.engine.terminate() {
                    return invalid("end_of_subset_one_bit is 0");
                }
                self.engine.restart(self.engine.byte_position());
                self.start_substream(address, crosses_tile, slice);
            }
        }
        if self.engine.overrun() {
            return invalid("the slice data ends before its last CTU");
        }
        self.picture.segment_end = Some((self.entropy(), self.qp.luma));
        self.picture.deblocking |= !self.header.deblocking.disabled;
        Ok(())
    }

    fn entropy(&self) -> Entropy {
        Entropy { contexts: self.contexts, stat_coeff: self.stat_coeff }
    }

    fn restore(&mut self, entropy: Entropy) {
        (self.contexts, self.stat_coeff) = (entropy.contexts, entropy.stat_coeff);
    }

    /// Contexts at the first CTU of the segment (clause 9.3.1).
    fn start_segment(&mut self, address: usize, slice: u32) -> Result<(), BitstreamError> {
        let layout = &self.picture.layout;
        let ts = layout.rs_to_ts[address] as usize;
        let starts_tile = ts == 0 || layout.tile[layout.ts_to_rs[ts - 1] as usize] != layout.tile[address];
        let starts_row = self.pps.entropy_coding_sync_enabled && layout.starts_row[address];
        if self.header.dependent {
            let Some((entropy, qp)) = self.picture.segment_end.clone() else {
                return invalid("a dependent slice segment follows none");
            };
            if !starts_tile && !starts_row {
                self.restore(entropy);
                (self.qp.luma, self.qp.previous) = (qp, qp);
            }
        }
        if starts_row && !starts_tile {
            self.synchronize(address, slice);
        }
        Ok(())
    }

    /// Contexts where a tile or a wavefront row begins inside a segment.
    fn start_substream(&mut self, address: usize, starts_tile: bool, slice: u32) {
        self.contexts = Contexts::new(self.header.qp);
        self.stat_coeff = [0; 4];
        (self.qp.luma, self.qp.previous) = (self.header.qp, self.header.qp);
        if !starts_tile {
            self.synchronize(address, slice);
        }
    }

    /// Takes over the state after the second CTB of the row above, where that
    /// CTB is available (clause 9.3.2.4).
    fn synchronize(&mut self, address: usize, slice: u32) {
        let layout = &self.picture.layout;
        let Some(above) = address.checked_sub(layout.columns) else { return };
        if address % layout.columns + 1 == layout.columns {
            return;
        }
        let available =
            self.picture.slice_of[above + 1] == slice && layout.tile[above + 1] == layout.tile[address];
        if available && let Some(entropy) = self.picture.row_above.clone() {
            self.restore(entropy);
        }
    }

    fn is_second_in_row(&self, address: usize) -> bool {
        address > 0
            && !address.is_multiple_of(self.picture.layout.columns)
            && self.picture.layout.starts_row[address - 1]
    }

    fn enter_ctb(&mut self, address: usize) {
        let (columns, log2_ctb) = (self.picture.layout.columns, self.sps.log2_ctb);
        let (column, row) = (address % columns, address / columns);
        let picture = &*self.picture;
        let usable = |inside: bool, back: usize| inside && picture.reachable(address, address - back);
        let crossed = |inside: bool, back: usize| inside && picture.filters_across(address, address - back);
        self.ctb = Ctb {
            x: column << log2_ctb,
            y: row << log2_ctb,
            left: usable(column > 0, 1),
            above: usable(row > 0, columns),
            above_left: usable(row > 0 && column > 0, columns + 1),
            above_right: usable(row > 0 && column + 1 < columns, columns.wrapping_sub(1)),
            filter_left: crossed(column > 0, 1),
            filter_above: crossed(row > 0, columns),
        };
    }

    /// Adds the bits read since the last call to `share`.
    #[inline]
    pub fn count(&mut self, share: Share) {
        let position = self.engine.bit_position();
        let bits = position - self.counted;
        self.counted = position;
        match share {
            Share::Prediction => self.counts.prediction += bits,
            Share::Residual => self.counts.residual += bits,
            Share::Side => self.counts.side += bits,
            Share::Pcm => self.counts.pcm += bits,
        }
    }

    fn coding_tree_unit(&mut self, address: usize) -> Result<(), BitstreamError> {
        if self.header.sao != [false; 2] {
            self.picture.sao[address] = self.sao_parameters(address);
            self.picture.sao_used |= self.picture.sao[address] != [Sao::Off; 3];
        }
        let (x, y) = (self.ctb.x, self.ctb.y);
        self.coding_quadtree(x, y, self.sps.log2_ctb, 0)
    }

    /// sao() (clause 7.3.8.3).
    fn sao_parameters(&mut self, address: usize) -> [Sao; 3] {
        if self.ctb.left && self.engine.decode(&mut self.contexts.sao_merge_flag) {
            return self.picture.sao[address - 1];
        }
        if self.ctb.above && self.engine.decode(&mut self.contexts.sao_merge_flag) {
            return self.picture.sao[address - self.picture.layout.columns];
        }
        let mut sao = [Sao::Off; 3];
        for c in 0..self.picture.planes.len() {
            if !self.header.sao[usize::from(c > 0)] {
                continue;
            }
            sao[c] = self.sao_of(c, sao[1]);
        }
        sao
    }

    fn sao_of(&mut self, c: usize, cb: Sao) -> Sao {
        let kind = match (c, cb) {
            // Cr shares type and class with Cb.
            (2, Sao::Off) => 0,
            (2, Sao::Band { .. }) => 1,
            (2, Sao::Edge { .. }) => 2,
            _ if !self.engine.decode(&mut self.contexts.sao_type_idx) => 0,
            _ => 1 + u32::from(self.engine.bypass()),
        };
        if kind == 0 {
            return Sao::Off;
        }
        let limit = (1 << (self.sps.depth(c).min(10) - 5)) - 1;
        let scale = self.pps.range.log2_sao_offset_scale[usize::from(c > 0)];
        let mut offsets = [0i32; 4];
        for offset in &mut offsets {
            while *offset < limit && self.engine.bypass() {
                *offset += 1;
            }
        }
        if kind == 1 {
            for offset in offsets.iter_mut().filter(|offset| **offset != 0) {
                if self.engine.bypass() {
                    *offset = -*offset;
                }
            }
            let position = self.engine.bypass_bits(5) as u8;
            return Sao::Band { position, offsets: offsets.map(|o| (o << scale) as i16) };
        }
        let class = match cb {
            Sao::Edge { class, .. } if c == 2 => class,
            _ => EdgeClass::ALL[self.engine.bypass_bits(2) as usize & 3],
        };
        let [a, b, c, d] = offsets.map(|o| (o << scale) as i16);
        Sao::Edge { class, offsets: [a, b, -c, -d] }
    }
}
