//! What was measured of a device, ready to be asked at any size.

/// Measured points of a curve, both axes logarithmic between them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Interpolated {
    /// Points by rising argument.
    pub points: Vec<(f64, f64)>,
}

impl Interpolated {
    /// The value at `x`: interpolated inside; beyond the last point growing in
    /// proportion, below the first constant (a floor is a floor).
    pub fn seconds(&self, x: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return f64::NAN };
        if x >= last.0 {
            return last.1 * x / last.0;
        }
        self.rate(x).max(if x < first.0 { first.1 } else { 0.0 })
    }

    /// The value at `x`, constant beyond both ends.
    pub fn rate(&self, x: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return f64::NAN };
        let x = x.clamp(first.0, last.0);
        let after = self.points.partition_point(|point| point.0 < x).clamp(1, self.points.len().max(2) - 1);
        let (Some(&low), Some(&high)) = (self.points.get(after - 1), self.points.get(after)) else {
            return first.1;
        };
        if high.0 <= low.0 {
            return low.1;
        }
        let share = (x / low.0).ln() / (high.0 / low.0).ln();
        (low.1.ln() + share * (high.1 / low.1).ln()).exp()
    }
}

/// Which operand of a product lies transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Forward,
    InputGradient,
    WeightGradient,
}

/// Matrix products `[m×k]·[k×n]` over a grid of shapes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Products {
    pub rows: Vec<f64>,
    pub columns: Vec<f64>,
    pub depths: Vec<f64>,
    /// Seconds, depth fastest, then column, then row.
    pub seconds: Vec<f64>,
    /// The best rate of the grid, and the memory's: the roof that times are
    /// taken relative to between the points.
    pub flop_per_s: f64,
    pub bytes_per_s: f64,
    /// Shortest product of the grid.
    pub floor_s: f64,
    /// Time over that of the forward layout.
    pub input_gradient: f64,
    pub weight_gradient: f64,
}

impl Products {
    /// Seconds of one product.
    pub fn seconds(&self, m: f64, n: f64, k: f64, layout: Layout) -> f64 {
        let factor = match layout {
            Layout::Forward => 1.0,
            Layout::InputGradient => self.input_gradient,
            Layout::WeightGradient => self.weight_gradient,
        };
        factor * self.roof_s(m, n, k) * self.over_roof(m, n, k)
    }

    /// Whether arithmetic, not memory, sets the time.
    pub fn is_bound_by_arithmetic(&self, m: f64, n: f64, k: f64) -> bool {
        2.0 * m * n * k / self.flop_per_s > bytes(m, n, k) / self.bytes_per_s
    }

    fn roof_s(&self, m: f64, n: f64, k: f64) -> f64 {
        self.floor_s + (2.0 * m * n * k / self.flop_per_s).max(bytes(m, n, k) / self.bytes_per_s)
    }

    /// Measured time over the roof's, between the eight neighbours of the grid.
    fn over_roof(&self, m: f64, n: f64, k: f64) -> f64 {
        let axes =
            [(&self.rows, m), (&self.columns, n), (&self.depths, k)].map(|(axis, at)| between(axis, at));
        let mut log = 0.0;
        for corner in 0..8 {
            let mut weight = 1.0;
            let mut index = [0usize; 3];
            for (axis, (low, share)) in axes.iter().enumerate() {
                let high = (corner >> axis) & 1 == 1;
                weight *= if high { *share } else { 1.0 - share };
                index[axis] = low + usize::from(high && *share > 0.0);
            }
            if weight == 0.0 {
                continue;
            }
            let at = (index[0] * self.columns.len() + index[1]) * self.depths.len() + index[2];
            let Some(&seconds) = self.seconds.get(at) else { return f64::NAN };
            let roof = self.roof_s(self.rows[index[0]], self.columns[index[1]], self.depths[index[2]]);
            log += weight * (seconds / roof).ln();
        }
        log.exp()
    }
}

fn bytes(m: f64, n: f64, k: f64) -> f64 {
    2.0 * (m * k + n * k + m * n)
}

/// The index below `at` on a rising axis and how far towards the next it lies,
/// logarithmically; the ends hold beyond them.
fn between(axis: &[f64], at: f64) -> (usize, f64) {
    let (Some(&first), Some(&last)) = (axis.first(), axis.last()) else { return (0, 0.0) };
    if at <= first {
        return (0, 0.0);
    }
    if at >= last {
        return (axis.len() - 1, 0.0);
    }
    let low = axis.partition_point(|&value| value <= at) - 1;
    (low, (at / axis[low]).ln() / (axis[low + 1] / axis[low]).ln())
}

/// Fused attention of one head size over sequence lengths, causal.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionCurve {
    pub head_dim: f64,
    /// Operations that the mask leaves, a second, by tokens.
    pub forward_flop_per_s: Interpolated,
    /// Operations of the forward pass over the seconds of the backward.
    pub backward_flop_per_s: Interpolated,
}

/// One query a sequence on a cache: seconds by bytes of the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheCurve {
    pub head_dim: f64,
    /// Query heads that share one of the cache.
    pub group: f64,
    pub seconds: Interpolated,
}

/// Elementwise operations of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Add,
    Mul,
    MulBroadcast,
    MulBroadcastFloat,
    Rotate,
    RotateFloat,
    ToFloat,
    ToHalf,
    Silu,
    SiluBackward,
    Norm,
    NormBackward,
    CrossEntropy,
    Optimizer,
    /// Copies, fills and gathers.
    Copy,
}

/// What the host pays for an operation among others, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    pub elementwise_s: f64,
    pub linear_s: f64,
    pub norm_s: f64,
    pub attention_s: f64,
    pub view_s: f64,
    /// Time with gradients recorded, over time without.
    pub recorded: f64,
    /// One operation of a backward pass.
    pub backward_elementwise_s: f64,
    pub backward_linear_s: f64,
    pub backward_attention_s: f64,
}

