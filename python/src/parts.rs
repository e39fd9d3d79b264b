//! A model's tensors shared out: the plan of all of them, and the work of one.
//!
//! What crosses is plain data that any machine can be sent, with no file
//! beside it; who does the work is for Python to know.

use crate::array::{Array, entries};
use crate::coded::{Asked, Coded, CodedTuple, contained, gathered, on_non_finite, rate};
use crate::watch::{Size, run};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use trinity_study::encode::{Calibration, Kind, Plan, Planned, Work};
use trinity_tensor::codec::Rate;
use trinity_tensor::pipeline::{Calibrated, Treatment};

/// What a calibration says of a weight that is shared out: moments of what it is multiplied
/// with, as little-endian f32, and whether its rows are those inputs.
type Weighed<B> = Option<(B, bool)>;

/// What becomes of a tensor of a model that is shared out: codec, target and
/// its amount; why it is exact; what it is tied to; what a calibration says of it.
type Part<B> = (String, String, f64, Option<String>, Option<String>, Weighed<B>);

/// The part of a tensor, of whose budget `overhead_bits_per_value` is beside it.
fn part_of(planned: &Planned, overhead_bits_per_value: f64, calibration: &Calibration) -> Part<Vec<u8>> {
    match &planned.treatment {
        Treatment::Exact { why, .. } => (String::new(), "exact".into(), 0.0, Some(why.clone()), None, None),
        Treatment::Tied { to } => (String::new(), "tied".into(), 0.0, None, Some(to.clone()), None),
        Treatment::Coded { codec, target, apart } => {
            let (target, amount) = match *target {
                Rate::Bits(bits) if *apart => ("bits", bits),
                Rate::Bits(bits) => ("bits", bits - overhead_bits_per_value),
                Rate::Nmse(nmse) => ("nmse", nmse),
                Rate::Qp(qp) => ("qp", qp),
                _ => ("lossless", 0.0),
            };
            let weighed = calibration.of(&planned.tensor).map(|own| {
                (own.moments.iter().flat_map(|moment| moment.to_le_bytes()).collect(), own.by_rows)
            });
            (codec.clone(), target.to_owned(), amount, None, None, weighed)
        }
    }
}

/// A calibration of one tensor, out of its part.
fn calibration_of(tensor: &str, weighed: Weighed<PyBackedBytes>) -> Calibration {
    let Some((moments, by_rows)) = weighed else { return Calibration::default() };
    let moments = moments.as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
    let calibrated = Calibrated { values: None, moments: std::sync::Arc::new(moments), by_rows };
    Calibration::of_one(tensor, calibrated)
}

/// The plan of a model's tensors, each with its rate to the last bit, so that
/// anybody can code any of them.
#[pyfunction]
pub fn plan_model<'py>(
    py: Python<'py>,
    arrays: Vec<Array>,
    asked: Asked,
    carried: BTreeMap<String, String>,
) -> PyResult<Vec<Part<Bound<'py, PyBytes>>>> {
    let entries = entries(arrays)?;
    let parts = run(py, Size::Large, None, move |watch| {
        let file = gathered(entries, &carried)?;
        let (plan, calibration) = asked.plan(&file, "these tensors", None, watch)?;
        let work = Work { on_non_finite: asked.on_non_finite(), ..Work::new(&file, &plan) };
        let overhead = work.overhead_bits_per_value()?;
        let parts = plan.tensors().iter().map(|planned| part_of(planned, overhead, &calibration));
        Ok(parts.collect::<Vec<_>>())
    })?;
    let part = |(codec, target, amount, why, tied, weighed): Part<Vec<u8>>| {
        let weighed = weighed.map(|(moments, by_rows)| (PyBytes::new(py, &moments), by_rows));
        (codec, target, amount, why, tied, weighed)
    };
    Ok(parts.into_iter().map(part).collect())
}

/// One tensor of a model as its plan says.
#[pyfunction]
pub fn encode_part<'py>(
    py: Python<'py>,
    array: Array,
    part: Part<PyBackedBytes>,
    carried: BTreeMap<String, String>,
    strict: bool,
    measure: bool,
) -> PyResult<CodedTuple<'py>> {
    let entry = array.entry()?;
    let coded = run(py, Size::Large, None, move |_| {
        let (codec, target, amount, why, _, weighed) = part;
        let calibration = calibration_of(entry.name(), weighed);
        let treatment = match why {
            Some(why) => Treatment::Exact { why, apart: true },
            None => Treatment::Coded { codec, target: rate(&target, amount), apart: true },
        };
        let (tensor, kind, values) = (entry.name().to_owned(), Kind::of(&entry), entry.len());
        let shape = entry.shape().to_vec();
        let plan = Plan::of(vec![Planned { tensor, kind, shape, values, treatment }]);
        let (container, summary, codec_s) = contained(&entry, &carried, |file, writer| {
            let (calibration, on_non_finite) = (Some(&calibration), on_non_finite(strict));
            let work = Work { calibration, on_non_finite, measure, ..Work::new(file, &plan) };
            Ok(work.encode_into(writer)?)
        })?;
        Ok(Coded::of(container)?.with(summary.as_ref(), codec_s))
    })?;
    Ok(coded.tuple(py))
}
