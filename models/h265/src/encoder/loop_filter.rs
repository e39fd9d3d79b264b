//! Deblocking of the encoder's own pictures: fills in what
//! [`crate::deblock`] wants to know from the coded CTUs.

use crate::deblock::{self, Edges, Offsets, Picture};
use crate::encoder::headers::Sequence;
use crate::encoder::tree::{LOG2_CTB, UNITS, Unit, position};
use trinity_bits::Plane;

/// QpY inside one CTU, which is one quantization group (clause 8.6.1): what
/// precedes the coding unit with `cu_qp_delta` keeps the predicted QP, and all
/// of a CTU without any level does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CtuQp {
    /// qPY_PRED.
    pub predicted: i32,
    /// The first unit of the coding unit that carries `cu_qp_delta`, and QpY from it on.
    pub coded: Option<(usize, i32)>,
}

impl CtuQp {
    /// QpY of unit `z`.
    pub fn at(self, z: usize) -> i32 {
        match self.coded {
            Some((from, qp)) if z >= from => qp,
            _ => self.predicted,
        }
    }
}

/// Deblocks a whole picture; `ctus` in raster order with the QPs of each.
pub fn deblock(planes: &mut [Plane], sequence: &Sequence, ctus: &[([Unit; UNITS], CtuQp)]) {
    let (width, height) = sequence.coded_size();
    let columns = width.div_ceil(1 << LOG2_CTB);
    let mut edges = Edges::new(width, height);
    for (index, (units, qp)) in ctus.iter().enumerate() {
        let origin = ((index % columns) << LOG2_CTB, (index / columns) << LOG2_CTB);
        for (z, unit) in units.iter().enumerate() {
            let (x, y) = position(z);
            let (left, top) = (origin.0 + x, origin.1 + y);
            if left >= width || top >= height {
                continue;
            }
            let at = (top / 4) * edges.stride + left / 4;
            let mask = (1usize << unit.tu_log2) - 1;
            edges.vertical[at] = left > 0 && x & mask == 0;
            edges.horizontal[at] = top > 0 && y & mask == 0;
            edges.qp[at] = qp.at(z) as i8;
            edges.keep[at] = sequence.lossless;
        }
    }
    let offsets = vec![Offsets::default(); ctus.len()];
    let picture = Picture {
        chroma: sequence.chroma,
        depth: sequence.depth,
        chroma_depth: sequence.depth,
        qp_offset: [0; 2],
        log2_ctb: LOG2_CTB,
        ctbs: columns,
        offsets: &offsets,
    };
    deblock::deblock(planes, &edges, &picture);
}
