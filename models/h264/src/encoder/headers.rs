//! Parameter sets and slice headers of the streams this encoder writes:
//! progressive, one IDR picture per frame, nothing optional.

use crate::encoder::params::{Entropy, Params};
use crate::reconstruct::Rebuild;
use trinity_bits::vui::Start;
use trinity_bits::{BitWriter, Chroma, Colour, Frame, Presentation, nal};

/// What the headers say of every frame of a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamShape {
    pub width: usize,
    pub height: usize,
    pub chroma: Chroma,
    pub depth: u32,
    pub lossless: bool,
    pub cavlc: bool,
    pub deblock: bool,
    pub colour: Colour,
    pub shown: Presentation,
}

impl StreamShape {
    pub fn new(frame: &Frame, params: &Params, lossless: bool) -> Self {
        Self {
            width: frame.width(),
            height: frame.height(),
            chroma: frame.chroma,
            depth: frame.depth,
            lossless,
            cavlc: params.entropy == Entropy::Cavlc,
            deblock: params.deblock,
            colour: params.colour,
            shown: params.shown,
        }
    }

    pub fn rebuild(&self) -> Rebuild {
        Rebuild {
            chroma: self.chroma,
            depths: [self.depth; 2],
            chroma_qp_index_offset: [0; 2],
            lossless_at_qp_prime_0: self.lossless,
            colour_plane: 0,
        }
    }

    pub fn width_mbs(&self) -> usize {
        self.width.div_ceil(16)
    }

    pub fn height_mbs(&self) -> usize {
        self.height.div_ceil(16)
    }

    /// profile_idc (Annex A.2): the smallest profile that holds the format.
    fn profile_idc(&self) -> u32 {
        match (self.chroma, self.depth) {
            _ if self.lossless => 244,
            (Chroma::C444, _) | (_, 11..) => 244,
            (Chroma::C422, _) => 122,
            (_, 9 | 10) => 110,
            _ => 100,
        }
    }

    /// level_idc (Table A-1): the smallest whose MaxFS and width hold the frame.
    fn level_idc(&self) -> u32 {
        const MAX_FS: [(usize, u32); 13] = [
            (99, 10),
            (396, 11),
            (792, 21),
            (1_620, 22),
            (3_600, 31),
            (5_120, 32),
            (8_192, 40),
            (8_704, 42),
            (22_080, 50),
            (36_864, 51),
            (139_264, 60),
            (139_264, 61),
            (usize::MAX, 62),
        ];
        let (width, height) = (self.width_mbs(), self.height_mbs());
        let fits = |max_fs: usize| {
            width * height <= max_fs && width * width <= 8 * max_fs && height * height <= 8 * max_fs
        };
        MAX_FS
            .iter()
            .find(|(max_fs, _)| *max_fs == usize::MAX || fits(*max_fs))
            .map_or(62, |&(_, level)| level)
    }

    pub fn write_parameter_sets(&self, stream: &mut Vec<u8>) {
        nal::write_unit(stream, &self.sps());
        nal::write_unit(stream, &self.pps());
    }

    fn sps(&self) -> Vec<u8> {
        let mut w = BitWriter::new();
        w.bits(0x67, 8);
        w.bits(self.profile_idc(), 8);
        // constraint_set3_flag: intra only. Not for High itself, where decoders
        // that know no High Intra profile would stumble.
        w.bits(if self.profile_idc() == 100 { 0 } else { 0x10 }, 8);
        w.bits(self.level_idc(), 8);
        w.ue(0);
        w.ue(self.chroma.idc());
        if self.chroma == Chroma::C444 {
            w.flag(false); // separate_colour_plane_flag
        }
        w.ue(self.depth - 8);
        // Chroma depth must equal luma depth even in 4:0:0, or ffmpeg rejects the set.
        w.ue(self.depth - 8);
        w.flag(self.lossless);
        w.flag(false); // seq_scaling_matrix_present_flag
        w.ue(0); // log2_max_frame_num - 4
        w.ue(2); // pic_order_cnt_type: output in decoding order
        w.ue(0); // max_num_ref_frames
        w.flag(false);
        w.ue(self.width_mbs() as u32 - 1);
        w.ue(self.height_mbs() as u32 - 1);
        w.flag(true); // frame_mbs_only_flag
        w.flag(true); // direct_8x8_inference_flag
        self.write_crop(&mut w);
        self.write_vui(&mut w);
        w.trailing_bits();
        w.into_bytes()
    }

    /// vui_parameters_present_flag and, where there is something to say, vui_parameters().
    fn write_vui(&self, w: &mut BitWriter) {
        let start = Start::new(self.colour, &self.shown);
        let said = !start.is_empty() || self.shown.frame_rate.is_some();
        w.flag(said);
        if !said {
            return;
        }
        start.write(w);
        w.flag(self.shown.frame_rate.is_some());
        if let Some((frames, seconds)) = self.shown.frame_rate {
            // A tick is a field's time: half a frame's.
            w.bits(seconds, 32);
            w.bits(frames.saturating_mul(2), 32);
            w.flag(true); // fixed_frame_rate_flag
        }
        // nal_hrd, vcl_hrd, pic_struct, bitstream_restriction
        w.bits(0, 4);
    }

    fn write_crop(&self, w: &mut BitWriter) {
        let right = self.width_mbs() * 16 - self.width;
        let bottom = self.height_mbs() * 16 - self.height;
        let (sx, sy) = self.chroma.shift();
        w.flag(right > 0 || bottom > 0);
        if right > 0 || bottom > 0 {
            w.ue(0);
            w.ue((right >> sx) as u32);
            w.ue(0);
            w.ue((bottom >> sy) as u32);
        }
    }

    fn pps(&self) -> Vec<u8> {
        let mut w = BitWriter::new();
        w.bits(0x68, 8);
        w.ue(0);
        w.ue(0);
        w.flag(!self.cavlc);
        w.flag(false);
        w.ue(0); // one slice group
        w.ue(0);
        w.ue(0);
        w.flag(false);
        w.bits(0, 2);
        w.se(0); // pic_init_qp_minus26
        w.se(0);
        w.se(0); // chroma_qp_index_offset
        w.flag(true); // deblocking_filter_control_present_flag
        w.flag(false);
        w.flag(false);
        w.flag(true); // transform_8x8_mode_flag
        w.flag(false);
        w.se(0); // second_chroma_qp_index_offset
        w.trailing_bits();
        w.into_bytes()
    }

    /// The NAL unit header and slice_header() of a slice of frame `index`.
    pub fn slice_header(&self, index: usize, first_mb: usize, qp: i32) -> BitWriter {
        let mut w = BitWriter::new();
        w.bits(0x65, 8);
        w.ue(first_mb as u32);
        w.ue(7); // slice_type: all slices are I
        w.ue(0);
        w.bits(0, 4); // frame_num
        w.ue((index % 2) as u32); // idr_pic_id: differs between neighbours
        w.bits(0, 2); // dec_ref_pic_marking
        w.se(qp - 26);
        w.ue(u32::from(!self.deblock));
        if self.deblock {
            w.se(0);
            w.se(0);
        }
        w
    }
}
