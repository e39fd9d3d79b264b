//! The one product every transform is made of: a row of weights with a matrix.

/// `out = Σ weights[i] · rows[i]`, summed in the order of `i`.
#[inline(always)]
pub fn combine(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    match out.len() {
        n if n.is_multiple_of(64) => strips::<64>(weights, rows, out),
        n if n.is_multiple_of(32) => strips::<32>(weights, rows, out),
        n if n.is_multiple_of(8) => strips::<8>(weights, rows, out),
        _ => strips::<1>(weights, rows, out),
    }
}

/// The same, `W` outputs side by side: their sums stay in registers.
#[inline(always)]
fn strips<const W: usize>(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    let n = out.len();
    for (strip, out) in out.as_chunks_mut::<W>().0.iter_mut().enumerate() {
        let mut sums = [0.0; W];
        for (&weight, row) in weights.iter().zip(rows.chunks_exact(n)) {
            if let Some(row) = row[strip * W..].first_chunk::<W>() {
                sums.iter_mut().zip(row).for_each(|(sum, &r)| *sum += weight * r);
            }
        }
        *out = sums;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_sums_in_the_same_order() {
        for n in [1, 5, 8, 24, 32, 36, 64, 96, 128] {
            let weights: Vec<f32> = (0..n).map(|i| 1.0 / (1.0 + i as f32)).collect();
            let rows: Vec<f32> = (0..n * n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let mut out = vec![0.0; n];
            combine(&weights, &rows, &mut out);
            for (k, &value) in out.iter().enumerate() {
                let sum = (0..n).fold(0.0, |sum, i| sum + weights[i] * rows[i * n + k]);
                assert_eq!(value.to_bits(), sum.to_bits(), "{n}: {k}");
            }
        }
    }
}
