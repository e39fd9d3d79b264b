//! Scenarios that take their numbers from training runs: `trained` gives the bits per value that
//! were sent, `timed` the speed at which the loop coded them.

use super::SweepFile;
use crate::Error;
use crate::config::StudyFile;
use crate::config::measured::{
    BITS_PER_VALUE, DECODER_POWER, DECODER_RATE, ENCODER_POWER, ENCODER_RATE, GPU_SHARE, Value, rounded,
};
use crate::trained::{Run, Runs, UNCODED_BITS, VALUE_BITS, find, folder_of};
use trinity_config::{Complaint, Diagnostic, Document, Ratio};

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
                let complaint = Complaint::new(&why).expected("a training run with what is asked of it");
                document.complain(&place, &complaint.help(why.help().unwrap_or_default()))
            })?);
        }
        Ok(values)
    }
}

/// What runs say of a study that codes what they sent coded; nothing of one that does not.
#[cfg(feature = "hwcodec")]
pub(crate) fn values_of_runs(runs: &Runs, study: &StudyFile) -> Result<Vec<Value>, Error> {
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
fn bits(runs: &Runs) -> Result<Vec<Value>, Error> {
    let coded = CLASSES.iter().filter_map(|(path, of, set)| {
        let bits = runs.mean(of).filter(|bits| *bits < UNCODED_BITS)?;
        Some(Value::new(path, rounded(bits), "", format!("bits sent, {}", runs.note()), *set))
    });
    let coded: Vec<Value> = coded.collect();
    if coded.is_empty() {
        let message = format!("{} sent everything as it is", runs.source);
        return Err(Error::input(message, "leave `trained` out of a scenario without a codec"));
    }
    Ok(coded)
}

/// The codec of a study as fast as the loop's was: one codec that has the whole GPU while it works.
fn speed(runs: &Runs, study: &StudyFile) -> Result<Vec<Value>, Error> {
    let refused = |what: &str, help: &str| Error::input(format!("{} {what}", runs.source), help);
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
    let whole = "the loop's codec has the whole GPU".to_owned();
    Ok(vec![
        Value::new("cluster.codecs-per-gpu", 1.0, "", whole, |study, count| {
            study.cluster.codecs_per_gpu = Ratio::new(count);
        }),
        Value::of_codec(GPU_SHARE, 1.0, "nothing else ran beside it"),
        Value::of_codec(BITS_PER_VALUE, VALUE_BITS, "rates count values as bf16"),
        Value::of_codec(ENCODER_RATE, gbps[0], note(encode)),
        Value::of_codec(DECODER_RATE, gbps[1], note(decode)),
        Value::of_codec(ENCODER_POWER, power(0), same),
        Value::of_codec(DECODER_POWER, power(1), same),
    ])
}
