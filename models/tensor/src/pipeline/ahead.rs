//! Tensors that are coded before their file is written, by who has to know what becomes of them: a calibration codes
//! one layer for what the layers before it were coded to.
//!
//! The file then takes the streams as they are. Slabs are cut, and values rounded, as a file has them.

use rayon::prelude::*;

use super::shared;
use crate::blocks::BlockPlan;
use crate::codec::{Encoded, Moments, Rate, TensorCodec};
use crate::{Entry, Error, Tensor};

/// A tensor that was coded ahead.
#[derive(Debug, Clone)]
pub struct CodedAhead {
    /// The stream of each slab.
    pub streams: Vec<Vec<u8>>,
    /// What they decode to, in the order of the file.
    pub values: Vec<f32>,
}

/// Codes `values` in place of an entry's, weighed by the moments of what its columns are multiplied with where they are known.
///
/// # Errors
///
/// Where there are not as many values as the entry has, or the codec cannot reach the target.
pub fn code_ahead(
    entry: &Entry,
    codec: &dyn TensorCodec,
    target: Rate,
    values: &[f32],
    moments: Option<&[f32]>,
) -> Result<CodedAhead, Error> {
    if values.len() != entry.len() {
        let problem = format!("{} values in place of the {} of {}", values.len(), entry.len(), entry.name());
        return Err(Error::corrupt(0, problem));
    }
    let plan = entry.plan();
    let one = |index: usize, codec: &dyn TensorCodec| {
        let mut data = Vec::new();
        entry.dtype().extend_from_f32(&values[plan.values(index)], &mut data);
        let slab = entry.as_slab(data)?;
        let encoded = match moments {
            Some(moments) => codec.encode_weighted(&slab, target, Moments::of_columns(moments)),
            None => codec.encode(&slab, target),
        };
        let encoded = encoded.map_err(|error| error.shifted(plan.values(index).start))?;
        let values = codec.decode(&encoded)?.to_f32();
        Ok((encoded, values))
    };
    let settled = match moments {
        None => shared::settled_on(entry, &plan, codec, target, values)?,
        Some(_) => None,
    };
    let codec = settled.as_deref().unwrap_or(codec);
    let coded = (0..plan.len()).into_par_iter().map(|index| one(index, codec));
    let coded = coded.collect::<Result<Vec<(Encoded, Vec<f32>)>, Error>>()?;
    let (streams, values): (Vec<Vec<u8>>, Vec<Vec<f32>>) =
        coded.into_iter().map(|(encoded, values)| (encoded.bytes, values)).unzip();
    Ok(CodedAhead { streams, values: values.concat() })
}

/// The slab that begins with value `first`, out of those that were coded ahead.
pub(super) fn of_slab(
    ahead: &[Vec<u8>],
    plan: &BlockPlan,
    slab: &Tensor,
    first: usize,
) -> Result<Encoded, Error> {
    let index = plan.beginning_with(first);
    let stream = index.filter(|_| ahead.len() == plan.len()).and_then(|index| ahead.get(index));
    let stream = stream.ok_or_else(|| {
        let (found, name, wanted) = (ahead.len(), slab.name(), plan.len());
        Error::corrupt(0, format!("{found} slabs of {name} were coded ahead, not {wanted}"))
    })?;
    Ok(Encoded::like(slab, stream.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorFile;
    use crate::file::TriWriter;
    use crate::pipeline::{Encoding, SLAB_VALUES, Treatment, encode_into};
    use std::io::Cursor;

    /// One tensor, as safetensors has it.
    fn file(rows: usize, cols: usize) -> TensorFile {
        let values = (0..rows * cols).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0).powi(3));
        let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let end = data.len();
        let head =
            format!("{{\"w\":{{\"dtype\":\"F32\",\"shape\":[{rows},{cols}],\"data_offsets\":[0,{end}]}}}}");
        let bytes = [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &data].concat();
        TensorFile::from_bytes(bytes, "model").unwrap()
    }

    /// The file that takes these slabs for its tensor.
    fn written(file: &TensorFile, ahead: &[Vec<u8>]) -> Result<TensorFile, Error> {
        let treatment = |_: &Entry| {
            let (codec, target) = ("rtn-128g".to_owned(), Rate::Bits(3.2));
            Treatment::Coded { codec, target, apart: true }
        };
        let encoding = Encoding { ahead: &|_| Some(ahead), ..Encoding::new(&treatment, &|_| Ok(())) };
        let writer = TriWriter::over(Cursor::new(Vec::new()), &file.texts()?)?;
        let (encoded, writer) = encode_into(file, &encoding, writer)?;
        assert!(encoded.metrics.nmse > 0.0);
        TensorFile::from_bytes(writer.complete()?.0.into_inner(), "coded")
    }

    #[test]
    fn a_file_holds_what_was_coded_ahead_and_says_so_where_it_cannot() {
        // Two slabs.
        let rows = SLAB_VALUES / 1024 + 3;
        let file = file(rows, 1024);
        let codec = crate::codec::codec("rtn-128g").unwrap();
        // Not the tensor's own values, so that coding anew would show.
        let other = vec![0.25; rows * 1024];
        let entry = &file.entries()[0];
        let ahead = code_ahead(entry, codec.as_ref(), Rate::Bits(3.2), &other, None).unwrap();
        assert_eq!(ahead.streams.len(), 2);
        let decoded = written(&file, &ahead.streams).unwrap().entries()[0].read().unwrap();
        assert_eq!(decoded.to_f32(), ahead.values);
        assert!(written(&file, &ahead.streams[..1]).is_err(), "a slab is missing");
        assert!(code_ahead(entry, codec.as_ref(), Rate::Bits(3.2), &other[1..], None).is_err());
    }
}
