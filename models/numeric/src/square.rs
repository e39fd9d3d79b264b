//! Square matrices in row order, and nothing of what they stand for.

pub fn identity(size: usize) -> Vec<f64> {
    (0..size * size).map(|at| if at / size == at % size { 1.0 } else { 0.0 }).collect()
}

pub fn transposed<T: Copy>(matrix: &[T], size: usize) -> Vec<T> {
    (0..size * size).map(|at| matrix[at % size * size + at / size]).collect()
}
