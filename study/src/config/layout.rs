//! How a job is cut over GPUs, in files: a table that states it, the word
//! `best`, or a table that states some of it and leaves the rest to be chosen.

use super::names::{SplitName, names};
use super::setter::{Key, Settable, Setter, settable};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use trinity_config::{At, Complaint, Diagnostic};
use trinity_sim::{Parallelism, Schedule, Search, Split, Zero};

settable! {
    ParallelismTable { choose, tensor, sequence_parallel, pipeline, interleave, split, data, zero, expert, expert_tensor, context }
}

names! {
    /// How a layout is chosen.
    ChooseName {
        /// The one with the most tokens a second of those that fit in memory.
        Best,
    }
}

/// How the job is cut over GPUs.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum ParallelismFile {
    /// `"best"`: all of it is chosen, micro-batch and recomputation with it
    /// where the job does not state them.
    Word(ChooseName),
    Table(Box<ParallelismTable>),
}

/// Degrees of parallelism. Where `choose` is `"best"`, what is stated is kept
/// and the rest is chosen; otherwise what is not stated is 1, or none.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ParallelismTable {
    pub choose: Option<ChooseName>,
    pub tensor: Option<u32>,
    pub sequence_parallel: Option<bool>,
    pub pipeline: Option<u32>,
    /// Chunks of layers on each stage; 1 is plain 1F1B.
    pub interleave: Option<u32>,
    /// How layers are dealt out to stages; `layers` where it is not said.
    pub split: Option<SplitName>,
    pub data: Option<u32>,
    /// 0 to 3.
    pub zero: Option<u8>,
    pub expert: Option<u32>,
    /// Ranks that share each expert: 1, or as many as `tensor` where it is not said.
    pub expert_tensor: Option<u32>,
    pub context: Option<u32>,
}

impl Default for ParallelismFile {
    fn default() -> Self {
        Self::Table(Box::default())
    }
}

impl<'de> Deserialize<'de> for ParallelismFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = ParallelismFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"best\" or a table of degrees")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<ParallelismFile, E> {
                match word {
                    "best" => Ok(ParallelismFile::Word(ChooseName::Best)),
                    other => Err(E::custom(
                        Complaint::new(format_args!("there is no parallelism `{other}`"))
                            .expected("`best`, or a table of `tensor`, `pipeline`, `data`, …"),
                    )),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ParallelismFile, A::Error> {
                let table = ParallelismTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ParallelismFile::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// A key under the word replaces it, as laying a table over a text does.
impl Settable for ParallelismFile {
    fn setter(keys: &[Key]) -> Result<Setter<Self>, Diagnostic> {
        let inner = ParallelismTable::setter(keys)?;
        let whole = keys.is_empty();
        Ok(Box::new(move |place, value| {
            if whole && value.members().is_none() {
                return value.read().map(|read| *place = read);
            }
            if let Self::Word(_) = place {
                *place = Self::default();
            }
            match place {
                Self::Table(table) => inner(table, value),
                Self::Word(_) => Ok(()),
            }
        }))
    }
}

impl ParallelismFile {
    fn table(&self) -> Option<&ParallelismTable> {
        match self {
            Self::Table(table) => Some(table),
            Self::Word(_) => None,
        }
    }

    /// Chunks of layers on each stage, where they are stated.
    pub fn interleave(&self) -> Option<u32> {
        self.table()?.interleave
    }

    /// What is stated; `usual_zero` and 1 where nothing is.
    pub fn resolve(&self, usual_zero: u8) -> Parallelism {
        let Some(table) = self.table() else { return Parallelism::SINGLE };
        let tensor = table.tensor.unwrap_or(1);
        Parallelism {
            split: table.split.map_or(Split::Layers, SplitName::resolve),
            tensor,
            sequence_parallel: table.sequence_parallel.unwrap_or(false),
            pipeline: table.pipeline.unwrap_or(1),
            schedule: match table.interleave {
                Some(chunks) if chunks > 1 => Schedule::Interleaved(chunks),
                _ => Schedule::OneFOneB,
            },
            data: table.data.unwrap_or(1),
            zero: zero(table.zero.unwrap_or(usual_zero)),
            expert: table.expert.unwrap_or(1),
            expert_tensor: table.expert_tensor.unwrap_or(tensor),
            context: table.context.unwrap_or(1),
        }
    }

    /// What is left to be chosen.
    pub fn search(&self) -> Search {
        let Some(table) = self.table() else { return Search::ANY };
        if table.choose.is_none() {
            return Search::OFF;
        }
        Search {
            tensor: table.tensor.unwrap_or(0),
            sequence_parallel: table.sequence_parallel,
            pipeline: table.pipeline.unwrap_or(0),
            interleave: table.interleave.unwrap_or(0),
            data: table.data.unwrap_or(0),
            zero: table.zero.map(zero),
            expert: table.expert.unwrap_or(0),
            expert_tensor: table.expert_tensor.unwrap_or(0),
            context: table.context.unwrap_or(0),
            ..Search::ANY
        }
    }

    /// Complains about degrees that are none.
    pub(super) fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let Some(table) = self.table() else { return Ok(()) };
        let degree = |stated: Option<u32>| f64::from(stated.unwrap_or(1));
        let positive = at.positive(&[
            ("tensor", degree(table.tensor)),
            ("pipeline", degree(table.pipeline)),
            ("interleave", degree(table.interleave)),
            ("data", degree(table.data)),
            ("expert", degree(table.expert)),
            ("expert-tensor", degree(table.expert_tensor)),
            ("context", degree(table.context)),
        ]);
        Diagnostic::gather([positive, check_zero(at, table.zero)])
    }
}

/// Complains about a stage of ZeRO that is none.
pub(super) fn check_zero(at: &At<'_>, stage: Option<u8>) -> Result<(), Diagnostic> {
    match stage.filter(|&stage| stage > 3) {
        Some(stage) => at.refuse("zero", format_args!("there is no ZeRO stage {stage}"), "0, 1, 2 or 3"),
        None => Ok(()),
    }
}

fn zero(stage: u8) -> Zero {
    match stage {
        0 => Zero::None,
        1 => Zero::Optimizer,
        2 => Zero::Gradients,
        _ => Zero::Parameters,
    }
}
