//! The points of a sweep, numbered: mixed radix over the axes.
//!
//! A point is its index. Nothing is stored but the axes, so a sweep of any
//! size takes no memory, any point can be computed again, and a shard is a
//! range of indices.

use super::digest::Digest;
use super::point::{Change, Difference, Point, changes};

/// One axis of one scenario: labels to show and what each changes.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Where in the configuration the value stands, such as `job.parallelism.data`.
    pub path: String,
    pub labels: Vec<String>,
    changes: Vec<Vec<Change>>,
    /// Whether its values change nothing but wires and codecs.
    only_wires: bool,
    /// Whether a value leaves the layout to be chosen.
    chooses: bool,
    /// A hash of the points its values make: a label such as `mine.toml` says
    /// nothing of what is in the file.
    pub(super) digest: u64,
}

/// An axis in the making: of each point it keeps what differs from the
/// scenario's, so that an axis of a million values takes megabytes.
#[derive(Debug)]
pub struct AxisBuilder {
    path: String,
    base: Point,
    labels: Vec<String>,
    differences: Vec<Difference>,
    only_wires: bool,
    chooses: bool,
    digest: Digest,
}

impl AxisBuilder {
    /// Adds the value that turns the scenario's point into `point`.
    pub fn push(&mut self, label: String, point: &Point) {
        // As the list of all points would be written.
        let before = if self.labels.is_empty() { "" } else { ", " };
        self.digest.add(format_args!("{before}{point:?}"));
        self.only_wires &= point.shares_gpu_with(&self.base);
        self.chooses |= point.search.on;
        self.labels.push(label);
        self.differences.push(Difference::of(point, &self.base));
    }

    /// The axis of all values that were added.
    pub fn finish(mut self) -> Axis {
        self.digest.add(format_args!("]"));
        Axis {
            path: self.path,
            labels: self.labels,
            changes: changes(&self.base, &self.differences),
            only_wires: self.only_wires,
            chooses: self.chooses,
            digest: self.digest.finish(),
        }
    }
}

impl Axis {
    /// An axis whose values turn `base` into other points.
    pub fn builder(path: impl Into<String>, base: &Point) -> AxisBuilder {
        let mut digest = Digest::default();
        digest.add(format_args!("["));
        AxisBuilder {
            path: path.into(),
            base: *base,
            labels: Vec::new(),
            differences: Vec::new(),
            only_wires: true,
            chooses: false,
            digest,
        }
    }

    /// Puts `point` at a value of this axis, wherever on the axis it was.
    pub fn apply(&self, digit: usize, point: &mut Point) {
        for change in &self.changes[digit] {
            change.apply(point);
        }
    }
}

/// A scenario: a starting point and the axes that vary in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub base: Point,
    pub axes: Vec<Axis>,
}

impl Scenario {
    /// Points of this scenario, if they can be counted.
    fn len(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |len, axis| len.checked_mul(axis.labels.len() as u64))
    }
}

/// All points of a sweep: the scenarios one after the other.
#[derive(Clone, Debug)]
pub struct Space {
    scenarios: Vec<Scenario>,
    /// Index of each scenario's first point, and one past the last.
    starts: Vec<u64>,
}

/// A point on the way through a space.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    pub index: u64,
    pub scenario: usize,
    /// Position on each axis of the scenario.
    pub digits: &'a [usize],
    pub point: &'a Point,
    /// Whether it differs from the point before in nothing but wires and codecs.
    pub only_wires_moved: bool,
}

impl Space {
    /// The points of `scenarios`; `None` when there are more than 2⁶⁴.
    pub fn new(scenarios: Vec<Scenario>) -> Option<Self> {
        let mut starts = vec![0u64];
        for scenario in &scenarios {
            let start = starts.last().copied().unwrap_or(0);
            starts.push(start.checked_add(scenario.len()?)?);
        }
        Some(Self { scenarios, starts })
    }

    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// Every axis path of any scenario, in the order they first appear.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = Vec::new();
        for axis in self.scenarios.iter().flat_map(|scenario| &scenario.axes) {
            if !paths.contains(&axis.path.as_str()) {
                paths.push(&axis.path);
            }
        }
        paths
    }

    /// Whether the layout of any point is left to be chosen.
    pub fn chooses_layouts(&self) -> bool {
        let chooses =
            |scenario: &Scenario| scenario.base.search.on || scenario.axes.iter().any(|axis| axis.chooses);
        self.scenarios.iter().any(chooses)
    }

    /// The scenario a point belongs to.
    pub fn scenario_of(&self, index: u64) -> usize {
        self.starts.partition_point(|&start| start <= index).saturating_sub(1).min(self.scenarios.len() - 1)
    }

    /// Position on each axis of its scenario; the last axis runs fastest.
    pub fn digits(&self, index: u64) -> Vec<usize> {
        let scenario = self.scenario_of(index);
        let mut rest = index - self.starts[scenario];
        let mut digits: Vec<usize> = self.scenarios[scenario]
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let radix = axis.labels.len() as u64;
                let digit = (rest % radix) as usize;
                rest /= radix;
                digit
            })
            .collect();
        digits.reverse();
        digits
    }

    pub fn point(&self, index: u64) -> Point {
        let scenario = &self.scenarios[self.scenario_of(index)];
        let mut point = scenario.base;
        for (axis, digit) in scenario.axes.iter().zip(self.digits(index)) {
            axis.apply(digit, &mut point);
        }
        point.settle();
        point
    }

    /// Label on each of [`Space::paths`]; empty where the scenario lacks the axis.
    pub fn labels(&self, index: u64) -> Vec<&str> {
        let scenario = &self.scenarios[self.scenario_of(index)];
        let digits = self.digits(index);
        self.paths()
            .iter()
            .map(|path| {
                let at = scenario.axes.iter().position(|axis| axis.path == *path);
                at.map_or("", |at| scenario.axes[at].labels[digits[at]].as_str())
            })
            .collect()
    }

    /// Calls `visit` with every point of the range, in order. One point moves
    /// along the axes: those before the slowest that moved stay as they are, so
    /// most points cost the changes of one axis and no copy.
    pub fn visit(&self, range: std::ops::Range<u64>, mut visit: impl FnMut(&Visited<'_>)) {
        let end = range.end.min(self.len());
        let mut index = range.start;
        while index < end {
            let scenario_at = self.scenario_of(index);
            let scenario = &self.scenarios[scenario_at];
            let stop = end.min(self.starts[scenario_at + 1]);
            let mut digits = self.digits(index);
            let mut point = scenario.base;
            let mut moved = 0;
            let mut moved_by_one = false;
            while index < stop {
                for (axis, &digit) in scenario.axes[moved..].iter().zip(&digits[moved..]) {
                    axis.apply(digit, &mut point);
                }
                let only_wires_moved =
                    moved_by_one && scenario.axes[moved..].iter().all(|axis| axis.only_wires);
                // Wires leave the GPU's parts as they are, and so what follows from them.
                if only_wires_moved {
                    point.follow_job()
                } else {
                    point.settle()
                }
                visit(&Visited {
                    index,
                    scenario: scenario_at,
                    digits: &digits,
                    point: &point,
                    only_wires_moved,
                });
                moved_by_one = true;
                index += 1;
                moved = advance(&mut digits, &scenario.axes);
            }
        }
    }
}

/// The next digits; gives the slowest axis that moved.
fn advance(digits: &mut [usize], axes: &[Axis]) -> usize {
    for k in (0..digits.len()).rev() {
        digits[k] += 1;
        if digits[k] < axes[k].labels.len() {
            return k;
        }
        digits[k] = 0;
    }
    0
}
