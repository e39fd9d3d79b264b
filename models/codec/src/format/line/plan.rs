//! The plan: everything a tile needs that is not in the tile.
//!
//! A plan is small, is chosen before a value is coded (from all values or from
//! a sample), and travels in the stream's header. With the plan at hand every
//! tile is coded and decoded on its own, by the same integers everywhere.

use trinity_bits::{BitReader, BitWriter};
use trinity_numeric::reflections::Reflections;

use crate::entropy::line::codes::{get_list, list_bits, put_list};
use crate::entropy::line::table::Table;
use crate::format::line::error::Error;
use crate::format::trinity::bytes::put_varint;
use crate::stage::line::matrix::{Synthesis, signalled_synthesis};

const MAGIC: [u8; 3] = *b"TL\x01";
/// Values of a tile at most: positions in it have sixteen bits.
pub const MAX_TILE: usize = 1 << 16;
/// Values for each byte of a stream at most: what a header asks for is bounded by
/// what comes with it.
pub(crate) const MAX_VALUES_PER_BYTE: usize = 1024;

/// Refuses a stream that says so much in so little that decoders would refuse it.
pub fn check_density(values: usize, stream_bytes: usize) -> Result<(), Error> {
    if values / MAX_VALUES_PER_BYTE <= stream_bytes {
        return Ok(());
    }
    let what = "tiles of so few lanes that a byte would hold more than 1024 values".into();
    Err(Error::Mismatch { what })
}

/// Base classes: those that send no bits raw.
pub const BASE_CLASSES: usize = 32;
/// Classes of a value.
pub const CLASSES: usize = 56;
/// The class that no sum of classes exceeds.
pub const LAST_CLASS: i32 = CLASSES as i32 - 1;
/// Class of a mean magnitude of one.
pub const UNIT_CLASS: i32 = 24;
/// Column classes, row classes and means stay within these.
pub const MAX_CLASS: i32 = 127;
pub(crate) const MAX_MEAN: i32 = 1 << 15;
/// Pairs of tables at most.
pub const MAX_PAIRS: usize = 8;

/// What turns a group of columns into coefficients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transform {
    None,
    /// Walsh–Hadamard of 32 columns.
    Hadamard,
    /// DCT-II of 32 columns.
    Dct,
    /// A signalled matrix for every group of 32 or 64 columns.
    Signalled {
        size: usize,
        groups: Vec<Reflections>,
    },
}

impl Transform {
    pub fn size(&self) -> usize {
        match self {
            Self::None => 1,
            Self::Hadamard | Self::Dct => 32,
            Self::Signalled { size, .. } => *size,
        }
    }
}

/// One alternative for every stage, and all numbers a tile needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub rows: usize,
    pub cols: usize,
    /// Columns of the matrix are coded as rows.
    pub transposed: bool,
    /// Lanes of a tile: 1 to 32.
    pub log2_lanes: u32,
    /// Coded rows and columns of a tile.
    pub tile_rows: usize,
    pub tile_cols: usize,
    /// Trellis: 0 (uniform quantizer), 2 or 3.
    pub log2_states: u32,
    /// Half the distance of the points of one quantizer.
    pub step: f32,
    pub transform: Transform,
    /// For each coded column: four times the binary logarithm of its mean
    /// magnitude in a row of class 0.
    pub classes: Vec<i32>,
    /// Sixteenths of the row above that predict a column.
    pub above: Vec<i32>,
    /// Means of columns in steps.
    pub means: Vec<i32>,
    /// The first base class of every pair of tables; the first is 0.
    pub firsts: Vec<u8>,
    /// Tables of every pair: one, or one for each quantizer of a trellis.
    pub tables: Vec<Table>,
    /// Rows state a class through this table.
    pub row_table: Option<Table>,
}

impl Plan {
    /// Coded rows and columns: after transposition.
    pub fn coded_shape(&self) -> (usize, usize) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    pub fn lanes(&self) -> usize {
        1 << self.log2_lanes
    }

    pub fn quantizers(&self) -> usize {
        if self.log2_states == 0 { 1 } else { 2 }
    }

    /// Bands and panels of tiles.
    pub fn grid(&self) -> (usize, usize) {
        let (rows, cols) = self.coded_shape();
        (rows.div_ceil(self.tile_rows), cols.div_ceil(self.tile_cols))
    }

    pub fn tiles(&self) -> usize {
        let (bands, panels) = self.grid();
        bands * panels
    }

