//! A correction over several coordinates: the sum of small grids.
//!
//! Each term is a grid over two to four coordinates, multilinear between its
//! knots in the logarithm of each. The sum of a few of them follows what a
//! single grid of all coordinates would need a hundred times the values for.

use super::digits::values;
use super::error::Error;
use super::grid::Term;
use super::kind::Kind;
use super::measured::{Measured, Timed};
use super::shape::{Coordinates, MAX_COORDINATES};

/// Corners of the cell that a point lies in: two for each of at most four axes.
pub const MAX_CORNERS: usize = 16;

/// How far outside the measured range a coordinate may lie by rounding alone.
const TOLERANCE: f64 = 1e-6;

/// One value of a term and its share in a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Corner {
    pub at: usize,
    pub share: f64,
}

/// The correction of one kind of kernel on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    kind: Kind,
    /// Measured ranges of the coordinates, in log2.
    ranges: [(f64, f64); MAX_COORDINATES],
    /// Values of all terms in turn: logarithms of measured over roofline.
    values: Vec<f32>,
}

impl Curve {
    pub(super) fn decode(measured: &Measured) -> Result<Self, Error> {
        let kind = measured.kind;
        let damaged = |why: String| Error::Damaged { kind, why };
        let expected = kind.coordinates().len();
        if measured.ranges.len() != expected {
            return Err(damaged(format!("{} ranges for {expected} coordinates", measured.ranges.len())));
        }
        let mut ranges = [(0.0, 0.0); MAX_COORDINATES];
        for (range, (low, high)) in ranges.iter_mut().zip(&measured.ranges) {
            if !(*low > 0.0 && low <= high && high.is_finite()) {
                return Err(damaged(format!("a coordinate from {low} to {high}")));
            }
            *range = (low.log2(), high.log2());
        }
        let steps = measured.steps;
        if !(steps.low.is_finite() && steps.step > 0.0 && steps.step.is_finite()) {
            return Err(damaged(format!("steps of {} from {}", steps.step, steps.low)));
        }
        let values = values(measured.digits, steps).map_err(damaged)?;
        let expected: usize = kind.terms().iter().map(Term::len).sum();
        if values.len() != expected {
            return Err(damaged(format!("{} values for {expected} knots", values.len())));
        }
        Ok(Self { kind, ranges, values })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn time(&self, at: &Coordinates) -> Timed {
        let count = self.kind.coordinates().len();
        let mut within = at.log2;
        let mut extrapolated = at.unmeasured;
        for (value, (low, high)) in within.iter_mut().zip(&self.ranges).take(count) {
            extrapolated |= *value < low - TOLERANCE || *value > high + TOLERANCE;
            *value = value.clamp(*low, *high);
        }
        let mut correction = 0.0;
        let mut first = 0;
        let mut corners = [Corner::default(); MAX_CORNERS];
        for term in self.kind.terms() {
            for corner in term.corners(&within, &mut corners) {
                correction += corner.share * f64::from(self.values[first + corner.at]);
            }
            first += term.len();
        }
        Timed { s: at.roofline_s * correction.exp(), extrapolated }
    }
}

impl Term {
    /// How many values the grid has.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.knots.len()).product()
    }

    /// Whether the grid has no values; none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values around a point with their shares, which sum to one.
    pub fn corners<'a>(
        &self,
        log2: &[f64; MAX_COORDINATES],
        corners: &'a mut [Corner; MAX_CORNERS],
    ) -> &'a [Corner] {
        corners[0] = Corner { at: 0, share: 1.0 };
        let mut count = 1;
        for axis in &self.axes {
            let knots = &axis.knots;
            let x = log2[axis.coordinate];
            // Knots are few: the search ends sooner than halving would begin.
            let cell = knots.iter().skip(1).take(knots.len() - 2).take_while(|knot| x >= **knot).count();
            let (left, right) = (knots[cell], knots[cell + 1]);
            let share = ((x - left) / (right - left)).clamp(0.0, 1.0);
            for corner in 0..count {
                let Corner { at, share: so_far } = corners[corner];
                let at = at * knots.len() + cell;
                corners[corner] = Corner { at, share: so_far * (1.0 - share) };
                corners[count + corner] = Corner { at: at + 1, share: so_far * share };
            }
            count *= 2;
        }
        &corners[..count]
    }
}
