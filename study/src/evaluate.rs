//! What a bit rate does to a language model.
//!
//! Scores a model on a text as it is, and again with codecs in the loop. Knows
//! what a score is held against and what a coded model weighs; knows nothing
//! of how a forward pass or a codec works.

mod artefact;
mod curve;
mod held_out;
mod judged;
mod tolerance;
mod verdicts;

pub use curve::{BEST_BASELINE, CODECS, Curve};
pub use held_out::Gain;
pub use tolerance::{FORWARD, Probe};
pub use verdicts::{LossCurve, LossPoint, loss_curves, verdicts};

use judged::Judged;

use crate::calibrating::{Calibrating, WINDOW};
use crate::{Error, Progress};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trinity_lm::{
    Checkpoint, Hooks, LONGEST_WINDOW, Model, NoHooks, Reference, Score, Text, builtin,
    coding::{CodedPaths, Coding},
    principal::Changed,
    score_against,
    weights::Calibrator,
};
use trinity_tensor::{ContentHash, allocate::Allocation, codec::device_of};

/// A model and a text.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct EvaluationRequest {
    /// A folder, a configuration, a safetensors, a GGUF or a `.tri` file; the
    /// built-in tiny model where none is named.
    pub model: Option<PathBuf>,
    /// The model that `model` was made from: what it is held against, and whose
    /// configuration and tokenizer it has.
    pub original: Option<PathBuf>,
    /// The text to predict; the one that comes with the tiny model where none
    /// is named.
    pub text: Option<PathBuf>,
    /// How many windows of the text to score; all where it is not said.
    pub windows: Option<usize>,
    /// Tokens of a window that is scored, 1,024 where it is not said.
    pub context: Option<usize>,
    /// A text that tells codecs what each input of a layer is worth; nothing
    /// is told where none is named.
    pub calibrate: Option<PathBuf>,
}

/// One scored configuration; the fields are the columns of `eval.csv`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EvaluationRow {
    pub weights: Option<String>,
    /// The codec that was used, where the name stands for a choice.
    pub codec: Option<String>,
    /// How the weights' bits were shared out.
    pub allocation: Option<String>,
    pub kv: Option<String>,
    pub activations: Option<String>,
    pub bits_per_byte: f64,
    pub delta_bits_per_byte: f64,
    /// Half of the 95 % confidence interval of that difference, from both
    /// models on the same tokens.
    #[serde(default)]
    pub delta_ci95: Option<f64>,
    pub perplexity: f64,
    /// Mean KL divergence from the uncoded model's next-token distribution,
    /// nats per token; half of its 95 % confidence interval; what 99 % of
    /// tokens stay below.
    #[serde(default)]
    pub kl_nats: Option<f64>,
    #[serde(default)]
    pub kl_ci95: Option<f64>,
    #[serde(default)]
    pub kl_nats_p99: Option<f64>,
    /// Share of tokens on whose likeliest successor both models agree.
    #[serde(default)]
    pub top1_agreement: Option<f64>,
    pub weights_bits_per_value: Option<f64>,
    pub weights_nmse: Option<f64>,
    pub kv_bits_per_value: Option<f64>,
    pub activations_bits_per_value: Option<f64>,
    /// What the weights take on disk: the file that `encode` would write. Where a
    /// quantizer makes none, its linear weights, and the rest as stored (16 bit).
    pub weight_mib: f64,
    /// Who coded: `cpu`, or `cuda` where a GPU did all that was coded or a part of it.
    #[serde(default = "cpu")]
    pub device: String,
    /// A hash of all that the row follows from: model, text, what was asked
    /// for, and the version of the codecs. A row of an earlier run stands for a
    /// point with the same key, and for no other.
    pub key: String,
}

fn cpu() -> String {
    "cpu".into()
}

/// What a row calls a coding.
fn label(coding: &Option<Coding>) -> Option<String> {
    coding.as_ref().map(|coding| format!("{}@{}", coding.name(), coding.bits()))
}

