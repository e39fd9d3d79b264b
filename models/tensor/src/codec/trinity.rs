//! The Trinity codec, which finds its own way to a target, as a tensor codec.

use std::sync::Arc;

use trinity_codec::{Basis, Profile};

use super::contract::{in_words, missed};
use super::lossy::{behind_header, differences, measured, normalize, restored, restored_into};
use super::rate::within_after_rounding;
use super::{Encoded, MetricSums, Moments, Rate, StageCost, TensorCodec};
use crate::{Error, LimitingFactor, Tensor};

#[derive(Debug)]
pub(crate) struct Trinity {
    name: String,
    /// What the encoder may choose from; a decoder needs none.
    profile: Option<Profile>,
    /// What may turn values first, on both sides.
    basis: Option<Arc<Basis>>,
}

/// What stands before the name of a profile that did not come with the codec.
const DESIGN: &str = "trinity:";

impl Trinity {
    /// Names of the profiles that code values.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        // The lossless profile codes words, not values.
        Profile::names().filter(|&name| name != "lossless")
    }

    /// The profile of that name, if it comes with the codec.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let known = Self::names().any(|own| own == name);
        let profile = Some(Profile::named(name).ok().filter(|_| known)?);
        Some(Self { name: name.to_owned(), profile, basis: None })
    }

    /// A designer's own profile, out of a TOML file.
    pub(crate) fn designed(path: &str) -> Result<Self, Error> {
        let profile = Profile::load(path).map_err(|error| match error {
            trinity_codec::Error::Profile(diagnostic) => Error::Profile(Box::new(diagnostic)),
            other => Error::BadProfile { path: path.into(), problem: other.to_string() },
        })?;
        Ok(Self { name: format!("{DESIGN}{}", profile.name), profile: Some(profile), basis: None })
    }

    /// The profile of that name or in that file, if it is one.
    pub(crate) fn find(name: &str) -> Result<Option<Self>, Error> {
        if name.ends_with(".toml") { Self::designed(name).map(Some) } else { Ok(Self::named(name)) }
    }

    /// This codec with a basis that both sides have.
    pub(crate) fn with_basis(self, basis: Arc<Basis>) -> Self {
        Self { basis: Some(basis), ..self }
    }

    /// What decodes a stream that was stored under a designer's name.
    pub(crate) fn stored(name: &str) -> Option<Self> {
        name.starts_with(DESIGN).then(|| Self::of_stored(name, None))
    }

    /// What decodes a stream that was stored under any name.
    pub(crate) fn of_stored(name: &str, basis: Option<Arc<Basis>>) -> Self {
        Self { name: name.to_owned(), profile: None, basis }
    }

    fn attempt(&self, tensor: &Tensor, target: Rate, moments: Option<Moments<'_>>) -> Result<Encoded, Error> {
        Ok(match self.code(tensor, target, moments)? {
            Some((exponent, coded, _)) => Encoded::behind(tensor, exponent, &coded.bytes),
            None => Encoded::like(tensor, Vec::new()),
        })
    }

    /// The normalized values of a stream.
    fn decoded(&self, bytes: &[u8]) -> Result<Vec<f32>, Error> {
        let matrix = match &self.basis {
            Some(basis) => trinity_codec::decode_with_basis(bytes, basis),
            None => trinity_codec::decode(bytes),
        };
        Ok(matrix.map_err(failure)?.values)
    }

    /// The exponent that normalizes the values, what they were coded to, and by
    /// which profile; nothing for a tensor of zeros.
    fn code(
        &self,
        tensor: &Tensor,
        target: Rate,
        moments: Option<Moments<'_>>,
    ) -> Result<Option<(i16, trinity_codec::Encoded, &Profile)>, Error> {
        let unreachable = |error: trinity_codec::Error| {
            let factor = match error {
                trinity_codec::Error::RateUnreachable { .. } => LimitingFactor::Rate,
                trinity_codec::Error::ErrorUnreachable { .. } => LimitingFactor::Error,
                _ => LimitingFactor::Shape,
            };
            Error::unreachable(tensor.name(), self.name(), in_words(target), factor, error.to_string())
        };
        let Some((matrix, exponent)) = normalize(tensor)? else { return Ok(None) };
        let profile = self.profile.as_ref().ok_or_else(|| Error::BadProfile {
            path: self.name.clone().into(),
            problem: "a stored name says how to decode, not how to encode; give the profile's file".into(),
        })?;
        let values = &matrix.values;
        let coded = match (&self.basis, moments) {
            (_, Some(moments)) => {
                trinity_codec::encode_weighted(values, matrix.rows, matrix.cols, profile, target, moments)
            }
            // A basis is for rows as they are.
            (Some(basis), None) => {
                trinity_codec::encode_with_basis(values, matrix.rows, matrix.cols, profile, target, basis)
            }
            (None, None) => {
                let (rows, cols) = folded(matrix.rows, matrix.cols);
                trinity_codec::encode(values, rows, cols, profile, target)
            }
        };
        let coded = coded.map_err(unreachable)?;
        Ok(Some((exponent, coded, profile)))
    }
}

