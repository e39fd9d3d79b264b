//! What coding a model's weights came to: bits spent, error left.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodedWeights {
    pub bits_per_value: f64,
    /// Squared error over energy, all weights together.
    pub nmse: f64,
}

/// What coding came to, weight by weight.
#[derive(Debug, Default)]
pub(crate) struct Accumulator {
    values: u64,
    bits: u64,
    error: f64,
    energy: f64,
}

impl Accumulator {
    pub(crate) fn add(&mut self, original: &[f32], coded: &[f32], bits: u64) {
        self.values += original.len() as u64;
        self.bits += bits;
        self.error += original.iter().zip(coded).map(|(&a, &b)| f64::from(a - b).powi(2)).sum::<f64>();
        self.energy += original.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
    }
}

impl From<Accumulator> for CodedWeights {
    fn from(accumulator: Accumulator) -> Self {
        Self {
            bits_per_value: accumulator.bits as f64 / accumulator.values.max(1) as f64,
            nmse: accumulator.error / accumulator.energy.max(f64::MIN_POSITIVE),
        }
    }
}