/// Who codes what these names say, each a codec and its rate.
fn device<'a>(codings: impl IntoIterator<Item = &'a Option<String>>) -> String {
    let codecs = codings.into_iter().flatten().filter_map(|text| Some(text.rsplit_once('@')?.0));
    codecs.map(device_of).find(|&device| device != "cpu").unwrap_or("cpu").into()
}

impl EvaluationRow {
    /// The codec of the weights, by name, and its rate.
    pub fn point(&self) -> Option<(&str, f64)> {
        let (name, rate) = self.weights.as_deref()?.rsplit_once('@')?;
        Some((name, rate.parse().ok()?))
    }

    /// Whether both score an uncoded model, the same on the same text.
    pub fn is_at(&self, other: &Self) -> bool {
        let coded = |row: &Self| row.weights.is_some() || row.kv.is_some() || row.activations.is_some();
        self.key == other.key
            && !coded(self)
            && !coded(other)
            && (self.bits_per_byte - other.bits_per_byte).abs() < 1e-9
    }
}

/// Where codecs stand in one run.
#[derive(Debug)]
pub struct Run {
    pub weights: Option<Coding>,
    /// How the weights' bits are shared among tensors.
    pub allocation: Allocation,
    pub paths: CodedPaths,
}

/// A model whose weights went through a codec.
#[derive(Debug)]
struct Artefact {
    model: Model,
    /// Of the whole file; of linear weights alone for quantizers that stand as published.
    bits_per_value: f64,
    /// Over what was coded.
    nmse: f64,
    /// What the weights take on disk.
    bytes: f64,
}

/// A model beside a text, ready to be scored.
#[derive(Debug)]
pub struct Evaluation {
    model: Model,
    /// Its tensors, for codecs that make a file of them.
    checkpoint: Checkpoint,
    /// The file that is judged, where it is another than the model it is held against.
    judged: Option<Judged>,
    text: Text,
    /// What the uncoded model made of the text, once it was run.
    reference: OnceLock<Reference>,
    /// What inputs of layers are worth, where a text was given to tell.
    calibrator: Option<Calibrator>,
    /// What is to be said of the text that was given for it.
    pub remark: Option<String>,
    /// What the model is called in reports.
    pub name: String,
    /// A hash of the model and of the text as it is scored.
    content: u64,
}

impl Evaluation {
    /// Loads the model and cuts the text into windows. Fails where the
    /// checkpoint or the text cannot be read or do not fit.
    pub fn open(request: &EvaluationRequest) -> Result<Self, Error> {
        let checkpoint = match request.original.as_ref().or(request.model.as_ref()) {
            Some(path) => Checkpoint::open(path)?,
            None => builtin::tiny()?,
        };
        let judged = match (&request.original, &request.model) {
            (Some(_), Some(path)) => Some(Judged::open(path, &checkpoint)?),
            _ => None,
        };
        let bytes = match &request.text {
            Some(path) => std::fs::read(path).map_err(|error| Error::unreadable(path, error))?,
            None => builtin::text().to_vec(),
        };
        let longest = checkpoint.config.max_position_embeddings.min(LONGEST_WINDOW);
        if let Some(context) = request.context.filter(|context| !(2..=longest).contains(context)) {
            let message = format!("a context of {context} tokens: this model is scored with 2 to {longest}");
            return Err(Error::input(message, ""));
        }
        let mut text = Text::new(&bytes, &checkpoint, request.context.unwrap_or(WINDOW))?;
        text.windows.truncate(request.windows.unwrap_or(usize::MAX).max(1));
        let name = request.model.as_ref().map_or("tiny (built in)".into(), |p| p.display().to_string());
        let model = Model::load(&checkpoint)?;
        let calibrating =
            request.calibrate.as_ref().map(|path| Calibrating::read(path, &checkpoint)).transpose()?;
        let remark = calibrating.as_ref().and_then(|own| own.remark.clone());
        let calibrator = calibrating.map(|own| Calibrator::new(own.text));
        let mut content = ContentHash::default();
        content.add(&checkpoint.content()?.to_le_bytes());
        if let Some(judged) = &judged {
            content.add(&judged.content.to_le_bytes());
        }
        content.add(&bytes);
        content.add(&text.windows.len().to_le_bytes());
        if let Some(context) = request.context {
            content.add(&context.to_le_bytes());
        }
        if let Some(path) = &request.calibrate {
            content.add(&std::fs::read(path).map_err(|error| Error::unreadable(path, error))?);
        }
        let content = content.finish();
        let reference = OnceLock::new();
        Ok(Self { model, checkpoint, judged, text, reference, calibrator, remark, name, content })
    }

