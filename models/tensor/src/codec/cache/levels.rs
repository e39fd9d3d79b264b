//! Levels of scalar quantizers that err least on a law (Lloyd 1957, Max 1960): of a histogram, or of a density.
//!
//! Sums, products and roots alone, in a fixed order: the same levels on every machine.

/// Rounds of refinement; levels of 8 bits hardly move after half as many.
const ROUNDS: usize = 60;

/// At most `count` levels for masses at places that rise; fewer where there are fewer places.
pub(super) fn lloyd_max(places: &[f32], masses: &[f64], count: usize) -> Vec<f32> {
    // Sums up to each place, so that a cell is two differences.
    let mut sums = vec![(0.0f64, 0.0f64)];
    for (&place, mass) in places.iter().zip(masses) {
        let (mass_so_far, moment_so_far) = sums[sums.len() - 1];
        sums.push((mass_so_far + mass, moment_so_far + mass * f64::from(place)));
    }
    let all = sums[sums.len() - 1].0;
    let mut levels: Vec<f32> = Vec::with_capacity(count);
    // At first where equal shares of the mass have their middle.
    let mut at = 0;
    for level in 0..count {
        while at + 1 < places.len() && sums[at + 1].0 < (level as f64 + 0.5) / count as f64 * all {
            at += 1;
        }
        levels.extend(places.get(at));
    }
    for _ in 0..ROUNDS {
        let mut from = 0;
        for level in 0..levels.len() {
            let to = match levels.get(level + 1) {
                Some(next) => {
                    let border = 0.5 * (levels[level] + next);
                    from + places[from..].partition_point(|&place| place < border)
                }
                None => places.len(),
            };
            let (mass, moment) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
            if mass > 0.0 {
                levels[level] = (moment / mass) as f32;
            }
            from = to;
        }
    }
    levels
}

/// The level nearest to a value, of levels that rise.
pub(super) fn nearest(levels: &[f32], value: f32) -> usize {
    let above = levels.partition_point(|&level| level < value);
    match (above.checked_sub(1), levels.get(above)) {
        (Some(below), Some(level)) if value - levels[below] <= level - value => below,
        (Some(below), None) => below,
        _ => above,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_law_gets_the_levels_that_max_printed() {
        let places: Vec<f32> = (0..8001).map(|i| (i as f32 - 4000.0) / 800.0).collect();
        let masses: Vec<f64> = places.iter().map(|&x| (-0.5 * f64::from(x).powi(2)).exp()).collect();
        for (count, known) in
            [(2, vec![0.7979]), (4, vec![0.4528, 1.510]), (8, vec![0.2451, 0.756, 1.344, 2.152])]
        {
            let levels = lloyd_max(&places, &masses, count);
            for (own, known) in levels[count / 2..].iter().zip(known) {
                assert!((own - known).abs() < 0.02, "{count}: {levels:?}");
            }
        }
    }

    #[test]
    fn the_nearest_level_is_the_nearest() {
        let levels = [-1.0, 0.0, 0.5, 2.0];
        for at in -300..300 {
            let value = at as f32 / 100.0;
            let least = levels.iter().map(|level| (level - value).abs()).fold(f32::MAX, f32::min);
            assert_eq!((levels[nearest(&levels, value)] - value).abs(), least, "{value}");
        }
    }
}
