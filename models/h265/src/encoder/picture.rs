//! One picture: rows of CTUs searched as a wavefront, then written in order,
//! then the loop filters.
//!
//! A row needs of the row above only its lower edge and, at its start, the
//! entropy state after the second CTU: exactly that when the stream itself is
//! a wavefront, a good estimate otherwise. Rows hand these on as they go, so
//! any number of threads gives the same bytes.

use crate::encoder::headers::{self, Sequence};
use crate::encoder::loop_filter::{self, CtuQp};
use crate::encoder::preset::Effort;
use crate::encoder::sao_search::{self, CtuSao};
use crate::encoder::search::{Learned, Search};
use crate::encoder::syntax::{CtuWriter, Surroundings};
use crate::encoder::tree::{LOG2_CTB, Tree, UNITS, Unit, z_order};
use crate::entropy::residual::State;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use trinity_bits::cabac::{BinWriter, Encoder};
use trinity_bits::{Frame, Plane, squared_error};
use trinity_numeric::threads;

/// Quantization of a picture: a QP for most CTUs, and one more for some.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PictureQp {
    /// SliceQpY.
    pub base: i32,
    /// How many CTUs of 64 are coded at `base + 1`.
    pub coarser: u32,
}

impl PictureQp {
    /// A fractional QP, to 1/64.
    pub fn from_fraction(qp: f64) -> Self {
        let fixed = (qp * 64.0).round() as i32;
        Self { base: fixed.div_euclid(64), coarser: fixed.rem_euclid(64) as u32 }
    }

    /// QpY of the CTU at (column, row): spread evenly, in no visible pattern.
    fn at(self, column: usize, row: usize) -> i32 {
        // Multiplying by an odd constant visits all residues of 64.
        let turn = (column * 37 + row * 23) as u32 & 63;
        self.base + i32::from(turn < self.coarser)
    }
}

#[derive(Debug, Clone)]
pub struct CodedPicture {
    /// Slice NAL unit and picture hash.
    pub bytes: Vec<u8>,
    /// What decoders show.
    pub recon: Frame,
    /// Squared error over all shown samples of the source.
    pub squared_error: u64,
}

/// What a row tells the one below.
struct Handover {
    /// CTUs finished.
    done: usize,
    /// The lowest line of samples of each component.
    lines: Vec<Vec<u16>>,
    /// Coding-block sizes along the lower edge of each CTU.
    sizes: Vec<[u8; 16]>,
    /// The state after the second CTU, and what the search had learned by then.
    sync: Option<(State, Learned)>,
}

/// What a searched row leaves.
struct Row {
    /// Its CTUs, with the QP each asks for.
    ctus: Vec<(Tree, i32)>,
    /// Its samples, below one line of the row above.
    bands: Vec<Vec<u16>>,
}

struct Shared {
    handover: Mutex<Handover>,
    moved: Condvar,
}

impl Shared {
    fn new(source: &[Plane], columns: usize) -> Self {
        let lines = source.iter().map(|p| vec![0; p.width]).collect();
        let handover = Handover { done: 0, lines, sizes: vec![[0; 16]; columns], sync: None };
        Self { handover: Mutex::new(handover), moved: Condvar::new() }
    }
}

/// Extends a plane to coded size by repeating its last column and row.
fn padded(plane: &Plane, width: usize, height: usize) -> Plane {
    let mut out = Plane::filled(width, height, 0);
    for y in 0..height {
        let from = plane.row(y.min(plane.height - 1));
        let to = out.row_mut(y);
        to[..from.len()].copy_from_slice(from);
        to[from.len()..].fill(from[from.len() - 1]);
    }
    out
}

