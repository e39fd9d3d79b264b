//! How a job is laid over GPUs, and what of that is left to be chosen.
//!
//! Plain data: [`crate::best`] finds the best layout of a search, an estimate
//! carries the layout that was chosen for it.

use crate::job::{Job, Parallelism, Recompute, Schedule, Zero};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// One way to run a job: all that does not change what it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub parallelism: Parallelism,
    /// Sequences that pass through the pipeline together.
    pub microbatch: u32,
    pub recompute: Recompute,
}

impl Layout {
    pub fn of(job: &Job) -> Self {
        Self { parallelism: job.parallelism, microbatch: job.microbatch, recompute: job.recompute }
    }

    /// The job laid out like this; `replica_batch` sequences on each
    /// data-parallel rank, or the job's own batch where that is zero.
    pub fn apply(&self, job: &Job, replica_batch: u32) -> Job {
        let global_batch = match replica_batch {
            0 => job.global_batch,
            each => each.saturating_mul(self.parallelism.data),
        };
        Job {
            parallelism: self.parallelism,
            microbatch: self.microbatch,
            recompute: self.recompute,
            global_batch,
            ..*job
        }
    }
}

/// As people say it: `TP 8, PP 4 × 2, DP 16, micro-batch 1, ZeRO 1`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.parallelism;
        let chunks = p.schedule.chunks();
        let both_ways = if p.schedule == Schedule::DualPipe { " (DualPipe)" } else { "" };
        if p.tensor > 1 {
            write!(f, "TP {}, ", p.tensor)?;
        }
        match (p.pipeline, chunks) {
            (1, _) => {}
            (stages, 1) => write!(f, "PP {stages}{both_ways}, ")?,
            (stages, chunks) => write!(f, "PP {stages} × {chunks} chunks, ")?,
        }
        if p.context > 1 {
            write!(f, "CP {}, ", p.context)?;
        }
        if p.expert > 1 {
            write!(f, "EP {}, ", p.expert)?;
        }
        if p.expert > 1 && p.expert_tensor != p.tensor {
            f.write_str("experts whole, ")?;
        }
        write!(f, "DP {}, micro-batch {}", p.data, self.microbatch)?;
        if p.zero != Zero::None {
            write!(f, ", ZeRO {}", p.zero.stage())?;
        }
        if self.recompute != Recompute::None {
            write!(f, ", recompute {}", self.recompute.name())?;
        }
        Ok(())
    }
}

/// Members are the keys of a job's file.
impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let p = &self.parallelism;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("tensor", &p.tensor)?;
        map.serialize_entry("sequence_parallel", &p.sequence_parallel)?;
        map.serialize_entry("pipeline", &p.pipeline)?;
        map.serialize_entry("interleave", &p.schedule.chunks())?;
        map.serialize_entry("context", &p.context)?;
        map.serialize_entry("expert", &p.expert)?;
        map.serialize_entry("expert_tensor", &p.expert_tensor)?;
        map.serialize_entry("data", &p.data)?;
        map.serialize_entry("zero", &p.zero.stage())?;
        map.serialize_entry("microbatch", &self.microbatch)?;
        map.serialize_entry("recompute", self.recompute.name())?;
        map.end()
    }
}

/// What of a layout is stated, and so not chosen; zero and `None` are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Whether anything is chosen at all.
    pub on: bool,
    /// The job's own layout is kept; the least recomputation that fits is chosen.
    pub recompute_alone: bool,
    pub tensor: u32,
    pub sequence_parallel: Option<bool>,
    pub pipeline: u32,
    pub interleave: u32,
    pub data: u32,
    pub zero: Option<Zero>,
    pub expert: u32,
    pub expert_tensor: u32,
    pub context: u32,
    pub microbatch: u32,
    pub recompute: Option<Recompute>,
}

impl Search {
    /// Nothing is chosen: the job says it all.
    pub const OFF: Self = Self { on: false, ..Self::ANY };

    /// All of it is.
    pub const ANY: Self = Self {
        on: true,
        recompute_alone: false,
        tensor: 0,
        sequence_parallel: None,
        pipeline: 0,
        interleave: 0,
        data: 0,
        zero: None,
        expert: 0,
        expert_tensor: 0,
        context: 0,
        microbatch: 0,
        recompute: None,
    };

    /// What is recomputed, in a layout that is stated.
    pub const RECOMPUTE: Self = Self { recompute_alone: true, ..Self::ANY };

    /// Whether the cut over GPUs is left to be chosen.
    pub const fn cuts(&self) -> bool {
        self.on && !self.recompute_alone
    }
}
