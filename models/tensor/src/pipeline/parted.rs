//! Single slabs of a tensor: what lets several parts of a file share one large tensor.
//!
//! A part that has some slabs of a tensor holds each as a tensor of its own; what joins parts puts their bytes
//! together again as they would have been.

use std::io::{Seek, Write};

use rayon::prelude::*;

use super::ahead::of_slab;
use super::{Choice, Encoding, SLAB_VALUES, SLABS_PER_THREAD, plan, slab, slabs, spec};
use crate::blocks::BlockPlan;
use crate::codec::{Encoded, Target};
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
        target: Target,
        encoding: &Encoding<'_>,
        writer: &mut TriWriter<W>,
    ) -> Result<(), Error> {
        let plan = plan(entry);
        let known = (encoding.calibrated)(entry.name())
            .filter(|_| self.exact.is_none() && self.codec.takes_moments());
        let ahead = (encoding.ahead)(entry.name()).filter(|_| self.exact.is_none());
        let encode = |(slab, &index): (&Tensor, &usize)| {
            let first = plan.values(index).start;
            let encoded = match (known, ahead) {
                (_, Some(ahead)) => of_slab(ahead, &plan, slab, first),
                (Some(known), None) => {
                    let own = known.slab(slab, first)?;
                    self.codec.encode_weighted(&own, target, known.moments(slab, first))
                }
                (None, None) => self.codec.encode(slab, target),
            };
            encoded.map_err(|error| error.shifted(first))
        };
        for batch in own.chunks(SLABS_PER_THREAD * rayon::current_num_threads().max(1)) {
            let read = batch.iter().map(|&index| read(entry, &plan, index)).collect::<Result<Vec<_>, _>>()?;
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
        return slab(entry, plan, index, stream.as_mut());
    }
    // Some formats are read from the front only.
    let mut stream = entry.stream()?;
    for before in 0..index {
        slab(entry, plan, before, stream.as_mut())?;
    }
    slab(entry, plan, index, stream.as_mut())
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
