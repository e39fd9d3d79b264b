//! The best layout of a job on a cluster: every way to cut it over the GPUs that
//! fits in memory, timed by the closed form.
//!
//! A comparison whose baseline is cut badly says nothing, and what is best
//! moves with the machine. So a study may leave its parallelism to be chosen at
//! every point. Layouts are ranked by the time that their arithmetic alone
//! takes, which no wire can undercut: most are never timed whole.

use crate::estimate::Local;
use crate::hardware::Cluster;
use crate::job::{Job, Parallelism, Phase, Recompute, Schedule, Zero};
use crate::layout::{Layout, Search};
use crate::outcome::{Estimate, Infeasible};

/// Tokens of a sequence below which nobody cuts it further over ranks.
const SHORTEST_PIECE: u32 = 1024;
/// Sequences of a micro-batch in training: beyond them products gain nothing.
const LARGEST_MICROBATCH: u32 = 16;
/// Chunks of layers on a stage.
const MOST_CHUNKS: u32 = 12;

/// The best layout of `job` on `cluster` by tokens a second, with what it
/// costs; [`Estimate::chosen`] says which it is. What `search` states is kept.
/// Fails when no layout fits the cluster.
pub fn best(cluster: &Cluster, job: &Job, search: &Search) -> Result<Estimate, Infeasible> {
    Ranked::of(cluster, job, 0, search).best(cluster, job)
}

/// A layout that fits, and what one GPU does in it.
struct Candidate {
    /// A token cannot take less.
    least_s: f64,
    layout: Layout,
    local: Local,
}

/// The layouts that fit, most promising first. Wires and codecs may change
/// beneath them: one GPU's part of the work stays.
pub(crate) struct Ranked {
    candidates: Vec<Candidate>,
    replica_batch: u32,
    /// Why there are none, where there are none.
    refused: Infeasible,
    /// Layouts that make sense, fitting or not.
    pub(crate) tried: u32,
}

impl Ranked {
    pub(crate) fn of(cluster: &Cluster, job: &Job, replica_batch: u32, search: &Search) -> Self {
        if search.recompute_alone {
            return Self::of_recomputation(cluster, job, replica_batch);
        }
        let space = Space { cluster, job, search, replica_batch };
        let refused = Infeasible::NoCut { gpus: cluster.gpus, batch: job.global_batch };
        let mut ranked = Self { candidates: Vec::new(), replica_batch, refused, tried: 0 };
        let mut least_gb = f64::INFINITY;
        space.each(|layout| {
            let laid_out = layout.apply(job, replica_batch);
            let local = match Local::of(cluster, &laid_out) {
                Ok(local) => local,
                Err(refused) => {
                    if ranked.tried == 0 && !refused.is_about_the_cut() {
                        ranked.refused = refused;
                    }
                    return;
                }
            };
            if let Some(Infeasible::Memory { needed_gb, capacity_gb, kind }) =
                ranked.offer(cluster, layout, &laid_out, local)
                && needed_gb < least_gb
            {
                least_gb = needed_gb;
                ranked.refused = Infeasible::NoLayout { gpus: cluster.gpus, needed_gb, capacity_gb, kind };
            }
        });
        ranked.candidates.sort_by(|a, b| a.least_s.total_cmp(&b.least_s));
        ranked
    }

    /// The job's own layout with each recomputation that fits, the least first.
    fn of_recomputation(cluster: &Cluster, job: &Job, replica_batch: u32) -> Self {
        let refused = Infeasible::NoCut { gpus: cluster.gpus, batch: job.global_batch };
        let mut ranked = Self { candidates: Vec::new(), replica_batch, refused, tried: 0 };
        for &recompute in recomputations(job) {
            let layout = Layout { recompute, ..Layout::of(job) };
            let laid_out = layout.apply(job, replica_batch);
            let refused = match Local::of(cluster, &laid_out) {
                Err(refused) => Some(refused),
                Ok(local) => ranked.offer(cluster, layout, &laid_out, local),
            };
            ranked.refused = refused.unwrap_or(ranked.refused);
        }
        ranked
    }

    /// Counts a layout that makes sense, and keeps it or says what it lacks.
    fn offer(
        &mut self,
        cluster: &Cluster,
        layout: Layout,
        laid_out: &Job,
        local: Local,
    ) -> Option<Infeasible> {
        self.tried += 1;
        let Some(least_s) = local.least_s(laid_out) else { return Some(local.lacking(cluster)) };
        self.candidates.push(Candidate { least_s: least_s / laid_out.tokens(), layout, local });
        None
    }

    /// Layouts that fit.
    pub(crate) fn fitting(&self) -> usize {
        self.candidates.len()
    }

    /// The best on a cluster and for a job that share one GPU's part of the
    /// work with those it was made for; the first of equals.
    pub(crate) fn best(&self, cluster: &Cluster, job: &Job) -> Result<Estimate, Infeasible> {
        let mut best: Option<Estimate> = None;
        let mut refused = self.refused;
        for candidate in &self.candidates {
            if best.is_some_and(|best| candidate.least_s * best.tokens_per_s >= 1.0) {
                break;
            }
            let laid_out = candidate.layout.apply(job, self.replica_batch);
            match candidate.local.estimate(cluster, &laid_out) {
                Ok(estimate) if best.is_none_or(|best| estimate.tokens_per_s > best.tokens_per_s) => {
                    best = Some(Estimate { chosen: Some(candidate.layout), ..estimate });
                }
                Ok(_) => {}
                Err(why) => refused = why,
            }
        }
        best.ok_or(refused)
    }
}

