//! What a search may turn: the axes of a study as places on a point, each with
//! its steps and its limits.
//!
//! A study lists a few values of an axis; the best is rarely one of them. Axes
//! whose places are known here are searched between the listed values and
//! beyond them; of others only the listed values are tried. Knows where a value
//! stands on a point; nothing of what a point costs.

use trinity_sim::sweep::{Axis, Point};
use trinity_sim::{Phase, Recompute, Schedule};

/// The path of what a cluster grows by.
pub(super) const SCALE: &str = "job.parallelism.data";
/// The path of GPUs, where a study counts them itself.
pub(super) const GPUS: &str = "cluster.gpus";
/// The path of network cards, to which area that is left over can go.
pub(super) const NICS: &str = "cluster.nics-per-gpu";
/// The path of codecs.
pub(super) const CODECS: &str = "cluster.codecs-per-gpu";

/// A place on a point that takes any number of steps.
#[derive(Debug, Clone, Copy)]
struct Place {
    path: &'static str,
    /// Values are whole multiples of it.
    step: f64,
    get: fn(&Point) -> f64,
    set: fn(&mut Point, f64),
    most: fn(&Point) -> f64,
    /// What a file writes for 1, 2, …, where it writes words.
    words: &'static [&'static str],
}

impl Place {
    /// The place with the steps that a node's parts come in.
    fn on(mut self, base: &Point) -> Self {
        if [NICS, CODECS].contains(&self.path) {
            self.step = shared(base.cluster.gpus_per_node);
        }
        self
    }

    /// What a value grows by: a GPU has whole codecs, or shares one with its neighbours.
    fn step_at(&self, value: f64) -> f64 {
        if self.path == CODECS && value >= 1.0 { 1.0 } else { self.step }
    }

    /// The value at or below this one that there can be.
    fn floor(&self, value: f64) -> f64 {
        let step = self.step_at(value + 1e-9);
        (value / step + 1e-9).floor() * step
    }

    /// The value as a file writes it.
    fn label(&self, value: f64) -> String {
        let word = self.words.get((value as usize).saturating_sub(1));
        word.map_or_else(|| format!("{value}"), |word| (*word).to_owned())
    }

    /// The value that a file wrote.
    fn value(&self, label: &str) -> f64 {
        let word = self.words.iter().position(|word| *word == label).map(|at| at as f64 + 1.0);
        word.or_else(|| label.parse().ok()).unwrap_or(self.step)
    }
}

/// A sixteenth of a network card or a codec: the least that nodes of one GPU share.
const SIXTEENTH: f64 = 1.0 / 16.0;

/// The share of a network card or a codec that parts of a node grow by: as fine as it may be while
/// a node has whole ones. Nodes of one GPU share cards among them, up to sixteen of them one.
fn shared(gpus_per_node: u32) -> f64 {
    match gpus_per_node {
        0 | 1 => SIXTEENTH,
        gpus => 1.0 / f64::from(1_u32 << gpus.trailing_zeros().min(4)),
    }
}
/// More network cards or codecs than this are on no GPU.
const MOST_PARTS: f64 = 1024.0;
const MOST_RANKS: f64 = 1_048_576.0;
/// More chunks of layers on a stage than this nobody runs.
const MOST_CHUNKS: f64 = 12.0;

/// The place of a whole number that stands by itself.
macro_rules! count {
    ($path:expr, $($field:ident).+, $most:expr) => {
        Place {
            path: $path,
            step: 1.0,
            get: |point| f64::from(point.$($field).+),
            set: |point, value| point.$($field).+ = value as u32,
            most: $most,
            words: &[],
        }
    };
}

/// The place of what GPUs have shares of.
const fn part(path: &'static str, get: fn(&Point) -> f64, set: fn(&mut Point, f64)) -> Place {
    Place { path, step: SIXTEENTH, get, set, most: |_| MOST_PARTS, words: &[] }
}

