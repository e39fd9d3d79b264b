//! Where a codec pays: its gain over a map of regimes, with the asker's cluster
//! and well-known ones marked on it.
//!
//! Training is laid out by wire speed for each FLOP/s and by tokens of a
//! data-parallel rank in a step: between them they say how long a gradient
//! takes to send while how much is computed. Serving is laid out by context and
//! concurrency. Every place is the study with those two numbers, in which the
//! codec and no codec each play their best on as many GPUs, in training whether
//! they use all of them or not, and are compared for each mm².

use super::chance::PAYS;
use super::contest::Contest;
use super::knob::NICS;
use super::optimum::{Merit, Optimum, Player, Rules, Values, Within};
use crate::config::{ExplorationFile, LandmarkFile, WorkloadFile};
use crate::{Error, Progress};
use serde::Serialize;
use trinity_sim::sweep::Point;
use trinity_sim::{Math, Phase};

/// A map of gains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regime {
    pub x: Ruler,
    pub y: Ruler,
    /// The codec whose gain it is.
    pub candidate: String,
    /// A row for each `y`, a gain for each `x`; nothing where no cluster of this size can run.
    pub gains: Vec<Vec<Option<f64>>>,
    /// The asker's cluster.
    pub here: Mark,
    /// Well-known ones.
    pub marks: Vec<Mark>,
    /// Along `x` at the asker's `y`.
    pub edge: Edge,
    /// Places that are holes, and why the first of them is one.
    pub holes: usize,
    pub why: Option<String>,
}

/// An axis of the map, its values rising at equal ratios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ruler {
    pub name: &'static str,
    pub unit: &'static str,
    pub values: Vec<f64>,
}

/// A place on the map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    pub name: String,
    pub x: f64,
    pub y: f64,
    /// The gain of the study's model there.
    pub gain: Option<f64>,
}

/// For which `x` a codec pays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    Everywhere,
    Nowhere,
    Below(f64),
    Above(f64),
    /// It changes more than once.
    Here,
}

/// Places along the map where nothing else is said.
pub const CELLS: usize = 15;
/// What the map of a service is laid out by.
pub(super) const CONTEXT: &str = "context";
/// Halvings of the interval in which a codec starts to pay.
const HALVINGS: usize = 5;

/// The map of a contest for one of its codecs, `cells` places wide; nothing where neither it nor the
/// baseline can run, or no map is wanted.
pub(super) fn regime(
    contest: &Contest<'_>,
    file: &ExplorationFile,
    candidate: &str,
    cells: usize,
    progress: &dyn Progress,
) -> Result<Option<Regime>, Error> {
    let Some(survey) = Survey::of(contest, candidate).filter(|_| cells > 1) else { return Ok(None) };
    let (x, y) = survey.rulers(cells);
    let cells: Vec<(f64, f64)> =
        y.values.iter().flat_map(|y| x.values.iter().map(move |x| (*x, *y))).collect();
    progress.begin(cells.len() as u64, "mapping where a codec pays");
    let mut gains = Vec::with_capacity(cells.len());
    for row in cells.chunks(x.values.len()) {
        progress.check()?;
        gains.push(crate::parallel::map(row, |&(x, y)| survey.gain(x, y)));
        progress.advance(row.len() as u64);
    }
    progress.end();
    let (here_x, here_y) = survey.here();
    let mark = |name: &str, x: f64, y: f64| Mark { name: name.to_owned(), x, y, gain: survey.gain(x, y) };
    let marks = match survey.phase {
        Phase::Training => {
            let place = |one: &LandmarkFile| {
                let x = one.wire.gbit_per_s() / (one.rate.flop_per_s() / 1e12);
                mark(&one.name, x, one.tokens)
            };
            file.landmarks.iter().map(place).collect()
        }
        Phase::Prefill | Phase::Decode => {
            let place = |one: &WorkloadFile| mark(&one.name, one.context, one.concurrency);
            file.workloads.iter().map(place).collect()
        }
    };
    let places = gains.iter().zip(&y.values).flat_map(|(row, &y)| {
        row.iter().zip(&x.values).filter(|(gain, _)| gain.is_none()).map(move |(_, &x)| (x, y))
    });
    let holes: Vec<(f64, f64)> = places.collect();
    Ok(Some(Regime {
        candidate: candidate.to_owned(),
        edge: survey.edge(&x.values, here_y),
        why: holes.first().map(|&(x, y)| survey.why(x, y)),
        holes: holes.len(),
        here: mark("this cluster", here_x, here_y),
        gains,
        marks,
        x,
        y,
    }))
}

struct Survey {
    phase: Phase,
    /// Baseline and codec.
    sides: [Side; 2],
    rules: Rules,
}

struct Side {
    player: Player,
    base: Point,
    start: Values,
    best: Point,
}

impl Survey {
    fn of(contest: &Contest<'_>, candidate: &str) -> Option<Self> {
        let codec = contest.names().iter().position(|name| *name == candidate)?;
        let baseline = contest.baseline_at()?;
        let side = |at: usize| -> Option<Side> {
            let (field, best) = (&contest.fields[at], contest.optima[at].as_ref()?);
            // In training wires are what the map is laid out by.
            let player = match best.point.job.phase {
                Phase::Training => field.player.without(&[NICS]),
                Phase::Prefill | Phase::Decode => field.player.clone(),
            };
            let start = player.taken(&field.player, &best.values, &best.values);
            Some(Side { player, base: field.base(&[])?, start, best: best.point })
        };
        let sides = [side(baseline)?, side(codec)?];
        let gpus = f64::from(sides[0].best.cluster.gpus);
        let grows = sides[0].base.gpus_as_used;
        let training = sides[0].base.job.phase == Phase::Training;
        let rules = Rules {
            within: if grows && training { Within::Gpus(gpus) } else { Within::AsItIs },
            // Who trains has so many GPUs, and to leave some idle is no gain; a service has as many
            // replicas as it likes.
            merit: if training { Merit::AmongGpus } else { Merit::PerArea },
            ..contest.rules.clone()
        };
        Some(Self { phase: sides[0].base.job.phase, sides, rules })
    }