    /// What a row follows from, as a hash: this model and text, `asked`, and the
    /// codecs as they are.
    fn key(&self, asked: &str) -> Result<String, Error> {
        let mut hash = ContentHash::default();
        hash.add(&self.content.to_le_bytes());
        hash.add(trinity_tensor::codec::VERSION.as_bytes());
        hash.add(asked.as_bytes());
        // A profile of the user's own is part of the codec it makes.
        for name in asked.split_whitespace().filter_map(|word| word.rsplit_once('@')).map(|(name, _)| name) {
            let path = name.strip_prefix("hadamard/").unwrap_or(name);
            if path.ends_with(".toml") {
                let path = Path::new(path);
                hash.add(&std::fs::read(path).map_err(|error| Error::unreadable(path, error))?);
            }
        }
        Ok(format!("{:016x}", hash.finish()))
    }

    /// The model as it is. Fails where the work is no longer wanted.
    pub fn uncompressed(&self, progress: &dyn Progress) -> Result<EvaluationRow, Error> {
        let scored = self.reference(progress)?.score;
        Ok(EvaluationRow { key: self.key("")?, ..self.row(&scored, scored.bits_per_byte, None) })
    }

    /// The model under each of these in turn, held against the score of `first`. Rows of `earlier` stand where they follow from the
    /// same; `keep` hears each other as it is found.
    ///
    /// # Errors
    ///
    /// Where a codec fails, or the work is no longer wanted.
    pub fn runs(
        &self,
        plan: &[Run],
        first: &EvaluationRow,
        earlier: &[EvaluationRow],
        keep: &dyn Fn(&EvaluationRow),
        progress: &dyn Progress,
    ) -> Result<Vec<EvaluationRow>, Error> {
        let row = |run: &Run| {
            let key = self.key(&self.asked(run))?;
            if let Some(row) = earlier.iter().find(|row| row.key == key) {
                return Ok(row.clone());
            }
            let row = EvaluationRow { key, ..self.coded(run, first, progress)? };
            keep(&row);
            Ok(row)
        };
        plan.iter().map(row).collect()
    }

    /// What a run asks for, in the words of its row's key.
    fn asked(&self, run: &Run) -> String {
        let allocation = run.weights.as_ref().map(|coding| self.shared(coding, run.allocation).to_string());
        let labels = [label(&run.weights), allocation, label(&run.paths.kv), label(&run.paths.activations)];
        let labels = labels.map(|label| label.unwrap_or_else(|| "-".into())).join(" ");
        let CodedPaths { stages, block, sink, .. } = run.paths;
        let sink = if sink == 0 { String::new() } else { format!(" {sink}") };
        format!("{labels} {:?}{sink}", (stages, block))
    }

