//! A piece of a sparse delta, as the CPU and the GPU both take it.

/// One chunk: gaps between indices and values, each compressed.
pub(super) struct Chunk {
    pub count: usize,
    /// Index the first gap is counted from.
    pub base: u32,
    pub indices: Vec<u8>,
    pub values: Vec<u8>,
}
