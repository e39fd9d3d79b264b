//! Whole streams: header, directory, tiles.
//!
//! Any tile is found by two entries of the directory. Tiles are coded in
//! parallel where threads are at hand; the bytes do not depend on it.

use crate::entropy::line::coder::Coder;
use crate::entropy::line::emit::write_with;
use crate::entropy::line::parse::parse_with;
use crate::entropy::line::tile::{MAX_GAIN, Parsed};
use crate::format::line::error::Error;
use crate::format::line::plan::{Plan, Tile, check_density};
use crate::format::line::values::Values;
use crate::matrix::transpose;
use crate::stage::line::quantize::{levels_at_once, quantize, targets};
use crate::stage::line::quantizer::{Analysis, Quantizer};
use crate::stage::line::reconstruct::{Number, reconstruct_wide};
use std::ops::Range;
use trinity_numeric::simd::Width;

/// What an encoder is told beside the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Bits against squared steps in the trellis search.
    pub lambda: f32,
    /// Of the uniform quantizer: 16 rounds to nearest, less leans to zero.
    pub rounding: i32,
    /// Bytes that no tile may exceed: its steps grow until it fits.
    pub tile_budget: Option<usize>,
    /// How values become coefficients under a transform.
    pub analysis: Analysis,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lambda: LAMBDA, rounding: 13, tile_budget: None, analysis: Analysis::Single }
    }
}

/// Least squared error at equal bits on Gaussian and Laplacian values.
pub const LAMBDA: f32 = 0.31;

pub fn encode(plan: &Plan, values: &[f32], settings: &Settings) -> Result<Vec<u8>, Error> {
    let coder = Coder::new(plan.clone())?;
    encode_with(&coder, values, settings)
}

/// As [`encode`], with a plan made ready before.
pub fn encode_with(coder: &Coder, values: &[f32], settings: &Settings) -> Result<Vec<u8>, Error> {
    observed(coder, Values::Numbers(values), settings, &|_| ()).map(|(bytes, _)| bytes)
}

/// A tile as it was coded: what an observer of an encoder may look at.
#[derive(Debug)]
pub struct CodedTile<'a> {
    coder: &'a Coder,
    place: &'a Tile,
    /// Its values, row by row as coded.
    pub values: &'a [f32],
    parsed: &'a Parsed,
}

impl CodedTile<'_> {
    /// The strip of its stream that it is a part of, and how many strips there are.
    pub fn strip(&self) -> (usize, usize) {
        let Plan { rows, tile_rows, tile_cols, transposed, .. } = self.coder.plan;
        match transposed {
            true => (self.place.col / tile_cols, rows.div_ceil(tile_cols)),
            false => (self.place.row / tile_rows, rows.div_ceil(tile_rows)),
        }
    }

    /// What its values decode to, in their order.
    pub fn decoded(&self, out: &mut Vec<f32>) {
        out.resize(self.values.len(), 0.0);
        reconstruct_wide(Width::widest(), self.coder, self.place, self.parsed, out, self.place.cols);
    }
}

