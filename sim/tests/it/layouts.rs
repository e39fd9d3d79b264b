//! Promises about layouts that are chosen: they fit, nothing that was tried is
//! better, and what is stated is kept.
use crate::fixtures::{cluster, llama3_70b, training};
use proptest::prelude::*;
use trinity_sim::{
    AttentionKernel, Cluster, Infeasible, Job, Llm, Mlp, Moe, Parallelism, Phase, Recompute, Schedule,
    Search, Zero, best, estimate,
};

fn llama3_8b() -> Llm {
    Llm { layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, ..llama3_70b() }
}

fn experts() -> Llm {
    let moe = Moe { experts: 8, top_k: 2, expert_ffn: 14336, ..Moe::default() };
    Llm { moe: Some(moe), mlp: Mlp::SwiGlu, ..llama3_8b() }
}

fn job(llm: Llm, batch: u32) -> Job {
    Job { attention: AttentionKernel::Flash, ..training(llm, 1, 1, 1, batch) }
}

/// The jobs with one thing set to each of the values.
fn each<T: Copy>(jobs: &[Job], values: &[T], set: fn(&mut Job, T)) -> Vec<Job> {
    let all = jobs.iter().flat_map(|job| values.iter().map(move |value| (*job, *value)));
    let changed = all.map(|(mut job, value)| {
        set(&mut job, value);
        job
    });
    changed.collect()
}

/// Every layout of small degrees, whether it makes sense or not.
fn every(machine: &Cluster, job: &Job) -> Vec<Job> {
    let degrees = [1, 2, 4, 8, 16];
    let job = Job { parallelism: Parallelism::SINGLE, ..*job };
    let jobs = each(&[job], &degrees, |job, tensor| {
        let (sequence_parallel, expert_tensor) = (tensor > 1, tensor);
        job.parallelism = Parallelism { tensor, sequence_parallel, expert_tensor, ..job.parallelism };
    });
    let jobs = each(&jobs, &degrees, |job, stages| job.parallelism.pipeline = stages);
    let jobs = each(&jobs, &[1, 2], |job, ranks| job.parallelism.context = ranks);
    let mut jobs = each(&jobs, &degrees, |job, ranks| job.parallelism.data = ranks);
    jobs.retain(|job| job.parallelism.gpus() == u64::from(machine.gpus));
    let stages = [Zero::None, Zero::Optimizer, Zero::Gradients, Zero::Parameters];
    let jobs = each(&jobs, &stages, |job, zero| job.parallelism.zero = zero);
    let jobs = each(&jobs, &[1, 2, 4, 8], |job, ranks| job.parallelism.expert = ranks);
    let schedules = [Schedule::OneFOneB, Schedule::Interleaved(2), Schedule::Interleaved(4)];
    let jobs = each(&jobs, &schedules, |job, schedule| job.parallelism.schedule = schedule);
    let jobs = each(&jobs, &degrees, |job, sequences| job.microbatch = sequences);
    let kept = [Recompute::None, Recompute::Selective, Recompute::Full];
    each(&jobs, &kept, |job, recompute| job.recompute = recompute)
}

#[test]
fn nothing_that_can_be_stated_is_better_than_the_best() {
    for (llm, gpus) in [(llama3_8b(), 16), (llama3_70b(), 64), (experts(), 16)] {
        let machine = cluster(gpus);
        let job = job(llm, 64);
        let found = best(&machine, &job, &Search::ANY).unwrap();
        let layout = found.chosen.unwrap();
        let again = estimate(&machine, &layout.apply(&job, 0)).unwrap();
        assert_eq!(again.tokens_per_s, found.tokens_per_s, "{layout}");
        let mut ran = 0;
        for stated in every(&machine, &job) {
            let Ok(other) = estimate(&machine, &stated) else { continue };
            ran += 1;
            assert!(
                other.tokens_per_s <= found.tokens_per_s,
                "{:?} {} > {layout} {}",
                stated.parallelism,
                other.tokens_per_s,
                found.tokens_per_s
            );
        }
        assert!(ran > 20, "{ran} layouts ran");
    }
}

#[test]
fn what_is_stated_is_kept_and_the_rest_is_chosen_around_it() {
    let (machine, job) = (cluster(64), job(llama3_70b(), 128));
    let stated = Search { tensor: 4, microbatch: 2, zero: Some(Zero::Optimizer), ..Search::ANY };
    let found = best(&machine, &job, &stated).unwrap();
    let layout = found.chosen.unwrap();
    assert_eq!((layout.parallelism.tensor, layout.microbatch), (4, 2));
    assert_eq!(layout.parallelism.zero, Zero::Optimizer);
    assert!(found.tokens_per_s <= best(&machine, &job, &Search::ANY).unwrap().tokens_per_s);
}

#[test]
fn a_model_that_fits_no_way_says_what_it_lacks() {
    let why = best(&cluster(8), &job(llama3_70b(), 8), &Search::ANY).unwrap_err();
    assert!(matches!(why, Infeasible::NoLayout { gpus: 8, .. }), "{why}");
    assert!(why.to_string().starts_with("no layout over 8 GPUs fits in memory: the smallest needs"), "{why}");
    // Seven heads' worth of GPUs and a batch of one: nothing divides.
    let why = best(&cluster(127), &job(llama3_8b(), 1), &Search::ANY).unwrap_err();
    assert!(matches!(why, Infeasible::NoCut { gpus: 127, batch: 1 }), "{why}");
}

#[test]
fn decoding_alone_needs_no_optimizer_and_no_recomputation() {
    let decoding = Job { phase: Phase::Decode, sequence: 4096, ..job(llama3_70b(), 64) };
    let found = best(&cluster(8), &decoding, &Search::ANY).unwrap();
    let layout = found.chosen.unwrap();
    assert_eq!((layout.recompute, layout.parallelism.zero), (Recompute::None, Zero::None));
    assert!(layout.parallelism.tensor > 1, "{layout}: weights are read by all GPUs at once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn more_of_anything_never_makes_the_best_worse(
        nic in 5e9f64..100e9, memory in 60e9f64..200e9, factor in 1.0f64..4.0, what in 0usize..3,
    ) {
        let mut machine = cluster(32);
        machine.nic.bytes_per_s = nic;
        machine.gpu.memory_bytes = memory;
        let job = job(llama3_8b(), 64);
        let before = best(&machine, &job, &Search::ANY).unwrap().tokens_per_s;
        match what {
            0 => machine.nic.bytes_per_s *= factor,
            1 => machine.gpu.memory_bytes *= factor,
            _ => machine.gpu.memory_bytes_per_s *= factor,
        }
        let after = best(&machine, &job, &Search::ANY).unwrap().tokens_per_s;
        prop_assert!(after >= before * (1.0 - 1e-12), "{before} {after}");
    }
}