    /// The model with codecs in the loop, held against the score of `first`.
    fn coded(
        &self,
        run: &Run,
        first: &EvaluationRow,
        progress: &dyn Progress,
    ) -> Result<EvaluationRow, Error> {
        let coded = match &run.weights {
            Some(coding) => Some((coding, self.artefact(coding, run.allocation, progress)?)),
            None => None,
        };
        let model = coded.as_ref().map_or(&self.model, |(_, artefact)| &artefact.model);
        let (kv, activations) = (label(&run.paths.kv), label(&run.paths.activations));
        let on_the_way = kv.is_some() || activations.is_some();
        let what = kv.as_deref().or(activations.as_deref()).unwrap_or("coded");
        let hooks: &dyn Hooks = if on_the_way { &run.paths } else { &NoHooks };
        let cache =
            run.paths.kv.as_ref().map(|coding| self.cache(hooks, coding, run.paths.sink)).transpose()?;
        let hooks = cache.as_ref().and_then(Option::as_deref).unwrap_or(hooks);
        let scored = self.score_through(model, hooks, progress, what)?;
        let allocation = run.weights.as_ref().map(|coding| self.shared(coding, run.allocation).to_string());
        let weights = coded.as_ref().map(|(coding, artefact)| (*coding, artefact));
        let row =
            EvaluationRow { kv, activations, allocation, ..self.row(&scored, first.bits_per_byte, weights) };
        Ok(EvaluationRow { device: device([&row.weights, &row.kv, &row.activations]), ..row })
    }

    /// Hooks around a cache's codec: turned by what a calibration says, in a basis that it learned, or neither, as pays. Codecs that
    /// take neither stand as published, calibrated or not.
    fn cache<'h>(
        &'h self,
        hooks: &'h dyn Hooks,
        coding: &Coding,
        sink: usize,
    ) -> Result<Option<Box<dyn Hooks + 'h>>, Error> {
        Ok(match &self.calibrator {
            None if coding.needs_cache_basis() => {
                let message = format!("{} codes caches in a basis that is learned on a text", coding.name());
                let help = "give one, other than the text that is scored, with --calibrate";
                return Err(Error::input(message, help));
            }
            Some(calibrator) if coding.needs_cache_basis() => {
                let bases = calibrator.cache_bases(&self.model, sink)?;
                Some(Box::new(Changed { hooks, turns: None, bases: Some(bases) }))
            }
            Some(calibrator) if coding.takes_moments() => {
                Some(Box::new(calibrator.cache(&self.model, hooks, sink)?))
            }
            _ => None,
        })
    }

    /// What the uncoded model makes of the text; run once.
    fn reference(&self, progress: &dyn Progress) -> Result<&Reference, Error> {
        if let Some(reference) = self.reference.get() {
            return Ok(reference);
        }
        progress.check()?;
        progress.begin(self.text.windows.len() as u64, "uncompressed");
        let measured = Reference::measure(&self.model, &self.text, &|| progress.advance(1));
        progress.end();
        Ok(self.reference.get_or_init({
            let measured = measured?;
            || measured
        }))
    }

    fn score_through(
        &self,
        model: &Model,
        hooks: &dyn Hooks,
        progress: &dyn Progress,
        what: &str,
    ) -> Result<Score, Error> {
        let reference = self.reference(progress)?;
        progress.check()?;
        progress.begin(self.text.windows.len() as u64, what);
        let step = || progress.advance(1);
        let outcome = score_against(reference, model, &self.text, hooks, &step);
        progress.end();
        Ok(outcome?)
    }

    /// Values in linear weights, and in everything else.
    fn sizes(&self) -> (f64, f64) {
        let linear: usize = self.model.weights().iter().map(|w| w.values.len()).sum();
        let config = self.model.config();
        let heads = if config.tie_word_embeddings { 1 } else { 2 };
        let norms = (2 * config.num_hidden_layers + 1) * config.hidden_size;
        let positions = config.learnt_positions() * config.hidden_size;
        (linear as f64, (heads * config.vocab_size * config.hidden_size + norms + positions) as f64)
    }

    /// How a coding's bits are shared among weights: a calibration finds slopes
    /// for codecs that can follow them.
    fn shared(&self, coding: &Coding, asked: Allocation) -> Allocation {
        match &self.calibrator {
            Some(_) if coding.takes_moments() && coding.needs_moments() => Allocation::Equal,
            Some(_) if coding.takes_moments() => Allocation::EqualSlope,
            _ => asked,
        }
    }

    /// Bytes of linear weights at so many bits and of the rest as stored.
    fn bytes(&self, bits: f64) -> f64 {
        let (linear, rest) = self.sizes();
        (linear * bits + rest * 16.0) / 8.0
    }

    fn row(&self, scored: &Score, baseline: f64, weights: Option<(&Coding, &Artefact)>) -> EvaluationRow {
        let fidelity = scored.fidelity;
        let bytes = weights.map_or_else(|| self.bytes(16.0), |(_, artefact)| artefact.bytes);
        EvaluationRow {
            weights: weights.map(|w| format!("{}@{}", w.0.name(), w.0.bits())),
            codec: None,
            allocation: None,
            kv: None,
            activations: None,
            bits_per_byte: scored.bits_per_byte,
            delta_bits_per_byte: scored.bits_per_byte - baseline,
            delta_ci95: fidelity.map(|f| f.lost_ci95).filter(|half| half.is_finite()),
            perplexity: scored.perplexity,
            kl_nats: fidelity.map(|f| f.kl_nats),
            kl_ci95: fidelity.map(|f| f.kl_ci95).filter(|half| half.is_finite()),
            kl_nats_p99: fidelity.map(|f| f.kl_nats_p99),
            top1_agreement: fidelity.map(|f| f.top1_agreement),
            weights_bits_per_value: weights.map(|w| w.1.bits_per_value),
            weights_nmse: weights.map(|w| w.1.nmse),
            kv_bits_per_value: scored.kv_bits_per_value,
            activations_bits_per_value: scored.activation_bits_per_value,
            weight_mib: bytes / f64::from(1 << 20),
            device: device([&weights.map(|w| format!("{}@", w.0.name()))]),
            key: String::new(),
        }
    }
}

