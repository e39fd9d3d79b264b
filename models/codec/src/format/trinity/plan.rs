//! The chain of stages of one stream: what the header signals.
//!
//! A [`Plan`] names one alternative for each stage; [`Scalars`] are the few
//! numbers that go with it. Both sides build a tile from these two alone.

use crate::Error;
use crate::entropy::scales::WEIGHTS;
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::stage::means::MeanOf;
use crate::stage::precondition::{HADAMARD_LOG2, Preconditioning, SIGNALLED_LOG2};
use crate::stage::row_scales::RowScales;
use crate::stage::signalled::Signalled;
use crate::stage::transform::Transform;
use crate::stage::trellis::{Centroids, Code};
use trinity_bits::golomb::{unzigzag, zigzag};

/// How symbols become bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entropy {
    /// Ranges learned while coding.
    Adaptive,
    /// Ranges and column scales sent ahead of each tile.
    Static,
    /// Bit by bit, each with a probability of its own.
    Binary,
    /// As many bits for every level of a tile; read, and not written since 0.2.0.
    Raw,
}

/// What is known of values before they are coded.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(into = "String", try_from = "String")]
#[schemars(extend("pattern" = "^(none|above-([1-9]|1[0-6])|row-mean|column-mean|row-and-column-mean|intra)$"))]
pub struct Prediction {
    /// Sixteenths of the coded row above.
    pub above: u8,
    /// Means of rows and columns, signalled ahead.
    pub means: MeanOf,
    /// Blocks from their decoded neighbours, as in H.265.
    pub intra: bool,
}

impl Prediction {
    pub const NONE: Self = Self { above: 0, means: MeanOf { rows: false, columns: false }, intra: false };
    /// Blocks from their decoded neighbours.
    pub const INTRA: Self = Self { intra: true, ..Self::NONE };

    const ROW_MEANS: u8 = 1 << 5;
    const COLUMN_MEANS: u8 = 1 << 6;
    const BLOCKS: u8 = 1 << 7;

    fn code(self) -> u8 {
        self.above
            | if self.means.rows { Self::ROW_MEANS } else { 0 }
            | if self.means.columns { Self::COLUMN_MEANS } else { 0 }
            | if self.intra { Self::BLOCKS } else { 0 }
    }

    fn from_code(code: u8) -> Self {
        let means = MeanOf { rows: code & Self::ROW_MEANS != 0, columns: code & Self::COLUMN_MEANS != 0 };
        Self { above: code & (Self::ROW_MEANS - 1), means, intra: code & Self::BLOCKS != 0 }
    }
}

impl std::fmt::Display for Prediction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let means = match self.means {
            MeanOf { rows: false, columns: false } => "",
            MeanOf { rows: true, columns: false } => "row-mean",
            MeanOf { rows: false, columns: true } => "column-mean",
            MeanOf { rows: true, columns: true } => "row-and-column-mean",
        };
        match (means, self.above) {
            ("", 0) => f.write_str(if self.intra { "intra" } else { "none" }),
            ("", above) => write!(f, "above-{above}"),
            (means, _) => f.write_str(means),
        }
    }
}

impl From<Prediction> for String {
    fn from(prediction: Prediction) -> Self {
        prediction.to_string()
    }
}

impl TryFrom<String> for Prediction {
    type Error = String;

    /// `none`, `above-12` (sixteenths of the row above), `row-mean`,
    /// `column-mean`, `row-and-column-mean`, `intra`.
    fn try_from(text: String) -> Result<Self, String> {
        let above = text.strip_prefix("above-").and_then(|above| above.parse().ok());
        let means = |rows, columns| Ok(Self { means: MeanOf { rows, columns }, ..Self::NONE });
        match (above, text.as_str()) {
            (Some(above @ 1..=16), _) => Ok(Self { above, ..Self::NONE }),
            (None, "none") => Ok(Self::NONE),
            (None, "row-mean") => means(true, false),
            (None, "column-mean") => means(false, true),
            (None, "row-and-column-mean") => means(true, true),
            (None, "intra") => Ok(Self::INTRA),
            _ => Err(format!(
                "unknown prediction `{text}`: there are none, above-1 to above-16, row-mean, column-mean, \
                 row-and-column-mean and intra"
            )),
        }
    }
}

