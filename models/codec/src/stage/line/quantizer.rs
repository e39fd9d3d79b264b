//! What an encoder quantizes with beside the plan, and the arithmetic of one value that the scalar search
//! and its twin for lanes share.

use crate::entropy::line::coder::{Coder, UNITS};
use crate::entropy::line::emit::Pushes;
use crate::entropy::line::table::{MAGNITUDES, Table};
use crate::stage::line::matrix::whole_analysis;
use trinity_numeric::simd::Width;
use trinity_numeric::square::transposed;

/// Largest |value| in units that is not kept exactly, without and with transform.
const SAFE: (f32, f32) = ((1 << 19) as f32, (1 << 13) as f32);
/// Squared distances are taken of at most this many units.
pub(crate) const FAR: i32 = 1 << 12;
/// A path that cannot be.
pub(crate) const NEVER: i32 = 1 << 29;

/// How an encoder turns values into coefficients; decoders cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Analysis {
    /// In single precision, by the inverse of the decoder's matrix.
    #[default]
    Single,
    /// Targets first, then [`analyse_whole`]: what the encoder of models/silicon/rtl does.
    Whole,
}

/// An encoder's settings that the stream does not hold.
#[derive(Debug, Clone)]
pub struct Quantizer {
    /// Bits of each table's magnitudes with their signs, weighed against squared units.
    pub costs: Vec<[i32; MAGNITUDES]>,
    /// Without trellis: what is added to a magnitude, in 1/32 of the distance
    /// of points, before it is cut to a level.
    pub rounding: i32,
    /// Analysis matrices beside the coder's syntheses.
    pub analyses: Vec<Vec<f32>>,
    /// The same matrices column after column.
    pub(crate) by_column: Vec<Vec<f32>>,
    /// The same in integers; none where the analysis is in single precision.
    pub(crate) whole: Vec<Vec<i32>>,
    /// 1 / unit as it multiplies values.
    pub inverse: f32,
    /// What a residual of each column weighs in its row's class.
    pub(crate) weights: Vec<u32>,
    /// How symbols are pushed in wide registers.
    pub(crate) pushes: Pushes,
    pub width: Width,
}

impl Quantizer {
    /// Nothing where a signalled matrix has no inverse.
    pub fn new(coder: &Coder, lambda: f32, rounding: i32) -> Option<Self> {
        let analyses: Vec<Vec<f32>> = coder.syntheses.iter().map(|s| s.analysis()).collect::<Option<_>>()?;
        let size = coder.plan.transform.size();
        // `lambda` weighs bits against squared steps.
        let per_bit = f64::from(lambda) * f64::from(UNITS * UNITS);
        let cost =
            |table: &Table, magnitude: usize| (per_bit * table.magnitude_bits(magnitude)).round() as i32;
        let costs = |table: &Table| std::array::from_fn(|magnitude| cost(table, magnitude));
        Some(Self {
            costs: coder.plan.tables.iter().map(costs).collect(),
            rounding,
            by_column: analyses.iter().map(|own| transposed(own, size)).collect(),
            whole: Vec::new(),
            analyses,
            inverse: UNITS as f32 / coder.plan.step,
            weights: coder.plan.classes.iter().map(|&class| class_weight(class)).collect(),
            pushes: Pushes::new(coder),
            width: Width::widest(),
        })
    }

    pub fn with_analysis(self, coder: &Coder, analysis: Analysis) -> Option<Self> {
        let whole = match analysis {
            Analysis::Single => Vec::new(),
            Analysis::Whole => coder.syntheses.iter().map(whole_analysis).collect::<Option<_>>()?,
        };
        Some(Self { whole, ..self })
    }

    /// Largest |value| in units that is not kept exactly.
    pub fn safe(coder: &Coder) -> f32 {
        if coder.transformed { SAFE.1 } else { SAFE.0 }
    }
}

/// 2^(14 − class / 4).
pub fn class_weight(class: i32) -> u32 {
    const QUARTERS: [u32; 4] = [1 << 16, 55109, 46341, 38968];
    let (octave, quarter) = (class.div_euclid(4), class.rem_euclid(4) as usize);
    let shift = octave + 2;
    if shift >= 0 { QUARTERS[quarter] >> shift.min(31) } else { QUARTERS[quarter] << (-shift).min(14) }
}

/// A residual in the units of a tile with that gain.
pub(crate) fn reduced(residual: i32, gain: u32) -> i32 {
    if gain == 0 {
        return residual;
    }
    let divisor = i64::from(4 + (gain & 3)) << (gain >> 2);
    let magnitude = (4 * i64::from(residual.unsigned_abs()) + divisor / 2) / divisor;
    if residual < 0 { -(magnitude as i32) } else { magnitude as i32 }
}

/// A level of the uniform quantizer.
#[inline(always)]
pub(crate) fn round(target: i32, rounding: i32) -> i16 {
    let magnitude = (target.abs() + rounding) >> 5;
    (if target < 0 { -magnitude } else { magnitude }) as i16
}
