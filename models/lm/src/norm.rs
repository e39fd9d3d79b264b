//! What stands between linear layers: norms and activations. Row by row,
//! a row a token; knows nothing of which family has which.

use trinity_numeric::exp::exp;

/// The tanh approximation, as `gelu_pytorch_tanh` and `gelu_new` have it.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    // x · (1 + tanh t) / 2 is x · σ(2t).
    let twice = (8.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    x / (1.0 + exp(-twice))
}

/// x · σ(x).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// A norm's weight, and its bias where it takes the mean off too.
#[derive(Debug, Clone, Default)]
pub struct Norm {
    pub weight: Vec<f32>,
    /// `LayerNorm` has one, `RMSNorm` none.
    pub bias: Option<Vec<f32>>,
}

impl Norm {
    pub fn apply(&self, x: &[f32], epsilon: f32, out: &mut [f32]) {
        match &self.bias {
            None => {
                out.copy_from_slice(x);
                rms_norm_in_place(out, &self.weight, epsilon);
            }
            Some(bias) => layer_norm(x, &self.weight, bias, epsilon, out),
        }
    }
}

/// `x / rms(x) · weight` of rows as long as the weight; an empty weight does nothing.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], epsilon: f32) {
    if weight.is_empty() {
        return;
    }
    for row in x.chunks_exact_mut(weight.len()) {
        let mean = row.iter().map(|v| v * v).sum::<f32>() / weight.len() as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        row.iter_mut().zip(weight).for_each(|(v, w)| *v = *v * scale * w);
    }
}

/// `(x − mean(x)) / deviation(x) · weight + bias`.
fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32, out: &mut [f32]) {
    let count = weight.len() as f32;
    for (row, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        let mean = row.iter().sum::<f32>() / count;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / count;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for (((o, v), w), b) in out.iter_mut().zip(row).zip(weight).zip(bias) {
            *o = (v - mean) * scale * w + b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_what_their_definitions_say() {
        for x in (-800..=800).map(|x| f64::from(x) * 0.01) {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            assert!((f64::from(gelu(x as f32)) - 0.5 * x * (1.0 + inner.tanh())).abs() < 2e-6, "{x}");
            assert!((f64::from(silu(x as f32)) - x / (1.0 + (-x).exp())).abs() < 2e-6, "{x}");
        }
        assert_eq!([gelu(-1e4), silu(-1e4), gelu(0.0)], [0.0; 3]);
    }

    #[test]
    fn a_layer_norm_takes_mean_and_deviation_off_and_an_rms_norm_the_size_alone() {
        let x = [1.0, 3.0, 5.0, 7.0];
        let mut out = [0.0; 4];
        let norm = Norm { weight: vec![2.0; 4], bias: Some(vec![1.0; 4]) };
        norm.apply(&x, 0.0, &mut out);
        // Mean 4, deviation √5.
        let expected = [-3.0f32, -1.0, 1.0, 3.0].map(|v| 2.0 * v / 5f32.sqrt() + 1.0);
        assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{out:?}");
        Norm { weight: vec![1.0; 4], bias: None }.apply(&x, 0.0, &mut out);
        assert!((out[0] - 1.0 / 21f32.sqrt()).abs() < 1e-6, "{out:?}");
    }
}
