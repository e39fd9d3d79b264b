//! One tile without entropy coding: levels of a uniform quantizer, each in as
//! many bits as the largest takes. What the other stages are worth is seen
//! beside it, and a line of silicon can do it at any rate.

use crate::Error;
use crate::entropy::model::{unzigzag, zigzag};
use crate::entropy::rans::{RawReader, RawWriter};
use crate::format::trinity::plan::{Plan, Scalars};
use crate::format::trinity::tiles::coded::{Coded, coded_width};
use crate::stage::transform::Transformer;
use crate::stage::trellis::{MAX_LEVEL, Points};

/// Bits of the widest level: a sign and those of [`MAX_LEVEL`].
const MAX_BITS: u32 = 24;

/// Encodes all coded rows of a tile; `rows` holds their values and gets their
/// reconstruction.
pub fn encode(plan: &Plan, scalars: &Scalars, cols: usize, rows: &mut [f32]) -> Coded {
    let width = coded_width(plan, cols);
    let mut transformer = Transformer::new(plan.transform, 1, cols.next_multiple_of(plan.transform.width()));
    let points = Points::new(&scalars.centroids);
    let mut coded = Coded::default();
    let mut coefficients = vec![0.0; width];
    let mut symbols = Vec::with_capacity(rows.len());
    for values in rows.chunks_exact_mut(width) {
        transformer.forward(values, &mut coefficients);
        for coefficient in &mut coefficients {
            let limit = (MAX_LEVEL / 2) as f32;
            let level = (*coefficient / (2.0 * scalars.step)).round_ties_even().clamp(-limit, limit) as i32;
            symbols.push(zigzag(level) as u32);
            *coefficient = points.value(level, scalars.step);
        }
        let original = values.to_vec();
        transformer.inverse(&coefficients, values);
        coded.squared_error +=
            values.iter().zip(&original).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    }
    // A bit at least for each, so that no tile is larger than its bytes say.
    let bits = symbols.iter().map(|s| s.checked_ilog2().map_or(1, |log2| log2 + 1)).max().unwrap_or(1);
    let mut raw = RawWriter::default();
    symbols.iter().for_each(|&symbol| raw.put(symbol, bits));
    coded.bits.raw = raw.bits() as f64;
    coded.bytes.push(bits as u8);
    coded.bytes.extend_from_slice(&raw.finish());
    coded
}

/// Decodes all coded rows of a tile.
pub fn decode(
    plan: &Plan,
    scalars: &Scalars,
    cols: usize,
    count: usize,
    bytes: &[u8],
) -> Result<Vec<f32>, Error> {
    let width = coded_width(plan, cols);
    let (&bits, bytes) = bytes.split_first().ok_or(Error::Truncated { what: "tile" })?;
    let (bits, mut raw) = (u32::from(bits), RawReader::new(bytes));
    if !(1..=MAX_BITS).contains(&bits) {
        return Err(Error::Damaged { what: "levels have 1 to 24 bits" });
    }
    raw.expect_bits(u64::from(bits) * (count * width) as u64)?;
    let mut transformer = Transformer::new(plan.transform, 1, cols.next_multiple_of(plan.transform.width()));
    let points = Points::new(&scalars.centroids);
    let mut coefficients = vec![0.0; width];
    let mut values = vec![0.0; count * width];
    for values in values.chunks_exact_mut(width) {
        for coefficient in &mut coefficients {
            *coefficient = points.value(unzigzag(raw.get(bits) as usize), scalars.step);
        }
        transformer.inverse(&coefficients, values);
    }
    raw.finish(0)?;
    Ok(values)
}
