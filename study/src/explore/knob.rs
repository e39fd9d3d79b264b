//! What a search may turn: the axes of a study as places on a point, each with
//! its steps and its limits.
//!
//! A study lists a few values of an axis; the best is rarely one of them. Axes
//! whose places are known here are searched between the listed values and
//! beyond them; of others only the listed values are tried. Knows where a value
//! stands on a point; nothing of what a point costs.

use trinity_sim::sweep::{Axis, Point};
use trinity_sim::{Phase, Recompute, Schedule, Zero};

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
}

/// A sixteenth of a network card or a codec: eight GPUs that share half of one.
const SIXTEENTH: f64 = 1.0 / 16.0;
/// More network cards or codecs than this are on no GPU.
const MOST_PARTS: f64 = 1024.0;
const MOST_RANKS: f64 = 1_048_576.0;
/// More chunks of layers on a stage than this nobody runs.
const MOST_CHUNKS: f64 = 12.0;

const PLACES: [Place; 11] = [
    Place {
        path: SCALE,
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.data),
        set: |point, value| point.job.parallelism.data = value as u32,
        most: |_| MOST_RANKS,
    },
    Place {
        path: "job.parallelism.pipeline",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.pipeline),
        set: |point, value| point.job.parallelism.pipeline = value as u32,
        most: |point| f64::from(point.job.llm.layers),
    },
    Place {
        path: "job.parallelism.tensor",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.tensor),
        set: |point, value| {
            let parallelism = &mut point.job.parallelism;
            let follows = parallelism.expert_tensor == parallelism.tensor;
            parallelism.tensor = value as u32;
            if follows {
                parallelism.expert_tensor = value as u32;
            }
        },
        most: |point| f64::from(point.job.llm.heads),
    },
    Place {
        path: "job.parallelism.context",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.context),
        set: |point, value| point.job.parallelism.context = value as u32,
        most: |point| f64::from(point.job.sequence),
    },
    Place {
        path: "job.parallelism.expert",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.expert),
        set: |point, value| point.job.parallelism.expert = value as u32,
        most: |point| point.job.llm.moe.map_or(1.0, |moe| f64::from(moe.experts)),
    },
    Place {
        path: "job.parallelism.interleave",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.schedule.chunks()),
        set: |point, value| {
            let chunks = value as u32;
            point.job.parallelism.schedule =
                if chunks > 1 { Schedule::Interleaved(chunks) } else { Schedule::OneFOneB };
        },
        most: |point| f64::from(point.job.llm.layers).min(MOST_CHUNKS),
    },
    Place {
        path: "job.microbatch",
        step: 1.0,
        get: |point| f64::from(point.job.microbatch),
        set: |point, value| point.job.microbatch = value as u32,
        most: |point| match point.job.phase {
            Phase::Training if point.replica_batch > 0 => f64::from(point.replica_batch),
            _ => f64::from(point.job.global_batch),
        },
    },
    Place {
        path: NICS,
        step: SIXTEENTH,
        get: |point| point.cluster.nics_per_gpu,
        set: |point, value| point.cluster.nics_per_gpu = value,
        most: |_| MOST_PARTS,
    },
    Place {
        path: CODECS,
        step: SIXTEENTH,
        get: |point| point.cluster.codecs_per_gpu,
        set: |point, value| point.cluster.codecs_per_gpu = value,
        most: |_| MOST_PARTS,
    },
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
    },
    Place {
        path: "job.parallelism.zero",
        step: 1.0,
        get: |point| f64::from(point.job.parallelism.zero.stage()) + 1.0,
        set: |point, value| {
            point.job.parallelism.zero = match value as u32 {
                0 | 1 => Zero::None,
                2 => Zero::Optimizer,
                3 => Zero::Gradients,
                _ => Zero::Parameters,
            }
        },
        most: |_| 4.0,
    },
];

/// Places whose numbers are those of a file.
const WRITTEN: usize = 9;

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
    /// At an end that cannot be extended.
    AtEnd,
}

impl Knob {
    /// The knob of an axis. `most` holds a number back that cannot grow: engines that a die has.
    pub fn of(axis: &Axis, base: &Point, most: Option<f64>) -> Self {
        let numbers: Option<Vec<f64>> = axis.labels.iter().map(|label| label.parse().ok()).collect();
        // Recomputation and ZeRO are counted from one here, not as files write them.
        let place = PLACES[..WRITTEN].iter().find(|place| place.path == axis.path);
        let kind = match (place, numbers) {
            (Some(place), Some(numbers)) if axis.labels.len() > 1 => {
                let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
                let high = numbers.iter().copied().fold(0.0, f64::max);
                let most = most.unwrap_or(f64::INFINITY).min((place.most)(base));
                let most = (most / place.step + 1e-9).floor() * place.step;
                Kind::Number { place: *place, stated: (low, high), most: most.max(low) }
            }
            (_, numbers) => Kind::Listed { axis: axis.clone(), ordered: numbers.is_some() },
        };
        Self { path: axis.path.clone(), kind }
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
            Kind::Number { .. } => axis.labels[digit].parse().unwrap_or(1.0),
            Kind::Listed { .. } => digit as f64,
        }
    }

    /// Whether it takes numbers that the study does not list.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number { .. })
    }

    /// Whether a step of it is a whole number.
    pub fn is_whole(&self) -> bool {
        matches!(&self.kind, Kind::Number { place, .. } if place.step == 1.0)
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
            Kind::Number { place, most, .. } => {
                let steps = (value / place.step + 1e-9).floor();
                (steps * place.step).clamp(place.step, most.max(place.step))
            }
            Kind::Listed { axis, .. } => value.clamp(0.0, axis.labels.len() as f64 - 1.0),
        }
    }

    /// Values to try around one, near and far; not the value itself.
    pub fn around(&self, value: f64) -> Vec<f64> {
        let mut tried: Vec<f64> = match &self.kind {
            Kind::Number { place, .. } => {
                let near =
                    [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0].map(|steps| value + steps * place.step);
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
            Kind::Number { .. } => format!("{value}"),
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
                let held = *most <= *high && value + place.step > *most && *most > place.step;
                (held && place.step < 1.0).then_some(Stands::AtEnd)
            }
            Kind::Listed { axis, ordered } => {
                let last = axis.labels.len() - 1;
                let ends = [0, last].contains(&(value as usize));
                (*ordered && last > 0 && ends).then_some(Stands::AtEnd)
            }
        }
    }
}
