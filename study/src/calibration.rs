//! Measured values in place of configured ones: what `trinity measure` found,
//! put into a sweep.
//!
//! Decoders and encoders, their energy and how well they run beside a matrix
//! product replace those of every scenario whose codec is an engine of the GPU; the
//! wire to the host replaces that of all scenarios, since they share it. The
//! rates of matrix units and memory stay those of the GPU under study, which
//! need not be the one that was measured.

use crate::Error;
use crate::sweep::{Replaced, Study};
use std::path::{Path, PathBuf};
use trinity_hwcodec::calibration::{Calibration, Measured};
use trinity_hwcodec::fit::EngineModel;
use trinity_sim::Job;

/// A calibration and the file it was read from.
#[derive(Debug, Clone)]
pub struct Measurements {
    pub path: PathBuf,
    pub calibration: Calibration,
}

impl Measurements {
    /// Reads a `calibration.toml` of `trinity measure`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or is no calibration.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_path_buf(), calibration: Calibration::read(path)? })
    }
}

impl Study {
    /// The study with what was measured in place of what was configured.
    ///
    /// # Errors
    ///
    /// Where no scenario codes on an engine, or on one that was not measured.
    pub fn calibrated(mut self, measurements: Measurements) -> Result<Self, Error> {
        let calibration = &measurements.calibration;
        let mut replaced = Vec::new();
        let mut engines = 0;
        for at in 0..self.file.scenarios.len() {
            let seen = self.file.as_seen_by(&self.document, at)?;
            let study = &seen.file.study;
            let mut values = host_wire(calibration);
            if let Some(standard) = study.cluster.codec.as_ref().and_then(|codec| codec.engine.as_deref()) {
                engines += 1;
                let measured = Engines::of(calibration, standard).ok_or_else(|| {
                    Error::input(
                        format_args!("`{}` has no {standard} engine", measurements.path.display()),
                        "set `study.cluster.codec.engine` to a standard that was measured",
                    )
                })?;
                let point = seen.file.point();
                values.extend(measured.values(calibration, &point.job, point.cluster.codec.chunk_values));
            }
            let scenario = &mut self.file.scenarios[at];
            for (path, value, spread) in values {
                let source = format!("measured {}: {spread}", calibration.device_line());
                let setting =
                    seen.document.settings().into_iter().find(|s| s.path == format!("study.{path}"));
                scenario.set.push(format!("{path}={{ value = {value}, source = {source:?} }}"));
                replaced.push(Replaced {
                    scenario: scenario.name.clone(),
                    path: path.into(),
                    before: setting.map_or_else(|| "not said".into(), |s| s.value),
                    value,
                    source,
                });
            }
        }
        if engines == 0 {
            return Err(Error::input(
                "no scenario of this sweep codes on an engine of the GPU",
                "a calibration replaces codecs that name their `engine`, such as codecs/nvenc",
            ));
        }
        self.plan = self.file.plan(&self.document, self.plan.top)?;
        self.replaced = replaced;
        self.measurements = Some(measurements);
        Ok(self)
    }
}

/// A path of the study, its value as TOML, and how sure it is.
type Value = (&'static str, String, String);

fn spread(measured: &Measured, unit: &str) -> String {
    format!("95 % interval {:.4} to {:.4} {unit}", measured.low, measured.high)
}

fn host_wire(calibration: &Calibration) -> Vec<Value> {
    let Some(wire) = &calibration.host_to_device_gb_per_s else { return Vec::new() };
    vec![
        ("cluster.host.bandwidth", format!("\"{} GB/s\"", rounded(wire.value)), spread(wire, "GB/s")),
        ("cluster.host.efficiency", "1.0".into(), "the bandwidth above is what copies reached".into()),
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
        let mut list = vec![(
            "cluster.codec.bits-per-value",
            format!("{SAMPLE_BITS:.1}"),
            "pictures of 8-bit samples".into(),
        )];
        let bits = coded_bits(job);
        if let Some(model) = self.encoder {
            let (gbps, note) = throughput(model, "encoders", chunk_values, bits);
            list.push(("cluster.codec.encoder.throughput", format!("\"{} Gbit/s\"", rounded(gbps)), note));
        }
        if let Some(model) = self.decoder {
            let (gbps, note) = throughput(model, "decoders", chunk_values, bits);
            list.push(("cluster.codec.decoder.throughput", format!("\"{} Gbit/s\"", rounded(gbps)), note));
            // A rise of power that cannot be told from none is no measurement.
            if let Some(energy) = calibration.nvdec_pj_per_bit.filter(|energy| energy.low > 0.0) {
                let watts = energy.value * 1e-12 * gbps * 1e9;
                let note = format!("{:.0} pJ a decoded bit, {}", energy.value, spread(&energy, "pJ/bit"));
                list.push(("cluster.codec.decoder.power", format!("\"{} W\"", rounded(watts)), note));
            }
        }
        if let Some(overlap) = &calibration.decode_overlap {
            let note = format!("decoding beside a matrix product, {}", spread(overlap, "of the ideal"));
            list.push(("job.overlap.storage", rounded(overlap.value.clamp(0.0, 1.0)).to_string(), note));
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

/// Five digits: more than any measurement has.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
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
