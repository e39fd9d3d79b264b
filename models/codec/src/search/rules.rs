//! Rules by which a search leaves candidates out before they are coded, by name, and the thresholds of both searches.
//!
//! A rule saves time and may cost bits: `cargo xtask regret --without RULE` codes without it and says what
//! the choices then take. Knows names and numbers; what a rule looks at belongs to the search that asks.

use crate::stage::trellis::DEAD_ZONE;
use std::fmt;
use std::str::FromStr;
use trinity_numeric::tuned::Tuned;

/// A rule of one of the searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    SmallerTransform,
    MeansBehind,
    OrientationBehind,
    SmallerFoundNothing,
    SharedBits,
    TooRough,
    NoMeans,
    BinaryEntropy,
    Finalists,
    Glance,
    Promise,
    MatrixShare,
    AcrossOnly,
    Rerun,
    RaceBehind,
    MaxCandidates,
    LineCorrelated,
    LinePromise,
    LineSmooth,
    LineExceptions,
    LineClose,
    LineFits,
    LineUpright,
}

impl Rule {
    /// Every rule, its name, and what it leaves out.
    pub const ALL: [(Self, &'static str, &'static str); 23] = {
        use Rule::*;
        [
            (SmallerTransform, "smaller-transform", "learned transforms that a larger one was better than"),
            (MeansBehind, "means-behind", "means with a transform where they are behind without one"),
            (
                OrientationBehind,
                "orientation-behind",
                "larger transforms of an orientation that is far behind",
            ),
            (
                SmallerFoundNothing,
                "smaller-found-nothing",
                "larger transforms where a smaller one found nothing",
            ),
            (SharedBits, "shared-bits", "learned transforms where columns share nothing"),
            (TooRough, "too-rough", "fixed transforms of what is not smooth"),
            (NoMeans, "no-means", "means of what has none"),
            (BinaryEntropy, "binary-entropy", "bitwise codes of what has too much entropy"),
            (Finalists, "finalists", "a second sample for all but the closest plans"),
            (Glance, "glance", "signalled transforms that gain nothing at a glance"),
            (Promise, "promise", "signalled transforms that promise less than others"),
            (MatrixShare, "matrix-share", "signalled transforms that take half of the rate"),
            (AcrossOnly, "across-only", "learned transforms along a signalled one"),
            (Rerun, "rerun", "other plans of one basis where the first pass went as predicted"),
            (RaceBehind, "race-behind", "passes of what is predicted to be behind"),
            (MaxCandidates, "max-candidates", "passes beyond the third"),
            (
                LineCorrelated,
                "line-correlated",
                "signalled transforms of columns that share nothing, of the line format",
            ),
            (LinePromise, "line-promise", "signalled transforms that promise nothing, of the line format"),
            (LineSmooth, "line-smooth", "cosines of what is not smooth, of the line format"),
            (
                LineExceptions,
                "line-exceptions",
                "cosines where values would be exceptions, of the line format",
            ),
            (LineClose, "line-close", "plans that statistics put far behind, of the line format"),
            (LineFits, "line-fits", "plans beyond the fourth, of the line format"),
            (
                LineUpright,
                "line-upright",
                "large matrices on their side that gain next to nothing, of the line format",
            ),
        ]
    };

    /// Whether the rule is one of the line format's search.
    pub fn is_of_line(self) -> bool {
        self.to_string().starts_with("line-")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = Self::ALL.iter().find(|(rule, ..)| rule == self);
        f.write_str(own.map_or("", |(_, name, _)| name))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, own, _)| *own == name);
        found.map(|(rule, ..)| *rule).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("no rule is called `{name}`; there are {}", names.join(", "))
        })
    }
}

/// The rules in force: all but those that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rules {
    left_out: u32,
}

impl Rules {
    pub fn without(rule: Rule) -> Self {
        Self { left_out: 1 << rule as u32 }
    }

    /// No rules where there is nothing to choose, else these.
    pub fn unless(self, fixed: bool) -> Self {
        if fixed { Self { left_out: u32::MAX } } else { self }
    }

    pub fn has(self, rule: Rule) -> bool {
        self.left_out >> rule as u32 & 1 == 0
    }

    /// A rule's bound where it is in force, else one that leaves nothing out.
    pub fn bound<T>(self, rule: Rule, bound: T, none: T) -> T {
        if self.has(rule) { bound } else { none }
    }
}

/// Bits by which an alternative must be cheaper to be taken: a sample is only a sample.
static MARGIN: Tuned = Tuned::new("trinity-margin", "trinity", 0.004, &[0.001, 0.002, 0.008]);

/// Constants of the format `trinity` that were chosen by measurement (`cargo xtask tune`).
pub static TUNED: [&Tuned; 2] = [&MARGIN, &DEAD_ZONE];

