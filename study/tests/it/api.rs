//! What a front end calls: plain requests in, plain data out.
use std::sync::atomic::{AtomicU64, Ordering};
use trinity_study::estimate::{self, Part};
use trinity_study::sweep::{self, Study};
use trinity_study::{Error, Progress, Silent, compare, price, sensitivity};
use trinity_tensor::compare::InputTensor;

fn study(name: &str) -> Study {
    let request = sweep::SweepRequest { sweep: name.into(), top: 3, ..sweep::SweepRequest::default() };
    Study::load(&request).unwrap_or_else(|e| panic!("{e}"))
}

/// Counts steps and wants no more than some.
#[derive(Default)]
struct Impatient {
    steps: AtomicU64,
    most: u64,
}

impl Progress for Impatient {
    fn advance(&self, steps: u64) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }
    fn is_cancelled(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > self.most
    }
}

#[test]
fn a_sweep_returns_its_fronts_and_every_point_of_them_is_its_own_estimate() {
    let study = study("sweeps/kv-spill");
    let outcome = sweep::run(&study, &Silent).unwrap();
    assert_eq!(outcome.points, study.plan.space.len());
    assert_eq!(outcome.feasible + outcome.rejected.values().sum::<u64>(), outcome.points);
    assert_eq!(outcome.top.len(), 3);
    for found in outcome.fronts.iter().flat_map(|front| &front.points) {
        let explained = study.explain(found.index).unwrap();
        assert_eq!(explained.estimate, found.estimate);
        assert_eq!((&explained.scenario, &explained.axes), (&found.scenario, &found.axes));
    }
    assert!(matches!(study.explain(outcome.points), Err(Error::Input { .. })));
}

#[test]
fn work_that_nobody_wants_ends_soon() {
    let study = study("sweeps/llama-7b-wide");
    let watcher = Impatient { most: 100_000, ..Impatient::default() };
    assert!(matches!(sweep::run(&study, &watcher), Err(Error::Cancelled)));
    assert!(watcher.steps.load(Ordering::Relaxed) < study.plan.space.len() / 10);
}

#[test]
fn a_sweep_may_be_a_text_and_its_mistakes_have_places_in_it() {
    let text = "title = \"mine\"\nstudy = 3\n".to_owned();
    let request =
        sweep::SweepRequest { sweep: "mine".into(), text: Some(text), ..sweep::SweepRequest::default() };
    let Err(Error::Config(diagnostic)) = Study::load(&request) else { panic!("this is no sweep") };
    assert_eq!(diagnostic.place.unwrap().line(), 2);
}

#[test]
fn an_estimate_of_a_sweeps_own_study_is_its_base_point() {
    let study = study("sweeps/llama-7b");
    let request = estimate::EstimateRequest {
        cluster: Part::OfSweep("sweeps/llama-7b".into()),
        job: Part::OfSweep("sweeps/llama-7b".into()),
        overrides: Vec::new(),
    };
    let point = estimate::Study::load(&request).unwrap().point;
    assert_eq!(point, study.file.point());
}

fn estimated(overrides: &[&str]) -> Result<estimate::EstimateOutcome, Error> {
    let job = "phase = \"training\"\nsequence = 2048\nreplica-batch = 8\nrecompute = \"full\"\n\
               llm = { extends = \"llms/pythia-160m\" }\n[parallelism]\ndata = 8\n";
    crate::estimated("clusters/dgx-h100", job, overrides)
}

#[test]
fn an_override_moves_what_it_names_and_a_wrong_one_has_a_place() {
    let plain = estimated(&[]).unwrap().estimate;
    let wide = estimated(&["job.parallelism.data=16"]).unwrap().estimate;
    assert!(wide.tokens_per_s > plain.tokens_per_s && wide.area_mm2 > plain.area_mm2);
    let Err(Error::Config(wrong)) = estimated(&["job.parallelism.dat=16"]) else { panic!("no such key") };
    assert!(wrong.to_string().contains("did you mean `data`?"), "{wrong}");
    assert!(matches!(estimated(&["job.parallelism.tensor=5"]), Err(Error::CannotRun(_))));
}

