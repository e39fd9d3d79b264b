//! Errors as a codec leaves them at a rate, without the codec: what a weight costs a model is told by an error of the right
//! shape as well as by coding it.
//!
//! A code that feeds errors back leaves them white once inputs are turned by the factor of their moments, each input at
//! the rate–distortion bound of what it holds (reverse waterfilling). Knows matrices alone.

use crate::Weight;
use crate::cholesky::Factor;
use nalgebra::DMatrix;
use trinity_numeric::random::Lcg;

/// Halvings of the range that the level of errors is searched in.
const HALVINGS: usize = 60;

/// The level of error at which sources of these variances take so many bits each, on average.
fn level(variances: &[f64], bits: f64) -> f64 {
    let largest = variances.iter().copied().fold(0.0, f64::max);
    let rate = |level: f64| {
        let all: f64 = variances.iter().map(|v| 0.5 * (v / level).max(1.0).log2()).sum();
        all / variances.len().max(1) as f64
    };
    let (mut low, mut high) = (-200.0, 0.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        *(if rate(largest * f64::exp2(middle)) > bits { &mut low } else { &mut high }) = middle;
    }
    (largest * f64::exp2(low)).max(f64::MIN_POSITIVE)
}

/// Adds to a weight what coding it at so many bits would, where `factor` is that of the moments of what it reads.
pub(crate) fn disturb(weight: &mut Weight, factor: &Factor, bits: f64, seed: u64) {
    let (rows, cols) = (weight.rows, weight.cols);
    let costs: Vec<f64> = factor.diagonal().iter().map(|l| l * l).collect();
    let mut energies = vec![0.0f64; cols];
    for row in weight.values.chunks_exact(cols.max(1)) {
        energies.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v).powi(2));
    }
    let variances: Vec<f64> =
        energies.iter().zip(&costs).map(|(e, cost)| e / rows.max(1) as f64 * cost).collect();
    let level = level(&variances, bits);
    let sizes: Vec<f64> = variances.iter().map(|v| v.min(level).sqrt()).collect();
    let mut random = Lcg(seed);
    let white = DMatrix::from_fn(cols, rows, |input, _| sizes[input] * f64::from(random.gaussian()));
    let errors = factor.solve_transposed(&white);
    // A column of the errors is a row of the weight.
    weight.values.iter_mut().zip(errors.iter()).for_each(|(v, e)| *v += *e as f32);
}

/// As [`disturb`], of a table, whose errors count alike everywhere.
pub(crate) fn disturb_table(table: &mut Weight, bits: f64, seed: u64) {
    let energy: f64 = table.values.iter().map(|v| f64::from(*v).powi(2)).sum();
    let size = (energy / table.values.len().max(1) as f64).sqrt() * f64::exp2(-bits);
    let mut random = Lcg(seed);
    table.values.iter_mut().for_each(|v| *v += size as f32 * random.gaussian());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::InputMoments;
    use crate::coding::Coding;

    /// Inputs that lean on their neighbours, and whose sizes differ.
    fn moments(inputs: usize) -> DMatrix<f32> {
        let size = |input: usize| ((input * 29 % 7) as f32 - 3.0).exp2();
        DMatrix::from_fn(inputs, inputs, |i, j| size(i) * size(j) * 0.8f32.powi(i.abs_diff(j) as i32))
    }

    #[test]
    fn levels_take_the_bits_they_are_for() {
        let variances = [1.0, 4.0, 0.25, 1e-9];
        for bits in [0.5, 1.0, 3.0] {
            let level = level(&variances, bits);
            let rate: f64 = variances.iter().map(|v| 0.5 * (v / level).max(1.0).log2()).sum::<f64>() / 4.0;
            assert!((rate - bits).abs() < 1e-6, "{rate} for {bits}");
        }
    }

    #[test]
    fn errors_cost_a_layer_about_what_those_of_the_codec_do() {
        let (rows, cols) = (256, 96);
        let mut random = Lcg(3);
        let values: Vec<f32> = (0..rows * cols).map(|_| random.gaussian()).collect();
        let weight = Weight { name: "w".into(), rows, cols, values };
        let moments = moments(cols);
        let known = InputMoments::new(&moments);
        let factor = Factor::new(crate::calibrate::damped(&moments)).unwrap();
        let errors =
            |other: &[f32]| -> Vec<f32> { other.iter().zip(&weight.values).map(|(a, b)| a - b).collect() };
        let mut coded = weight.values.clone();
        "trinity@3".parse::<Coding>().unwrap().apply_calibrated(rows, &mut coded, 3.0, known).unwrap();
        let mut disturbed = weight.clone();
        disturb(&mut disturbed, &factor, 3.0, 1);
        let (codec, ours) =
            (known.output_error(&errors(&coded)), known.output_error(&errors(&disturbed.values)));
        // A codec is some tenths of a bit from the bound, and more where a matrix is small.
        assert!((1.0..2.5).contains(&(codec / ours)), "{codec} against {ours}");
    }
}
