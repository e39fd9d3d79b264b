//! What a calibration codes, kept as the file will have it.
//!
//! Knows the file's tensors and the plan for them; what layers read is the language model's affair.

use super::Plan;
use crate::Error;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use trinity_lm::calibrate::InputMoments;
use trinity_lm::keeper::{Fate, Keeper};
use trinity_lm::{Checkpoint, Weight};
use trinity_tensor::codec::{Rate, TensorCodec, codec};
use trinity_tensor::pipeline::{Treatment, code_ahead};
use trinity_tensor::{Entry, TensorFile};

/// A tensor that is coded.
struct Coder<'a> {
    entry: &'a Entry,
    codec: Box<dyn TensorCodec>,
    bits: f64,
    /// Whether its rate is its own.
    apart: bool,
}

/// Codes weights as a plan has them, and keeps their streams.
pub(super) struct Streams<'a> {
    checkpoint: &'a Checkpoint,
    /// Coders of tensors, by short name.
    coders: HashMap<String, Coder<'a>>,
    /// Bits per value that tensors of the budget give up for what is beside them.
    overhead: f64,
    streams: Mutex<HashMap<String, Vec<Vec<u8>>>>,
}

impl<'a> Streams<'a> {
    pub(super) fn new(
        file: &'a TensorFile,
        plan: &Plan,
        checkpoint: &'a Checkpoint,
        overhead: f64,
    ) -> Result<Self, Error> {
        let mut coders = HashMap::new();
        for entry in file.entries() {
            let Treatment::Coded { codec: name, target: Rate::Bits(bits), apart } = plan.treatment(entry)
            else {
                continue;
            };
            let failed = |error| Error::Tensor { subject: entry.name().to_owned(), error };
            let codec = codec(&name).map_err(failed)?;
            coders.insert(checkpoint.short_name(entry.name()), Coder { entry, codec, bits, apart });
        }
        Ok(Self { checkpoint, coders, overhead, streams: Mutex::default() })
    }

    /// The streams of each tensor, by its name in the file.
    pub(super) fn into_streams(self) -> HashMap<String, Vec<Vec<u8>>> {
        self.streams.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for Streams<'_> {
    fn fate(&self, weight: &str) -> Fate {
        match self.coders.get(weight) {
            None => Fate::Kept,
            Some(own) if own.apart => Fate::Apart(own.bits),
            Some(own) => Fate::Shares(own.bits),
        }
    }

    fn code(&self, weight: &mut Weight, bits: f64, moments: Option<InputMoments<'_>>) -> Result<u64, String> {
        let Some(Coder { entry, codec, apart, .. }) = self.coders.get(&weight.name) else { return Ok(0) };
        let target = Rate::Bits(if *apart { bits } else { bits - self.overhead });
        let values = self.checkpoint.as_stored(&weight.name, std::mem::take(&mut weight.values));
        // What one tensor is coded with by a rule of its own may take no calibration.
        let moments = moments.filter(|_| codec.takes_moments()).map(|known| known.values());
        let coded = code_ahead(entry, codec.as_ref(), target, &values, moments).map_err(|e| e.to_string())?;
        weight.values = self.checkpoint.as_used(&weight.name, coded.values);
        let bits = coded.streams.iter().map(|stream| 8 * stream.len() as u64).sum();
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.insert(entry.name().to_owned(), coded.streams);
        Ok(bits)
    }
}
