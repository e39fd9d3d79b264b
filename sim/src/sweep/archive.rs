//! What a sweep remembers: fronts, best points and counts.
//!
//! Everything here merges in any order to the same result – sets under
//! dominance, extremes with ties to the lower index, integer counts – which
//! is what makes shards and threads byte-identical to a single run.

use super::metric::{Direction, Objective};
use serde::{Deserialize, Serialize};

/// One remembered point: its index and what the objectives read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub index: u64,
    pub values: Vec<f64>,
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
        self.entries.push(Entry { index, values: values.to_vec() });
    }

    /// Takes in another front.
    pub fn merge(&mut self, objectives: &[Objective], other: &Self) {
        for entry in &other.entries {
            self.offer(objectives, entry.index, &entry.values);
        }
    }

    /// Brings the points into the order they are shown in.
    pub fn sort(&mut self) {
        self.entries.sort_by(|a, b| {
            let values = a.values.iter().zip(&b.values).map(|(x, y)| x.total_cmp(y));
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
    /// Room for `size` points.
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
        self.entries.insert(at, Entry { index, values: values.to_vec() });
        self.entries.truncate(self.size);
    }

    /// Takes in another list.
    pub fn merge(&mut self, direction: Direction, other: &Self) {
        for entry in &other.entries {
            self.offer(direction, entry.index, &entry.values);
        }
    }
}

/// What is known of one value of one axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValueSummary {
    pub points: u64,
    pub feasible: u64,
    /// Best reading of each objective and the point that has it.
    pub best: Vec<Option<(f64, u64)>>,
}

impl ValueSummary {
    pub(super) fn offer(&mut self, objectives: &[Objective], index: u64, values: &[f64]) {
        self.best.resize(objectives.len(), None);
        for ((best, objective), &value) in self.best.iter_mut().zip(objectives).zip(values) {
            let replaces = best.is_none_or(|(have, at)| {
                let (a, b) = match objective.direction {
                    Direction::Minimize => (value, have),
                    Direction::Maximize => (have, value),
                };
                a < b || (a == b && index < at)
            });
            if replaces {
                *best = Some((value, index));
            }
        }
    }

    pub(super) fn merge(&mut self, objectives: &[Objective], other: &Self) {
        self.points += other.points;
        self.feasible += other.feasible;
        self.best.resize(objectives.len(), None);
        for (at, best) in other.best.iter().enumerate() {
            let Some((value, index)) = *best else { continue };
            let mut one = Self { best: vec![None; objectives.len()], ..Self::default() };
            one.best[at] = Some((value, index));
            let (mine, objective) = (&mut self.best[at], objectives[at]);
            let replaces = mine.is_none_or(|(have, have_index)| {
                let (a, b) = match objective.direction {
                    Direction::Minimize => (value, have),
                    Direction::Maximize => (have, value),
                };
                a < b || (a == b && index < have_index)
            });
            if replaces {
                *mine = Some((value, index));
            }
        }
    }
}
