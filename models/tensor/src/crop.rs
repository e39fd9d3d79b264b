//! A piece from the middle of a tensor, for what would take too long on all of it.

use crate::{Entry, Error, Tensor};

/// At most `values` values of a tensor: a rectangle from its middle, as square
/// as the tensor allows. Reads no further than it must.
pub fn crop(entry: &Entry, values: usize) -> Result<Tensor, Error> {
    let (rows, cols) = entry.matrix();
    if entry.len() <= values {
        return entry.read();
    }
    let side = values.isqrt().max(1);
    let height = rows.min(side).max(values / cols.max(1)).clamp(1, rows);
    let width = (values / height).clamp(1, cols);
    let (top, left) = ((rows - height) / 2, (cols - width) / 2);
    let bytes = entry.dtype().bytes();
    let mut stream = entry.stream()?;
    let mut data = Vec::with_capacity(height * width * bytes);
    let mut row = vec![0; cols * bytes];
    for index in 0..top + height {
        stream.fill(&mut row)?;
        if index >= top {
            data.extend_from_slice(&row[left * bytes..(left + width) * bytes]);
        }
    }
    Tensor::new(entry.name(), entry.class(), entry.dtype(), vec![height, width], data)
}