/// As [`encode_with`], and what `observe` makes of every tile.
pub(crate) fn observed<T: Send>(
    coder: &Coder,
    values: Values<'_>,
    settings: &Settings,
    observe: &(dyn Fn(&CodedTile<'_>) -> T + Sync),
) -> Result<(Vec<u8>, Vec<T>), Error> {
    let plan = &coder.plan;
    if values.len() != plan.rows * plan.cols {
        let what = format!("{} values for {} × {}", values.len(), plan.rows, plan.cols);
        return Err(Error::Mismatch { what });
    }
    let quantizer = Quantizer::new(coder, settings.lambda, settings.rounding)
        .and_then(|quantizer| quantizer.with_analysis(coder, settings.analysis))
        .ok_or_else(|| Error::Mismatch { what: "a stated matrix has no inverse".into() })?;
    let tiles: Vec<Result<_, Error>> = each(plan.tiles(), |index| {
        let place = plan.tile(index);
        let mut own = VALUES.take();
        gather_into(plan, &place, values, &mut own);
        let (words, parsed) = encode_tile(coder, &quantizer, index, &place, &own, settings.tile_budget)?;
        let seen = observe(&CodedTile { coder, place: &place, values: &own, parsed: &parsed });
        VALUES.set(own);
        Ok((words, seen))
    });
    let (tiles, seen): (Vec<Vec<u16>>, Vec<T>) =
        tiles.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let mut bytes = Vec::new();
    plan.write(&mut bytes);
    debug_assert_eq!(bytes.len(), plan.written_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let mut end = 0u32;
    for tile in &tiles {
        end += tile.len() as u32;
        bytes.extend(end.to_le_bytes());
    }
    let mut start = bytes.len();
    bytes.resize(start + 2 * end as usize, 0);
    for tile in &tiles {
        let out = &mut bytes[start..start + 2 * tile.len()];
        out.chunks_exact_mut(2).zip(tile).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
        start += out.len();
    }
    check_density(values.len(), bytes.len())?;
    Ok((bytes, seen))
}

/// The words of one tile for its values, row by row, and what the words stand for.
pub fn encode_tile(
    coder: &Coder,
    quantizer: &Quantizer,
    index: usize,
    place: &Tile,
    values: &[f32],
    budget: Option<usize>,
) -> Result<(Vec<u16>, Parsed), Error> {
    if budget.is_none()
        && let Some(parsed) = levels_at_once(coder, quantizer, place, values)
    {
        let mut words = Vec::new();
        write_with(quantizer.width, coder, &quantizer.pushes, place, &parsed, &mut words);
        return Ok((words, parsed));
    }
    let (targets, exceptions) = targets(coder, quantizer, place, values);
    let attempt = |gain: u32| {
        let mut parsed = quantize(coder, quantizer, place, &targets, gain);
        parsed.exceptions.clone_from(&exceptions);
        let mut words = Vec::new();
        write_with(quantizer.width, coder, &quantizer.pushes, place, &parsed, &mut words);
        (words, parsed)
    };
    let first = attempt(0);
    let Some(budget) = budget.filter(|&budget| 2 * first.0.len() > budget) else { return Ok(first) };
    // The least gain that fits: bytes fall as it grows, nearly always.
    let (mut over, mut fits) = (0, MAX_GAIN);
    let mut best = attempt(fits);
    if 2 * best.0.len() > budget {
        return Err(Error::Budget { tile: index, needed: 2 * best.0.len(), budget });
    }
    while fits - over > 1 {
        let gain = (over + fits) / 2;
        let coded = attempt(gain);
        if 2 * coded.0.len() > budget {
            over = gain;
        } else {
            (fits, best) = (gain, coded);
        }
    }
    Ok(best)
}

/// A tile's values, row by row as coded.
pub(crate) fn gather(plan: &Plan, place: &Tile, values: Values<'_>) -> Vec<f32> {
    let mut out = Vec::new();
    gather_into(plan, place, values, &mut out);
    out
}

thread_local! {
    /// Room for the values of a tile, which a thread keeps from one to the next.
    static VALUES: std::cell::Cell<Vec<f32>> = const { std::cell::Cell::new(Vec::new()) };
}

/// As [`gather`], in place of what was there.
fn gather_into(plan: &Plan, place: &Tile, values: Values<'_>, out: &mut Vec<f32>) {
    out.resize(place.values(), 0.0);
    if plan.transposed {
        let (start, shape) = (place.col * plan.cols + place.row, (place.cols, place.rows));
        return values.transpose_to(start, plan.cols, shape, out, place.cols);
    }
    for (row, out) in (place.row..).zip(out.chunks_exact_mut(place.cols)) {
        values.copy_to(row * plan.cols + place.col, out);
    }
}

/// A stream taken apart: the plan made ready, and where every tile lies.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    pub coder: Coder,
    ends: Vec<u32>,
    words: &'a [u8],
}

impl<'a> Stream<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let (plan, header) = Plan::read(bytes)?;
        let start = header.next_multiple_of(4);
        let tiles = plan.tiles();
        let end = tiles.checked_mul(4).and_then(|size| size.checked_add(start)).unwrap_or(usize::MAX);
        let entries = bytes.get(start..end).ok_or(Error::Truncated { what: "directory" })?;
        let ends: Vec<u32> = entries.as_chunks().0.iter().map(|&entry| u32::from_le_bytes(entry)).collect();
        let words = &bytes[end..];
        let ordered = ends.windows(2).all(|w| w[0] <= w[1]);
        if !ordered || ends.last().is_some_and(|&last| 2 * last as usize != words.len()) {
            return Err(Error::Damaged { what: "a directory that does not fit the tiles" });
        }
        Ok(Self { coder: Coder::new(plan)?, ends, words })
    }

    pub fn plan(&self) -> &Plan {
        &self.coder.plan
    }

    /// Bytes of all tiles; what is before them is header and directory.
    pub fn tile_bytes(&self) -> usize {
        self.words.len()
    }

    pub fn words(&self, index: usize) -> Vec<u16> {
        self.words[self.place(index)].as_chunks().0.iter().map(|&word| u16::from_le_bytes(word)).collect()
    }

    /// Where the bytes of a tile lie among those of all.
    fn place(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        2 * start..2 * self.ends[index] as usize
    }

    pub fn tile(&self, index: usize) -> Result<Vec<f32>, Error> {
        let place = self.plan().tile(index);
        let mut values = vec![0.0; place.values()];
        self.tile_into(index, Width::widest(), &mut values, place.cols)?;
        Ok(values)
    }

    /// A tile's share of the matrix's values, row by row as coded.
    pub fn originals(&self, index: usize, values: Values<'_>) -> Result<Vec<f32>, Error> {
        if values.len() != self.plan().rows * self.plan().cols {
            return Err(Error::Mismatch { what: format!("{} values for a stream of others", values.len()) });
        }
        Ok(gather(self.plan(), &self.plan().tile(index), values))
    }

    /// As [`Stream::tile`], with registers of a width, into rows `stride` apart.
    fn tile_into<N: Number>(
        &self,
        index: usize,
        width: Width,
        out: &mut [N],
        stride: usize,
    ) -> Result<(), Error> {
        let place = self.plan().tile(index);
        let parsed = parse_with(width, &self.coder, &place, &self.words(index))
            .map_err(|what| Error::DamagedTile { tile: index, what })?;
        reconstruct_wide(width, &self.coder, &place, &parsed, out, stride);
        Ok(())
    }

    /// All values, in the matrix's own order.
    pub fn values(&self) -> Result<Vec<f32>, Error> {
        self.numbers(Width::widest())
    }

    /// All values as any number, with registers of a width.
    pub fn numbers<N: Number>(&self, width: Width) -> Result<Vec<N>, Error> {
        let plan = self.plan();
        let mut out = vec![N::default(); plan.rows * plan.cols];
        each_chunk(&mut out, self.strip_values(), |strip, out| self.strip_into(strip, width, out))?;
        Ok(out)
    }

    /// Values of a strip: whole rows of the matrix in its own order that whole tiles code. The last may be shorter.
    pub fn strip_values(&self) -> usize {
        // The columns of a panel are rows of a matrix that lies on its side.
        let plan = self.plan();
        plan.cols * if plan.transposed { plan.tile_cols } else { plan.tile_rows }
    }

    pub fn strip_over(&self, strip: usize, out: &mut [f32]) -> Result<(), Error> {
        if strip >= self.strips() || out.len() != self.strip_place(strip).len() {
            return Err(Error::Mismatch { what: format!("{} values for strip {strip}", out.len()) });
        }
        self.strip_into(strip, Width::widest(), out)
    }

    pub fn strip_place(&self, strip: usize) -> Range<usize> {
        let start = strip * self.strip_values();
        start..(start + self.strip_values()).min(self.plan().rows * self.plan().cols)
    }

    fn strip_into<N: Number>(&self, strip: usize, width: Width, out: &mut [N]) -> Result<(), Error> {
        let plan = self.plan();
        let (bands, panels) = plan.grid();
        if plan.transposed {
            let mut buffer = vec![N::default(); plan.tile_rows * plan.tile_cols];
            for band in 0..bands {
                let index = band * panels + strip;
                let place = plan.tile(index);
                self.tile_into(index, width, &mut buffer, place.cols)?;
                transpose(&buffer, place.cols, (place.rows, place.cols), &mut out[place.row..], plan.cols);
            }
        } else {
            for panel in 0..panels {
                let index = strip * panels + panel;
                self.tile_into(index, width, &mut out[plan.tile(index).col..], plan.cols)?;
            }
        }
        Ok(())
    }

    /// How many strips there are: runs of whole rows of the matrix that are decoded on their own.
    pub fn strips(&self) -> usize {
        (self.plan().rows * self.plan().cols).div_ceil(self.strip_values())
    }

    pub fn strip_tiles(&self, strip: usize) -> impl Iterator<Item = usize> + use<> {
        let (bands, panels) = self.plan().grid();
        let (count, first, step) =
            if self.plan().transposed { (bands, strip, panels) } else { (panels, strip * panels, 1) };
        (0..count).map(move |index| first + index * step)
    }

    /// Bytes of a strip's tiles; the header is beside them.
    pub fn strip_bytes(&self, strip: usize) -> usize {
        self.strip_tiles(strip).map(|tile| self.place(tile).len()).sum()
    }
}

