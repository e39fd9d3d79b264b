//! What slabs of one tensor share: an orientation and the like, chosen once, on rows from all of the tensor.
//!
//! The first slab need not be like the others. Knows where rows lie; what is chosen is the codec's own affair.

use std::ops::Range;

use crate::blocks::{BlockPlan, SLAB_VALUES};
use crate::codec::{Rate, TensorCodec};
use crate::{Entry, Error};

/// Rows that are looked at together: columns that a stream turns as a group may be rows of a matrix on its side.
const BAND_ROWS: usize = 64;
/// Values that are read together, at least.
const BAND_VALUES: usize = 1 << 15;
/// Bands of a slab of few rows.
const BANDS: usize = 4;

/// The codec of all slabs of a tensor, where they share choices.
pub(super) fn settled(
    entry: &Entry,
    plan: &BlockPlan,
    codec: &dyn TensorCodec,
    target: Rate,
) -> Result<Option<Box<dyn TensorCodec>>, Error> {
    if plan.len() < 2 || !codec.shares_choices() {
        return Ok(None);
    }
    let width = entry.dtype().bytes();
    let bands = bands(plan, entry.matrix().1);
    let mut data = crate::memory::zeroed(bands.iter().map(|band| band.len()).sum::<usize>() * width)?;
    let mut places = Vec::new();
    let mut rest = &mut data[..];
    for band in &bands {
        let (place, others) = std::mem::take(&mut rest).split_at_mut(band.len() * width);
        places.push(place);
        rest = others;
    }
    if entry.stream_at(0).is_some() {
        for (band, place) in bands.iter().zip(places) {
            if let Some(mut stream) = entry.stream_at(band.start) {
                stream.fill(place)?;
            }
        }
    } else {
        // From the front, as some formats are read.
        let mut stream = entry.stream()?;
        let mut passed = Vec::new();
        let mut at = 0;
        for (band, place) in bands.iter().zip(places) {
            while at < band.start {
                let step = (band.start - at).min(BAND_VALUES);
                passed.resize(step * width, 0);
                stream.fill(&mut passed)?;
                at += step;
            }
            stream.fill(place)?;
            at = band.end;
        }
    }
    Ok(codec.chosen_on(&entry.as_slab(data)?, target))
}

/// As [`settled`], of values that are in memory, in place of those of an entry.
pub(super) fn settled_on(
    entry: &Entry,
    plan: &BlockPlan,
    codec: &dyn TensorCodec,
    target: Rate,
    values: &[f32],
) -> Result<Option<Box<dyn TensorCodec>>, Error> {
    if plan.len() < 2 || !codec.shares_choices() {
        return Ok(None);
    }
    let mut data = Vec::new();
    for band in bands(plan, entry.matrix().1) {
        entry.dtype().extend_from_f32(&values[band], &mut data);
    }
    Ok(codec.chosen_on(&entry.as_slab(data)?, target))
}

/// Bands of whole rows, or pieces of rows where slabs are, spread evenly: as many values as a slab has, or somewhat
/// fewer.
fn bands(plan: &BlockPlan, cols: usize) -> Vec<Range<usize>> {
    let total = plan.values(plan.len() - 1).end;
    let slab = plan.values(0).len();
    let unit = if cols > SLAB_VALUES { 1 } else { cols };
    // In rows from here on.
    let (all, own) = (total / unit, slab / unit);
    let whole = BAND_ROWS * BAND_VALUES.div_ceil(BAND_ROWS * unit);
    let band = if own >= BANDS * whole { whole } else { own.div_ceil(BANDS) };
    let count = own / band;
    let of_share = |share: usize| {
        // Where a band would begin if the tensor were cut into such: what repeats every 64 rows is in phase.
        let first = ((2 * share + 1) * all / (2 * count) / band * band).min(all - band);
        first * unit..(first + band) * unit
    };
    (0..count).map(of_share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::codec::{MetricSums, codec};
    use crate::pipeline::each_slab;
    use proptest::prelude::*;
    use trinity_numeric::random::Lcg;

    /// Noise in the first slab, and in the others columns that share much: what is right for one is wrong for the rest.
    fn entry() -> Entry {
        let (rows, cols) = (3 * SLAB_VALUES / 256, 256);
        let mut lcg = Lcg(31);
        let mut noise = move || (0..4).map(|_| lcg.uniform() - 0.5).sum::<f32>();
        let mut data = Vec::new();
        for row in 0..rows {
            let all: Vec<f32> = (0..cols / 16).map(|_| noise()).collect();
            let shared = if row < SLAB_VALUES / cols { 0.0 } else { 1.0 };
            let values: Vec<f32> =
                (0..cols).map(|col| shared * all[col / 16] + (1.0 - 0.8 * shared) * noise()).collect();
            Dtype::Bf16.extend_from_f32(&values, &mut data);
        }
        Entry::in_memory("w", Dtype::Bf16, vec![rows, cols], std::sync::Arc::new(data)).unwrap()
    }

    /// A first slab that is not like the rest does not choose for them.
    #[test]
    fn slabs_that_share_choices_lose_little_by_it() {
        let entry = entry();
        let plan = entry.plan();
        let target = Rate::Bits(3.0);
        let own = codec("trinity-lite").unwrap();
        let settled = settled(&entry, &plan, own.as_ref(), target).unwrap().unwrap();
        let (mut shared, mut alone) = (MetricSums::default(), MetricSums::default());
        each_slab(&entry, |slab| {
            shared.merge(&settled.encode_measured(slab, target)?.1);
            alone.merge(&own.encode_measured(slab, target)?.1);
            Ok(())
        })
        .unwrap();
        let (shared, alone) = (shared.finish().snr_db, alone.finish().snr_db);
        assert!(shared > alone - 0.1, "{shared} dB together, {alone} dB apart");
    }

    proptest! {
        #[test]
        fn bands_come_from_all_over_and_never_twice(rows in 1usize..9000, cols in 1usize..5_000_000) {
            let rows = rows.min((1 << 26) / cols).max(1);
            let plan = BlockPlan::new(rows, cols, SLAB_VALUES);
            prop_assume!(plan.len() > 1);
            let bands = bands(&plan, cols);
            let values: usize = bands.iter().map(|band| band.len()).sum();
            let slab = plan.values(0).len();
            prop_assert!(values <= slab && 2 * values > slab, "{} of {}", values, slab);
            for pair in bands.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start, "{:?}", pair);
            }
            let total = rows * cols;
            prop_assert!(bands[bands.len() - 1].end <= total);
            // No stretch of the tensor is left out that is as long as two shares and a band.
            let longest = 2 * total / bands.len() + 2 * bands[0].len();
            let ends = bands.iter().map(|band| band.start).chain([total]);
            let mut before = 0;
            for end in ends {
                prop_assert!(end - before <= longest, "{}..{} of {}", before, end, total);
                before = end;
            }
        }
    }
}