const PLACES: [Place; 10] = [
    count!(SCALE, job.parallelism.data, |_| MOST_RANKS),
    count!("job.parallelism.pipeline", job.parallelism.pipeline, |point| f64::from(point.job.llm.layers)),
    Place {
        set: |point, value| {
            let parallelism = &mut point.job.parallelism;
            let follows = parallelism.expert_tensor == parallelism.tensor;
            parallelism.tensor = value as u32;
            if follows {
                parallelism.expert_tensor = value as u32;
            }
        },
        ..count!("job.parallelism.tensor", job.parallelism.tensor, |point| f64::from(point.job.llm.heads))
    },
    count!("job.parallelism.context", job.parallelism.context, |point| f64::from(point.job.sequence)),
    count!("job.parallelism.expert", job.parallelism.expert, |point| {
        point.job.llm.moe.map_or(1.0, |moe| f64::from(moe.experts))
    }),
    Place {
        path: "job.parallelism.interleave",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.schedule.chunks()),
        set: |point, value| {
            let chunks = value as u32;
            // A pipeline that runs both ways holds one chunk of each.
            if point.job.parallelism.schedule != Schedule::DualPipe {
                point.job.parallelism.schedule =
                    if chunks > 1 { Schedule::Interleaved(chunks) } else { Schedule::OneFOneB };
            }
        },
        most: |point| f64::from(point.job.llm.layers).min(MOST_CHUNKS),
        words: &[],
    },
    count!("job.microbatch", job.microbatch, |point| match point.job.phase {
        Phase::Training if point.replica_batch > 0 => f64::from(point.replica_batch),
        _ => f64::from(point.job.global_batch),
    }),
    part(NICS, |point| point.cluster.nics_per_gpu, |point, own| point.cluster.nics_per_gpu = own),
    part(CODECS, |point| point.cluster.codecs_per_gpu, |point, own| point.cluster.codecs_per_gpu = own),
    Place {
        path: "job.recompute",
        step: 1.0,
        get: |point| match point.job.recompute {
            Recompute::None => 1.0,
            Recompute::Selective => 2.0,
            Recompute::Full => 3.0,
        },
        set: |point, value| {
            point.job.recompute = match value as u32 {
                0 | 1 => Recompute::None,
                2 => Recompute::Selective,
                _ => Recompute::Full,
            }
        },
        most: |_| 3.0,
        words: &["none", "selective", "full"],
    },
];

/// One thing that a search turns.
#[derive(Debug, Clone)]
pub(super) struct Knob {
    pub path: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Number {
        place: Place,
        /// The ends of the study's own axis.
        stated: (f64, f64),
        /// What it may not go beyond.
        most: f64,
    },
    /// The study's values and no others; the knob's value is the place in the list.
    Listed { axis: Axis, ordered: bool },
}

/// Where an optimum stands on its axis, where that is worth a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stands {
    /// Beyond the values that the study lists.
    Beyond { end: f64 },
    /// The best lies at an end that cannot be extended.
    AtEnd,
}

impl Knob {
    /// The knob of an axis. `most` holds a number back that cannot grow: engines that a die has.
    pub fn of(axis: &Axis, base: &Point, most: Option<f64>) -> Self {
        let numbers: Option<Vec<f64>> = axis.labels.iter().map(|label| label.parse().ok()).collect();
        // Words are the study's to list.
        let place = PLACES.iter().find(|place| place.path == axis.path && place.words.is_empty());
        let place = place.map(|place| place.on(base));
        let kind = match (place, numbers) {
            (Some(place), Some(numbers)) if axis.labels.len() > 1 => {
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                let high = numbers.iter().copied().fold(0.0, f64::max);
                let most = most.unwrap_or(f64::INFINITY).min((place.most)(base));
                Kind::Number { place, stated: (low, high), most: place.floor(most).max(low) }
            }
            (_, numbers) => Kind::Listed { axis: axis.clone(), ordered: numbers.is_some() },
        };
        Self { path: axis.path.clone(), kind }
    }

    /// The knob of a choice that the study leaves to the search; nothing of a place that is not known.
    pub fn free(axis: &Axis, base: &Point) -> Option<Self> {
        let place = PLACES.iter().find(|place| place.path == axis.path)?.on(base);
        let most = (place.most)(base).max(place.step);
        Some(Self {
            path: axis.path.clone(),
            kind: Kind::Number { place, stated: (0.0, f64::INFINITY), most },
        })
    }

