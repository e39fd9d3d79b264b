//! Measured values in place of configured ones: what `trinity measure` found,
//! put into a sweep.
//!
//! Decoders and encoders, their energy and how well they run beside a matrix
//! product replace those of every scenario whose codec is an engine of the GPU; the
//! wire to the host replaces that of all scenarios, since they share it. Where
//! the GPU under study is the one that was measured, so do its curves of matrix
//! products, memory and attention ([`compute`]). A training run says how many bits a value of
//! each class of traffic took, and how fast its loop coded them.

mod compute;
mod measurements;
mod value;

pub use measurements::{Measurements, Readings};

use crate::Error;
use crate::config::measured::{
    BITS_PER_VALUE, DECODER_POWER, DECODER_RATE, ENCODER_POWER, ENCODER_RATE, GPU_SHARE, Value, rounded,
};
use crate::config::{StudyFile, values_of_runs};
use crate::sweep::{Replaced, Study};
use crate::trained::VALUE_BITS;
use trinity_config::{DataRate, Document, Fraction};
use trinity_hwcodec::calibration::{Calibration, Measured};
use trinity_hwcodec::fit::EngineModel;
use trinity_hwcodec::software::SoftwareCodec;
use trinity_sim::Job;
use value::spread;

impl Study {
    /// The study with what was measured in place of what was configured. Fails
    /// where no scenario codes on an engine, or on one that was not measured.
    pub fn calibrated(mut self, measurements: Measurements) -> Result<Self, Error> {
        let mut replaced = std::mem::take(&mut self.replaced);
        let mut engines = 0;
        let (mut computed, mut not_computed) = (false, None);
        for at in 0..self.file.scenarios.len() {
            let seen = self.file.as_seen_by(&self.document, at)?;
            let study = self.file.study_of(&seen.document, at)?;
            let found = values(&measurements, &seen.document, &study)?;
            engines += usize::from(found.engine);
            computed |= found.computed.is_ok();
            if let Err(why) = found.computed {
                not_computed.get_or_insert(why);
            }
            let scenario = &mut self.file.scenarios[at];
            for value in found.values {
                let source = measurements.source(&value.note);
                replaced.push(value.replaced(&scenario.name, &seen.document, "study.", source));
                scenario.measured.push(value.replacement);
            }
        }
        if let (0, Readings::Training(runs)) = (engines, &measurements.readings) {
            let message =
                format!("no scenario of this sweep has a codec for what {} sent coded", runs.source);
            let help = "take a sweep whose scenarios compress that traffic, such as sweeps/trained-gradients";
            return Err(Error::input(message, help));
        }
        if engines == 0 && !computed {
            let why = not_computed.unwrap_or_else(|| "the calibration has no compute".into());
            return Err(Error::input(
                format_args!(
                    "no scenario of this sweep codes on an engine of the GPU or on its multiprocessors, and {why}"
                ),
                "a calibration replaces codecs that name their `engine`, such as codecs/nvenc, or have a `gpu-share`, such as codecs/line-h200, and the curves of the GPU it was made on",
            ));
        }
        self.plan = self.file.plan(&self.document, self.plan.top)?;
        self.replaced = replaced;
        self.measurements = Some(measurements);
        Ok(self)
    }
}

impl crate::estimate::Study {
    /// The study with what was measured in place of what was configured, and
    /// what that replaced. Fails where the calibration says nothing of this GPU
    /// and its codec.
    pub fn calibrated(mut self, measurements: &Measurements) -> Result<(Self, Vec<Replaced>), Error> {
        let found = values(measurements, &self.document, &self.file)?;
        if let (false, Err(why)) = (found.engine, &found.computed) {
            let message = format!("the job codes on no engine of the GPU, and {why}");
            let help = "take the GPU that was measured, or a codec that names its `engine`";
            return Err(Error::input(message, help));
        }
        let mut replaced = Vec::new();
        for value in found.values {
            value.replacement.apply(&mut self.file);
            replaced.push(value.replaced("", &self.document, "", measurements.source(&value.note)));
        }
        self.point = self.file.point();
        Ok((self, replaced))
    }
}

