//! The chain of stages of one stream: what the header signals.
//!
//! A [`Plan`] names one alternative for each stage; [`Scalars`] are the few
//! numbers that go with it. Both sides build a tile from these two alone.

use crate::Error;
use crate::bytes::{Reader, put_varint};
use crate::scales::WEIGHTS;
use crate::transform::{Family, Transform};
use crate::trellis::{Centroids, Code};

/// How symbols become bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entropy {
    /// Ranges learned while coding.
    Adaptive,
    /// Ranges and column scales sent ahead of each tile.
    Static,
    /// Bit by bit, each with a probability of its own.
    Binary,
}

/// One alternative for each stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Columns of the matrix become coded rows.
    pub transposed: bool,
    pub transform: Transform,
    /// Sixteenths of the coded row above that predict a coded row.
    pub prediction: u8,
    /// Trellis states; 0 is a uniform quantizer.
    pub log2_states: u32,
    pub entropy: Entropy,
    /// Index into [`WEIGHTS`].
    pub weights: u8,
    /// Trellis and ranges restart or adapt after this many values of a row.
    pub log2_segment: u32,
}

/// The numbers of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalars {
    /// Distance of neighbouring reconstruction points of both quantizers.
    pub step: f32,
    /// Added to every value.
    pub offset: f32,
    pub centroids: Centroids,
}

impl Plan {
    /// Appends the plan's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let family = |f: Family| match f {
            Family::Dct => 0,
            Family::Dst => 1,
            Family::Hadamard => 2,
        };
        let (kind, log2_size) = match self.transform {
            Transform::None => (0, 0),
            Transform::Klt { log2_size } => (1, log2_size),
            Transform::Row { family: f, log2_size } => (2 + family(f), log2_size),
            Transform::Block { family: f, log2_size } => (5 + family(f), log2_size),
        };
        out.push(u8::from(self.transposed) | (self.entropy as u8) << 1 | kind << 4);
        out.push(log2_size as u8 | self.prediction << 3);
        out.push(self.log2_states as u8 | (self.weights) << 4);
        out.push(self.log2_segment as u8);
    }

    /// Reads and checks what [`Plan::write`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let [flags, transform, quantizer, log2_segment] = reader.array("plan")?;
        let log2_size = u32::from(transform & 7);
        let family = |i: u8| [Family::Dct, Family::Dst, Family::Hadamard][usize::from(i)];
        let fixed = 2..=5;
        let transform_of = match flags >> 4 {
            0 => Transform::None,
            1 if log2_size >= 2 => Transform::Klt { log2_size },
            kind @ 2..=4 if fixed.contains(&log2_size) => {
                Transform::Row { family: family(kind - 2), log2_size }
            }
            kind @ 5..=7 if fixed.contains(&log2_size) => {
                Transform::Block { family: family(kind - 5), log2_size }
            }
            _ => return Err(Error::Damaged { what: "unknown transform" }),
        };
        let plan = Self {
            transposed: flags & 1 != 0,
            transform: transform_of,
            prediction: transform >> 3,
            log2_states: u32::from(quantizer & 15),
            entropy: match flags >> 1 & 7 {
                0 => Entropy::Adaptive,
                1 => Entropy::Static,
                2 => Entropy::Binary,
                _ => return Err(Error::Damaged { what: "unknown entropy coding" }),
            },
            weights: quantizer >> 4,
            log2_segment: u32::from(log2_segment),
        };
        plan.check().map_err(|what| Error::Damaged { what })?;
        Ok(plan)
    }

    /// What is wrong with the plan, if anything.
    pub fn check(&self) -> Result<(), &'static str> {
        if Code::new(self.log2_states).is_none() {
            return Err("no trellis has that many states");
        }
        if usize::from(self.weights) >= WEIGHTS.len() {
            return Err("unknown weights of the scales");
        }
        if !(4..=16).contains(&self.log2_segment) {
            return Err("segments have 16 to 65536 values");
        }
        if self.prediction > 16 || self.prediction > 0 && matches!(self.transform, Transform::Klt { .. }) {
            return Err("a learned transform takes no prediction");
        }
        if self.entropy == Entropy::Binary
            && (self.prediction > 0
                || self.log2_states > 0
                || matches!(self.transform, Transform::Klt { .. }))
        {
            return Err("binary entropy coding takes a uniform quantizer and fixed transforms");
        }
        if self.entropy == Entropy::Static
            && (self.prediction > 0 || matches!(self.transform, Transform::Klt { .. }))
        {
            return Err("static entropy coding takes nothing that is learned from rows above");
        }
        Ok(())
    }
}

