//! Matrices of made-up laws, each with one thing that a plan can gain from, in
//! shapes that divide by nothing as well as in round ones.

use super::points::InputTensor;
use trinity_numeric::random::SplitMix64;

fn filled(name: &str, rows: usize, cols: usize, mut next: impl FnMut(usize, usize) -> f64) -> InputTensor {
    let values = (0..rows * cols).map(|at| next(at / cols, at % cols) as f32).collect();
    InputTensor { name: format!("law: {name}"), rows, cols, values }
}

fn transposed(name: &str, input: &InputTensor) -> InputTensor {
    let InputTensor { rows, cols, values, .. } = input;
    filled(name, *cols, *rows, |row, col| f64::from(values[col * cols + row]))
}

/// First-order recursion with a correlation, along rows.
fn smooth_along(input: &mut InputTensor, correlation: f32) {
    let fresh = (1.0 - correlation * correlation).sqrt();
    for row in input.values.chunks_exact_mut(input.cols) {
        for at in 1..row.len() {
            row[at] = correlation * row[at - 1] + fresh * row[at];
        }
    }
}

/// Columns of a group share a few directions.
fn mixed(name: &str, rows: usize, cols: usize, group: usize, random: &mut SplitMix64) -> InputTensor {
    const SHARED: usize = 12;
    let directions: Vec<f64> = (0..SHARED * cols).map(|_| random.gaussian() * 0.5).collect();
    let mut shared = vec![0.0; SHARED * cols.div_ceil(group)];
    filled(name, rows, cols, |_, col| {
        if col == 0 {
            shared.iter_mut().for_each(|value| *value = random.gaussian());
        }
        let of_group = &shared[col / group * SHARED..][..SHARED];
        let common: f64 = of_group.iter().zip(&directions[col * SHARED..]).map(|(a, b)| a * b).sum();
        common + 0.4 * random.gaussian()
    })
}

/// All laws.
pub fn all() -> Vec<InputTensor> {
    let mut random = SplitMix64(7);
    let random = &mut random;
    let mut laws = Vec::new();
    laws.push(filled("gaussian", 768, 640, |_, _| random.gaussian()));
    laws.push(filled("laplace", 1000, 300, |_, _| random.laplacian()));
    laws.push(filled("student-t 3", 640, 512, |_, _| random.student(3)));
    let scales: Vec<f64> = (0..1024).map(|_| (0.8 * random.gaussian()).exp()).collect();
    let channels = filled("channel scales", 1024, 192, |_, col| scales[col] * random.gaussian());
    laws.push(transposed("row scales", &channels));
    laws.push(channels);
    let mut along = filled("smooth along rows", 500, 600, |_, _| random.gaussian());
    smooth_along(&mut along, 0.95);
    laws.push(transposed("drift from row to row", &along));
    laws.push(along);
    let mut down = filled("", 640, 512, |_, _| random.gaussian());
    smooth_along(&mut down, 0.95);
    let mut both = transposed("smooth both ways", &down);
    smooth_along(&mut both, 0.95);
    laws.push(both);
    let groups = mixed("heads of 64", 1024, 384, 64, random);
    laws.push(transposed("heads of 64, turned", &groups));
    laws.push(groups);
    laws.push(mixed("heads of 32", 700, 320, 32, random));
    laws.push(fused(random));
    let biases: Vec<f64> =
        (0..256).map(|c| if c % 17 == 3 { 300.0 * random.gaussian() } else { 0.0 }).collect();
    laws.push(filled("biased channels, heavy tails", 1024, 256, |_, col| biases[col] + random.student(3)));
    laws
}

/// Three matrices on top of one another: one plain, one whose columns come in
/// groups that go together, one of other scales.
fn fused(random: &mut SplitMix64) -> InputTensor {
    let (third, cols) = (256, 512);
    let scales: Vec<f64> = (0..cols).map(|_| (0.7 * random.gaussian()).exp()).collect();
    let plain = filled("", third, cols, |_, _| random.gaussian());
    let grouped = mixed("", third, cols, 64, random);
    let scaled = filled("", third, cols, |_, col| 0.3 * scales[col] * random.gaussian());
    let values = [plain.values, grouped.values, scaled.values].concat();
    InputTensor { name: "law: three fused".into(), rows: 3 * third, cols, values }
}