/// What a calibration says of a study.
struct Said {
    values: Vec<Value>,
    /// Whether its codec is an engine of the GPU, or runs on its multiprocessors.
    engine: bool,
    /// Whether its GPU is the one that was measured, or why not.
    computed: Result<(), String>,
}

/// Everything that was measured and goes into a study.
fn values(measurements: &Measurements, document: &Document, study: &StudyFile) -> Result<Said, Error> {
    match &measurements.readings {
        Readings::Device(calibration) => of_device(measurements, calibration, document, study),
        Readings::Training(runs) => {
            let values = values_of_runs(runs, study)?;
            let engine = !values.is_empty();
            Ok(Said { values, engine, computed: Err("a training run measures no compute".into()) })
        }
    }
}

fn of_device(
    measurements: &Measurements,
    calibration: &Calibration,
    document: &Document,
    study: &StudyFile,
) -> Result<Said, Error> {
    let point = study.point();
    let mut values = host_wire(calibration);
    let computed = match compute::values(calibration, document, study, &point.job.llm) {
        Ok(measured) if measured.is_empty() => Err("the calibration has no compute".into()),
        Ok(measured) => {
            values.extend(measured);
            Ok(())
        }
        Err(why) => Err(why),
    };
    let standard = study.cluster.codec.as_ref().and_then(|codec| codec.engine.as_deref());
    if let Some(standard) = standard {
        let measured = Engines::of(calibration, standard).ok_or_else(|| {
            let message = format!("`{}` has no {standard} engine", measurements.path.display());
            Error::input(message, "set `study.cluster.codec.engine` to a standard that was measured")
        })?;
        values.extend(measured.values(calibration, &point.job, point.cluster.codec.chunk_values));
    }
    let on_multiprocessors = study.cluster.codec.as_ref().is_some_and(|codec| codec.gpu_share.is_some());
    if on_multiprocessors {
        let measured = calibration.software.as_ref().ok_or_else(|| {
            let message = format!("`{}` has no line-rate codec", measurements.path.display());
            let help =
                "run `trinity measure --line`, or leave out the scenario whose codec has a `gpu-share`";
            Error::input(message, help)
        })?;
        values.extend(software(measured));
    }
    Ok(Said { values, engine: standard.is_some() || on_multiprocessors, computed })
}

fn host_wire(calibration: &Calibration) -> Vec<Value> {
    let Some(wire) = &calibration.host_to_device_gb_per_s else { return Vec::new() };
    vec![
        Value::new(
            "cluster.host.bandwidth",
            rounded(wire.value),
            "GB/s",
            spread(wire, "GB/s"),
            |study, gb_per_s| study.cluster.host.bandwidth = DataRate::from_gb_per_s(gb_per_s),
        ),
        Value::new(
            "cluster.host.efficiency",
            1.0,
            "",
            "the bandwidth above is what copies reached".into(),
            |study, share| study.cluster.host.efficiency = Fraction::new(share),
        ),
    ]
}

/// A codec of multiprocessors, each of them one codec.
fn software(measured: &SoftwareCodec) -> Vec<Value> {
    let rate = |of, each: &Measured| {
        let note = format!("each of {} multiprocessors, {}", measured.multiprocessors, spread(each, "GB/s"));
        Value::of_codec(of, rounded(8.0 * each.value), note)
    };
    let power = |of, each: &Measured, j_per_gb: f64| {
        let note = format!("{j_per_gb:.3} J/GB above idle");
        Value::of_codec(of, rounded(each.value * j_per_gb), note)
    };
    let (encode, decode) = (&measured.encode_gb_per_s, &measured.decode_gb_per_s);
    let loss = &measured.product_loss;
    let lost = format!("loss of a large product, {}", spread(loss, "of its speed"));
    vec![
        Value::of_codec(BITS_PER_VALUE, VALUE_BITS, "rates count values as bf16"),
        rate(ENCODER_RATE, encode),
        rate(DECODER_RATE, decode),
        power(ENCODER_POWER, encode, measured.encode_j_per_gb),
        power(DECODER_POWER, decode, measured.decode_j_per_gb),
        Value::of_codec(GPU_SHARE, rounded(loss.value), lost),
    ]
}

