//! From modes and coefficients to samples, one transform block at a time, and
//! the QP each block is scaled with (H.265 clauses 8.4.4.1, 8.6.1 and 8.6.2).

use trinity_bits::{Chroma, invalid};

use super::residual::{self, Block, Residual, Scaling};
use super::slice::{Share, SliceDecoder};
use super::tree::CodingUnit;
use crate::deblock::chroma_qp;
use crate::entropy::scan::{Scan, z_order};
use crate::intra::{self, Available, Smoothing};
use crate::quant::Quantizer;
use crate::syntax::BitstreamError;
use crate::transform::{self, Kernel, Rdpcm};

impl SliceDecoder<'_> {
    /// QpY of a coding unit in the current quantization group.
    pub fn current_qp(&self) -> i32 {
        if self.pps.cu_qp_delta_depth.is_none() {
            return self.header.qp;
        }
        let (x, y) = self.qp.group;
        let at = self.unit(x, y);
        // Neighbours count only inside the CTB.
        let left = if x > self.ctb.x { i32::from(self.picture.edges.qp[at - 1]) } else { self.qp.previous };
        let above = if y > self.ctb.y {
            i32::from(self.picture.edges.qp[at - self.picture.edges.stride])
        } else {
            self.qp.previous
        };
        let predicted = (left + above + 1) >> 1;
        let offset = 6 * (self.sps.bit_depth as i32 - 8);
        (predicted + self.qp.cu_qp_delta + 52 + 2 * offset).rem_euclid(52 + offset) - offset
    }

    /// cu_qp_delta_abs to cu_chroma_qp_offset_idx of a transform unit.
    pub fn quantization_syntax(&mut self, cu: &CodingUnit, cbf_chroma: bool) -> Result<(), BitstreamError> {
        if self.pps.cu_qp_delta_depth.is_some() && !self.qp.delta_coded {
            self.qp.delta_coded = true;
            self.qp.cu_qp_delta = self.cu_qp_delta()?;
            self.qp.luma = self.current_qp();
        }
        let wanted = self.header.cu_chroma_qp_offset_enabled && cbf_chroma && !cu.transquant_bypass;
        if let Some(offsets) = &self.pps.range.chroma_qp_offsets
            && wanted
            && !self.qp.chroma_offset_coded
        {
            self.qp.chroma_offset_coded = true;
            self.qp.cu_chroma_offset = [0, 0];
            if self.engine.decode(&mut self.contexts.cu_chroma_qp_offset_flag) {
                let mut index = 0;
                while index + 1 < offsets.list.len()
                    && self.engine.decode(&mut self.contexts.cu_chroma_qp_offset_idx)
                {
                    index += 1;
                }
                self.qp.cu_chroma_offset = offsets.list[index];
            }
        }
        Ok(())
    }

    fn cu_qp_delta(&mut self) -> Result<i32, BitstreamError> {
        let mut magnitude = 0;
        while magnitude < 5
            && self.engine.decode(&mut self.contexts.cu_qp_delta_abs[usize::from(magnitude > 0)])
        {
            magnitude += 1;
        }
        if magnitude == 5 {
            let mut bits = 0;
            while self.engine.bypass() {
                magnitude += 1 << bits;
                bits += 1;
                if bits > 7 {
                    return invalid("cu_qp_delta_abs is larger than any QP");
                }
            }
            magnitude += self.engine.bypass_bits(bits) as i32;
        }
        let value = if magnitude > 0 && self.engine.bypass() { -magnitude } else { magnitude };
        let half_range = 26 + 3 * (self.sps.bit_depth as i32 - 8);
        if !(-half_range..half_range).contains(&value) {
            return invalid(format!("CuQpDeltaVal is {value}, outside ±{half_range}"));
        }
        Ok(value)
    }

    /// qP of component `c` (clause 8.6.1).
    fn block_qp(&self, c: usize) -> i32 {
        if c == 0 {
            return self.qp.luma + 6 * (self.sps.bit_depth as i32 - 8);
        }
        let depth_offset = 6 * (self.sps.chroma_bit_depth as i32 - 8);
        let offset = self.pps.chroma_qp_offset[c - 1]
            + self.header.chroma_qp_offset[c - 1]
            + self.qp.cu_chroma_offset[c - 1];
        let index = (self.qp.luma + offset).clamp(-depth_offset, 57);
        chroma_qp(index, self.sps.chroma) + depth_offset
    }

    fn quantizer(&mut self, c: usize, log2: u32) -> Quantizer {
        let qp = self.block_qp(c);
        let slot = &mut self.scratch.quantizers[c][log2 as usize - 2];
        match slot {
            Some((for_qp, quantizer)) if *for_qp == qp => *quantizer,
            _ => {
                let quantizer = Quantizer::new(qp, log2, self.precision[c.min(1)]);
                *slot = Some((qp, quantizer));
                quantizer
            }
        }
    }

    /// Predicts a block of component `c` at (`x`, `y`) of its plane and adds
    /// its residual: parsed where `coded`, and `res_scale` eighths of luma's.
    pub fn block(
        &mut self,
        cu: &CodingUnit,
        c: usize,
        (x, y): (usize, usize),
        log2: u32,
        mode: u8,
        Residual { coded, res_scale }: Residual,
    ) -> Result<(), BitstreamError> {
        self.predict(cu, c, (x, y), log2, mode);
        let samples = 1usize << (2 * log2);
        if coded {
            self.residual(cu, c, log2, mode)?;
            self.count(Share::Residual);
        }
        let chroma_444 = self.sps.chroma_array() == Chroma::C444;
        if c == 0 && chroma_444 && self.pps.range.cross_component_prediction_enabled {
            self.scratch.luma[..samples].copy_from_slice(&self.scratch.block[..samples]);
        }
        if res_scale != 0 {
            let (luma_depth, depth) = (self.sps.bit_depth, self.sps.chroma_bit_depth);
            let scratch = &mut *self.scratch;
            transform::cross_component(
                &mut scratch.block[..samples],
                &scratch.luma[..samples],
                res_scale,
                luma_depth,
                depth,
            );
        }
        if coded || res_scale != 0 {
            let plane = &mut self.picture.planes[c];
            let at = y * plane.width + x;
            let depth = self.sps.depth(c);
            transform::add_residual(
                &mut plane.samples[at..],
                plane.width,
                &self.scratch.block[..samples],
                log2,
                depth,
            );
            self.scratch.block[..samples].fill(0);
        }
        Ok(())
    }

    /// Parses a block and turns it into a residual in `scratch.block`
    /// (clause 8.6.2).
    fn residual(&mut self, cu: &CodingUnit, c: usize, log2: u32, mode: u8) -> Result<(), BitstreamError> {
        let precision = self.precision[c.min(1)];
        let quantizer = (!cu.transquant_bypass).then(|| self.quantizer(c, log2));
        let rdpcm = Rdpcm::implicit(mode).filter(|_| self.tools.implicit_rdpcm);
        let block = Block {
            log2,
            c_idx: c,
            scan: Scan::of(mode, log2, c, self.sps.chroma_array() == Chroma::C444),
            transquant_bypass: cu.transquant_bypass,
            straight: rdpcm.is_some(),
            log2_range: precision.log2_range(),
        };
        let scaling =
            Scaling { quantizer: quantizer.as_ref(), list: self.factors.map(|factors| factors.of(log2, c)) };
        let parsed = residual::parse(
            &mut self.engine,
            &mut self.contexts,
            &mut self.stat_coeff,
            &self.tools,
            &block,
            scaling,
            &mut self.scratch.block,
        );
        let Some(transform_skip) = parsed else {
            return invalid("a coefficient is longer than any valid code");
        };
        let residual = &mut self.scratch.block[..1 << (2 * log2)];
        if cu.transquant_bypass || transform_skip {
            if self.sps.range.transform_skip_rotation_enabled && log2 == 2 {
                transform::rotate(residual, log2);
            }
            if transform_skip {
                transform::inverse_skip(residual, log2, precision);
            }
            if let Some(direction) = rdpcm {
                transform::accumulate(residual, log2, direction);
            }
        } else {
            let kernel = if c == 0 && log2 == 2 { Kernel::Dst } else { Kernel::Dct };
            transform::inverse(residual, log2, kernel, precision);
        }
        Ok(())
    }

    fn predict(&mut self, cu: &CodingUnit, c: usize, (x, y): (usize, usize), log2: u32, mode: u8) {
        let size = 1usize << log2;
        let depth = self.sps.depth(c);
        let available = self.available(c, (x, y), size);
        let range = &self.sps.range;
        let chroma_444 = self.sps.chroma_array() == Chroma::C444;
        let kind = if range.intra_smoothing_disabled || (c > 0 && !chroma_444) {
            Smoothing::None
        } else {
            intra::smoothing(mode, size, self.sps.strong_intra_smoothing_enabled && c == 0)
        };
        let edge_filter =
            intra::edge_filter(mode, c, size, range.implicit_rdpcm_enabled && cu.transquant_bypass);
        let scratch = &mut *self.scratch;
        let plane = &mut self.picture.planes[c];
        let stride = plane.width;
        intra::gather(&mut scratch.line, &plane.samples, stride, (x, y), size, available, depth);
        let mut line = &scratch.line;
        if kind != Smoothing::None {
            intra::smooth(&scratch.line, &mut scratch.smoothed, size, kind, depth);
            line = &scratch.smoothed;
        }
        intra::predict(mode, line, size, depth, edge_filter, &mut plane.samples[y * stride + x..], stride);
    }

    /// Which neighbours of a `size`×`size` block of component `c` exist and
    /// are decoded (clause 6.4.1).
    fn available(&self, c: usize, (x, y): (usize, usize), size: usize) -> Available {
        let ctb = &self.ctb;
        let (sx, sy) = if c == 0 { (0, 0) } else { self.sps.chroma.shift() };
        // Everything below in luma samples.
        let (x, y) = (x << sx, y << sy);
        let (width, height) = (size << sx, size << sy);
        let ctb_size = 1usize << self.sps.log2_ctb;
        let (in_x, in_y) = (x - ctb.x, y - ctb.y);
        let left = in_x > 0 || ctb.left;
        let above = in_y > 0 || ctb.above;
        let corner = match (in_x > 0, in_y > 0) {
            (true, true) => true,
            (true, false) => ctb.above,
            (false, true) => ctb.left,
            (false, false) => ctb.above_left,
        };
        let room_right = (self.sps.width as usize - x - width).min(width);
        let above_right = if in_y == 0 {
            // The row above belongs to CTBs decoded before this one.
            if in_x + width < ctb_size { ctb.above } else { ctb.above_right }
        } else {
            in_x + width < ctb_size && z_order(in_x + width, in_y - 1) < z_order(in_x, in_y)
        };
        let room_below = (self.sps.height as usize - y - height).min(height);
        let below_left = in_y + height < ctb_size
            && if in_x == 0 { ctb.left } else { z_order(in_x - 1, in_y + height) < z_order(in_x, in_y) };
        Available {
            left,
            above,
            corner,
            below_left: if below_left { room_below >> sy } else { 0 },
            above_right: if above_right { room_right >> sx } else { 0 },
        }
    }
}
