//! Points that fill a cube evenly, for averages over many assumptions at once:
//! a rank-1 lattice, its generator chosen component by component (Nuyens and
//! Cools 2006), moved by a seeded shift (Cranley and Patterson 1976).
//!
//! Knows numbers; what a coordinate means is the caller's.

use trinity_numeric::random::SplitMix64;

/// Lattice points in the unit cube.
#[derive(Debug, Clone)]
pub(super) struct Lattice {
    points: usize,
    generator: Vec<usize>,
    shift: Vec<f64>,
}

impl Lattice {
    pub fn new(points: usize, dimensions: usize, seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let shift = (0..dimensions).map(|_| random.uniform()).collect();
        Self { points, generator: generator(points, dimensions), shift }
    }

    /// The coordinates of a point, each in [0, 1).
    pub fn point(&self, at: usize) -> Vec<f64> {
        let n = self.points as f64;
        let coordinate = |(z, shift): (&usize, &f64)| (((at * z) % self.points) as f64 / n + shift).fract();
        self.generator.iter().zip(&self.shift).map(coordinate).collect()
    }
}

/// Each component the one that leaves the least worst-case error beside those
/// before it, in a Korobov space whose later dimensions weigh less.
fn generator(points: usize, dimensions: usize) -> Vec<usize> {
    let n = points.max(1);
    let kernel: Vec<f64> = (0..n)
        .map(|k| {
            let x = k as f64 / n as f64;
            2.0 * std::f64::consts::PI.powi(2) * (x * x - x + 1.0 / 6.0)
        })
        .collect();
    let coprime: Vec<usize> = (1..=(n / 2).max(1)).filter(|&z| gcd(z, n) == 1).collect();
    let mut products = vec![1.0; n];
    let mut generator = Vec::with_capacity(dimensions);
    for dimension in 0..dimensions {
        let weight = 1.0 / (1.0 + dimension as f64);
        let error = |z: usize| -> f64 {
            products.iter().enumerate().map(|(k, product)| product * kernel[(k * z) % n]).sum()
        };
        let best =
            coprime.iter().copied().map(|z| (z, error(z))).reduce(|a, b| if b.1 < a.1 { b } else { a });
        let z = best.map_or(1, |(z, _)| z);
        for (k, product) in products.iter_mut().enumerate() {
            *product *= 1.0 + weight * kernel[(k * z) % n];
        }
        generator.push(z);
    }
    generator
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The quantile of a standard normal distribution, to 0.0005 (Abramowitz and
/// Stegun 26.2.23).
pub(super) fn normal(u: f64) -> f64 {
    let tail = u.min(1.0 - u).max(1e-6);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let quantile = t - above / below;
    if u < 0.5 { -quantile } else { quantile }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smooth_integral_is_met_closer_than_by_chance() {
        let dimensions = 12;
        let lattice = Lattice::new(1021, dimensions, 7);
        let value = |x: &[f64]| x.iter().map(|x| 1.0 + (x - 0.5) / 4.0).product::<f64>();
        let mean = (0..1021).map(|at| value(&lattice.point(at))).sum::<f64>() / 1021.0;
        // The integral is 1; random points would be off by about 0.008.
        assert!((mean - 1.0).abs() < 0.002, "{mean}");
        // Every coordinate alone takes each of its 1021 places once.
        for dimension in 0..dimensions {
            let mut places: Vec<usize> =
                (0..1021).map(|at| (lattice.point(at)[dimension] * 1021.0) as usize).collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() >= 1020, "{dimension}: {}", places.len());
        }
    }

    #[test]
    fn the_seed_decides_and_nothing_else() {
        let point = |seed| Lattice::new(101, 5, seed).point(17);
        assert_eq!(point(1), point(1));
        assert_ne!(point(1), point(2));
    }

    #[test]
    fn normal_quantiles_are_those_of_tables() {
        for (u, quantile) in [(0.5, 0.0), (0.95, 1.6449), (0.05, -1.6449), (0.975, 1.96), (0.995, 2.5758)] {
            assert!((normal(u) - quantile).abs() < 1e-3, "{u}: {}", normal(u));
        }
    }
}
