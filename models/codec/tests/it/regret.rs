//! What a chosen plan costs over the best one that could have been chosen: the
//! quick part of `cargo xtask regret`.

use trinity_codec::{EntropyChoice, Profile, Rate, Stages};

use super::{coded, gaussian};

/// Matrices with one thing each that a plan can gain from, and a name.
fn laws(rows: usize, cols: usize) -> Vec<(&'static str, Vec<f32>)> {
    let noise = gaussian(rows * cols, 11);
    let at = |of: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..rows * cols).map(|i| of(i / cols, i % cols)).collect()
    };
    let scale = |seed: u64, i: usize| (0.8 * gaussian(1, seed.wrapping_add(977 * i as u64))[0]).exp();
    let columns: Vec<f32> = (0..cols).map(|col| scale(3, col)).collect();
    let lines: Vec<f32> = (0..rows).map(|row| scale(5, row)).collect();
    let mut smooth = noise.clone();
    for row in smooth.chunks_exact_mut(cols) {
        for i in 1..cols {
            row[i] = 0.95 * row[i - 1] + 0.31 * row[i];
        }
    }
    // Sixteen directions that columns of a group of 64 share.
    let (shared, directions) = (gaussian(rows * 16 * cols.div_ceil(64), 17), gaussian(cols * 16, 19));
    let heads = at(&|row, col| {
        let own = &shared[(row * cols.div_ceil(64) + col / 64) * 16..][..16];
        let common: f32 = own.iter().zip(&directions[col * 16..]).map(|(a, b)| 0.4 * a * b).sum();
        common + 0.4 * noise[row * cols + col]
    });
    let biased = at(&|row, col| {
        noise[row * cols + col] + if col % 17 == 3 { 200.0 * (columns[col] - 1.0) } else { 0.0 }
    });
    vec![
        ("scales of columns", at(&|row, col| columns[col] * noise[row * cols + col])),
        ("scales of rows", at(&|row, col| lines[row] * noise[row * cols + col])),
        ("smooth along rows", smooth),
        ("groups of columns", heads),
        ("biased columns", biased),
        ("noise", noise),
    ]
}

/// A plan that is chosen takes hardly more than the best one that can be held to.
#[test]
fn no_plan_is_much_better_than_the_chosen_one() {
    let (rows, cols) = (448, 192);
    let profile = Profile::named("trinity").unwrap();
    let score = |profile: &Profile, values: &[f32]| {
        let (encoded, bits, error) = coded(values, (rows, cols), profile, Rate::Bits(3.0));
        (bits + 0.5 * error.log2(), encoded.report.plan)
    };
    for (law, values) in laws(rows, cols) {
        let (chosen, plan) = score(&profile, &values);
        let Stages { orientation, transform, .. } = &profile.stages;
        for (&orientation, &transform) in
            orientation.iter().flat_map(|o| transform.iter().map(move |t| (o, t)))
        {
            let stages = Stages {
                orientation: vec![orientation],
                transform: vec![transform],
                entropy: vec![EntropyChoice::Adaptive],
                ..profile.stages.clone()
            };
            let (held, best) = score(&Profile { stages, ..profile.clone() }, &values);
            assert!(chosen - held <= 0.05, "{law}: {chosen:.3} with {plan:?}, {held:.3} with {best:?}");
        }
    }
}
