//! What an exploration is asked.

use crate::evaluate::{self, Evaluation, FORWARD, Probe};
use crate::{Error, Progress, Quality};
use trinity_tensor::Class;
use trinity_tensor::codec::Rate;
use trinity_tensor::compare::{ComparisonRow, InputTensor};

/// The study where none is named.
pub const STUDY: &str = "sweeps/llama-3-70b";
/// The quality where none is named: the error at which the paper takes its
/// stages apart.
pub const QUALITY: Rate = Rate::Nmse(0.01);

#[derive(Debug, Clone)]
pub struct ExploreRequest<'a> {
    pub input_tensors: &'a [InputTensor],
    /// The quality that every codec meets: an NMSE, or a bit rate, for all
    /// classes or for each.
    pub quality: Quality,
    /// A sweep by name, or a path that ends in `.toml`.
    pub study: String,
    /// `path=value`, laid over the study in turn.
    pub sets: Vec<String>,
    /// The study's own where it is not said.
    pub budget_mm2: Option<f64>,
    /// Candidates by name, or `CODER=CODEC`: a tensor codec and a file of
    /// `configs/codecs`. All where none is named.
    pub candidates: Vec<String>,
    /// The node to build codecs at; that of their figures where it is not said.
    pub node: Option<String>,
    /// Where the bits of a training job come from.
    pub training: Training,
    /// Places along the map of where a codec pays; [`super::CELLS`] where nothing else is wanted, none where it is 0.
    pub cells: usize,
    /// Draws of what is uncertain; [`super::DRAWS`] where nothing else is wanted.
    pub draws: usize,
    /// Rows of an earlier run, which stand for the same cells of this one.
    pub earlier: &'a [ComparisonRow],
}

/// Where the bits of what replicas and stages send come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Training {
    /// The recorded training runs that lost nothing, or no more than `loss` bits per byte.
    Recorded { loss: f64 },
    /// The tensors at the quality, as of every other job.
    Tensors,
}

impl Training {
    /// Who sets an error or a rate sets it for what training sends, too; where none is set, runs
    /// decide, which may have lost so many bits per byte.
    pub fn of(none_set: bool, loss: Option<f64>) -> Self {
        if none_set { Self::Recorded { loss: loss.unwrap_or(0.0) } } else { Self::Tensors }
    }
}

/// The largest error at which anything is learned from what arrives: half of a
/// tensor's energy. Below half a bit per value, which leaves about as much, every recorded
/// training run lost 9 to 32 % (`validation/data/training`, runs `t0.4`, `t0.4-v`, `powersgd4`),
/// and signs alone did not train at all.
pub const MOST_NMSE: f64 = 0.5;
/// Fewer draws than this say nothing of odds.
const FEWEST_DRAWS: usize = 32;

impl ExploreRequest<'_> {
    /// Refuses what has no answer before anything is measured.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(nmse) = self.quality.worst_nmse().filter(|nmse| *nmse >= MOST_NMSE) {
            // No gain in speed is one there.
            let left = (1.0 - nmse).max(0.0) * 100.0;
            return Err(Error::input(
                format_args!(
                    "at an NMSE of {nmse} a tensor arrives with {left:.0} % of its energy at most: nothing is learned from that, however fast it is sent"
                ),
                format_args!(
                    "ask for an NMSE well below {MOST_NMSE}; the paper works at 0.01, and `--loss 0.02` finds the error that a language model stands"
                ),
            ));
        }
        if self.draws < FEWEST_DRAWS {
            let message = format!("{} draws say nothing of odds", self.draws);
            let help = format!("give --draws {FEWEST_DRAWS} or more");
            return Err(Error::input(message, help));
        }
        if self.cells == 1 {
            let message = "a map of one place is none";
            return Err(Error::input(message, "give --cells 2 or more, or 0 for no map"));
        }
        Ok(())
    }
}

/// Windows of the built-in text that a loss is measured on.
const LOSS_WINDOWS: usize = 4;

/// The quality at which the built-in language model loses `loss` bits per byte
/// with any one class of these tensors coded; classes that a forward pass does
/// not have are held to [`QUALITY`]. `keep` sees each new run of the model; one
/// among `earlier` is not made again. Fails where no error is small enough, or
/// the work is no longer wanted.
pub fn at_loss(
    loss: f64,
    input_tensors: &[InputTensor],
    earlier: &[Probe],
    keep: &dyn Fn(&Probe),
    progress: &dyn Progress,
) -> Result<Quality, Error> {
    let has = |class: &Class| input_tensors.iter().any(|tensor| tensor.entry.class() == *class);
    let classes: Vec<Class> = FORWARD.into_iter().filter(has).collect();
    if classes.is_empty() {
        let message = "a loss is measured with weights, KV cache or activations coded, and these tensors are of \
                       none of them";
        let help = "give an --nmse, or name the class of a file's tensors with --class";
        return Err(Error::input(message, help));
    }
    let asked =
        evaluate::EvaluationRequest { windows: Some(LOSS_WINDOWS), ..evaluate::EvaluationRequest::default() };
    let evaluation = Evaluation::open(&asked)?;
    let mut own = Vec::new();
    for class in classes {
        own.push((class, evaluation.tolerance(class, loss, earlier, keep, progress)?.nmse));
    }
    Ok(Quality::at_loss(loss, own, QUALITY))
}

/// The key under which a job states the bits of a class.
pub(super) fn key_of(class: Class) -> Option<&'static str> {
    match class {
        Class::Weight => Some("weights"),
        Class::KvCache => Some("kv"),
        Class::Activation => Some("activations"),
        Class::WeightGradient => Some("weight-gradients"),
        Class::ActivationGradient => Some("activation-gradients"),
        Class::Other => None,
    }
}