    fn rulers(&self, cells: usize) -> (Ruler, Ruler) {
        let (across, up) = (cells, (cells * 11 / CELLS).max(2));
        let ruler = |name, unit, from: f64, to: f64, count: usize| {
            let value = |k: usize| from * (to / from).powf(k as f64 / (count - 1) as f64);
            Ruler { name, unit, values: (0..count).map(value).collect() }
        };
        let (_, y) = self.here();
        match self.phase {
            Phase::Training => {
                let sequence = f64::from(self.sides[0].base.job.sequence);
                (
                    ruler("wire speed for each FLOP/s", "Gbit/s a TFLOP/s", 5e-4, 5.0, across),
                    ruler("batch of a rank", "tokens", sequence, sequence * 1024.0, up),
                )
            }
            Phase::Prefill | Phase::Decode => (
                ruler(CONTEXT, "tokens", 1024.0, 1_048_576.0, up),
                ruler("concurrency", "sequences", 1.0, 1024.0_f64.max(y), up),
            ),
        }
    }

    /// The asker's cluster as the baseline builds it.
    fn here(&self) -> (f64, f64) {
        let point = &self.sides[0].best;
        let job = &point.job;
        let ranks = f64::from(job.parallelism.data.max(1));
        match self.phase {
            Phase::Training => {
                let cluster = &point.cluster;
                let gbit_per_s = cluster.nic.bytes_per_s * cluster.nics_per_gpu * 8e-9;
                let tokens = f64::from(job.global_batch) * f64::from(job.sequence) / ranks;
                (gbit_per_s / (cluster.gpu.peak_flops.of(Math::Fp16) / 1e12), tokens)
            }
            Phase::Prefill | Phase::Decode => (f64::from(job.sequence), f64::from(job.global_batch) / ranks),
        }
    }

    /// The codec over no codec at a place.
    fn gain(&self, x: f64, y: f64) -> Option<f64> {
        let best = |side: &Side, other: Option<(&Side, &Optimum)>| {
            let mut base = side.base;
            self.lay(&mut base, x, y);
            // What serves one side may serve the other.
            let taken =
                other.map(|(other, best)| side.player.taken(&other.player, &best.values, &side.start));
            let starts: Vec<Values> = match taken {
                Some(taken) => vec![taken],
                None => side.player.spread(&side.start),
            };
            side.player.best(&base, &self.rules, &starts)
        };
        let [plain, coded] = &self.sides;
        let (baseline, codec) = (best(plain, None)?, best(coded, None)?);
        let over =
            best(plain, Some((coded, &codec))).map_or(baseline.merit, |own| own.merit.max(baseline.merit));
        let under =
            best(coded, Some((plain, &baseline))).map_or(codec.merit, |own| own.merit.max(codec.merit));
        Some(under / over)
    }

    /// Why a place is a hole: what the baseline's own layout lacks there, or the codec's.
    fn why(&self, x: f64, y: f64) -> String {
        let refused = |side: &Side| {
            let mut base = side.base;
            self.lay(&mut base, x, y);
            side.player.point(&base, &side.start).estimate().err().map(|why| why.to_string())
        };
        let [plain, coded] = &self.sides;
        refused(plain)
            .or_else(|| refused(coded))
            .unwrap_or_else(|| "no layout is within the limits of the study".into())
    }

    /// Puts the two numbers of a place into a point.
    fn lay(&self, point: &mut Point, x: f64, y: f64) {
        let job = &mut point.job;
        match self.phase {
            Phase::Training => {
                point.cluster.nic.bytes_per_s =
                    x * 1e9 / 8.0 * point.cluster.gpu.peak_flops.of(Math::Fp16) / 1e12;
                point.cluster.nics_per_gpu = 1.0;
                point.replica_batch = (y / f64::from(job.sequence)).round().max(1.0) as u32;
                if !point.replica_batch.is_multiple_of(job.microbatch.max(1)) {
                    job.microbatch = 1;
                }
            }
            Phase::Prefill | Phase::Decode => {
                job.sequence = x.round().max(1.0) as u32;
                let each = y.round().max(1.0) as u32;
                job.global_batch = each.saturating_mul(job.parallelism.data.max(1));
                job.microbatch = each;
                point.replica_batch = 0;
            }
        }
        point.settle();
    }

    /// The `x` for which the codec pays at one `y`.
    fn edge(&self, xs: &[f64], y: f64) -> Edge {
        let pays = |x: f64| self.gain(x, y).is_some_and(|gain| gain > PAYS);
        let along: Vec<bool> = crate::parallel::map(xs, |&x| pays(x));
        let turns: Vec<usize> = (1..along.len()).filter(|&at| along[at] != along[at - 1]).collect();
        match turns.as_slice() {
            [] if along.first() == Some(&true) => Edge::Everywhere,
            [] => Edge::Nowhere,
            &[at] => {
                let (mut low, mut high) = (xs[at - 1], xs[at]);
                for _ in 0..HALVINGS {
                    let middle = (low * high).sqrt();
                    if pays(middle) == along[at - 1] {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                let edge = (low * high).sqrt();
                if along[at] { Edge::Above(edge) } else { Edge::Below(edge) }
            }
            _ => Edge::Here,
        }
    }
}