#[test]
fn a_headline_rests_on_every_assumption_of_its_sweep() {
    let study = study("sweeps/llama-7b");
    let lines = sensitivity::sensitivity(&study, &Silent).unwrap();
    assert_eq!(lines.len(), study.file.assumptions.len());
    assert!(lines.iter().any(|line| line.low != line.high));
}

/// A small tensor that any codec takes.
fn tensor() -> (tempfile::TempDir, trinity_tensor::TensorFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.npy");
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 64), }";
    let padded = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded.len() as u16).to_le_bytes());
    bytes.extend(padded.as_bytes());
    bytes
        .extend((0..4096u32).flat_map(|k| ((k.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7).to_le_bytes()));
    std::fs::write(&path, bytes).unwrap();
    let file = trinity_tensor::TensorFile::open(&path).unwrap_or_else(|e| panic!("{e}"));
    (folder, file)
}

#[test]
fn codecs_are_compared_and_what_is_out_of_reach_is_a_miss() {
    let (_folder, file) = tensor();
    let subject = |entry: &trinity_tensor::Entry| InputTensor::new(entry.clone(), "w.npy").unwrap();
    let input_tensors: Vec<InputTensor> = file.entries().iter().map(subject).collect();
    let request = compare::ComparisonRequest {
        input_tensors: &input_tensors,
        codecs: vec!["rtn".into(), "int+lz4".into()],
        turns: vec![trinity_tensor::compare::Turn::None],
        targets: vec![trinity_tensor::codec::Rate::Bits(0.01)],
        earlier: &[],
        part: trinity_study::Shard::WHOLE,
        only_earlier: false,
    };
    let found = compare::compare(&request, &|_| (), &Silent).unwrap();
    assert!(!found.misses.is_empty() && found.rows.len() < 4, "{found:?}");
    assert_eq!(found.all.len(), 4, "a row for each cell, reached or not");
    let targets = vec![trinity_tensor::codec::Rate::Bits(4.0)];
    let found =
        compare::compare(&compare::ComparisonRequest { targets, ..request }, &|_| (), &Silent).unwrap();
    assert!(found.rows.iter().any(|row| row.codec == "rtn"));
}

#[test]
fn stages_are_priced_in_the_silicon_asked_for() {
    let (_folder, file) = tensor();
    let priced = |throughput_gbps| {
        let request = price::PriceRequest {
            entries: file.entries(),
            codecs: vec!["trinity-lite".into()],
            targets: vec![trinity_tensor::codec::Rate::Bits(3.0)],
            sample: 4096,
            technology: price::technology("technologies/asap7").unwrap(),
            throughput_gbps,
        };
        let rows = price::stages(&request, &Silent).unwrap_or_else(|e| panic!("{e}"));
        rows.iter().map(|row| row.gates_kge).sum::<f64>()
    };
    assert!((priced(200.0) / priced(100.0) - 2.0).abs() < 1e-9);
}

#[cfg(feature = "hwcodec")]
#[test]
fn an_estimate_takes_the_curves_of_the_gpu_that_was_measured() {
    use trinity_study::calibration::Measurements;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/calibration.toml");
    let measurements = Measurements::read(std::path::Path::new(file)).unwrap();
    let study = |cluster: &str| {
        let job = "phase = \"prefill\"\nsequence = 4096\nllm = { extends = \"llms/llama-3-8b\" }\n";
        crate::asked(cluster, job, &[]).unwrap()
    };
    let plain = study("clusters/dgx-h200");
    let (measured, replaced) = plain.clone().calibrated(&measurements).unwrap();
    assert!(replaced.iter().any(|one| one.path == "cluster.gpu.gemm-efficiency"), "{replaced:?}");
    let [before, after] = [&plain, &measured].map(|study| study.outcome().unwrap().estimate.iteration_s);
    assert!(before != after && (0.3..3.0).contains(&(after / before)), "{before} {after}");
    let said = study("clusters/dgx-a100").calibrated(&measurements).unwrap_err().to_string();
    assert!(said.contains("measured on NVIDIA H200, the GPU under study is a100"), "{said}");
}