/// The engines of one standard; a GPU may lack encoders.
struct Engines<'a> {
    decoder: Option<&'a EngineModel>,
    encoder: Option<&'a EngineModel>,
}

impl<'a> Engines<'a> {
    fn of(calibration: &'a Calibration, standard: &str) -> Option<Self> {
        let named = |models: &'a [EngineModel]| models.iter().find(|m| m.standard.name() == standard);
        let engines = Self { decoder: named(&calibration.nvdec), encoder: named(&calibration.nvenc) };
        (engines.decoder.is_some() || engines.encoder.is_some()).then_some(engines)
    }

    /// What they do to pictures of one chunk.
    fn values(&self, calibration: &Calibration, job: &Job, chunk_values: f64) -> Vec<Value> {
        let mut list = vec![Value::of_codec(BITS_PER_VALUE, SAMPLE_BITS, "pictures of 8-bit samples")];
        let bits = coded_bits(job);
        if let Some(model) = self.encoder {
            let (gbps, note) = throughput(model, "encoders", chunk_values, bits);
            list.push(Value::of_codec(ENCODER_RATE, rounded(gbps), note));
        }
        if let Some(model) = self.decoder {
            let (gbps, note) = throughput(model, "decoders", chunk_values, bits);
            list.push(Value::of_codec(DECODER_RATE, rounded(gbps), note));
            // A rise of power that cannot be told from none is no measurement.
            if let Some(energy) = calibration.nvdec_pj_per_bit.filter(|energy| energy.low > 0.0) {
                let watts = energy.value * 1e-12 * gbps * 1e9;
                let note = format!("{:.0} pJ a decoded bit, {}", energy.value, spread(&energy, "pJ/bit"));
                list.push(Value::of_codec(DECODER_POWER, rounded(watts), note));
            }
        }
        if let Some(overlap) = &calibration.decode_overlap {
            let note = format!("decoding beside a matrix product, {}", spread(overlap, "of the ideal"));
            let share = rounded(overlap.value.clamp(0.0, 1.0));
            list.push(Value::new("job.overlap.storage", share, "", note, |study, share| {
                study.job.overlap.storage = Some(Fraction::new(share));
            }));
        }
        list
    }
}

/// Gbit/s of samples through one engine while all work, and where that is from.
fn throughput(model: &EngineModel, what: &str, values: f64, bits: f64) -> (f64, String) {
    let all = model.values_per_s(values, values * bits, model.engines);
    let note = format!(
        "one of {} {} {what}, {values:.0} values of {bits} bits a picture, model within {:.1} % of held-out points",
        model.engines,
        model.standard.name(),
        model.held_out_mean_error * 100.0
    );
    (all / f64::from(model.engines.max(1)) * SAMPLE_BITS / 1e9, note)
}

/// Engines take eight-bit samples, one a value.
const SAMPLE_BITS: f64 = 8.0;

/// Bits a value of the traffic that the job has most of: gradients in
/// training, the cache or the activations in inference.
fn coded_bits(job: &Job) -> f64 {
    let c = &job.compression;
    let classes = match job.phase {
        trinity_sim::Phase::Training => [c.weight_gradient_bits, c.activation_bits, c.weight_bits],
        _ => [c.kv_bits, c.activation_bits, c.weight_bits],
    };
    classes.into_iter().flatten().next().unwrap_or(SAMPLE_BITS)
}
