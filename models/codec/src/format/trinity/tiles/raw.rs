//! One tile without entropy coding: levels of a uniform quantizer, each in as
//! many bits as the largest takes. Nothing writes it any more: no profile gained by it.

use crate::Error;
use crate::entropy::rans::RawReader;
use crate::format::trinity::plan::{Plan, Scalars};
use crate::format::trinity::tiles::coded::{coded_width, rows_of};
use crate::stage::trellis::Points;
use trinity_bits::golomb::unzigzag;

/// Bits of the widest level: a sign and those of the largest magnitude.
const MAX_BITS: u32 = 24;

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
    let points = Points::new(&scalars.centroids);
    let values = rows_of(plan, cols, count, |coefficients| {
        for coefficient in coefficients {
            *coefficient = points.value(unzigzag(raw.get(bits)), scalars.step);
        }
        Ok(())
    })?;
    raw.finish(0)?;
    Ok(values)
}