impl Scalars {
    /// Appends the numbers' bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.step.to_le_bytes());
        let has_offset = self.offset != 0.0;
        let has_centroids = self.centroids != Centroids::default();
        out.push(u8::from(has_offset) | u8::from(has_centroids) << 1);
        if has_offset {
            out.extend_from_slice(&self.offset.to_le_bytes());
        }
        if has_centroids {
            out.extend(self.centroids.as_flattened().iter().map(|&c| c as u8));
        }
    }

    /// Reads and checks what [`Scalars::write`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let step = f32::from_le_bytes(reader.array("step")?);
        let [flags] = reader.array("scalars")?;
        let offset = if flags & 1 != 0 { f32::from_le_bytes(reader.array("offset")?) } else { 0.0 };
        let mut centroids = Centroids::default();
        if flags & 2 != 0 {
            let bytes: [u8; 6] = reader.array("centroids")?;
            centroids.as_flattened_mut().iter_mut().zip(bytes).for_each(|(c, b)| *c = b as i8);
        }
        if flags > 3 || !step.is_finite() || step < 0.0 || !offset.is_finite() {
            return Err(Error::Damaged { what: "step or offset is no number" });
        }
        Ok(Self { step, offset, centroids })
    }
}

/// How a matrix is cut into independent tiles, after transposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    pub rows: usize,
    pub cols: usize,
    pub tile_rows: usize,
    pub tile_cols: usize,
}

/// One tile's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
}

impl Tiling {
    /// Tiles of about `values` values each: full height where possible, so
    /// that what is learned from rows lasts, and widths that suit every
    /// transform.
    pub fn new(rows: usize, cols: usize, values: usize) -> Self {
        const COLUMNS: usize = 128;
        let wide = (values / rows.max(1)).max(2 * COLUMNS);
        let columns = cols.div_ceil(wide).max(1);
        let tile_cols = if columns == 1 { cols } else { cols.div_ceil(columns).next_multiple_of(COLUMNS) };
        let tile_rows = (values / tile_cols.max(1)).max(64).next_multiple_of(64);
        let bands = rows.div_ceil(tile_rows.max(1)).max(1);
        let tile_rows = if bands == 1 { rows } else { rows.div_ceil(bands).next_multiple_of(64) };
        Self { rows, cols, tile_rows: tile_rows.max(1), tile_cols: tile_cols.max(1) }
    }

    /// Row by row of tiles.
    pub fn tiles(self) -> impl Iterator<Item = Tile> {
        (0..self.rows).step_by(self.tile_rows).flat_map(move |row| {
            (0..self.cols).step_by(self.tile_cols).map(move |col| Tile {
                row,
                col,
                rows: self.tile_rows.min(self.rows - row),
                cols: self.tile_cols.min(self.cols - col),
            })
        })
    }

    /// The tiles, if a header with `left` bytes to come can state a length
    /// for each.
    pub fn bounded_tiles(self, left: usize) -> Result<Vec<Tile>, Error> {
        let count = self.rows.div_ceil(self.tile_rows).checked_mul(self.cols.div_ceil(self.tile_cols));
        match count {
            Some(count) if count <= left => Ok(self.tiles().collect()),
            _ => Err(Error::Truncated { what: "tile lengths" }),
        }
    }

    /// Appends the tile sizes.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tile_rows as u64);
        put_varint(out, self.tile_cols as u64);
    }

    /// Reads the tile sizes of a `rows` × `cols` matrix.
    pub fn read(reader: &mut Reader<'_>, rows: usize, cols: usize) -> Result<Self, Error> {
        let (tile_rows, tile_cols) =
            (reader.varint("tile height")? as usize, reader.varint("tile width")? as usize);
        if tile_rows == 0 || tile_cols == 0 {
            return Err(Error::Damaged { what: "empty tiles" });
        }
        Ok(Self { rows, cols, tile_rows, tile_cols })
    }
}
