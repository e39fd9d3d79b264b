//! Encodes one slice: whole macroblock rows of a frame, on their own.

use crate::deblock::mb_rows;
use crate::encoder::headers::StreamShape;
use crate::encoder::preset::Tuning;
use crate::encoder::quantize::{MAX_LEVEL_CABAC, MAX_LEVEL_CAVLC, Quantizer};
use crate::encoder::search::{Job, Search, SourceMb, Trial};
use crate::encoder::syntax::write_macroblock;
use crate::entropy::writer::{CabacWriter, CavlcWriter, StreamWriter, SyntaxCounter};
use crate::macroblock::{MbInfo, MbKind, MbMap, Neighbours};
use crate::picture::{Picture, Window};
use crate::quant::LevelScale;
use crate::syntax::slice_header::Structure;
use trinity_bits::{BitWriter, Chroma, Frame};
use trinity_numeric::simd::{self, Kernel};

/// QPY over a slice: `qp` up to macroblock `switch_at`, one more from there on.
/// That is how rates between two QPs are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpPlan {
    pub qp: i32,
    /// Address in the frame.
    pub switch_at: usize,
}

/// Which part of which frame.
#[derive(Debug, Clone, Copy)]
pub struct SliceTask<'a> {
    pub frame: &'a Frame,
    pub shape: &'a StreamShape,
    pub tuning: &'a Tuning,
    pub index: usize,
    /// First macroblock row and the one after the last.
    pub rows: (usize, usize),
    pub plan: QpPlan,
}

/// A coded slice: its NAL unit with header, the samples it decodes to, and
/// what the deblocking filter needs of its macroblocks.
#[derive(Debug)]
pub struct CodedSlice {
    pub nal: Vec<u8>,
    pub recon: Picture,
    pub infos: Vec<MbInfo>,
}

/// Encodes `task`, in the build that suits the processor.
pub fn encode_slice(task: &SliceTask) -> CodedSlice {
    let first = task.rows.0 * task.shape.width_mbs();
    let slice_qp = if first >= task.plan.switch_at { task.plan.qp + 1 } else { task.plan.qp };
    let header = task.shape.slice_header(task.index, first, slice_qp);
    if task.shape.cavlc {
        let writer = CavlcWriter::new(header);
        simd::widest(SliceCoder { task, writer, header: BitWriter::new(), slice_qp })
    } else {
        simd::widest(SliceCoder { task, writer: CabacWriter::new(slice_qp), header, slice_qp })
    }
}

/// One slice on its way to `writer`.
struct SliceCoder<'a, W> {
    task: &'a SliceTask<'a>,
    writer: W,
    header: BitWriter,
    slice_qp: i32,
}

/// What is marked to be inlined on the way down to a block – the search, transforms,
/// quantization – comes along into the wide copy. The search from a macroblock down to its
/// blocks does not in builds with debug assertions: sixteen copies of it take them a minute to
/// compile, and kernels alone are compared there; pins hold the wide copies in release
/// (`cargo xtask test --all`).
impl<W: StreamWriter> Kernel for SliceCoder<'_, W> {
    type Output = CodedSlice;

    #[inline(always)]
    fn run(self) -> CodedSlice {
        encode(self)
    }
}

#[inline(always)]
fn encode<W: StreamWriter>(coder: SliceCoder<'_, W>) -> CodedSlice {
    let SliceCoder { task, mut writer, header, slice_qp } = coder;
    let &SliceTask { shape, tuning, .. } = task;
    let width = shape.width_mbs();
    let rows = task.rows.1 - task.rows.0;
    let rebuild = shape.rebuild();
    let scale = LevelScale::new(None);
    let search = Search {
        rebuild: &rebuild,
        scale: &scale,
        effort: tuning.effort,
        lambda: tuning.lambda,
        rounding: tuning.rounding,
        lossless: shape.lossless,
        cabac: !shape.cavlc,
    };
    let max_level = if shape.cavlc { MAX_LEVEL_CAVLC } else { MAX_LEVEL_CABAC };
    let quantizers: [[Quantizer; 3]; 2] = std::array::from_fn(|step| {
        std::array::from_fn(|c| {
            let qp = (task.plan.qp + step as i32).min(51);
            Quantizer::new(rebuild.qp_prime(qp, c), max_level)
        })
    });
    let chroma_blocks = if shape.chroma == Chroma::C420 { (2, 2) } else { (4, 4) };
    let count = width * rows;
    let mut map = MbMap { infos: vec![MbInfo::default(); count], width, mbaff: false, chroma_blocks };
    let mut recon = Picture::new(shape.chroma, width, rows, [shape.depth; 2]);
    let mut neighbours = Neighbours::default();
    let mut windows: [Window; 3] = Default::default();
    let mut source: SourceMb = [[0; 256]; 3];
    let mut running_qp = slice_qp;
    let first = task.rows.0 * width;
    for addr in 0..count {
        map.neighbours(addr, 1, false, &mut neighbours);
        for (plane, window) in recon.planes.iter().zip(&mut windows) {
            window.load(plane, mb_rows(&map, addr, false, Structure::Frame, plane), neighbours.available);
        }
        load_source(task.frame, addr % width, addr / width + task.rows.0, &mut source);
        let step = usize::from(first + addr >= task.plan.switch_at);
        let qp = task.plan.qp + step as i32;
        let counter = writer.counter();
        let job = Job {
            source: &source,
            neighbours: &neighbours,
            windows: &windows,
            counter: &counter,
            quantizers: &quantizers[step],
            qp,
            delta: qp - running_qp,
            forced_kind: training_kind(addr, count).filter(|_| !shape.cavlc && !shape.lossless),
        };
        let delta = job.delta;
        let mut trial = search.macroblock(&job);
        let pcm = pcm_if_cheaper(&job, &search, &trial, shape, &source);
        let mut info = if let Some(bytes) = pcm {
            writer.mb_type(&neighbours, 25);
            writer.pcm_samples(&bytes);
            writer.no_qp_delta();
            for (c, plane) in recon.planes.iter().enumerate() {
                for y in 0..plane.mb_height {
                    let row = &source[c][16 * y..16 * y + plane.mb_width];
                    trial.windows[c].row_mut(y)[..plane.mb_width].copy_from_slice(row);
                }
            }
            MbInfo::pcm()
        } else {
            write_macroblock(&mut writer, &trial.mb, &mut neighbours, shape.chroma, !shape.cavlc, delta);
            if trial.mb.cbp != 0 || trial.mb.kind == MbKind::I16x16 {
                running_qp = qp;
            }
            MbInfo { qp: running_qp as i8, ..MbInfo::of(&trial.mb, &neighbours) }
        };
        info.slice = 1;
        map.infos[addr] = info;
        for (plane, window) in recon.planes.iter_mut().zip(&trial.windows) {
            let rows = mb_rows(&map, addr, false, Structure::Frame, plane);
            window.store(plane, rows);
        }
        writer.end_of_slice(addr + 1 == count);
    }
    CodedSlice { nal: writer.finish(header), recon, infos: map.infos }
}