impl Evaluation {
    /// The file that is judged, held against the score of `first`; `None` where the
    /// model itself is. Fails where the work is no longer wanted.
    pub fn judged(
        &self,
        first: &EvaluationRow,
        progress: &dyn Progress,
    ) -> Result<Option<EvaluationRow>, Error> {
        let Some(judged) = &self.judged else { return Ok(None) };
        let scored = self.score_through(&judged.model, &NoHooks, progress, &judged.name)?;
        let row = self.row(&scored, first.bits_per_byte, None);
        Ok(Some(EvaluationRow {
            weights: Some(judged.name.clone()),
            weights_bits_per_value: Some(8.0 * judged.bytes as f64 / judged.values.max(1) as f64),
            weight_mib: judged.bytes as f64 / f64::from(1 << 20),
            key: self.key("judged")?,
            ..row
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use std::cell::RefCell;

    #[test]
    fn a_run_that_was_made_before_stands_and_no_other_does() {
        let request =
            EvaluationRequest { windows: Some(1), context: Some(32), ..EvaluationRequest::default() };
        let evaluation = Evaluation::open(&request).unwrap();
        let first = evaluation.uncompressed(&Silent).unwrap();
        let run = |bits: f64, sink| Run {
            weights: None,
            allocation: Allocation::Equal,
            paths: CodedPaths {
                kv: Some(Coding::new("rtn", bits).unwrap()),
                activations: None,
                stages: 4,
                block: 16,
                sink,
            },
        };
        let kept = RefCell::new(Vec::new());
        let keep = |row: &EvaluationRow| kept.borrow_mut().push(row.key.clone());
        let made = evaluation.runs(&[run(3.0, 0)], &first, &[], &keep, &Silent).unwrap();
        assert_eq!(*kept.borrow(), [made[0].key.as_str()]);
        // A row as nobody would find it: what comes back is what stood there, and not found anew.
        let earlier = [EvaluationRow { perplexity: -1.0, ..made[0].clone() }];
        let plan = [run(3.0, 0), run(4.0, 0), run(3.0, 2)];
        let again = evaluation.runs(&plan, &first, &earlier, &keep, &Silent).unwrap();
        assert_eq!(again[0].perplexity, -1.0);
        assert!(again[1..].iter().all(|row| row.perplexity > 1.0));
        assert_eq!(*kept.borrow(), [&made[0], &again[1], &again[2]].map(|row| row.key.as_str()));
    }
}