/// Decodes a stream: rows, columns and values.
pub fn decode(bytes: &[u8]) -> Result<(usize, usize, Vec<f32>), Error> {
    let stream = Stream::open(bytes)?;
    let values = stream.values()?;
    Ok((stream.plan().rows, stream.plan().cols, values))
}

/// Does `work` on every chunk; the first error in order.
fn each_chunk<N: Send>(
    out: &mut [N],
    size: usize,
    work: impl Fn(usize, &mut [N]) -> Result<(), Error> + Sync + Send,
) -> Result<(), Error> {
    #[cfg(feature = "threads")]
    let results: Vec<_> = {
        use rayon::prelude::*;
        out.par_chunks_mut(size).enumerate().map(|(i, chunk)| work(i, chunk)).collect()
    };
    #[cfg(not(feature = "threads"))]
    let results = out.chunks_mut(size).enumerate().map(|(i, chunk)| work(i, chunk));
    results.into_iter().collect()
}

thread_local! {
    /// Whether this thread codes tiles one after the other.
    static IN_TURN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Does work whose tiles this thread codes one after the other, whoever else is idle: where each thread has a matrix of
/// its own, one that waits for the last tile of its own would take up another matrix and keep the first waiting.
pub fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    /// What was before comes back, also where the work panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IN_TURN.set(self.0);
        }
    }
    let _before = Before(IN_TURN.replace(true));
    work()
}

/// What `work` makes of every index, in order.
pub(crate) fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    #[cfg(feature = "threads")]
    if !IN_TURN.get() && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        return (0..count).into_par_iter().map(work).collect();
    }
    (0..count).map(work).collect()
}