/// One alternative for each stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Columns of the matrix become coded rows.
    pub transposed: bool,
    pub preconditioning: Preconditioning,
    pub transform: Transform,
    pub prediction: Prediction,
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
    /// Values are multiplied by two to this power at the very end.
    pub exponent: i32,
    /// Added to every value before that.
    pub offset: f32,
    pub centroids: Centroids,
}

mod flag {
    pub const TRANSPOSED: u8 = 1;
    /// Two bits of [`super::Entropy`] above this.
    pub const ENTROPY_SHIFT: u32 = 1;
    pub const OFFSET: u8 = 1 << 3;
    pub const CENTROIDS: u8 = 1 << 4;
    pub const STAGES: u8 = 1 << 5;
    pub const TILING: u8 = 1 << 6;
    pub const BASIS: u8 = 1 << 7;
}

/// Beside the transform: a preconditioning without a file follows, as log2 of its
/// size, above which a bit says that matrices are signalled along rows, or columns.
const PRECONDITIONING: u8 = 1 << 7;
const SIGNALLED_ROWS: u8 = 1 << 5;
const SIGNALLED_COLUMNS: u8 = 1 << 6;
/// Both of them: scales of coded rows instead, in quarters of an octave.
const ROW_SCALES: u8 = SIGNALLED_ROWS | SIGNALLED_COLUMNS | 2;

/// Segments where a header does not say otherwise.
const LOG2_SEGMENT: u32 = 10;

/// All that a header says of a matrix after its shape. What is left out has
/// its usual value: one tile, no transform, no prediction, no offset.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    pub scalars: Scalars,
    /// None: every value is the offset.
    pub coded: Option<(Plan, Tiling)>,
    /// The matrices, where the plan states some.
    pub signalled: Option<Signalled>,
    /// What coded rows are multiplied by, where the stream states it.
    pub scales: Option<RowScales>,
}

impl Header {
    pub fn write(&self, out: &mut Vec<u8>) {
        let Scalars { step, exponent, offset, centroids } = self.scalars;
        let mut flags = 0;
        flags |= if offset != 0.0 { flag::OFFSET } else { 0 };
        out.extend_from_slice(&step.to_le_bytes()[1..]);
        put_varint(out, zigzag(exponent).into());
        let Some((plan, tiling)) = &self.coded else {
            out.push(flags);
            self.scalars.write_offset(out);
            return;
        };
        let change = match plan.preconditioning {
            Preconditioning::Hadamard { log2_size } => Some(log2_size as u8),
            Preconditioning::Signalled { log2_size, columns } => {
                Some(log2_size as u8 | if columns { SIGNALLED_COLUMNS } else { SIGNALLED_ROWS })
            }
            Preconditioning::None | Preconditioning::Basis { .. } => self.scales.as_ref().map(|_| ROW_SCALES),
        };
        let has_centroids = centroids != Centroids::default();
        let has_stages =
            plan.transform != Transform::None || plan.prediction != Prediction::NONE || change.is_some();
        let has_tiling = !tiling.is_single() || plan.log2_segment != LOG2_SEGMENT;
        flags |= if plan.transposed { flag::TRANSPOSED } else { 0 };
        flags |= (plan.entropy as u8) << flag::ENTROPY_SHIFT;
        flags |= if has_centroids { flag::CENTROIDS } else { 0 };
        flags |= if has_stages { flag::STAGES } else { 0 };
        flags |= if has_tiling { flag::TILING } else { 0 };
        let basis = match plan.preconditioning {
            Preconditioning::Basis { hash } => Some(hash),
            _ => None,
        };
        flags |= if basis.is_some() { flag::BASIS } else { 0 };
        out.push(flags);
        self.scalars.write_offset(out);
        out.extend(basis.iter().flat_map(|hash| hash.to_le_bytes()));
        out.push(plan.log2_states as u8 | plan.weights << 4);
        if has_centroids {
            out.extend(centroids.as_flattened().iter().map(|&c| c as u8));
        }
        if has_stages {
            out.push(plan.transform.code() | if change.is_some() { PRECONDITIONING } else { 0 });
            out.push(plan.prediction.code());
            out.extend(change);
            let stated = self.signalled.as_ref().map(Signalled::to_bytes);
            if let Some(bytes) = stated.or_else(|| self.scales.as_ref().map(RowScales::to_bytes)) {
                put_varint(out, bytes.len() as u64);
                out.extend(bytes);
            }
        }
        if has_tiling {
            out.push(plan.log2_segment as u8);
            tiling.write(out);
        }
    }

