//! What a text says of a model's weights before a file of them is encoded.
//!
//! Joins a language model, which knows what its linear layers read, with the
//! tensors of its file; how either is coded is theirs to know.

use super::{Plan, keeper::Streams};
use crate::calibrating::Calibrating;
use crate::{Error, Progress};
use std::collections::HashMap;
use std::path::Path;
use trinity_lm::weights::{Calibrator, Target};
use trinity_lm::{Checkpoint, Model, coding::Coding};
use trinity_tensor::allocate::{Allocation, Curve, allocate};
use trinity_tensor::{TensorFile, pipeline};

/// The text of a calibration file that says what it is, and in which version.
const FILE_KEY: &str = "trinity.calibration";
/// The text that names weights whose rows are their layer's inputs, as JSON.
const BY_ROWS_KEY: &str = "by_rows";
/// The text that says what errors in each weight cost, as JSON.
const COSTS_KEY: &str = "costs";
/// A weight that seems to cost nothing still gets this share of the average.
const LEAST_SHARE: f64 = 0.05;

/// A calibration of a file's tensors.
#[derive(Debug, Default)]
pub struct Calibration {
    /// Bits per value of tensors, by their names in the file.
    bits: HashMap<String, f64>,
    known: HashMap<String, pipeline::Calibrated>,
    /// Slabs of tensors that were coded on the way.
    coded: HashMap<String, Vec<Vec<u8>>>,
    /// What is to be said of the text.
    pub remark: Option<String>,
}

/// What is to be calibrated.
#[derive(Debug, Clone, Copy)]
pub struct Calibrate<'a> {
    pub file: &'a TensorFile,
    /// What becomes of its tensors, before bits are shared out.
    pub plan: &'a Plan,
    pub coding: &'a Coding,
    pub allocation: Allocation,
}

impl Calibration {
    /// Codes the weights of the model at `path` one layer after the other, as
    /// they will be in its file, and keeps the streams, the coding's bits of each
    /// value on average: where the next bit saves most, or, with `Equal`, as
    /// the plan has it. Fails where `path` is no language model, the codec
    /// takes no calibration, or the text cannot be read.
    pub fn measure(
        path: &Path,
        text: &Path,
        asked: &Calibrate<'_>,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        Self::check(asked.coding, asked.allocation)?;
        let checkpoint = Checkpoint::open(path).map_err(|error| {
            let message = format!("--calibrate runs the model, and cannot: {error}");
            let help = "it takes what `trinity eval` takes: a folder with config.json, or a GGUF; \
                        `trinity.calibrate` makes a calibration of any model that PyTorch runs";
            Error::input(message, help)
        })?;
        let Calibrating { text, remark, .. } = Calibrating::read(text, &checkpoint)?;
        let model = Model::load(&checkpoint)?;
        let calibrator = Calibrator::new(text);
        let own = Self::of_model(&checkpoint, &model, &calibrator, asked, progress)?;
        Ok(Self { remark, ..own })
    }

    /// Whether a file is a calibration, and no text.
    pub fn is_file(path: &Path) -> bool {
        let mut magic = [0; 4];
        let read =
            std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
        read.is_ok() && &magic == b"TRIN"
    }

