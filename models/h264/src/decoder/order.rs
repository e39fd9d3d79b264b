//! Picture order count and output order (clauses 8.2.1, C.4.5).

use crate::syntax::parameter_sets::{PocType, Sps};
use crate::syntax::slice_header::{SliceHeader, Structure};
use std::collections::VecDeque;
use trinity_bits::Frame;

/// TopFieldOrderCnt and BottomFieldOrderCnt, from picture to picture.
#[derive(Debug, Default)]
pub struct OrderCount {
    prev_msb: i64,
    prev_lsb: i64,
    prev_frame_num: i64,
    prev_offset: i64,
}

impl OrderCount {
    /// The order counts of a picture: top and bottom field, of which a field
    /// picture has the one. Call once a picture, in decoding order.
    pub fn next(&mut self, header: &SliceHeader, sps: &Sps) -> [i64; 2] {
        if header.nal.is_idr() {
            *self = Self::default();
        }
        let counts = match &sps.poc {
            PocType::Lsb { log2_max } => self.by_lsb(header, 1 << log2_max),
            PocType::Cycle { .. } | PocType::DecodingOrder => self.by_frame_num(header, sps),
        };
        if header.resets_memory {
            return self.reset(header, counts);
        }
        counts
    }

    fn by_lsb(&mut self, header: &SliceHeader, max_lsb: i64) -> [i64; 2] {
        let lsb = i64::from(header.pic_order_cnt_lsb);
        let msb = if lsb < self.prev_lsb && self.prev_lsb - lsb >= max_lsb / 2 {
            self.prev_msb + max_lsb
        } else if lsb > self.prev_lsb && lsb - self.prev_lsb > max_lsb / 2 {
            self.prev_msb - max_lsb
        } else {
            self.prev_msb
        };
        if header.nal.ref_idc != 0 {
            (self.prev_msb, self.prev_lsb) = (msb, lsb);
        }
        [msb + lsb, msb + lsb + i64::from(header.delta_pic_order_cnt_bottom)]
    }

    fn by_frame_num(&mut self, header: &SliceHeader, sps: &Sps) -> [i64; 2] {
        let frame_num = i64::from(header.frame_num);
        let mut offset = self.prev_offset;
        if self.prev_frame_num > frame_num {
            offset += 1 << sps.log2_max_frame_num;
        }
        (self.prev_frame_num, self.prev_offset) = (frame_num, offset);
        let is_reference = header.nal.ref_idc != 0;
        let PocType::Cycle {
            offset_for_non_ref_pic, offset_for_top_to_bottom, offsets_for_ref_frame, ..
        } = &sps.poc
        else {
            return [2 * (offset + frame_num) - i64::from(!is_reference && !header.nal.is_idr()); 2];
        };
        let cycle = offsets_for_ref_frame;
        let mut absolute = if cycle.is_empty() { 0 } else { offset + frame_num };
        if !is_reference && absolute > 0 {
            absolute -= 1;
        }
        let mut expected = 0;
        if absolute > 0 {
            let (whole, part) = ((absolute - 1) / cycle.len() as i64, (absolute - 1) % cycle.len() as i64);
            let sum = |offsets: &[i32]| offsets.iter().map(|&o| i64::from(o)).sum::<i64>();
            expected = whole * sum(cycle) + sum(&cycle[..=part as usize]);
        }
        if !is_reference {
            expected += i64::from(*offset_for_non_ref_pic);
        }
        let top = expected + i64::from(header.delta_pic_order_cnt[0]);
        let to_bottom = i64::from(*offset_for_top_to_bottom);
        if header.structure == Structure::BottomField {
            return [top + to_bottom; 2];
        }
        [top, top + to_bottom + i64::from(header.delta_pic_order_cnt[1])]
    }

    /// memory_management_control_operation 5: order starts again at this picture.
    fn reset(&mut self, header: &SliceHeader, counts: [i64; 2]) -> [i64; 2] {
        let base = match header.structure {
            Structure::Frame => counts[0].min(counts[1]),
            Structure::TopField => counts[0],
            Structure::BottomField => counts[1],
        };
        let counts = counts.map(|count| count - base);
        *self = Self::default();
        if header.structure != Structure::BottomField {
            self.prev_lsb = counts[0];
        }
        counts
    }
}

/// Frames that wait for their turn.
#[derive(Debug, Default)]
pub struct OutputOrder {
    waiting: Vec<(i64, Frame)>,
    ready: VecDeque<Frame>,
}

impl OutputOrder {
    /// A finished frame; `depth` frames may wait.
    pub fn push(&mut self, order_count: i64, frame: Frame, depth: usize) {
        let at = self.waiting.partition_point(|(count, _)| *count <= order_count);
        self.waiting.insert(at, (order_count, frame));
        while self.waiting.len() > depth {
            self.ready.push_back(self.waiting.remove(0).1);
        }
    }

    /// Everything that waits goes out: an IDR picture or the end of the stream.
    pub fn flush(&mut self) {
        self.ready.extend(self.waiting.drain(..).map(|(_, frame)| frame));
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    pub fn pop(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }
}
