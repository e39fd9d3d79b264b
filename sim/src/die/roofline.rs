//! What kernels ask of a die, as plain data that a die carries with it. How it
//! is derived and used is the kernels' business.

/// Tiles a product may be cut into, rows by columns, largest first.
pub(super) const TILES: [(f64, f64); 4] = [(256.0, 128.0), (128.0, 128.0), (128.0, 64.0), (64.0, 64.0)];

/// A tile that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tile {
    pub rows: f64,
    pub columns: f64,
}

/// What kernels ask of a die, derived from its parts once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Roofline {
    pub(super) sms: f64,
    /// One SM under the power limit, by number format.
    pub(super) sm_flop_per_s: [f64; 3],
    pub(super) special_per_s: f64,
    pub(super) vector_flop_per_s: f64,
    pub(super) l2_bytes_per_s: f64,
    pub(super) l2_bytes: f64,
    pub(super) memory_bytes_per_s: f64,
    pub(super) tiles: [Tile; TILES.len()],
    pub(super) fitting: usize,
    pub(super) sharing: f64,
    /// The area without codecs.
    pub area_mm2: f64,
    pub(super) edge_mm: f64,
    pub(super) dies: f64,
    pub(super) reticle_mm2: f64,
    pub(super) shoreline: f64,
    /// Higher one of the stated clocks, and where the process ends.
    pub(super) clock_hz: f64,
    pub(super) most_clock_hz: f64,
    pub(super) power_limit_w: f64,
    /// Clock that matrix products sustain.
    pub sustained_clock_hz: f64,
    pub busy_power_w: f64,
    pub idle_power_w: f64,
}