    /// A calibration that `trinity.calibrate` wrote: second moments of what layers read, and
    /// what errors in their weights cost, which shares the plan's bits out
    /// where `allocation` is by slopes. Fails where the file is no calibration,
    /// is of another model, or the codec takes none.
    pub fn open(path: &Path, plan: &Plan, coding: &Coding, allocation: Allocation) -> Result<Self, Error> {
        Self::check(coding, allocation)?;
        let place = path.display().to_string();
        let failed = |error| Error::Tensor { subject: place.clone(), error };
        let file = TensorFile::open(path).map_err(failed)?;
        if file.metadata().get(FILE_KEY).map(String::as_str) != Some("1") {
            let message = format!("{place} is no calibration");
            return Err(Error::input(message, "`trinity.calibrate` makes one; a text is one, too"));
        }
        let mut own = Self::default();
        let by_rows: Vec<String> = json_of(&file, BY_ROWS_KEY, &place)?;
        for entry in file.entries() {
            let Some(planned) = plan.tensors().iter().find(|planned| planned.tensor == entry.name()) else {
                let message =
                    format!("{place} is of another model: nothing is called `{}` here", entry.name());
                return Err(Error::input(message, "calibrate the model whose tensors these are"));
            };
            let by_rows = by_rows.iter().any(|name| name == entry.name());
            let inputs = entry.shape().first().copied().unwrap_or(0);
            let side = if by_rows { planned.shape.first() } else { planned.shape.last() };
            if entry.shape() != [inputs, inputs] || inputs == 0 || side != Some(&inputs) {
                let message = format!(
                    "{place} is of another model: `{}` reads {inputs} inputs there, and has the shape {:?} here",
                    entry.name(),
                    planned.shape
                );
                return Err(Error::input(message, "calibrate the model whose tensors these are"));
            }
            let tensor = entry.read().map_err(failed)?;
            let mut moments = vec![0.0; tensor.len()];
            tensor.dtype().to_f32(tensor.data(), &mut moments);
            let moments = std::sync::Arc::new(moments);
            let calibrated = pipeline::Calibrated { values: None, moments, by_rows };
            own.known.insert(entry.name().to_owned(), calibrated);
        }
        if allocation == Allocation::EqualSlope && !coding.needs_moments() {
            let costs: HashMap<String, f64> = json_of(&file, COSTS_KEY, &place)?;
            own.bits = by_costs(plan, &costs, coding.bits());
        }
        Ok(own)
    }

    /// What a text that was run already says.
    pub(crate) fn of_model(
        checkpoint: &Checkpoint,
        model: &Model,
        calibrator: &Calibrator,
        asked: &Calibrate<'_>,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let Calibrate { file, plan, coding, allocation } = *asked;
        Self::check(coding, allocation)?;
        if checkpoint.stores_weights_fused() {
            let message = "this model's file has its linear weights transposed and Q, K and V in one, \
                           and a text calibrates them one by one";
            return Err(Error::input(message, "`trinity.calibrate` in Python calibrates it as it is"));
        }
        let failed = |error| Error::Tensor { subject: "calibration".into(), error };
        let overhead = plan.overhead_bits_per_value(file).map_err(failed)?;
        let keeper = Streams::new(file, plan, checkpoint, overhead)?;
        let values: usize = checkpoint.entries().map(trinity_tensor::Entry::len).sum();
        progress.begin(values as u64, "calibrating");
        // Whole bits cannot follow slopes.
        let equal_slopes = allocation == Allocation::EqualSlope && !coding.needs_moments();
        let done = |values: usize| progress.advance(values as u64);
        let found = calibrator.code(model, coding, equal_slopes, &keeper, &done);
        progress.end();
        let found = found?;
        let moments = |target: Target| {
            let moments = pipeline::Calibrated { values: None, moments: target.moments, by_rows: false };
            (target.weight, moments)
        };
        let mut known: HashMap<String, pipeline::Calibrated> =
            found.targets.into_iter().map(moments).collect();
        let mut own = Self { coded: keeper.into_streams(), ..Self::default() };
        for name in checkpoint.entries().map(trinity_tensor::Entry::name) {
            let short = checkpoint.short_name(name);
            if let Some(&bits) = found.bits.get(&short) {
                own.bits.insert(name.to_owned(), bits);
            }
            if let Some(calibrated) = known.remove(&short) {
                own.known.insert(name.to_owned(), calibrated);
            }
        }
        Ok(own)
    }

