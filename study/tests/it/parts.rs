//! GPUs by their parts, as files and as axes of a sweep.

use crate::{estimated, says};
use trinity_config::Document;
use trinity_study::config::{GpuFile, SweepFile};

fn gpu(name: &str, sets: &[&str]) -> Result<GpuFile, String> {
    let document = Document::load(name).and_then(|document| document.with(sets));
    document.and_then(|document| document.checked()).map_err(|e| e.to_string())
}

#[test]
fn a_gpu_by_totals_keeps_them_and_by_parts_follows_them() {
    let totals = gpu("gpus/rtx3090", &[]).unwrap().resolve();
    assert_eq!((totals.peak_flops.fp16, totals.area_mm2), (71e12, 398.0));
    assert!(totals.die.is_none());
    let parts = gpu("gpus/rtx3090", &["model=parts"]).unwrap().resolve();
    assert!((parts.area_mm2 / 628.4 - 1.0).abs() < 0.06, "{}", parts.area_mm2);
    assert!((parts.peak_flops.fp16 / 71.2e12 - 1.0).abs() < 1e-3);
}

#[test]
fn what_cannot_be_made_is_refused_where_it_is_written() {
    let refused = |sets: &[&str], words: &[&str]| {
        says(gpu("gpus/h100", sets).unwrap_err(), words);
    };
    refused(&["model=parts", "parts.sms=180"], &["reticle holds 858"]);
    refused(&["model=parts", "parts.memory.count=9", "parts.sms=90"], &["edge"]);
    refused(&["model=parts", "parts.process=2nm"], &["no data for the process `2nm`", "samsung-8nm"]);
    refused(&["model=parts", "parts.memory.kind=hbm9"], &["hbm9"]);
}

#[test]
fn a_point_of_axes_over_parts_is_the_file_that_says_the_same() {
    let document = Document::load("sweeps/die-h100").unwrap();
    let file: SweepFile = document.read().unwrap();
    let plan = file.plan(&document, 1).unwrap();
    for index in [0, 777, 1234, 2000] {
        let by_axes = plan.space.point(index);
        let mut again = Document::load("sweeps/die-h100").unwrap();
        let scenario = &file.scenarios[plan.space.scenario_of(index)];
        for set in &scenario.set {
            again.set(&format!("study.{set}")).unwrap();
        }
        for (path, label) in plan.space.paths().iter().zip(plan.space.labels(index)) {
            if !label.is_empty() {
                again.set(&format!("study.{path}={label}")).unwrap();
            }
        }
        let by_file = again.read::<SweepFile>().unwrap().point();
        assert_eq!(by_axes, by_file, "point {index}");
    }
}

#[test]
fn one_more_of_a_part_costs_area_and_the_shipped_die_can_run() {
    let document = Document::load("sweeps/die-h100").unwrap();
    let file: SweepFile = document.read().unwrap();
    let plan = file.plan(&document, 1).unwrap();
    for scenario in plan.space.scenarios() {
        scenario.base.estimate().unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
        let more = trinity_sim::die::marginals(&scenario.base).unwrap();
        assert!(more.len() >= 4, "{}", scenario.name);
        assert!(more.iter().all(|more| more.mm2 > 0.0), "{}: {more:?}", scenario.name);
    }
}

#[test]
fn an_axis_over_the_parts_of_a_gpu_by_totals_is_refused() {
    let document = Document::load("sweeps/die-h100").unwrap();
    let document = document.with(&["study.cluster.gpu.model=totals"]).unwrap();
    says(
        document.checked::<SweepFile>().unwrap_err(),
        &["`cluster.gpu.parts.sms` changes nothing", "die-h100.toml:"],
    );
}

#[test]
fn a_crossover_names_scenarios_and_an_axis_that_there_are() {
    let said = |assignment: &str| {
        let document = Document::load("sweeps/codec-or-stack").unwrap().with(&[assignment]).unwrap();
        document.checked::<SweepFile>().map_or_else(|wrong| wrong.to_string(), |_| "nothing".into())
    };
    assert_eq!(said("crossovers.0.name=other words"), "nothing");
    says(said("crossovers.0.along=job.sequnce"), &["no axis varies `job.sequnce`", "job.sequence"]);
    assert!(said("crossovers.0.scenarios.1=batch 2").contains("there is no scenario `batch 2`"));
    assert!(said("crossovers.0.along=cluster.nics-per-gpu").contains("does not vary `cluster.nics-per-gpu`"));
}

#[test]
fn a_higher_boost_clock_at_the_same_power_limit_saves_no_energy() {
    let job = "phase = \"training\"\nsequence = 4096\nglobal-batch = 128\nrecompute = \"full\"\n\
               llm = { extends = \"llms/llama-3-8b\" }\n\
               parallelism = { tensor = 8, data = 8, zero = 1, sequence-parallel = true }\n";
    let at = |clock: &str| {
        let clock = format!("cluster.gpu.parts.clock={clock}");
        let overrides = ["cluster.gpus=64", "cluster.gpu.model=parts", &clock];
        let estimate = estimated("clusters/dgx-h100", job, &overrides).unwrap().estimate;
        (estimate.tokens_per_s, estimate.energy.total_j())
    };
    let usual = at("1.98 GHz");
    for clock in ["2.2 GHz", "2.4 GHz", "3 GHz", "3.9 GHz"] {
        let fast = at(clock);
        assert!(fast.0 <= 1.002 * usual.0, "{clock}: {fast:?} {usual:?}");
        assert!(fast.1 >= 0.998 * usual.1, "{clock}: {fast:?} {usual:?}");
    }
}

#[test]
fn blackwell_is_two_dies_that_each_keep_to_the_reticle() {
    for name in ["gpus/b200", "gpus/gb200"] {
        let die = gpu(name, &[]).unwrap().die().unwrap();
        assert_eq!(die.dies, 2.0);
        die.buildable(0.0).unwrap_or_else(|why| panic!("{name}: {why}"));
        let each = die.area(0.0).total_mm2() / 2.0;
        assert!((600.0..858.0).contains(&each), "{name}: {each} mm² a die");
        let one = trinity_sim::die::Die { dies: 1.0, ..die };
        assert!(one.buildable(0.0).is_err(), "{name}: no scanner exposes it whole");
    }
}

#[test]
fn a_study_that_states_its_wafers_is_told_what_a_good_die_costs() {
    let job = "phase = \"training\"\nsequence = 2048\nllm = { extends = \"llms/llama-3-8b\" }\n\
               recompute = \"full\"\nparallelism = { tensor = 8 }\n";
    let lines = |overrides: &[&str]| {
        let lines = estimated("clusters/dgx-h100", job, overrides).unwrap().lines;
        lines.into_iter().filter(|line| line.group == "cost").collect::<Vec<_>>()
    };
    let parts = "cluster.gpu.model=parts";
    assert!(lines(&[parts]).is_empty(), "nothing is assumed of wafers");
    let stated = |defects: &str| {
        let wafer = format!("cluster.gpu.parts.wafer={{ usd = 17000, defects-per-cm2 = {defects} }}");
        let lines = lines(&[parts, &wafer]);
        let of = |name: &str| lines.iter().find(|line| line.name == name).unwrap().value;
        (of("yield"), of("good dies"), of("GPU"))
    };
    let (clean, dirty) = (stated("0.05"), stated("0.3"));
    assert!(clean.0 > dirty.0 && clean.1 < dirty.1, "{clean:?} {dirty:?}");
    assert!((0.5..1.0).contains(&clean.0) && clean.2 > clean.1, "{clean:?}");
}