    /// Place of a tile: first coded row and column, rows, columns.
    pub fn tile(&self, index: usize) -> Tile {
        let ((rows, cols), (_, panels)) = (self.coded_shape(), self.grid());
        let (row, col) = (index / panels * self.tile_rows, index % panels * self.tile_cols);
        Tile { row, col, rows: self.tile_rows.min(rows - row), cols: self.tile_cols.min(cols - col) }
    }

    /// Groups of columns that a transform turns: whole ones alone.
    pub fn group_count(&self) -> usize {
        if self.transform == Transform::None { 0 } else { self.coded_shape().1 / self.transform.size() }
    }

    /// Synthesis matrices, one for every group, or one for all.
    pub fn syntheses(&self) -> Vec<Synthesis> {
        match &self.transform {
            Transform::None => Vec::new(),
            Transform::Hadamard => vec![Synthesis::hadamard(32)],
            Transform::Dct => vec![Synthesis::dct(32)],
            Transform::Signalled { size, groups } => {
                groups.iter().map(|g| signalled_synthesis(g, *size)).collect()
            }
        }
    }

    /// The pair of tables and the raw bits of a class.
    pub fn pair_of(&self, class: usize) -> (usize, u32) {
        let raw_bits = if class < BASE_CLASSES { 0 } else { (class as u32 - 28) / 4 };
        let base = class - 4 * raw_bits as usize;
        (self.firsts.partition_point(|&first| usize::from(first) <= base) - 1, raw_bits)
    }