    fn check(coding: &Coding, allocation: Allocation) -> Result<(), Error> {
        if !coding.takes_moments() {
            let message = format!("{} cannot weigh its errors by what a layer reads", coding.name());
            let help = "--calibrate is for trinity and its profiles, gptq-128g and awq-128g";
            return Err(Error::input(message, help));
        }
        if allocation == Allocation::Linear {
            let message = "--calibrate shares bits out by what each weight costs, not by layers";
            let help = "take --allocate equal-slope, or equal for the same everywhere";
            return Err(Error::input(message, help));
        }
        Ok(())
    }

    /// Whether it says something of every tensor whose codec cannot do without.
    /// Fails with the first of which it says nothing.
    pub fn suffices(&self, plan: &Plan) -> Result<(), Error> {
        let lacks = |own: &&super::Planned| {
            own.needs_moments() && self.of(&own.tensor).is_none() && self.coded(&own.tensor).is_none()
        };
        match plan.tensors().iter().find(lacks) {
            None => Ok(()),
            Some(own) => {
                let codec = own.codec();
                let message = format!(
                    "{codec} rounds weights for what their layer reads, and nothing says what `{}` reads",
                    own.tensor
                );
                Err(Error::input(message, "a calibration does; another codec needs none"))
            }
        }
    }

    /// What somebody who has opened a calibration says of one tensor, whose bits are known.
    pub fn of_one(tensor: &str, calibrated: pipeline::Calibrated) -> Self {
        Self { known: HashMap::from([(tensor.to_owned(), calibrated)]), ..Self::default() }
    }

    /// What it says of the tensor of that name.
    pub fn of(&self, tensor: &str) -> Option<&pipeline::Calibrated> {
        self.known.get(tensor)
    }

    /// Slabs of the tensor of that name, where they were coded on the way.
    pub fn coded(&self, tensor: &str) -> Option<&[Vec<u8>]> {
        self.coded.get(tensor).map(Vec::as_slice)
    }

    /// Bits per value of that tensor.
    pub fn bits_of(&self, tensor: &str) -> Option<f64> {
        self.bits.get(tensor).copied()
    }
}

/// What a text of a calibration file says; nothing where it has none of that name.
fn json_of<T: serde::de::DeserializeOwned + Default>(
    file: &TensorFile,
    key: &str,
    place: &str,
) -> Result<T, Error> {
    let Some(text) = file.metadata().get(key) else { return Ok(T::default()) };
    serde_json::from_str(text)
        .map_err(|error| Error::input(format_args!("{place}: its text `{key}` is damaged: {error}"), ""))
}

/// The bits of each tensor of the budget at which the next one saves as much
/// everywhere, out of what a relative error of one costs each. A tensor that nothing
/// is known of costs as much a value as the others do on average.
fn by_costs(plan: &Plan, costs: &HashMap<String, f64>, bits: f64) -> HashMap<String, f64> {
    let shared: Vec<&super::Planned> = plan.tensors().iter().filter(|own| own.shares()).collect();
    let known = |own: &super::Planned| costs.get(&own.tensor).map(|cost| cost / own.values.max(1) as f64);
    let per_value: Vec<f64> = shared.iter().filter_map(|own| known(own)).collect();
    if per_value.is_empty() {
        return HashMap::new();
    }
    let mean = per_value.iter().sum::<f64>() / per_value.len() as f64;
    let least = (LEAST_SHARE * mean).max(f64::MIN_POSITIVE);
    // As for calibrations on a text: below 4 bits costs add up less than they say.
    let trust = (bits / 4.0).min(1.0);
    let curve = |own: &&super::Planned| Curve {
        values: own.values,
        weight: known(own).unwrap_or(mean).max(least).powf(trust),
        layer: 0.0,
        points: vec![(bits, 1.0)],
        floor_bits: own.kind.floor_bits(bits),
    };
    let curves: Vec<Curve> = shared.iter().map(curve).collect();
    let rates = allocate(&curves, bits, Allocation::EqualSlope);
    shared.iter().map(|own| own.tensor.clone()).zip(rates).collect()
}