    /// What a point has there, where that can be read back.
    pub fn get(&self, point: &Point) -> f64 {
        match &self.kind {
            Kind::Number { place, .. } => (place.get)(point),
            Kind::Listed { .. } => 0.0,
        }
    }

    /// The value at a place of the study's own list.
    pub fn listed(&self, axis: &Axis, digit: usize) -> f64 {
        match &self.kind {
            Kind::Number { place, .. } => place.value(&axis.labels[digit]),
            Kind::Listed { .. } => digit as f64,
        }
    }

    /// Whether it takes numbers that the study does not list.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number { .. })
    }

    /// Whether it counts something, and could be doubled while another is halved.
    pub fn is_whole(&self) -> bool {
        matches!(&self.kind, Kind::Number { place, .. } if place.step == 1.0 && place.words.is_empty())
    }

    /// Puts a value onto a point.
    pub fn set(&self, point: &mut Point, value: f64) {
        match &self.kind {
            Kind::Number { place, .. } => (place.set)(point, value),
            Kind::Listed { axis, .. } => axis.apply(value as usize, point),
        }
    }

    /// The multiple of its step at or below a value, within its limits.
    pub fn rounded(&self, value: f64) -> f64 {
        match &self.kind {
            Kind::Number { place, most, .. } => place.floor(value).clamp(place.step, most.max(place.step)),
            Kind::Listed { axis, .. } => value.clamp(0.0, axis.labels.len() as f64 - 1.0),
        }
    }

    /// Values to try around one, near and far; not the value itself.
    pub fn around(&self, value: f64) -> Vec<f64> {
        let mut tried: Vec<f64> = match &self.kind {
            Kind::Number { place, .. } => {
                let step = place.step_at(value);
                let near = [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0].map(|steps| value + steps * step);
                let far = [0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 4.0].map(|factor| value * factor);
                near.into_iter().chain(far).map(|value| self.rounded(value)).collect()
            }
            Kind::Listed { axis, .. } => (0..axis.labels.len()).map(|digit| digit as f64).collect(),
        };
        tried.retain(|tried| *tried != value);
        tried.sort_by(f64::total_cmp);
        tried.dedup();
        tried
    }

    /// The value as a study writes it.
    pub fn label(&self, value: f64) -> String {
        match &self.kind {
            Kind::Number { place, .. } => place.label(value),
            Kind::Listed { axis, .. } => axis.labels[value as usize].clone(),
        }
    }

    /// Where a value stands on the study's axis.
    pub fn stands(&self, value: f64) -> Option<Stands> {
        match &self.kind {
            Kind::Number { place, stated: (low, high), most } => {
                if value > *high {
                    return Some(Stands::Beyond { end: *high });
                }
                if value < *low {
                    return Some(Stands::Beyond { end: *low });
                }
                // One of each is no end of anything, nor is what nothing else fits beside.
                let fixed = *most <= *high && value + place.step_at(value) > *most && *most > place.step;
                (fixed && place.step < 1.0).then_some(Stands::AtEnd)
            }
            Kind::Listed { axis, ordered } => {
                let last = axis.labels.len() - 1;
                let ends = [0, last].contains(&(value as usize));
                (*ordered && last > 0 && ends).then_some(Stands::AtEnd)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_whole_network_cards_and_a_gpu_whole_codecs() {
        assert_eq!([1, 2, 4, 8, 16, 72].map(shared), [1.0 / 16.0, 0.5, 0.25, 0.125, 1.0 / 16.0, 0.125]);
        let of = |path: &str| *PLACES.iter().find(|place| place.path == path).unwrap();
        let codecs = Place { step: 0.125, ..of(CODECS) };
        assert_eq!(
            [0.3, 0.99, 1.0, 1.9, 22.8].map(|value| codecs.floor(value)),
            [0.25, 0.875, 1.0, 1.0, 22.0]
        );
        let nics = Place { step: 0.125, ..of(NICS) };
        assert_eq!([0.94, 1.2].map(|value| nics.floor(value)), [0.875, 1.125]);
    }
}