/// Watts: what runs, and what moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// Clocks up, nothing running.
    pub idle_w: f64,
    /// Kernels running that do nothing.
    pub active_w: f64,
    pub joules_per_flop: f64,
    pub joules_per_byte: f64,
    pub limit_w: f64,
    /// How energy of an operation falls with the clock: clock to this power.
    pub clock_exponent: f64,
}

/// A device and its host, as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDevice {
    pub multiprocessors: f64,
    pub products: Products,
    /// Seconds of a streaming kernel of a graph by the bytes it moves.
    pub streams: Interpolated,
    /// What the framework's kernels take at least, and beyond that their time
    /// over our stream's, by operation.
    pub operations: Vec<(Operation, f64, f64)>,
    pub attention: Vec<AttentionCurve>,
    pub caches: Vec<CacheCurve>,
    pub dispatch: Dispatch,
    /// Time from a launch until its kernel runs.
    pub latency_s: f64,
    pub power: Power,
}

impl HostDevice {
    /// Seconds of an elementwise operation that moves `bytes`.
    pub fn stream_s(&self, operation: Operation, bytes: f64) -> f64 {
        let fixed_s = self.streams.seconds(0.0);
        let found = self.operations.iter().find(|(of, _, _)| *of == operation);
        let (floor_s, factor) = found.map_or((fixed_s, 1.0), |&(_, floor_s, factor)| (floor_s, factor));
        floor_s + factor * (self.streams.seconds(bytes) - fixed_s)
    }

    /// Seconds of causal attention over `tokens`, forward or backward.
    pub fn attention_s(
        &self,
        flop: f64,
        sequences_heads: f64,
        tokens: f64,
        head_dim: f64,
        backward: bool,
    ) -> f64 {
        let Some(curve) = nearest(&self.attention, head_dim) else { return f64::NAN };
        let rate = if backward { &curve.backward_flop_per_s } else { &curve.forward_flop_per_s };
        // A thread block takes a tile of queries of one head; fewer than
        // multiprocessors leave some idle.
        let blocks = sequences_heads * (tokens / QUERY_TILE).ceil();
        let filled = (blocks / self.multiprocessors).min(1.0);
        self.products.floor_s + flop / (rate.rate(tokens) * filled)
    }

    /// Seconds of one query a sequence on `cache_bytes` of keys and values.
    pub fn cache_s(&self, cache_bytes: f64, head_dim: f64, group: f64) -> f64 {
        let same_group = |curve: &&CacheCurve| (curve.group > 1.0) == (group > 1.0);
        let mut best: Option<&CacheCurve> = None;
        for curve in self.caches.iter().filter(same_group).chain(self.caches.iter()) {
            let distance = |c: &CacheCurve| (c.head_dim / head_dim).ln().abs();
            let fits = |c: &CacheCurve| (c.head_dim % 8.0 == 0.0) == (head_dim % 8.0 == 0.0);
            let better = match best {
                None => true,
                Some(held) => fits(curve) && (!fits(held) || distance(curve) < distance(held)),
            };
            if better {
                best = Some(curve);
            }
        }
        best.map_or(f64::NAN, |curve| curve.seconds.seconds(cache_bytes))
    }
}

/// Queries of a thread block of fused attention.
const QUERY_TILE: f64 = 128.0;

/// The curve whose head size is nearest `wanted` among those aligned alike
/// (kernels differ between multiples of eight and the rest).
fn nearest(curves: &[AttentionCurve], wanted: f64) -> Option<&AttentionCurve> {
    let aligned = |value: f64| value % 8.0 == 0.0;
    let distance = |curve: &AttentionCurve| {
        let apart = (curve.head_dim / wanted).ln().abs();
        if aligned(curve.head_dim) == aligned(wanted) { apart } else { apart + 10.0 }
    };
    curves.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_meet_their_points_and_stay_between_them() {
        let curve = Interpolated { points: vec![(1.0, 2.0), (100.0, 8.0)] };
        assert!((curve.seconds(10.0) - 4.0).abs() < 1e-12);
        assert!((curve.seconds(0.5) - 2.0).abs() < 1e-12 && (curve.rate(1e6) - 8.0).abs() < 1e-12);
        assert!((curve.seconds(1000.0) - 80.0).abs() < 1e-9);
    }

    #[test]
    fn products_give_back_their_grid_and_follow_the_roof_outside() {
        let roof = |m: f64, n: f64, k: f64| 1e-6 + (2.0 * m * n * k / 1e12).max(bytes(m, n, k) / 1e11);
        let (rows, columns, depths) = (vec![1.0, 64.0], vec![64.0, 512.0], vec![64.0, 256.0]);
        let mut seconds = Vec::new();
        for &m in &rows {
            for &n in &columns {
                for &k in &depths {
                    seconds.push(1.25 * roof(m, n, k));
                }
            }
        }
        let products = Products {
            rows,
            columns,
            depths,
            seconds,
            flop_per_s: 1e12,
            bytes_per_s: 1e11,
            floor_s: 1e-6,
            input_gradient: 1.0,
            weight_gradient: 2.0,
        };
        for (m, n, k) in [(1.0, 64.0, 64.0), (64.0, 512.0, 256.0), (8.0, 100.0, 70.0), (1e4, 1e4, 1e4)] {
            let expected = 1.25 * roof(m, n, k);
            assert!(
                (products.seconds(m, n, k, Layout::Forward) / expected - 1.0).abs() < 1e-9,
                "{m} {n} {k}"
            );
            assert!((products.seconds(m, n, k, Layout::WeightGradient) / expected - 2.0).abs() < 1e-9);
        }
    }
}