/// Fewer rows, or columns, leave nothing to learn of the others.
const LEAST_SIDE: usize = 16;

/// The matrix as which values are coded, as they stand: vectors and small
/// kernels are folded toward a square. A stream states the shape it has.
pub(crate) fn folded(rows: usize, cols: usize) -> (usize, usize) {
    let count = rows * cols;
    if rows.min(cols) >= LEAST_SIDE || count < LEAST_SIDE * LEAST_SIDE {
        return (rows, cols);
    }
    // Whole rows in a row, or parts of one.
    let fits = |side: &usize| {
        count.is_multiple_of(*side) && (side.is_multiple_of(cols) || cols.is_multiple_of(*side))
    };
    (LEAST_SIDE..=count.isqrt()).rev().find(fits).map_or((rows, cols), |side| (count / side, side))
}

fn failure(error: trinity_codec::Error) -> Error {
    match error {
        trinity_codec::Error::OtherBasis { needed, given } => Error::OtherBasis { needed, given },
        other => Error::Corrupt { offset: 0, problem: other.to_string() },
    }
}

impl TensorCodec for Trinity {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let unreachable = |reason: &str| missed(target, tensor, self.name(), reason);
        match target {
            Rate::Bits(bits) => self.attempt(tensor, behind_header(bits, tensor), None)?.within(
                target,
                self.name(),
                "it needs at least",
            ),
            Rate::Nmse(goal) => within_after_rounding(self, tensor, goal, |asked| {
                self.attempt(tensor, Rate::Nmse(asked), None)
            }),
            Rate::Lossless => Err(unreachable("values are normalized first; `zstd` is lossless")),
            _ => Err(unreachable("it has no quantization parameter")),
        }
    }

    fn encode_measured(&self, tensor: &Tensor, target: Rate) -> Result<(Encoded, MetricSums), Error> {
        if let (Rate::Bits(bits), false) = (target, tensor.dtype().is_wide())
            && let Some((exponent, coded, _)) = self.code(tensor, behind_header(bits, tensor), None)?
        {
            let encoded = Encoded::behind(tensor, exponent, &coded.bytes);
            let encoded = encoded.within(target, self.name(), "it needs at least")?;
            return Ok((encoded, differences(tensor, 0, &coded.recon, exponent)));
        }
        let encoded = self.encode(tensor, target)?;
        let sums = self.measure(tensor, &encoded)?;
        Ok((encoded, sums))
    }

    fn takes_moments(&self) -> bool {
        self.profile.is_some() && self.basis.is_none()
    }

    fn encode_weighted(&self, tensor: &Tensor, target: Rate, moments: Moments<'_>) -> Result<Encoded, Error> {
        let Rate::Bits(bits) = target else {
            let (name, reason) = (tensor.name(), "weighing by moments goes to a rate");
            return Err(Error::unreachable(name, self.name(), target, LimitingFactor::Target, reason));
        };
        let encoded = self.attempt(tensor, behind_header(bits, tensor), Some(moments))?;
        encoded.within(target, self.name(), "it needs at least")
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        restored(encoded, |bytes, _, _| self.decoded(bytes))
    }

    fn decode_into(&self, encoded: &Encoded, out: &mut [u8]) -> Result<(), Error> {
        restored_into(encoded, out, |bytes, _, _| self.decoded(bytes))
    }

    fn measure(&self, tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
        measured(tensor, encoded, |bytes, _, _| self.decoded(bytes))
    }

    fn stages(&self, tensor: &Tensor, target: Rate) -> Result<Vec<StageCost>, Error> {
        let (Rate::Bits(_) | Rate::Nmse(_)) = target else { return Ok(Vec::new()) };
        let coded = self.code(tensor, target, None)?;
        Ok(coded
            .map_or_else(Vec::new, |(_, coded, profile)| coded.report.stages(profile.parallel.tile_values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_small_kernels_are_folded_and_others_left() {
        assert_eq!(folded(768, 2048), (768, 2048));
        assert_eq!(folded(1, 8192), (128, 64));
        assert_eq!(folded(64 * 64 * 3, 3), (192, 192));
        assert_eq!(folded(4, 1000), (80, 50));
        // Nothing divides a prime, and little is left as it is.
        assert_eq!(folded(1, 8191), (1, 8191));
        assert_eq!(folded(1, 192), (1, 192));
    }
}
