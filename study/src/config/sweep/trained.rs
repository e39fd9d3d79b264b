//! Scenarios that take their numbers from training runs: `trained` gives the bits per value that
//! were sent, `timed` the speed at which the loop coded them.

use super::SweepFile;
use crate::config::StudyFile;
use crate::config::measured::{Value, rounded};
use crate::trained::{NoRun, Run, Runs, UNCODED_BITS, VALUE_BITS, find, folder_of};
use trinity_config::{Complaint, DataRate, Diagnostic, Document, Fraction, Power, Ratio};

/// A class of traffic: its path, its bits in a run, and where they go.
type Class = (&'static str, fn(&Run) -> Option<f64>, fn(&mut StudyFile, f64));

const CLASSES: [Class; 3] = [
    (
        "job.compression.weight-gradients",
        |run| run.weight_gradient_bits,
        |study, bits| study.job.compression.weight_gradients = Some(bits),
    ),
    (
        "job.compression.activations",
        |run| run.activation_bits,
        |study, bits| study.job.compression.activations = Some(bits),
    ),
    (
        "job.compression.activation-gradients",
        |run| run.activation_gradient_bits,
        |study, bits| study.job.compression.activation_gradients = Some(bits),
    ),
];

impl SweepFile {
    /// What the runs that scenario `at` names put into its study.
    pub(crate) fn of_runs(
        &self,
        document: &Document,
        at: usize,
        study: &StudyFile,
    ) -> Result<Vec<Value>, Diagnostic> {
        let scenario = &self.scenarios[at];
        let mut values = Vec::new();
        let named = [("trained", &scenario.trained), ("timed", &scenario.timed)];
        for (key, name) in named.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?))) {
            let place = format!("scenarios.{at}.{key}");
            let folder =
                document.place(&place).map(|place| folder_of(&place.source.name)).unwrap_or_default();
            let found = find(name, &folder).and_then(|runs| match key {
                "trained" => bits(&runs),
                _ => speed(&runs, study),
            });
            values.extend(found.map_err(|why| {
                let complaint =
                    Complaint::new(&why.message).expected("a training run with what is asked of it");
                document.complain(&place, &complaint.help(&why.help))
            })?);
        }
        Ok(values)
    }
}

/// What runs say of a study that codes what they sent coded; nothing of one that does not.
#[cfg(feature = "hwcodec")]
pub(crate) fn values_of_runs(runs: &Runs, study: &StudyFile) -> Result<Vec<Value>, NoRun> {
    let mut values = bits(runs)?;
    let coded = study.job.compression.bits();
    values.retain(|value| {
        coded
            .iter()
            .any(|(key, bits)| bits.is_some() && value.path.strip_prefix("job.compression.") == Some(key))
    });
    let timed = runs.each.iter().all(|run| run.encode_values_per_s.is_some());
    if !values.is_empty() && timed && study.cluster.codec.is_some() {
        values.extend(speed(runs, study)?);
    }
    Ok(values)
}

/// Bits per value of every class of traffic that a run coded.
fn bits(runs: &Runs) -> Result<Vec<Value>, NoRun> {
    let coded = CLASSES.iter().filter_map(|(path, of, set)| {
        let bits = runs.mean(of).filter(|bits| *bits < UNCODED_BITS)?;
        Some(Value::new(path, rounded(bits), "", format!("bits sent, {}", runs.note()), *set))
    });
    let coded: Vec<Value> = coded.collect();
    if coded.is_empty() {
        return Err(NoRun {
            message: format!("{} sent everything as it is", runs.source),
            help: "leave `trained` out of a scenario without a codec".into(),
        });
    }
    Ok(coded)
}

/// The codec of a study as fast as the loop's was: one codec that has the whole GPU while it works.
fn speed(runs: &Runs, study: &StudyFile) -> Result<Vec<Value>, NoRun> {
    let refused =
        |what: &str, help: &str| NoRun { message: format!("{} {what}", runs.source), help: help.into() };
    let Some(codec) = &study.cluster.codec else {
        return Err(refused(
            "times a codec, and the scenario has none",
            "set `cluster.codec.extends`, such as codecs/line-h200",
        ));
    };
    let rates = (runs.mean(|run| run.encode_values_per_s), runs.mean(|run| run.decode_values_per_s));
    let (Some(encode), Some(decode)) = rates else {
        return Err(refused(
            "has no seconds of coding",
            "name a run with `encode_values_per_s` and `decode_values_per_s`, as timing-85M-t1.4-v of the recording",
        ));
    };
    let note = |values_per_s: f64| format!("{:.3} Gvalues/s, {}", values_per_s / 1e9, runs.note());
    let gbps = [encode, decode].map(|values_per_s| rounded(values_per_s * VALUE_BITS / 1e9));
    // A run does not measure energy: the joules of a value stay those of the codec's file.
    let watts = [&codec.encoder, &codec.decoder].map(|block| {
        let cost = block.cost();
        cost.power_w / cost.throughput_gbps / codec.bits_per_value
    });
    let power = |at: usize| rounded(watts[at] * VALUE_BITS * gbps[at]);
    let same = "the configured joules of a value at that rate";
    Ok(vec![
        Value::new(
            "cluster.codecs-per-gpu",
            1.0,
            "",
            "the loop's codec has the whole GPU".into(),
            |study, count| {
                study.cluster.codecs_per_gpu = Ratio::new(count);
            },
        ),
        Value::new(
            "cluster.codec.gpu-share",
            1.0,
            "",
            "nothing else ran beside it".into(),
            |study, share| {
                change(study, |codec| codec.gpu_share = Some(Fraction::new(share)));
            },
        ),
        Value::new(
            "cluster.codec.bits-per-value",
            VALUE_BITS,
            "",
            "rates count values as bf16".into(),
            |study, bits| {
                change(study, |codec| codec.bits_per_value = bits);
            },
        ),
        Value::new("cluster.codec.encoder.throughput", gbps[0], "Gbit/s", note(encode), |study, gbps| {
            change(study, |codec| codec.encoder.throughput = Some(DataRate::from_gbit_per_s(gbps)));
        }),
        Value::new("cluster.codec.decoder.throughput", gbps[1], "Gbit/s", note(decode), |study, gbps| {
            change(study, |codec| codec.decoder.throughput = Some(DataRate::from_gbit_per_s(gbps)));
        }),
        Value::new("cluster.codec.encoder.power", power(0), "W", same.into(), |study, w| {
            change(study, |codec| codec.encoder.power = Some(Power::from_w(w)));
        }),
        Value::new("cluster.codec.decoder.power", power(1), "W", same.into(), |study, w| {
            change(study, |codec| codec.decoder.power = Some(Power::from_w(w)));
        }),
    ])
}

/// Does something to the codec of a study that has one.
fn change(study: &mut StudyFile, what: impl FnOnce(&mut crate::config::CodecFile)) {
    if let Some(codec) = &mut study.cluster.codec {
        what(codec);
    }
}
