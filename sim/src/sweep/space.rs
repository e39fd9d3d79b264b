//! The points of a sweep, numbered: mixed radix over the axes.
//!
//! A point is its index. Nothing is stored but the axes, so a sweep of any
//! size takes no memory, any point can be computed again, and a shard is a
//! range of indices.

use super::point::{Change, Point, difference};

/// One axis of one scenario: labels to show and what each changes.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Where in the configuration the value stands, such as `job.parallelism.data`.
    pub path: String,
    pub labels: Vec<String>,
    changes: Vec<Vec<Change>>,
}

impl Axis {
    /// An axis whose values turn `base` into `points`.
    pub fn new(path: impl Into<String>, base: &Point, points: Vec<(String, Point)>) -> Self {
        let (labels, changes) =
            points.into_iter().map(|(label, point)| (label, difference(base, &point))).unzip();
        Self { path: path.into(), labels, changes }
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

    /// Number of points.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The scenarios, in order.
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

    /// The point itself.
    pub fn point(&self, index: u64) -> Point {
        let scenario = &self.scenarios[self.scenario_of(index)];
        let mut point = scenario.base;
        for (axis, digit) in scenario.axes.iter().zip(self.digits(index)) {
            for change in &axis.changes[digit] {
                change.apply(&mut point);
            }
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

    /// Calls `visit` with every point of the range, in order. The axes before
    /// the one that moved keep their place, so most points cost a copy and
    /// the changes of one axis.
    pub fn visit(&self, range: std::ops::Range<u64>, mut visit: impl FnMut(u64, usize, &[usize], &Point)) {
        let end = range.end.min(self.len());
        let mut index = range.start;
        while index < end {
            let scenario_at = self.scenario_of(index);
            let scenario = &self.scenarios[scenario_at];
            let stop = end.min(self.starts[scenario_at + 1]);
            let mut digits = self.digits(index);
            // prefixes[k] has the first k axes applied.
            let mut prefixes = vec![scenario.base; scenario.axes.len() + 1];
            let mut moved = 0;
            while index < stop {
                for k in moved..scenario.axes.len() {
                    let mut point = prefixes[k];
                    for change in &scenario.axes[k].changes[digits[k]] {
                        change.apply(&mut point);
                    }
                    prefixes[k + 1] = point;
                }
                let point = &mut prefixes[scenario.axes.len()];
                point.settle();
                visit(index, scenario_at, &digits, point);
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