/// Codes one frame with up to `threads` threads.
pub fn encode(
    frame: &Frame,
    sequence: &Sequence,
    effort: &Effort,
    qp: PictureQp,
    threads: usize,
    picture_hash: bool,
) -> CodedPicture {
    let (width, height) = sequence.coded_size();
    let source: Vec<Plane> = frame
        .planes
        .iter()
        .enumerate()
        .map(|(c, plane)| {
            let (w, h) = sequence.chroma.plane_size(c, width, height);
            padded(plane, w, h)
        })
        .collect();
    let step = sample_step(qp.base, sequence.depth);
    let effort = &Effort { lambda: effort.lambda * low_rate_lambda_scale(&source[0], step), ..*effort };
    let mut planes: Vec<Plane> = source.iter().map(|p| Plane::filled(p.width, p.height, 0)).collect();
    // Offsets are chosen on deblocked pictures but written before each CTU:
    // with them, a first writer only finds out the QPs that deblocking needs.
    let without_offsets = Sequence { sao: false, ..*sequence };
    let mut writer = PictureWriter::new(&without_offsets, qp);
    let mut kept = Vec::new();
    let coder = RowCoder { sequence, effort, source: &source, qp };
    coder.rows(threads, |index, row| {
        for (c, plane) in planes.iter_mut().enumerate() {
            let band_height = (1 << LOG2_CTB) >> if c == 0 { 0 } else { sequence.chroma.shift().1 };
            let start = index * band_height * plane.width;
            let end = (start + band_height * plane.width).min(plane.samples.len());
            plane.samples[start..end].copy_from_slice(&row.bands[c][plane.width..][..end - start]);
        }
        writer.row(index, &row.ctus);
        if sequence.sao {
            kept.push(row.ctus);
        }
    });
    if sequence.deblock {
        loop_filter::deblock(&mut planes, sequence, &writer.filtered);
    }
    if sequence.sao {
        let lambda = f64::from(effort.lambda) * step * step;
        writer = PictureWriter::new(sequence, qp);
        writer.offsets = sao_search::correct(&mut planes, &source, sequence, lambda);
        for (index, ctus) in kept.iter().enumerate() {
            writer.row(index, ctus);
        }
    }

    let mut bytes = Vec::new();
    headers::write_slice(&mut bytes, sequence, qp.base, &writer.finish());
    if picture_hash {
        headers::write_picture_hash(&mut bytes, &planes, sequence.depth);
    }

    let recon = shown(&planes, sequence);
    let squared_error = squared_error(frame, &recon);
    CodedPicture { bytes, recon, squared_error }
}

/// The quantization step of an orthonormal transform, in samples.
fn sample_step(qp: i32, depth: u32) -> f64 {
    ((f64::from(qp) + 6.0 * (f64::from(depth) - 8.0) - 4.0) / 6.0).exp2()
}

/// What λ is multiplied by at low rates: where many levels are zero, a finer
/// step with fewer of them beats a coarser one with more.
fn low_rate_lambda_scale(plane: &Plane, step: f64) -> f32 {
    let mean = |differences: u64, count: usize| differences as f64 / count.max(1) as f64;
    let (mut across, mut down) = (0, 0);
    for y in 0..plane.height {
        let row = plane.row(y);
        across += row.windows(2).map(|w| u64::from(w[0].abs_diff(w[1]))).sum::<u64>();
        if y > 0 {
            let above = plane.row(y - 1);
            down += row.iter().zip(above).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        }
    }
    let across = mean(across, (plane.width - 1) * plane.height);
    let down = mean(down, plane.width * (plane.height - 1));
    let busy = across.min(down) / step;
    // Below two and a half bits per sample; in full from one and a half on.
    1.0 + 0.2 * ((1.6 - busy) / 0.8).clamp(0.0, 1.0) as f32
}

/// The planes inside the conformance window.
fn shown(planes: &[Plane], sequence: &Sequence) -> Frame {
    let (width, height) = sequence.shown_size();
    let planes = planes
        .iter()
        .enumerate()
        .map(|(c, plane)| plane.crop((0, 0), sequence.chroma.plane_size(c, width, height)))
        .collect();
    Frame { chroma: sequence.chroma, depth: sequence.depth, chroma_depth: sequence.depth, planes }
}

/// Writes rows of CTUs in order.
struct PictureWriter<'a> {
    sequence: &'a Sequence,
    qp: PictureQp,
    encoder: Encoder,
    state: State,
    /// The state after the second CTU of the last row.
    sync: Option<State>,
    previous_qp: i32,
    /// Coding-block sizes along the lower edge of the last row.
    sizes: Vec<[u8; 16]>,
    substreams: Vec<Vec<u8>>,
    /// What the deblocking filter needs of every CTU.
    filtered: Vec<([Unit; UNITS], CtuQp)>,
    /// Sample adaptive offsets of every CTU, where the sequence has them.
    offsets: Vec<CtuSao>,
}