    pub fn check(&self) -> Result<(), Error> {
        let damaged = |what| Err(Error::Damaged { what });
        let (rows, cols) = self.coded_shape();
        if rows == 0 || cols == 0 {
            return damaged("an empty matrix");
        }
        if !self.step.is_normal() || self.step < 0.0 {
            return damaged("a step that is no number");
        }
        if self.log2_lanes > 5 || !matches!(self.log2_states, 0 | 2 | 3) {
            return damaged("unknown lanes or states");
        }
        if self.tile_rows == 0 || self.tile_cols == 0 || self.tile_rows > rows || self.tile_cols > cols {
            return damaged("tiles that do not fit the matrix");
        }
        if self.tile_rows.checked_mul(self.tile_cols).is_none_or(|values| values > MAX_TILE) {
            return damaged("tiles of more than 65536 values");
        }
        if self.tile_cols < cols && !self.tile_cols.is_multiple_of(64) {
            return damaged("panels that are no multiple of 64 columns");
        }
        if [&self.classes, &self.above, &self.means].iter().any(|list| list.len() != cols) {
            return damaged("columns without a class");
        }
        if self.classes.iter().any(|c| c.unsigned_abs() > MAX_CLASS as u32)
            || self.above.iter().any(|a| !(0..=16).contains(a))
            || self.means.iter().any(|m| m.unsigned_abs() > MAX_MEAN as u32)
        {
            return damaged("a column out of range");
        }
        let ordered = self.firsts.first() == Some(&0) && self.firsts.windows(2).all(|w| w[0] < w[1]);
        if !ordered || self.firsts.len() > MAX_PAIRS || self.firsts.iter().any(|&f| f >= BASE_CLASSES as u8) {
            return damaged("table pairs out of order");
        }
        if self.tables.len() != self.firsts.len() * self.quantizers() {
            return damaged("another number of tables than pairs");
        }
        if let Transform::Signalled { size, groups } = &self.transform
            && (!matches!(size, 32 | 64) || groups.len() != self.group_count())
        {
            return damaged("another number of matrices than groups");
        }
        Ok(())
    }

    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(MAGIC);
        put_varint(bytes, self.rows as u64);
        put_varint(bytes, self.cols as u64);
        let mut out = BitWriter::new();
        self.write_fields(&mut out, put_list);
        bytes.extend(out.into_bytes());
    }

    pub(crate) fn written_bytes(&self) -> usize {
        let mut sizes = MAGIC.to_vec();
        put_varint(&mut sizes, self.rows as u64);
        put_varint(&mut sizes, self.cols as u64);
        let (mut out, mut bits) = (BitWriter::new(), 0);
        self.write_fields(&mut out, |_, list| bits += list_bits(list));
        sizes.len() + (out.position() + bits).div_ceil(8) as usize
    }

    fn write_fields(&self, out: &mut BitWriter, mut put_list: impl FnMut(&mut BitWriter, &[i32])) {
        out.bits(self.step.to_bits(), 32);
        out.flag(self.transposed);
        out.bits(self.log2_lanes, 3);
        out.bits(self.log2_states.saturating_sub(1), 2);
        let kind = match &self.transform {
            Transform::None => 0,
            Transform::Hadamard => 1,
            Transform::Dct => 2,
            Transform::Signalled { size: 32, .. } => 3,
            Transform::Signalled { .. } => 4,
        };
        out.bits(kind, 3);
        out.ue(self.tile_rows as u32 - 1);
        out.ue(self.tile_cols as u32 - 1);
        if let Transform::Signalled { groups, .. } = &self.transform {
            groups.iter().for_each(|group| group.write(out));
        }
        put_list(out, &self.classes);
        put_list(out, &self.above);
        put_list(out, &self.means);
        out.bits(self.firsts.len() as u32 - 1, 3);
        for &first in &self.firsts[1..] {
            out.bits(u32::from(first), 5);
        }
        self.tables.iter().for_each(|table| table.write(out));
        out.flag(self.row_table.is_some());
        if let Some(table) = &self.row_table {
            table.write(out);
        }
    }

    /// Reads a header; also says how many bytes it took.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), Error> {
        let magic = bytes.get(..3).ok_or(Error::Truncated { what: "magic" })?;
        if magic[..2] != MAGIC[..2] {
            return Err(Error::NotLine { what: "it does not start with TL" });
        }
        if magic[2] != MAGIC[2] {
            return Err(Error::NotLine { what: "it is of a later version" });
        }
        let mut at = 3;
        let rows = get_varint(bytes, &mut at)?;
        let cols = get_varint(bytes, &mut at)?;
        let values = rows.checked_mul(cols).ok_or(Error::Damaged { what: "too many values" })?;
        if values / MAX_VALUES_PER_BYTE > bytes.len() {
            return Err(Error::Truncated { what: "tiles" });
        }
        let mut bits = BitReader::new(&bytes[at..]);
        let plan = Self::read_fields(&mut bits, rows, cols)?;
        plan.check()?;
        bits.align();
        Ok((plan, at + (bits.position() / 8) as usize))
    }

    fn read_fields(bits: &mut BitReader<'_>, rows: usize, cols: usize) -> Result<Self, Error> {
        let step = f32::from_bits(bits.bits(32)?);
        let transposed = bits.flag()?;
        let log2_lanes = bits.bits(3)?;
        let log2_states = match bits.bits(2)? {
            0 => 0,
            code => code + 1,
        };
        let kind = bits.bits(3)?;
        let tile_rows = bits.ue()? as usize + 1;
        let tile_cols = bits.ue()? as usize + 1;
        let coded_cols = if transposed { rows } else { cols };
        let transform = match kind {
            0 => Transform::None,
            1 => Transform::Hadamard,
            2 => Transform::Dct,
            3 | 4 => {
                let size = if kind == 3 { 32 } else { 64 };
                let groups = coded_cols / size;
                if groups as u64 * 7 > bits.remaining() {
                    return Err(Error::Truncated { what: "header" });
                }
                let groups = (0..groups).map(|_| Reflections::read(bits, size)).collect::<Result<_, _>>()?;
                Transform::Signalled { size, groups }
            }
            _ => return Err(Error::Damaged { what: "unknown transform" }),
        };
        let classes = get_list(bits, coded_cols)?;
        let above = get_list(bits, coded_cols)?;
        let means = get_list(bits, coded_cols)?;
        let pairs = bits.bits(3)? + 1;
        let mut firsts = vec![0];
        for _ in 1..pairs {
            firsts.push(bits.bits(5)? as u8);
        }
        let quantizers = if log2_states == 0 { 1 } else { 2 };
        let tables = (0..pairs * quantizers).map(|_| Table::read(bits)).collect::<Result<_, _>>()?;
        let row_table = if bits.flag()? { Some(Table::read(bits)?) } else { None };
        Ok(Self {
            rows,
            cols,
            transposed,
            log2_lanes,
            tile_rows,
            tile_cols,
            log2_states,
            step,
            transform,
            classes,
            above,
            means,
            firsts,
            tables,
            row_table,
        })
    }
}

/// One tile's place among the coded rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
}

impl Tile {
    pub fn values(&self) -> usize {
        self.rows * self.cols
    }
}

/// What [`put_varint`] wrote of a shape, from a place on.
fn get_varint(bytes: &[u8], at: &mut usize) -> Result<usize, Error> {
    let mut value = 0u64;
    for shift in (0..49).step_by(7) {
        let &byte = bytes.get(*at).ok_or(Error::Truncated { what: "shape" })?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return usize::try_from(value).map_err(|_| Error::Damaged { what: "shape" });
        }
    }
    Err(Error::Damaged { what: "shape" })
}