    /// Reads and checks what [`Header::write`] wrote about a matrix of `rows`
    /// × `cols`.
    pub fn read(reader: &mut Reader<'_>, rows: usize, cols: usize) -> Result<Self, Error> {
        let [low, middle, high] = reader.array("step")?;
        let exponent = reader.varint("exponent")?;
        if exponent > 1024 {
            return Err(Error::Damaged { what: "exponent out of range" });
        }
        let [flags] = reader.array("flags")?;
        let offset =
            if flags & flag::OFFSET != 0 { f32::from_le_bytes(reader.array("offset")?) } else { 0.0 };
        let basis =
            if flags & flag::BASIS != 0 { Some(u64::from_le_bytes(reader.array("basis")?)) } else { None };
        let mut scalars = Scalars {
            step: f32::from_le_bytes([0, low, middle, high]),
            exponent: unzigzag(exponent as u32),
            offset,
            centroids: Centroids::default(),
        };
        if !scalars.step.is_finite() || scalars.step < 0.0 || !offset.is_finite() {
            return Err(Error::Damaged { what: "step or offset is no number" });
        }
        if scalars.step == 0.0 {
            let known = flags & !flag::OFFSET == 0;
            return if known {
                Ok(Self { scalars, coded: None, signalled: None, scales: None })
            } else {
                Err(Error::Damaged { what: "a constant with stages" })
            };
        }
        let [quantizer] = reader.array("quantizer")?;
        if flags & flag::CENTROIDS != 0 {
            let bytes: [u8; 6] = reader.array("centroids")?;
            scalars.centroids.as_flattened_mut().iter_mut().zip(bytes).for_each(|(c, b)| *c = b as i8);
        }
        let [transform, prediction] =
            if flags & flag::STAGES != 0 { reader.array("stages")? } else { [0, 0] };
        let transposed = flags & flag::TRANSPOSED != 0;
        let (preconditioning, signalled, scales) = match (basis, transform & PRECONDITIONING != 0) {
            (None, false) => (Preconditioning::None, None, None),
            (Some(hash), false) => (Preconditioning::Basis { hash }, None, None),
            (None, true) => read_preconditioning(reader, (rows, cols), transposed)?,
            (Some(_), true) => return Err(Error::Damaged { what: "two changes of basis" }),
        };
        let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
        let (log2_segment, tiling) = if flags & flag::TILING != 0 {
            let [log2_segment] = reader.array("segment")?;
            (u32::from(log2_segment), Tiling::read(reader, rows, cols)?)
        } else {
            (LOG2_SEGMENT, Tiling { rows, cols, tile_rows: rows.max(1), tile_cols: cols.max(1) })
        };
        let plan = Plan {
            transposed,
            preconditioning,
            transform: Transform::from_code(transform & !PRECONDITIONING)
                .ok_or(Error::Damaged { what: "unknown transform" })?,
            prediction: Prediction::from_code(prediction),
            log2_states: u32::from(quantizer & 15),
            entropy: match flags >> flag::ENTROPY_SHIFT & 3 {
                0 => Entropy::Adaptive,
                1 => Entropy::Static,
                2 => Entropy::Binary,
                _ => Entropy::Raw,
            },
            weights: quantizer >> 4,
            log2_segment,
        };
        plan.check().map_err(|what| Error::Damaged { what })?;
        let row_by_row = plan.entropy == Entropy::Adaptive && plan.transform == Transform::None;
        if scales.is_some() && !(row_by_row && plan.prediction == Prediction::NONE) {
            return Err(Error::Damaged { what: "scales of rows that are not coded one by one" });
        }
        Ok(Self { scalars, coded: Some((plan, tiling)), signalled, scales })
    }
}

