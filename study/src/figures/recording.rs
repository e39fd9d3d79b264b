//! Recordings of runs, and whether they are still of today's code.
//!
//! A recording keeps the cells of a run with when, on what and on which data it was
//! made. It goes stale by content: when its command reads otherwise, when a codec
//! makes another stream of a probe, when a file that was read has other bytes, when
//! the cluster model's code or configurations have changed.

use super::error::Error;
use super::sample::Sample;
use crate::explore::TENSORS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use trinity_tensor::codec::{Rate, ablate, codec, is_external};
use trinity_tensor::{ContentHash, TensorFile, crop};

/// A hash of the cluster model: the code of `sim` and of what reads its configurations, and these.
pub const MODELS: &str = env!("TRINITY_CLUSTER_MODEL");

const RECORDED: &str = include_str!("recorded.json");

/// A file that a run read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub file: String,
    pub bytes: u64,
    pub hash: String,
}

/// What a result follows from, beside its command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// What each codec makes of a probe.
    #[serde(default)]
    pub codecs: BTreeMap<String, String>,
    /// [`MODELS`], where the cluster model was asked.
    #[serde(default)]
    pub models: Option<String>,
    #[serde(default)]
    pub inputs: Vec<Input>,
}

/// One run of a figure, kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The day.
    pub when: String,
    /// The machine, in words.
    pub on: String,
    pub seconds: f64,
    pub commands: BTreeMap<String, String>,
    #[serde(flatten)]
    pub fingerprint: Fingerprint,
    pub cells: BTreeMap<String, Sample>,
}

/// Recordings by figure.
pub type Recordings = BTreeMap<String, Recording>;

/// The committed recordings. Fails when the committed file is damaged.
pub fn recorded() -> Result<Recordings, Error> {
    serde_json::from_str(RECORDED).map_err(|error| Error::Damaged { why: error.to_string() })
}

impl Recording {
    /// Whether `other` read files that this one did not.
    pub fn lacks_inputs_of(&self, other: &Self) -> bool {
        let own = |input: &Input| self.fingerprint.inputs.iter().any(|own| own.file == input.file);
        !other.fingerprint.inputs.iter().all(own)
    }

    /// Why it is no longer of today's code, if it is not. Files that are not at hand (`now` does not name them) are
    /// taken for the same.
    pub fn stale(&self, commands: &BTreeMap<String, String>, now: &Fingerprint) -> Option<String> {
        if self.commands != *commands {
            return Some("its command has changed".into());
        }
        let own = &self.fingerprint;
        if let Some(codec) =
            now.codecs.iter().find(|(name, hash)| own.codecs.get(*name).is_some_and(|own| own != *hash))
        {
            return Some(format!("the codec {} makes other streams now", codec.0));
        }
        if own.models.is_some() && own.models != now.models {
            return Some("the cluster model or its configurations have changed".into());
        }
        let other =
            |input: &&Input| now.inputs.iter().any(|new| new.file == input.file && new.hash != input.hash);
        own.inputs.iter().find(other).map(|input| format!("{} is another file now", input.file))
    }
}

/// The codecs that commands name, without rates: of `--codecs`, `--weights`, `--kv`, `--activations`; `stages` for
/// what switches H.265's stages.
pub fn codecs_of<'a>(commands: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut found = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        for pair in words.windows(2) {
            if ["--codecs", "--weights", "--kv", "--activations"].contains(&pair[0]) {
                let names = pair[1].split(',').map(|name| name.split('@').next().unwrap_or(name));
                found.extend(names.map(str::to_owned));
            }
        }
        if words.iter().any(|word| ["--ablate", "--blocks", "--motion"].contains(word)) {
            found.push("stages".into());
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Rows and columns of the piece of a captured tensor that codecs are told apart by.
const PROBE_VALUES: usize = 4096;
const PROBE_BITS: f64 = 3.0;
const PROBE_NMSE: f64 = 0.01;

/// What a codec makes of a piece of a captured weight and of a captured gradient, as a hash; nothing for what is
/// no tensor codec here, or another's program.
pub fn fingerprint(name: &str) -> Option<String> {
    static KNOWN: OnceLock<std::sync::Mutex<BTreeMap<String, Option<String>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Default::default);
    let mut known = known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.entry(name.to_owned()).or_insert_with(|| probed(name)).clone()
}

fn probed(name: &str) -> Option<String> {
    // Programs of others are another version on another machine, or not there: they make no recording stale.
    if is_external(name) {
        return None;
    }
    let file = TensorFile::from_bytes(TENSORS.to_vec(), "probe").ok()?;
    let mut hash = ContentHash::default();
    for entry in file.entries() {
        let piece = crop(entry, PROBE_VALUES).ok()?;
        if name == "stages" {
            for line in ablate::ablate(&piece, PROBE_NMSE).ok()? {
                hash.add(&line.bits_per_value.to_le_bytes());
            }
        } else {
            let codec = codec(name).ok()?;
            match codec.encode(&piece, Rate::Bits(PROBE_BITS)) {
                Ok(encoded) => hash.add(&encoded.bytes),
                // A rate that is out of reach is an answer, too.
                Err(error) => hash.add(error.to_string().as_bytes()),
            }
        }
    }
    Some(format!("{:016x}", hash.finish()))
}