impl<'a> PictureWriter<'a> {
    fn new(sequence: &'a Sequence, qp: PictureQp) -> Self {
        Self {
            sequence,
            qp,
            encoder: Encoder::new(),
            state: State::new(qp.base),
            sync: None,
            previous_qp: qp.base,
            sizes: Vec::new(),
            substreams: Vec::new(),
            filtered: Vec::new(),
            offsets: Vec::new(),
        }
    }

    fn row(&mut self, row: usize, ctus: &[(Tree, i32)]) {
        let rows = self.sequence.coded_size().1.div_ceil(1 << LOG2_CTB);
        if self.sequence.wavefront && row > 0 {
            // A picture one CTU wide has no second CTU to take the state from.
            self.state = self.sync.unwrap_or_else(|| State::new(self.qp.base));
            self.previous_qp = self.qp.base;
        }
        let mut around = Surroundings::default();
        for (column, (tree, qp)) in ctus.iter().enumerate() {
            around.above = self.sizes.get(column).copied();
            if self.sequence.sao {
                let at = row * ctus.len() + column;
                let left = (column > 0).then(|| &self.offsets[at - 1]);
                let above = (row > 0).then(|| &self.offsets[at - ctus.len()]);
                sao_search::write(
                    &mut self.encoder,
                    &mut self.state,
                    self.sequence,
                    &self.offsets[at],
                    left,
                    above,
                );
            }
            let mut writer = CtuWriter {
                sequence: self.sequence,
                tree,
                origin: (column << LOG2_CTB, row << LOG2_CTB),
                around: &around,
                qp_delta: self.sequence.cu_qp_delta.then_some(qp - self.previous_qp),
                qp_delta_unit: None,
            };
            writer.ctu(&mut self.encoder, &mut self.state);
            let ctu_qp = CtuQp { predicted: self.previous_qp, coded: writer.qp_delta_unit.map(|z| (z, *qp)) };
            self.previous_qp = ctu_qp.at(UNITS - 1);
            if column == 1 {
                self.sync = Some(self.state);
            }
            if self.sequence.deblock {
                self.filtered.push((tree.units, ctu_qp));
            }
            let last_column = column + 1 == ctus.len();
            let end_of_slice = last_column && row + 1 == rows;
            self.encoder.terminate(end_of_slice);
            if last_column && self.sequence.wavefront {
                if !end_of_slice {
                    self.encoder.terminate(true); // end_of_subset_one_bit
                }
                self.substreams.push(std::mem::take(&mut self.encoder).finish());
            }
            around.left = Some(right_edge(tree));
            match self.sizes.get_mut(column) {
                Some(sizes) => *sizes = lower_edge(tree),
                None => self.sizes.push(lower_edge(tree)),
            }
        }
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.sequence.wavefront {
            self.substreams.push(self.encoder.finish());
        }
        self.substreams
    }
}

/// Rows that are done, given on in order: by whoever finishes the one that is due.
struct InOrder<F> {
    early: BTreeMap<usize, Row>,
    expected: usize,
    finish: F,
}

impl<F: FnMut(usize, Row)> InOrder<F> {
    fn push(&mut self, index: usize, row: Row) {
        self.early.insert(index, row);
        while let Some(row) = self.early.remove(&self.expected) {
            (self.finish)(self.expected, row);
            self.expected += 1;
        }
    }
}

/// Searches rows of CTUs.
struct RowCoder<'a> {
    sequence: &'a Sequence,
    effort: &'a Effort,
    source: &'a [Plane],
    qp: PictureQp,
}

