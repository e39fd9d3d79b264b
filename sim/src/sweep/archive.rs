//! What a sweep remembers: fronts, best points and counts.
//!
//! Everything here merges in any order to the same result – sets under
//! dominance, extremes with ties to the lower index, integer counts – which
//! is what makes shards and threads byte-identical to a single run.

use super::metric::{Direction, MAX_OBJECTIVES, Objective};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use std::ops::Deref;

/// What the objectives read at one point. Held in place, not behind a
/// pointer: a front is searched once for every point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readings {
    values: [f64; MAX_OBJECTIVES],
    len: usize,
}

impl Readings {
    /// The first [`MAX_OBJECTIVES`] of `values`.
    pub fn new(values: &[f64]) -> Self {
        let len = values.len().min(MAX_OBJECTIVES);
        let mut readings = Self { values: [0.0; MAX_OBJECTIVES], len };
        readings.values[..len].copy_from_slice(&values[..len]);
        readings
    }
}

impl Deref for Readings {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values[..self.len]
    }
}

impl Serialize for Readings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Readings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = Vec::<f64>::deserialize(deserializer)?;
        if values.len() > MAX_OBJECTIVES {
            return Err(D::Error::invalid_length(values.len(), &"no more readings than objectives"));
        }
        Ok(Self::new(&values))
    }
}

/// One remembered point: its index and what the objectives read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub index: u64,
    pub values: Readings,
}

/// Points none of which is beaten by another in every objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Front {
    entries: Vec<Entry>,
}

/// How two points compare over all objectives.
enum Order {
    Dominates,
    DominatedBy,
    Equal,
    Neither,
}

impl Front {
    /// The points, in no particular order until [`Front::sort`].
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Offers a point; most are turned away by the first that beats them.
    pub fn offer(&mut self, objectives: &[Objective], index: u64, values: &[f64]) {
        let mut at = 0;
        while at < self.entries.len() {
            match compare(objectives, &self.entries[at].values, values) {
                Order::Dominates => {
                    // What beats one point tends to beat the next as well.
                    self.entries.swap(0, at);
                    return;
                }
                Order::Equal => {
                    self.entries[at].index = self.entries[at].index.min(index);
                    return;
                }
                Order::DominatedBy => {
                    self.entries.swap_remove(at);
                }
                Order::Neither => at += 1,
            }
        }
        self.entries.push(Entry { index, values: Readings::new(values) });
    }

    pub fn merge(&mut self, objectives: &[Objective], other: &Self) {
        for entry in &other.entries {
            self.offer(objectives, entry.index, &entry.values);
        }
    }

    /// Brings the points into the order they are shown in.
    pub fn sort(&mut self) {
        self.entries.sort_by(|a, b| {
            let values = a.values.iter().zip(b.values.iter()).map(|(x, y)| x.total_cmp(y));
            values.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then(a.index.cmp(&b.index))
        });
    }
}

fn compare(objectives: &[Objective], a: &[f64], b: &[f64]) -> Order {
    let (mut better, mut worse) = (false, false);
    for (objective, (a, b)) in objectives.iter().zip(a.iter().zip(b)) {
        let (a, b) = match objective.direction {
            Direction::Minimize => (a, b),
            Direction::Maximize => (b, a),
        };
        better |= a < b;
        worse |= a > b;
    }
    match (better, worse) {
        (true, false) => Order::Dominates,
        (false, true) => Order::DominatedBy,
        (false, false) => Order::Equal,
        (true, true) => Order::Neither,
    }
}

/// The best few points by one objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top {
    size: usize,
    entries: Vec<Entry>,
}

impl Top {
    pub fn new(size: usize) -> Self {
        Self { size, entries: Vec::new() }
    }

    /// The points, best first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Offers a point; `values[0]` decides.
    pub fn offer(&mut self, direction: Direction, index: u64, values: &[f64]) {
        let key = |values: &[f64]| match direction {
            Direction::Minimize => values[0],
            Direction::Maximize => -values[0],
        };
        let better = |entry: &Entry| (key(&entry.values), entry.index) <= (key(values), index);
        if self.entries.len() == self.size && self.entries.last().is_none_or(better) {
            return;
        }
        let at = self.entries.partition_point(better);
        self.entries.insert(at, Entry { index, values: Readings::new(values) });
        self.entries.truncate(self.size);
    }

    pub fn merge(&mut self, direction: Direction, other: &Self) {
        for entry in &other.entries {
            self.offer(direction, entry.index, &entry.values);
        }
    }
}

/// What is known of one value of one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValueSummary {
    pub points: u64,
    pub feasible: u64,
    /// Best reading of each objective and the point that has it.
    pub best: Vec<Option<(f64, u64)>>,
}

impl ValueSummary {
    pub(super) fn new(objectives: usize) -> Self {
        Self { points: 0, feasible: 0, best: vec![None; objectives] }
    }

    pub(super) fn offer(&mut self, objectives: &[Objective], index: u64, values: &[f64]) {
        for ((best, objective), &value) in self.best.iter_mut().zip(objectives).zip(values) {
            keep_better(best, objective.direction, (value, index));
        }
    }

    pub(super) fn merge(&mut self, objectives: &[Objective], other: &Self) {
        self.points += other.points;
        self.feasible += other.feasible;
        for (at, best) in other.best.iter().enumerate() {
            if let (Some(theirs), Some(mine), Some(objective)) =
                (*best, self.best.get_mut(at), objectives.get(at))
            {
                keep_better(mine, objective.direction, theirs);
            }
        }
    }
}

/// Keeps the better of two readings; of equal ones, that of the lower index.
fn keep_better(best: &mut Option<(f64, u64)>, direction: Direction, (value, index): (f64, u64)) {
    let replaces = best.is_none_or(|(have, at)| {
        let (a, b) = match direction {
            Direction::Minimize => (value, have),
            Direction::Maximize => (have, value),
        };
        a < b || (a == b && index < at)
    });
    if replaces {
        *best = Some((value, index));
    }
}
