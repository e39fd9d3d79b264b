//! From a stream's bytes to the matrix they stand for.

use crate::Error;
use crate::format::trinity::bytes::Reader;
use crate::format::trinity::lossless::{self, Words};
use crate::format::trinity::paper;
use crate::format::trinity::plan::{Header, Plan, Tile};
use crate::format::trinity::stream::{Kind, MAX_VALUES_PER_BYTE, read_magic};
use crate::format::trinity::tiles::code::{DecodeTile, joined};
use crate::matrix::{Matrix, scale_by};
use crate::stage::basis::Basis;
use crate::stage::precondition::Preconditioning;
use crate::stage::signalled::Signalled;
use trinity_numeric::{simd, threads};

/// Decodes what [`crate::encode_with_basis`] wrote, with the same basis; streams that
/// name none are decoded without it.
pub fn decode_with_basis(bytes: &[u8], basis: &Basis) -> Result<Matrix, Error> {
    let mut reader = Reader::new(bytes);
    match read_magic(&mut reader)? {
        Kind::Matrix => decode_matrix(reader, Some(basis)),
        _ => decode(bytes),
    }
}

/// Decodes what [`crate::encode_words`] wrote.
pub fn decode_words(bytes: &[u8]) -> Result<Words, Error> {
    let mut reader = Reader::new(bytes);
    match read_magic(&mut reader)? {
        Kind::Words => lossless::decode_words(reader),
        kind => Err(Error::NotTrinity { what: format!("{kind:?} where words were expected") }),
    }
}

/// Decodes a stream of any profile.
pub fn decode(bytes: &[u8]) -> Result<Matrix, Error> {
    let mut reader = Reader::new(bytes);
    match read_magic(&mut reader)? {
        Kind::Matrix => decode_matrix(reader, None),
        Kind::Words => lossless::decode(reader),
        Kind::Picture | Kind::CheckedPicture => {
            Err(Error::NotTrinity { what: "pictures; decode them as frames".into() })
        }
        Kind::Paper => paper::decode(reader),
    }
}

/// Undoes the change of basis that a header signals, by the basis it names or the matrices it states, and rows where they were.
fn undo_change_of_basis(
    plan: &Plan,
    signalled: Option<&Signalled>,
    given: Option<&Basis>,
    matrix: &mut Matrix,
) -> Result<(), Error> {
    let rebased = plan.preconditioning;
    if let Some(signalled) = signalled {
        rebased.along(matrix, plan.transposed, |values| signalled.inverse(values));
        return Ok(());
    }
    if let Preconditioning::Basis { hash: needed } = rebased {
        let cols = if plan.transposed { matrix.rows } else { matrix.cols };
        let other = |given: String| Err(Error::OtherBasis { needed, given });
        match given {
            None => return other("none is given".into()),
            Some(basis) if basis.hash() != needed => return other(format!("{:016x} is given", basis.hash())),
            Some(basis) if basis.cols() != cols => {
                return Err(Error::Damaged { what: "the basis is for another number of columns" });
            }
            Some(_) => {}
        }
    }
    rebased.inverse(matrix, plan.transposed, given);
    Ok(())
}

fn decode_matrix(mut reader: Reader<'_>, basis: Option<&Basis>) -> Result<Matrix, Error> {
    let size = reader.left() as u64;
    let (rows, cols) = (reader.varint("rows")?, reader.varint("columns")?);
    let count = rows.checked_mul(cols).filter(|&n| n <= size.saturating_mul(MAX_VALUES_PER_BYTE));
    let Some(count) = count else {
        return Err(Error::Damaged { what: "the matrix is larger than its stream can hold" });
    };
    let (rows, cols) = (rows as usize, cols as usize);
    let Header { scalars, coded, signalled, scales } = Header::read(&mut reader, rows, cols)?;
    let mut matrix = Matrix { rows, cols, values: Vec::new() };
    let Some((plan, tiling)) = coded else {
        let padding =
            (count.div_ceil(MAX_VALUES_PER_BYTE) as usize).saturating_sub(size as usize - reader.left());
        if reader.rest() != vec![0; padding] {
            return Err(Error::Damaged { what: "a constant is not followed by its padding" });
        }
        matrix.values = vec![scalars.offset; count as usize];
        scale_by(&mut matrix.values, scalars.exponent);
        return Ok(matrix);
    };
    // No values are a constant; with a step they would be tiles of nothing, as many as the header likes.
    if count == 0 {
        return Err(Error::Damaged { what: "an empty matrix with a step" });
    }
    (matrix.rows, matrix.cols) = (tiling.rows, tiling.cols);
    let tiles = tiling.bounded_tiles(reader.left())?;
    let mut lengths =
        tiles[1..].iter().map(|_| reader.varint("tile length")).collect::<Result<Vec<_>, _>>()?;
    let known = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
    lengths.push((reader.left() as u64).checked_sub(known).ok_or(Error::Truncated { what: "tile" })?);
    let work = reader.tiles(&tiles, &lengths)?;
    let (plan, scalars, scales) = (&plan, &scalars, scales.as_ref());
    let decode =
        |(tile, bytes): &(Tile, &[u8])| simd::widest(DecodeTile { plan, scalars, scales, tile, bytes });
    let decoded = threads::map(&work, decode);
    matrix.values = joined(&tiles, decoded.into_iter().collect::<Result<_, _>>()?);
    if let Some(scales) = scales {
        // As the encoder does it, to the last bit.
        scale_by(&mut matrix.values, scalars.exponent);
        scales.apply(matrix.cols, &mut matrix.values);
    }
    undo_change_of_basis(plan, signalled.as_ref(), basis, &mut matrix)?;
    if scales.is_none() {
        scale_by(&mut matrix.values, scalars.exponent);
    }
    Ok(matrix)
}