/// Every threshold of the searches; bits are bits per value.
#[derive(Debug, Clone, Copy)]
pub struct Thresholds {
    /// Matrices of no more values may do without scales of columns, and are coded in
    /// less time than a large transform is learned in.
    pub few_values: usize,
    /// What scales of rows must be worth for shorter rows to be kept.
    pub row_scales_margin: f64,
    /// The margin of a transform over none, which slows both sides down.
    pub transform_margin: f64,
    /// The margin of a larger learned transform over a smaller in a small matrix, where it
    /// takes half as long again, and of a smaller and of a fixed one over a larger in a large
    /// matrix, where that one learns more than a sample shows.
    pub larger_margin: f64,
    pub smaller_margin: f64,
    pub fixed_margin: f64,
    /// Bits that columns must share for a learned transform to be tried ([`Rule::SharedBits`]).
    pub shared_bits: f64,
    /// Bits by which means may fall behind without a transform to be tried with one
    /// ([`Rule::MeansBehind`]).
    pub means_behind: f64,
    /// Bits by which an orientation may be behind for a larger transform to be tried in it
    /// ([`Rule::OrientationBehind`]).
    pub orientation_behind: f64,
    /// Bits by which a plain quantizer's entropy may exceed the best plan for its code to be
    /// tried: contexts beat entropy, if not by much ([`Rule::BinaryEntropy`]).
    pub binary_excess: f64,
    /// Bits by which a plan may be behind on one sample to be compared on another, and how
    /// many such there are at most ([`Rule::Finalists`]).
    pub finalist_behind: f64,
    pub finalists: usize,
    /// Bits that rare levels take less of a whole than of a sample, at a rate of none.
    pub bias_correction: f64,
    /// Bits that signalled matrices must promise to be tried, and by which those along one side
    /// may promise less than along the other: what Gaussians would save is somewhat less than
    /// what values do ([`Rule::Promise`]).
    pub promise: f64,
    pub promise_behind: f64,
    /// Bits that a glance at them must show ([`Rule::Glance`]).
    pub glance_gain: f64,
    /// The NMSE below which values are not rebased: single precision adds an error to it that
    /// no pass sees.
    pub finest_nmse: f64,
    /// The share of a rate that matrices may take ([`Rule::MatrixShare`]).
    pub matrix_share: f64,
    /// Bits at equal error by which a pass may take more than was predicted for the plan to
    /// stand ([`Rule::Rerun`]).
    pub rerun: f64,
    /// Bits by which what a sample predicts of a plan may exceed what a pass took for it to be
    /// run as well, where bases are many ([`Rule::RaceBehind`]).
    pub race_behind: f64,
    /// Plans that are run at most ([`Rule::MaxCandidates`]).
    pub max_candidates: usize,
    pub line: LineThresholds,
}

impl Thresholds {
    /// Bits by which an alternative must be cheaper to be taken.
    pub fn margin(&self) -> f64 {
        MARGIN.get()
    }
}

/// Thresholds of the line format's search; bits are bits per value.
#[derive(Debug, Clone, Copy)]
pub struct LineThresholds {
    /// Alternatives that are quantized, at most ([`Rule::LineFits`]), and how many bits the
    /// statistics may put them behind the first ([`Rule::LineClose`]).
    pub fits: usize,
    pub close: f64,
    /// Bits that columns must share for matrices to be tried ([`Rule::LineCorrelated`]).
    pub correlated: f64,
    /// Bits that matrices must promise on a few groups to be drafted: rows that follow
    /// different laws save more than one Gaussian would ([`Rule::LinePromise`]).
    pub promise: f64,
    /// The share of its variance that a value must have in common with its neighbour for
    /// cosines to be tried ([`Rule::LineSmooth`]).
    pub smooth: f64,
    /// Steps, half of those beyond which values are exceptions before a transform: these
    /// take 48 bits each, so that one in so many values costs a hundredth of a bit
    /// ([`Rule::LineExceptions`]).
    pub near_steps: f32,
    pub few_exceptions: usize,
    /// Bits that a matrix on its side must gain: both sides turn its values, and a sample of noise
    /// tells orientations apart by so many ([`Rule::LineUpright`]).
    pub upright: f64,
    /// Values of a matrix that takes long to turn; of fewer, tables are a share of the stream that such a sample
    /// does not foresee.
    pub upright_values: usize,
}

/// Tuned on captured tensors and the laws of `cargo xtask regret`.
pub const THRESHOLDS: Thresholds = Thresholds {
    few_values: 1 << 16,
    row_scales_margin: 0.03,
    transform_margin: 0.01,
    larger_margin: 0.02,
    smaller_margin: 0.015,
    fixed_margin: 0.03,
    shared_bits: 0.006,
    means_behind: 0.03,
    orientation_behind: 0.15,
    binary_excess: 0.1,
    finalist_behind: 0.05,
    finalists: 3,
    bias_correction: 0.7,
    promise: -0.02,
    promise_behind: 0.1,
    glance_gain: -0.025,
    finest_nmse: 1e-10,
    matrix_share: 0.5,
    rerun: 0.08,
    race_behind: 0.06,
    max_candidates: 3,
    line: LineThresholds {
        fits: 4,
        close: 0.2,
        correlated: 0.004,
        promise: -0.03,
        smooth: 0.15,
        near_steps: 256.0,
        few_exceptions: 4800,
        upright: 0.008,
        upright_values: 1 << 16,
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_can_be_left_out_alone() {
        for (at, (rule, name, _)) in Rule::ALL.iter().enumerate() {
            assert_eq!(at, *rule as usize, "{name}");
            assert_eq!(name.parse::<Rule>(), Ok(*rule));
            let others = Rule::ALL.iter().filter(|(other, ..)| !Rules::without(*rule).has(*other));
            assert_eq!(others.map(|(other, ..)| *other).collect::<Vec<_>>(), [*rule]);
            assert!(Rules::default().has(*rule));
        }
        assert!("none-such".parse::<Rule>().unwrap_err().contains("means-behind"));
    }
}
