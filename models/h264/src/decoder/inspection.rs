//! What a stream consists of and where its bits go, as the decoder notes it.

use crate::syntax::parameter_sets::{Pps, Sps};
use crate::syntax::slice_header::{SliceHeader, Structure};
use std::collections::BTreeMap;

/// Bits by what they say. CABAC shares bits between syntax elements; each goes
/// to the element that moved the engine on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BitUse {
    /// Transform size, prediction modes and coded block patterns.
    pub prediction: u64,
    /// QP changes and coefficient levels.
    pub residual: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceSummary {
    pub nal_unit_type: u32,
    pub structure: Structure,
    pub first_mb: u32,
    pub pps_id: u32,
    pub qp: i32,
    pub bytes: usize,
}

/// A stream taken apart.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Number and bytes of NAL units by nal_unit_type.
    pub units: BTreeMap<u32, (usize, usize)>,
    pub sps: Vec<Sps>,
    pub pps: Vec<Pps>,
    pub slices: Vec<SliceSummary>,
    pub bit_use: BitUse,
    pub frames: usize,
    /// Width and height of the frames, cropped.
    pub size: (usize, usize),
    pub bytes: usize,
}

impl Inspection {
    pub(super) fn note_unit(&mut self, unit_type: u32, bytes: usize) {
        let entry = self.units.entry(unit_type).or_default();
        entry.0 += 1;
        entry.1 += bytes;
    }

    pub(super) fn note_slice(&mut self, header: &SliceHeader, bytes: usize, used: BitUse) {
        self.bit_use.prediction += used.prediction;
        self.bit_use.residual += used.residual;
        self.slices.push(SliceSummary {
            nal_unit_type: header.nal.unit_type,
            structure: header.structure,
            first_mb: header.first_mb,
            pps_id: header.pps_id,
            qp: header.qp,
            bytes,
        });
    }

    /// Bits that are neither prediction nor residual: start codes, headers,
    /// macroblock types, stuffing.
    pub fn side_bits(&self) -> u64 {
        (self.bytes as u64 * 8).saturating_sub(self.bit_use.prediction + self.bit_use.residual)
    }
}
