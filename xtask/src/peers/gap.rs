//! How far rate curves are apart: the bits that one takes for what another reaches with fewer.
//!
//! Between its points a curve is a line in bits and the logarithm of the divergence, and nothing outside of them. Knows
//! nothing of who made the points.

/// Bits and divergence.
pub type Point = (f64, f64);

/// The rate at which a curve has a divergence; none where its points do not reach so far.
pub fn bits_at(curve: &[Point], divergence: f64) -> Option<f64> {
    between(curve, |point| point.1.ln(), divergence.ln(), |point| point.0)
}

/// The divergence that a curve has at a rate; none where its points do not reach so far.
pub fn divergence_at(curve: &[Point], bits: f64) -> Option<f64> {
    between(curve, |point| point.0, bits, |point| point.1.ln()).map(f64::exp)
}

/// What `of` is where `along` is `at`, on the line between the two points of the curve around it.
fn between(curve: &[Point], along: impl Fn(Point) -> f64, at: f64, of: impl Fn(Point) -> f64) -> Option<f64> {
    let mut points: Vec<Point> = curve.iter().copied().filter(|point| point.1 > 0.0).collect();
    points.sort_by(|a, b| along(*a).total_cmp(&along(*b)));
    let pair = points.windows(2).find(|pair| along(pair[0]) <= at && at <= along(pair[1]))?;
    let (from, to) = (along(pair[0]), along(pair[1]));
    let share = if to > from { (at - from) / (to - from) } else { 0.0 };
    Some((1.0 - share) * of(pair[0]) + share * of(pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_met_at_its_points_between_them_and_nowhere_else() {
        // Sixteen times less for two bits.
        let curve = [(4.0, 0.01), (2.0, 0.16), (3.0, -1.0)];
        assert!((bits_at(&curve, 0.04).unwrap() - 3.0).abs() < 1e-12);
        assert!((divergence_at(&curve, 3.5).unwrap() - 0.02).abs() < 1e-12);
        assert_eq!(bits_at(&curve, 0.16), Some(2.0));
        assert!((divergence_at(&curve, 4.0).unwrap() - 0.01).abs() < 1e-12);
        assert_eq!((bits_at(&curve, 0.2), divergence_at(&curve, 1.9), bits_at(&[], 0.1)), (None, None, None));
    }
}