/// In slices long enough to repay it, the first macroblocks take each type in turn.
fn training_kind(addr: usize, count: usize) -> Option<MbKind> {
    const ROUNDS: usize = 4;
    let kinds = [MbKind::I16x16, MbKind::I8x8, MbKind::I4x4];
    (count >= 16 * kinds.len() * ROUNDS && addr < kinds.len() * ROUNDS).then(|| kinds[addr % kinds.len()])
}

/// The packed samples of an I_PCM macroblock, where coding costs more bits than they do.
fn pcm_if_cheaper<C: SyntaxCounter>(
    job: &Job<C>,
    search: &Search,
    trial: &Trial,
    shape: &StreamShape,
    source: &SourceMb,
) -> Option<Vec<u8>> {
    let (chroma_width, chroma_height) = match shape.chroma {
        Chroma::C400 => (0, 0),
        Chroma::C420 => (8, 8),
        _ => (16, 16),
    };
    let samples = 256 + 2 * chroma_width * chroma_height;
    let pcm_bits = (samples as u32 * shape.depth + 16) as f32;
    // Cheap to rule out: what the trial costs in all is no more than its bits' worth.
    if search.cost_in_bits(job, trial) <= pcm_bits {
        return None;
    }
    let mut bits = BitWriter::new();
    for &sample in &source[0] {
        bits.bits(u32::from(sample), shape.depth);
    }
    for plane in &source[1..] {
        for y in 0..chroma_height {
            for &sample in &plane[16 * y..16 * y + chroma_width] {
                bits.bits(u32::from(sample), shape.depth);
            }
        }
    }
    Some(bits.into_bytes())
}

/// The samples of a macroblock; beyond the frame's edge its last samples go on.
fn load_source(frame: &Frame, mb_x: usize, mb_y: usize, source: &mut SourceMb) {
    for (c, plane) in frame.planes.iter().enumerate() {
        let (width, height) = frame.chroma.plane_size(c, 16, 16);
        for y in 0..height {
            let row = plane.row((mb_y * height + y).min(plane.height - 1));
            let out = &mut source[c][16 * y..16 * y + width];
            let start = mb_x * width;
            if start + width <= plane.width {
                out.copy_from_slice(&row[start..start + width]);
            } else {
                for (x, sample) in out.iter_mut().enumerate() {
                    *sample = row[(start + x).min(plane.width - 1)];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entropy, Params, Preset};

    /// Waves under noise: every macroblock type and most modes get chosen.
    fn frame(chroma: Chroma) -> Frame {
        let mut frame = Frame::filled(96, 48, chroma, 8, 0);
        for (c, plane) in frame.planes.iter_mut().enumerate() {
            for (k, sample) in plane.samples.iter_mut().enumerate() {
                let (x, y) = (k % plane.width, k / plane.width);
                let noise = (k + 7 * c).wrapping_mul(2_654_435_761) >> 13 & ((x / 4 * 3) & 31);
                *sample = (100 + 40 * ((x / 9 + y / 7) & 1) + noise) as u16;
            }
        }
        frame
    }

    #[test]
    fn both_builds_write_the_same_bytes() {
        for (chroma, entropy) in
            [(Chroma::C400, Entropy::Cabac), (Chroma::C420, Entropy::Cavlc), (Chroma::C444, Entropy::Cabac)]
        {
            let frame = frame(chroma);
            let params = Params { preset: Preset::Best, entropy, ..Params::default() };
            let shape = StreamShape::new(&frame, &params, false);
            let plan = QpPlan { qp: 20, switch_at: 10 };
            let tuning = &Tuning::of(params.preset);
            let task = SliceTask { frame: &frame, shape: &shape, tuning, index: 0, rows: (0, 3), plan };
            let fastest = encode_slice(&task);
            let header = shape.slice_header(0, 0, 20);
            let (task, slice_qp) = (&task, 20);
            let plain = if shape.cavlc {
                let writer = CavlcWriter::new(header);
                simd::narrow(SliceCoder { task, writer, header: BitWriter::new(), slice_qp })
            } else {
                simd::narrow(SliceCoder { task, writer: CabacWriter::new(20), header, slice_qp })
            };
            assert_eq!(fastest.nal, plain.nal, "{chroma:?} {entropy:?}");
            for (a, b) in fastest.recon.planes.iter().zip(&plain.recon.planes) {
                assert!(a.samples == b.samples, "{chroma:?} {entropy:?}");
            }
        }
    }
}
