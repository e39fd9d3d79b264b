//! The paper's synthetic case (Figure 3(a)): normal values with outliers at both tails.

use trinity_numeric::random::SplitMix64;

/// Tensors, each of this side.
const TENSORS: u64 = 8;
const SIDE: usize = 128;
/// One value of so many is an outlier: a few, far from the centre.
const RARE: u64 = 1024;
/// How far out it lies, in standard deviations of the others.
const FAR: f64 = 16.0;

/// A safetensors file of normal values with rare outliers, the same at every call.
pub fn synthetic() -> Result<Vec<u8>, serde_json::Error> {
    let values = SIDE * SIDE;
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for tensor in 0..TENSORS {
        let begin = data.len();
        let mut random = SplitMix64(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(tensor + 1));
        for _ in 0..values {
            // The sum of twelve even values less six: normal as far as four deviations go.
            let normal = (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
            let outlier = random.word().is_multiple_of(RARE);
            let value = if outlier { FAR * normal.signum() } else { normal };
            data.extend((value as f32).to_le_bytes());
        }
        let entry =
            serde_json::json!({ "dtype": "F32", "shape": [SIDE, SIDE], "data_offsets": [begin, data.len()] });
        header.insert(format!("normal.{tensor}.weight"), entry);
    }
    let header = serde_json::to_vec(&header)?;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_tensor::TensorFile;

    #[test]
    fn values_are_normal_but_for_a_few() {
        let bytes = synthetic().unwrap();
        assert_eq!(bytes, synthetic().unwrap());
        let file = TensorFile::from_bytes(bytes, "synthetic").unwrap();
        assert_eq!(file.entries().len(), TENSORS as usize);
        for entry in file.entries() {
            let tensor = entry.read().unwrap();
            let (words, _) = tensor.data().as_chunks::<4>();
            let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
            let far = values.iter().filter(|value| value.abs() > 8.0).count();
            assert!((4..40).contains(&far), "{far}");
            let inner: Vec<f64> = values.iter().map(|&v| f64::from(v)).filter(|v| v.abs() < 8.0).collect();
            let variance = inner.iter().map(|v| v * v).sum::<f64>() / inner.len() as f64;
            assert!((variance - 1.0).abs() < 0.05, "{variance}");
        }
    }
}