impl RowCoder<'_> {
    /// Searches all rows and gives each to `finish`, in order. Threads take
    /// rows in order, so the row above is always finished or under way and
    /// waiting for it ends.
    fn rows(&self, threads: usize, finish: impl FnMut(usize, Row) + Send) {
        let (width, height) = self.sequence.coded_size();
        let (columns, rows) = (width.div_ceil(1 << LOG2_CTB), height.div_ceil(1 << LOG2_CTB));
        let shared: Vec<Shared> = (0..rows).map(|_| Shared::new(self.source, columns)).collect();
        let next = AtomicUsize::new(0);
        let in_order = Mutex::new(InOrder { early: BTreeMap::new(), expected: 0, finish });
        threads::worker_pool(threads.min(rows), || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= rows {
                    return;
                }
                let row = self.row(index, columns, &shared);
                in_order.lock().unwrap_or_else(PoisonError::into_inner).push(index, row);
            }
        });
    }

    fn row(&self, row: usize, columns: usize, shared: &[Shared]) -> Row {
        let mut search = Search::new(self.sequence, self.effort, self.source, self.qp.base);
        let mut ctus = Vec::with_capacity(columns);
        for column in 0..columns {
            if row > 0 {
                let sync = self.take_from_above(&mut search, &shared[row - 1], column, columns);
                if let (0, Some((state, learned))) = (column, sync) {
                    search.state = state;
                    search.learned = learned;
                }
            }
            search.origin = (column << LOG2_CTB, row << LOG2_CTB);
            let qp = self.qp.at(column, row);
            search.set_qp(qp);
            search.ctu();
            self.hand_down(&search, &shared[row], column);
            search.around.left = Some(right_edge(&search.tree));
            ctus.push((search.tree.clone(), qp));
        }
        Row { ctus, bands: search.bands.into_iter().map(|b| b.samples).collect() }
    }

    /// Waits until the row above is two CTUs ahead, then copies its lower edge.
    fn take_from_above(
        &self,
        search: &mut Search<'_>,
        above: &Shared,
        column: usize,
        columns: usize,
    ) -> Option<(State, Learned)> {
        let needed = (column + 2).min(columns);
        let mut handover = above.handover.lock().unwrap_or_else(PoisonError::into_inner);
        while handover.done < needed {
            handover = above.moved.wait(handover).unwrap_or_else(PoisonError::into_inner);
        }
        for (c, band) in search.bands.iter_mut().enumerate() {
            let ctb = (1usize << LOG2_CTB) >> if c == 0 { 0 } else { self.sequence.chroma.shift().0 };
            // The first CTU takes its own span and the next; each later one only the next.
            let start = if column == 0 { 0 } else { (column + 1) * ctb };
            let end = ((column + 2) * ctb).min(band.width);
            if start < end {
                band.samples[start..end].copy_from_slice(&handover.lines[c][start..end]);
            }
        }
        search.around.above = Some(handover.sizes[column]);
        // A picture one CTU wide has no second CTU to take the state from.
        if columns > 1 { handover.sync } else { None }
    }

    /// Publishes the lower edge of a finished CTU.
    fn hand_down(&self, search: &Search<'_>, shared: &Shared, column: usize) {
        let mut handover = shared.handover.lock().unwrap_or_else(PoisonError::into_inner);
        for (c, band) in search.bands.iter().enumerate() {
            let (sx, sy) = if c == 0 { (0, 0) } else { self.sequence.chroma.shift() };
            let (ctb_width, ctb_height) = ((1usize << LOG2_CTB) >> sx, (1usize << LOG2_CTB) >> sy);
            let start = column * ctb_width;
            let end = (start + ctb_width).min(band.width);
            let from = &band.samples[ctb_height * band.width..];
            handover.lines[c][start..end].copy_from_slice(&from[start..end]);
        }
        handover.sizes[column] = lower_edge(&search.tree);
        if column == 1 {
            handover.sync = Some((search.state, search.learned));
        }
        handover.done = column + 1;
        shared.moved.notify_all();
    }
}

/// Coding-block sizes along the lower edge, one a 4-sample unit.
fn lower_edge(tree: &Tree) -> [u8; 16] {
    std::array::from_fn(|i| tree.units[z_order(i * 4, 60)].cu_log2)
}

/// Luma modes and coding-block sizes down the right edge.
fn right_edge(tree: &Tree) -> ([u8; 16], [u8; 16]) {
    let mut modes = [0; 16];
    let mut sizes = [0; 16];
    for i in 0..16 {
        let unit = &tree.units[z_order(60, i * 4)];
        modes[i] = unit.luma_mode;
        sizes[i] = unit.cu_log2;
    }
    (modes, sizes)
}