/// A change of basis that is no file, and the matrices it states; or scales of coded rows.
fn read_preconditioning(
    reader: &mut Reader<'_>,
    (rows, cols): (usize, usize),
    transposed: bool,
) -> Result<(Preconditioning, Option<Signalled>, Option<RowScales>), Error> {
    let [code] = reader.array("preconditioning")?;
    if code == ROW_SCALES {
        let length = reader.varint("scales of rows")?;
        let bytes = reader.slice(length, "scales of rows")?;
        let scales = RowScales::from_bytes(bytes, if transposed { cols } else { rows })?;
        return Ok((Preconditioning::None, None, Some(scales)));
    }
    let log2_size = u32::from(code & !(SIGNALLED_ROWS | SIGNALLED_COLUMNS));
    let columns = match code & (SIGNALLED_ROWS | SIGNALLED_COLUMNS) {
        0 => return Ok((Preconditioning::Hadamard { log2_size }, None, None)),
        SIGNALLED_ROWS => false,
        SIGNALLED_COLUMNS => true,
        _ => return Err(Error::Damaged { what: "two changes of basis" }),
    };
    if !SIGNALLED_LOG2.contains(&log2_size) {
        return Err(Error::Damaged { what: SIGNALLED_SIZES });
    }
    let length = reader.varint("stated matrices")?;
    let bytes = reader.slice(length, "stated matrices")?;
    let signalled = Signalled::from_bytes(bytes, if columns { rows } else { cols }, 1 << log2_size)?;
    Ok((Preconditioning::Signalled { log2_size, columns }, Some(signalled), None))
}

const SIGNALLED_SIZES: &str = "stated matrices have 8 to 128 columns";

impl Plan {
    /// Values over which levels are chosen together.
    pub fn path_values(&self) -> usize {
        let block = self.transform.width() * self.transform.height();
        if self.prediction.intra { block } else { 1 << self.log2_segment }
    }

    pub fn check(&self) -> Result<(), &'static str> {
        if Code::new(self.log2_states).is_none() {
            return Err("no trellis has that many states");
        }
        if usize::from(self.weights) >= WEIGHTS.len() {
            return Err("unknown weights of the scales");
        }
        if let Preconditioning::Hadamard { log2_size } = self.preconditioning
            && !HADAMARD_LOG2.contains(&log2_size)
        {
            return Err("a Hadamard preconditioning has 4 to 4096 columns");
        }
        if let Preconditioning::Signalled { log2_size, .. } = self.preconditioning
            && !SIGNALLED_LOG2.contains(&log2_size)
        {
            return Err(SIGNALLED_SIZES);
        }
        if !(4..=16).contains(&self.log2_segment) {
            return Err("segments have 16 to 65536 values");
        }
        let learned = matches!(self.transform, Transform::Klt { .. });
        if self.prediction.above > 16 || self.prediction.above > 0 && learned {
            return Err("a learned transform takes no prediction from above");
        }
        if self.prediction.intra
            && (self.prediction != Prediction::INTRA || !matches!(self.transform, Transform::Block { .. }))
        {
            return Err("intra prediction takes a transform of square blocks and no other prediction");
        }
        let feedback = self.prediction.above > 0 || self.prediction.intra || learned;
        match self.entropy {
            Entropy::Binary | Entropy::Raw if feedback || self.log2_states > 0 => {
                Err("binary and raw entropy coding take a uniform quantizer and fixed transforms")
            }
            Entropy::Static if feedback => {
                Err("static entropy coding takes nothing that is learned from or predicted by rows above")
            }
            _ => Ok(()),
        }
    }
}

impl Scalars {
    fn write_offset(&self, out: &mut Vec<u8>) {
        if self.offset != 0.0 {
            out.extend_from_slice(&self.offset.to_le_bytes());
        }
    }

    /// A step as a header can state it: sixteen bits of mantissa.
    pub fn round_step(step: f32) -> f32 {
        f32::from_bits(step.to_bits().saturating_add(0x80) & !0xff)
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

    pub fn is_single(&self) -> bool {
        self.tile_rows >= self.rows && self.tile_cols >= self.cols
    }

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
