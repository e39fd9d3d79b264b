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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::slice_header::NalHeader;
    use trinity_bits::Chroma;

    /// Numbers of four bits.
    fn sps(poc: PocType) -> Sps {
        Sps { log2_max_frame_num: 4, poc, ..Sps::default() }
    }

    const LOW_BITS: PocType = PocType::Lsb { log2_max: 4 };

    fn slice(nal: u8) -> SliceHeader {
        SliceHeader { nal: NalHeader::new(nal), ..SliceHeader::default() }
    }

    const IDR: u8 = 0x65;
    const REFERENCE: u8 = 0x21;
    const OTHER: u8 = 0x01;

    /// Four bits of order, so that it wraps at 16 (clause 8.2.1.1).
    #[test]
    fn order_by_low_bits_goes_on_where_they_wrap() {
        let sps = sps(LOW_BITS);
        let mut order = OrderCount::default();
        let mut next = |nal, lsb, bottom| {
            let header =
                SliceHeader { pic_order_cnt_lsb: lsb, delta_pic_order_cnt_bottom: bottom, ..slice(nal) };
            order.next(&header, &sps)
        };
        assert_eq!(next(IDR, 0, 1), [0, 1]);
        assert_eq!(next(REFERENCE, 6, 0), [6, 6]);
        assert_eq!(next(REFERENCE, 14, -2), [14, 12]);
        // Up by half the range or more is a wrap; what no other refers to moves nothing.
        assert_eq!(next(OTHER, 4, 0), [20, 20]);
        assert_eq!(next(REFERENCE, 2, 0), [18, 18]);
        // And back: shown before the wrap, decoded after it.
        assert_eq!(next(OTHER, 13, 0), [13, 13]);
        assert_eq!(next(REFERENCE, 8, 0), [24, 24]);
        assert_eq!(next(IDR, 0, 0), [0, 0]);
    }

    #[test]
    fn order_by_decoding_puts_what_no_other_refers_to_just_before_its_time() {
        let sps = sps(PocType::DecodingOrder);
        let mut order = OrderCount::default();
        let mut next = |nal, frame_num| order.next(&SliceHeader { frame_num, ..slice(nal) }, &sps);
        assert_eq!(next(IDR, 0), [0, 0]);
        assert_eq!(next(REFERENCE, 1), [2, 2]);
        assert_eq!(next(OTHER, 2), [3, 3]);
        assert_eq!(next(REFERENCE, 15), [30, 30]);
        // frame_num has four bits.
        assert_eq!(next(REFERENCE, 0), [32, 32]);
        assert_eq!(next(OTHER, 1), [33, 33]);
    }

    /// Clause 8.2.1.2: a cycle of 4 and 6, pictures that no other refers to one before, bottom fields one after.
    #[test]
    fn order_by_a_cycle_adds_up_its_offsets() {
        let sps = sps(PocType::Cycle {
            delta_always_zero: false,
            offset_for_non_ref_pic: -1,
            offset_for_top_to_bottom: 1,
            offsets_for_ref_frame: vec![4, 6],
        });
        let mut order = OrderCount::default();
        let mut next = |nal, frame_num, structure, delta| {
            let header = SliceHeader { frame_num, structure, delta_pic_order_cnt: delta, ..slice(nal) };
            order.next(&header, &sps)
        };
        use Structure::{BottomField, Frame, TopField};
        assert_eq!(next(IDR, 0, Frame, [0; 2]), [0, 1]);
        assert_eq!(next(REFERENCE, 1, Frame, [0; 2]), [4, 5]);
        assert_eq!(next(REFERENCE, 2, Frame, [3, -2]), [13, 12]);
        assert_eq!(next(REFERENCE, 3, TopField, [0; 2])[0], 14);
        assert_eq!(next(REFERENCE, 3, BottomField, [0; 2])[1], 15);
        // The cycle of the frame before, and one less.
        assert_eq!(next(OTHER, 4, Frame, [0; 2]), [13, 14]);
        assert_eq!(next(REFERENCE, 0, Frame, [0; 2]), [80, 81]);
    }

    #[test]
    fn an_operation_that_resets_memory_begins_the_order_anew() {
        let sps = sps(LOW_BITS);
        let resets = |structure, order: &mut OrderCount| {
            order.next(&SliceHeader { pic_order_cnt_lsb: 9, ..slice(REFERENCE) }, &sps);
            let header = SliceHeader {
                pic_order_cnt_lsb: 11,
                delta_pic_order_cnt_bottom: 3,
                resets_memory: true,
                structure,
                ..slice(REFERENCE)
            };
            order.next(&header, &sps)
        };
        let mut order = OrderCount::default();
        assert_eq!(resets(Structure::Frame, &mut order), [0, 3]);
        assert_eq!(order.next(&SliceHeader { pic_order_cnt_lsb: 2, ..slice(OTHER) }, &sps), [2, 2]);
        assert_eq!(resets(Structure::TopField, &mut order)[0], 0);
        assert_eq!(resets(Structure::BottomField, &mut order)[1], 0);
    }

    #[test]
    fn frames_leave_by_their_order_once_too_many_wait() {
        let frame = |size| Frame::filled(size, 1, Chroma::C400, 8, 0);
        let mut output = OutputOrder::default();
        for (count, size) in [(8, 3), (2, 1), (2, 5), (4, 2)] {
            output.push(count, frame(size), 2);
        }
        let mut widths =
            || std::iter::from_fn(|| output.pop()).map(|frame| frame.width()).collect::<Vec<_>>();
        // Of one count, who came first.
        assert_eq!(widths(), [1, 5]);
        assert!(!output.is_empty());
        output.flush();
        let rest: Vec<usize> = std::iter::from_fn(|| output.pop()).map(|frame| frame.width()).collect();
        assert_eq!(rest, [2, 3]);
        assert!(output.is_empty());
        output.push(0, frame(4), 0);
        assert_eq!(output.pop().map(|frame| frame.width()), Some(4), "nothing may wait");
    }
}