/// All layouts that a search allows.
struct Space<'a> {
    cluster: &'a Cluster,
    job: &'a Job,
    search: &'a Search,
    replica_batch: u32,
}

impl Space<'_> {
    /// Visits them, small degrees first.
    fn each(&self, mut visit: impl FnMut(Layout)) {
        let (job, search) = (self.job, self.search);
        let gpus = self.cluster.gpus;
        let contexts = |context: &u32| {
            *context == 1
                || (job.sequence.is_multiple_of(*context) && job.sequence / *context >= SHORTEST_PIECE)
        };
        for tensor in stated_or(search.tensor, divisors(gpus)) {
            if tensor == 0 || !job.llm.heads.is_multiple_of(tensor) || !gpus.is_multiple_of(tensor) {
                continue;
            }
            let rest = gpus / tensor;
            for context in stated_or(search.context, divisors(rest).into_iter().filter(contexts)) {
                if context == 0 || !rest.is_multiple_of(context) {
                    continue;
                }
                let rest = rest / context;
                let stages = divisors(rest).into_iter().filter(|&stages| stages <= job.llm.layers);
                for pipeline in stated_or(search.pipeline, stages) {
                    let data = rest / pipeline.max(1);
                    if data * pipeline != rest || (search.data != 0 && search.data != data) {
                        continue;
                    }
                    let sequence_parallel =
                        search.sequence_parallel.unwrap_or(job.phase == Phase::Training && tensor > 1);
                    let split = job.parallelism.split;
                    let parallelism = Parallelism {
                        tensor,
                        sequence_parallel,
                        context,
                        pipeline,
                        data,
                        split,
                        ..Parallelism::SINGLE
                    };
                    self.with_experts(parallelism, &mut visit);
                }
            }
        }
    }

    /// Experts over the ranks of a stage, whole or cut, and what ranks share.
    fn with_experts(&self, p: Parallelism, visit: &mut impl FnMut(Layout)) {
        let search = self.search;
        let experts = self.job.llm.moe.map_or(1, |moe| moe.experts);
        let ranks = p.tensor * p.context * p.data;
        let cuts = if experts > 1 && p.tensor > 1 { vec![p.tensor, 1] } else { vec![p.tensor] };
        let training = self.job.phase == Phase::Training;
        let stages = match search.zero {
            Some(zero) => vec![zero],
            None if !training || p.data * p.context == 1 => vec![Zero::None],
            None if p.pipeline > 1 => vec![Zero::None, Zero::Optimizer, Zero::Gradients],
            None => vec![Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters],
        };
        for expert in stated_or(search.expert, divisors(experts)) {
            for expert_tensor in stated_or(search.expert_tensor, cuts.iter().copied()) {
                if !ranks.is_multiple_of((expert * expert_tensor).max(1)) {
                    continue;
                }
                for &zero in &stages {
                    self.with_passes(Parallelism { expert, expert_tensor, zero, ..p }, visit);
                }
            }
        }
    }

    /// How the batch goes through: micro-batches, chunks, what is kept of it.
    fn with_passes(&self, p: Parallelism, visit: &mut impl FnMut(Layout)) {
        let (job, search) = (self.job, self.search);
        let training = job.phase == Phase::Training;
        let sequences = match self.replica_batch {
            0 if !job.global_batch.is_multiple_of(p.data) => return,
            0 => job.global_batch / p.data,
            each => each,
        };
        let most = if training { LARGEST_MICROBATCH } else { u32::MAX };
        let microbatches = divisors(sequences).into_iter().filter(|&size| size <= most);
        let kept = search.recompute.map_or_else(|| recomputations(job).to_vec(), |stated| vec![stated]);
        let layers = job.llm.layers;
        let two_way = job.parallelism.schedule == Schedule::DualPipe;
        let chunks = if training && p.pipeline > 1 && !two_way {
            divisors(layers.div_ceil(p.pipeline))
                .into_iter()
                .filter(|&chunks| chunks <= MOST_CHUNKS)
                .collect()
        } else {
            vec![1]
        };
        for microbatch in stated_or(search.microbatch, microbatches) {
            let count = sequences / microbatch.max(1);
            for chunks in stated_or(search.interleave, chunks.iter().copied()) {
                let schedule = match chunks {
                    _ if two_way && p.pipeline > 1 => Schedule::DualPipe,
                    0 | 1 => Schedule::OneFOneB,
                    _ if !count.is_multiple_of(p.pipeline) => continue,
                    chunks => Schedule::Interleaved(chunks),
                };
                for &recompute in &kept {
                    visit(Layout { parallelism: Parallelism { schedule, ..p }, microbatch, recompute });
                }
            }
        }
    }
}

/// What a job's kind of pass can compute again, the least first.
fn recomputations(job: &Job) -> &'static [Recompute] {
    match job.phase {
        Phase::Training => &[Recompute::None, Recompute::Selective, Recompute::Full],
        Phase::Prefill | Phase::Decode => &[Recompute::None],
    }
}

/// What is stated, or all there is to choose from.
fn stated_or(stated: u32, choices: impl IntoIterator<Item = u32>) -> Vec<u32> {
    if stated > 0 { vec![stated] } else { choices.into_iter().collect() }
}

/// Divisors of a number, rising.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..=number.isqrt()).filter(|&d| number.is_multiple_of(d)).collect();
    let large = small.iter().rev().map(|&d| number / d).filter(|d| d * d != number);
    small.iter().copied().chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_rise_and_are_all() {
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
    }
}
