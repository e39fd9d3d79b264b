//! What one more of each part would buy: tokens a second for a square
//! millimetre, the table an architect decides by.

use super::Die;
use crate::Infeasible;
use crate::estimate::time;
use crate::sweep::Point;

/// One more of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marginal {
    pub part: &'static str,
    /// How many more were tried, in the part's own unit.
    pub step: f64,
    pub unit: &'static str,
    /// What they add to one GPU.
    pub mm2: f64,
    /// What they add to the whole cluster.
    pub tokens_per_s: f64,
    /// What they add, as a fraction of the point's own tokens a second.
    pub gain: f64,
    /// Why it is a loss, where it is one.
    pub loss: Option<&'static str>,
}

impl Marginal {
    /// Tokens a second of the cluster for a square millimetre on every GPU.
    pub fn tokens_per_s_per_mm2(&self) -> f64 {
        self.tokens_per_s / self.mm2
    }
}

/// A change of one part.
type More = (&'static str, f64, &'static str, fn(&mut Point, f64));

const MORE: [More; 5] = [
    ("SMs", 1.0, "SM", |point, step| with_die(point, |die| die.sms += step)),
    ("L2", 1.0, "MiB", |point, step| with_die(point, |die| die.l2_mib += step)),
    ("memory", 1.0, "stack or channel", |point, step| with_die(point, |die| die.memory_units += step)),
    ("links", 1.0, "link", |point, step| with_die(point, |die| die.links += step)),
    ("tensor codecs", 1.0, "codec", |point, step| point.cluster.codecs_per_gpu += step),
];

fn with_die(point: &mut Point, change: impl Fn(&mut Die)) {
    if let Some(die) = point.cluster.gpu.die.as_mut() {
        change(die);
    }
}

/// What makes a GPU with more of a part the slower one.
fn why_slower(base: &Point, more: &Point) -> &'static str {
    let clock = |point: &Point| point.cluster.gpu.die.map_or(0.0, |die| die.roofline.sustained_clock_hz);
    if clock(more) < clock(base) {
        "the power limit holds the larger die to a lower clock"
    } else {
        "its kernels fill the last wave of SMs less"
    }
}

/// What one more of each part buys at `point`, whether or not the die could
/// hold it; nothing for a GPU given by totals. A part that the die has none of
/// is left out where it would do nothing (a link without a kind, a codec
/// without a design). Fails when the point cannot run.
pub fn marginals(point: &Point) -> Result<Vec<Marginal>, Infeasible> {
    let Some(die) = point.cluster.gpu.die else { return Ok(Vec::new()) };
    let rate = |point: &Point| -> Result<f64, Infeasible> {
        Ok(point.job.tokens() / time(&point.cluster, &point.job)?.total_s())
    };
    let area = |point: &Point| {
        let cluster = &point.cluster;
        cluster.gpu.area_mm2 + cluster.codecs_per_gpu * cluster.codec.area_mm2
    };
    let mut base = *point;
    base.settle();
    let before = rate(&base)?;
    let mut found = Vec::new();
    for (part, step, unit, change) in MORE {
        let absent = match part {
            "links" => die.links <= 0.0,
            "tensor codecs" => base.cluster.codecs_per_gpu <= 0.0 || base.cluster.codec.area_mm2 <= 0.0,
            _ => false,
        };
        if absent {
            continue;
        }
        let mut more = base;
        change(&mut more, step);
        more.settle();
        let tokens_per_s = rate(&more)? - before;
        let mm2 = area(&more) - area(&base);
        let gain = tokens_per_s / before;
        let loss = (gain < 0.0).then(|| why_slower(&base, &more));
        found.push(Marginal { part, step, unit, mm2, tokens_per_s, gain, loss });
    }
    Ok(found)
}
