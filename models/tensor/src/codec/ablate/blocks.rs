//! What Figures 3 and 4 show of one block, for every block of a tensor: are there
//! fewer outliers behind the transform, and is less left behind prediction?

use super::show::{Histogram, blockwise_dct};
use super::stages::Stages;
use super::{centre, staged};
use crate::codec::lossy::normalize;
use crate::{Error, Tensor};

/// Outliers and residuals of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocks {
    /// The largest value, and the largest coefficient of 8×8 blocks, in standard deviations.
    pub largest: [f64; 2],
    /// Excess kurtosis of values and of coefficients.
    pub excess_kurtosis: [f64; 2],
    /// RMS of what prediction leaves over that of the values.
    pub residual: f64,
    /// The part of blocks, by samples, whose residual has less energy than their values.
    pub smaller: f64,
}

/// Codes a tensor with every intra stage on at an error of `nmse`. Nothing for a tensor of zeros.
pub fn blocks(tensor: &Tensor, nmse: f64) -> Result<Option<Blocks>, Error> {
    let Some((matrix, _)) = normalize(tensor)? else { return Ok(None) };
    let found = staged(&matrix, nmse, Stages { prediction: true, partitioning: true })?;
    let (width, height) = (found.plane.width, found.plane.height);
    let values: Vec<f32> = found.plane.samples.iter().map(|&sample| f32::from(sample) - centre()).collect();
    let coefficients = blockwise_dct(&found.plane.samples, width, height);
    let (mut energy, mut left, mut smaller) = (0.0, 0.0, 0);
    for block in &found.coding.blocks {
        let (mut own, mut behind) = (0f64, 0f64);
        for y in block.y..block.y + block.size {
            for at in y * width + block.x..y * width + block.x + block.size {
                let residual = f32::from(found.plane.samples[at]) - f32::from(found.coding.prediction[at]);
                own += f64::from(values[at]).powi(2);
                behind += f64::from(residual).powi(2);
            }
        }
        smaller += if behind < own { block.size * block.size } else { 0 };
        energy += own;
        left += behind;
    }
    let [before, after] = [Histogram::of(&values), Histogram::of(&coefficients)];
    Ok(Some(Blocks {
        largest: [before.largest, after.largest],
        excess_kurtosis: [before.excess_kurtosis, after.excess_kurtosis],
        residual: (left / energy).sqrt(),
        smaller: smaller as f64 / values.len() as f64,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensor;
    use super::*;

    #[test]
    fn channels_are_predicted_and_a_lone_outlier_is_spread() {
        fn of(value: impl Fn(usize, usize) -> f32) -> Option<Blocks> {
            blocks(&tensor(64, 64, value), 0.01).unwrap()
        }
        // One value a column, as channels have: below the first row of blocks all is predicted.
        let channels = of(|_, x| ((x * 7919) % 101) as f32 / 101.0 - 0.5).unwrap();
        assert!(channels.residual < 0.9 && channels.smaller > 0.4, "{channels:?}");
        // Smooth values are all in one coefficient: the transform makes outliers of them.
        let waves = of(|y, x| (0.07 * x as f32).sin() + (0.05 * y as f32).cos()).unwrap();
        assert!(waves.largest[1] > waves.largest[0], "{waves:?}");
        let noise = |y: usize, x: usize| ((x * 31 + y * 17) % 13) as f32 / 13.0 - 0.5;
        let spike = of(|y, x| if (y, x) == (20, 21) { 9.0 } else { noise(y, x) }).unwrap();
        assert!(spike.largest[1] < spike.largest[0], "{spike:?}");
        assert!(spike.excess_kurtosis[1] < spike.excess_kurtosis[0], "{spike:?}");
        assert!(of(|_, _| 0.0).is_none());
    }
}
