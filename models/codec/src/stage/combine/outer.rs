//! Sums of outer products, as data: what the plain loop and its wide twins take.

/// Sums that are made at a time: of [`ROWS`] factors with [`WIDE`] others.
pub const ROWS: usize = 8;
pub const WIDE: usize = 16;
pub type Sums = [[f32; WIDE]; ROWS];

/// Two sequences of `count` vectors whose outer products are summed: entry
/// `r` of vector `i` is `tall[i · tall_step + r · tall_stride]`, and
/// `wide[i · wide_step + w]`.
#[derive(Debug, Clone, Copy)]
pub struct Outer<'a> {
    pub count: usize,
    pub tall: &'a [f32],
    pub tall_step: usize,
    pub tall_stride: usize,
    pub wide: &'a [f32],
    pub wide_step: usize,
}
