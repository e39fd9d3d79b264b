//! Single slabs of a tensor: what lets several parts of a file share one large tensor.
//!
//! A part that has some slabs of a tensor holds each as a tensor of its own; what joins parts puts their bytes
//! together again as they would have been.

use std::io::{Seek, Write};

use rayon::prelude::*;

use super::{Choice, Encoding, SLAB_VALUES, SLABS_PER_THREAD, slab, slabs, spec};
use crate::blocks::BlockPlan;
use crate::codec::{Encoded, Rate};
use crate::file::{Spec, TriWriter};
use crate::{Entry, Error, Tensor, TensorFile};

/// What a slab is called in a part that does not have all of its tensor.
fn slab_name(tensor: &str, index: usize) -> String {
    format!("{tensor}#slab-{index}")
}

impl Choice {
    /// Codes these slabs of a tensor, each as a tensor of its own.
    pub(super) fn encode_slabs<W: Write + Seek>(
        &self,
        (entry, own): (&Entry, &[usize]),
        target: Rate,
        encoding: &Encoding<'_>,
        writer: &mut TriWriter<W>,
    ) -> Result<(), Error> {
        let settled = self.settled(entry, target, encoding)?;
        let plan = &settled.plan;
        let encode = |(slab, &index): (&Tensor, &usize)| {
            let first = plan.values(index).start;
            settled.encode(slab, first).map_err(|error| error.shifted(first))
        };
        for batch in own.chunks(SLABS_PER_THREAD * rayon::current_num_threads().max(1)) {
            let read = batch.iter().map(|&index| read(entry, plan, index)).collect::<Result<Vec<_>, _>>()?;
            let coded: Vec<Encoded> = read.par_iter().zip(batch).map(encode).collect::<Result<_, _>>()?;
            for (encoded, &index) in coded.iter().zip(batch) {
                let name = slab_name(entry.name(), index);
                let own = Spec { name, shape: encoded.shape.clone(), ..spec(entry) };
                writer.begin(&own, &self.codec.name(), SLAB_VALUES)?;
                writer.slab(&encoded.bytes)?;
                (encoding.progress)(encoded.values())?;
            }
        }
        Ok(())
    }
}

fn read(entry: &Entry, plan: &BlockPlan, index: usize) -> Result<Tensor, Error> {
    let first = plan.values(index).start;
    if let Some(mut stream) = entry.stream_at(first) {
        return slab(entry, plan, index, stream.as_mut(), Vec::new());
    }
    // Some formats are read from the front only.
    let mut stream = entry.stream()?;
    for before in 0..index {
        slab(entry, plan, before, stream.as_mut(), Vec::new())?;
    }
    slab(entry, plan, index, stream.as_mut(), Vec::new())
}

/// Copies a tensor's coded slabs out of the parts that have them: `part(slab)` says which.
pub fn join_coded<'p, W: Write + Seek>(
    entry: &Entry,
    part: &dyn Fn(usize) -> &'p TensorFile,
    writer: &mut TriWriter<W>,
) -> Result<(), Error> {
    if let Ok(whole) = part(0).entry(entry.name()) {
        return super::copy_coded(whole, entry.name(), writer);
    }
    for index in 0..slabs(entry) {
        let coded = part(index).entry(&slab_name(entry.name(), index))?;
        if index == 0 {
            writer.begin(&spec(entry), coded.stored(), SLAB_VALUES)?;
        }
        writer.slab(&coded.coded_slab(0)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::codec;
    use crate::pipeline::{Treatment, encode_entry, encode_into};
    use crate::{Class, Dtype};
    use std::collections::BTreeMap;
    use std::io::Cursor;
    use trinity_numeric::random::Lcg;

    /// Rows of several scales in the first slab, columns of several in the others: what pays differs.
    fn file() -> TensorFile {
        let (rows, cols) = (2 * SLAB_VALUES / 256 + 40, 256);
        let mut lcg = Lcg(29);
        let value = |at: usize, noise: f32| {
            let (row, col) = (at / cols, at % cols);
            noise * if at < SLAB_VALUES { 1.0 + (row % 7) as f32 } else { 1.0 + (col % 5) as f32 }
        };
        let mut data = Vec::new();
        for at in 0..rows * cols {
            let noise = (0..3).map(|_| lcg.uniform() - 0.5).sum::<f32>();
            Dtype::Bf16.extend_from_f32(&[value(at, noise)], &mut data);
        }
        let entry = Entry::in_memory("w", Dtype::Bf16, vec![rows, cols], std::sync::Arc::new(data)).unwrap();
        TensorFile::of(vec![entry.with_class(Class::Weight)], BTreeMap::new()).unwrap()
    }

    /// The coded file, or the part of it with these slabs.
    fn coded(file: &TensorFile, takes: &dyn Fn(usize, usize) -> bool, measure: bool) -> TensorFile {
        let target = Rate::Bits(3.0);
        let treatment = |_: &Entry| Treatment::Coded { codec: "trinity-lite".into(), target, apart: true };
        let encoding = Encoding { measure, takes, ..Encoding::new(&treatment, &|_| Ok(())) };
        let writer = TriWriter::over(Cursor::new(Vec::new()), &BTreeMap::new()).unwrap();
        let (_, writer) = encode_into(file, &encoding, writer).unwrap();
        TensorFile::from_bytes(writer.complete().unwrap().0.into_inner(), "coded").unwrap()
    }

    /// Slabs share what the first one chose, and who codes them has no part in it: one run, several, with the error
    /// and without it, one thread or more.
    #[test]
    fn slabs_that_share_choices_are_the_same_whoever_codes_them() {
        let file = file();
        let whole = coded(&file, &|_, _| true, true);
        let slabs: Vec<Vec<u8>> = (0..3).map(|index| whole.entries()[0].coded_slab(index).unwrap()).collect();
        let parts = [coded(&file, &|_, slab| slab == 1, false), coded(&file, &|_, slab| slab != 1, false)];
        let mut joined = TriWriter::over(Cursor::new(Vec::new()), &BTreeMap::new()).unwrap();
        join_coded(&file.entries()[0], &|slab| &parts[usize::from(slab != 1)], &mut joined).unwrap();
        let joined = TensorFile::from_bytes(joined.complete().unwrap().0.into_inner(), "joined").unwrap();
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = one.install(|| coded(&file, &|_, _| true, false));
        let mut compared = Vec::new();
        let own = codec("trinity-lite").unwrap();
        encode_entry(&file.entries()[0], own.as_ref(), Rate::Bits(3.0), &mut |_, encoded| {
            compared.push(encoded.bytes.clone());
            Ok(())
        })
        .unwrap();
        for (index, slab) in slabs.iter().enumerate() {
            assert_eq!(*slab, joined.entries()[0].coded_slab(index).unwrap(), "joined {index}");
            assert_eq!(*slab, alone.entries()[0].coded_slab(index).unwrap(), "alone {index}");
            assert_eq!(*slab, compared[index], "compared {index}");
        }
        // A slab on its own makes choices of its own.
        let plan = file.entries()[0].plan();
        let third = read(&file.entries()[0], &plan, 1).unwrap();
        assert_ne!(own.encode(&third, Rate::Bits(3.0)).unwrap().bytes, slabs[1]);
    }
}
