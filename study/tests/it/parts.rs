//! GPUs by their parts, as files and as axes of a sweep.

use trinity_config::{Checked, Document};
use trinity_study::config::{GpuFile, SweepFile};

fn gpu(name: &str, sets: &[&str]) -> Result<GpuFile, String> {
    let mut document = Document::load(name).map_err(|e| e.to_string())?;
    for set in sets {
        document.set(set).map_err(|e| e.to_string())?;
    }
    let file: GpuFile = document.read().map_err(|e| e.to_string())?;
    file.check(&document).map_err(|e| e.to_string())?;
    Ok(file)
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
        let error = gpu("gpus/h100", sets).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{sets:?}: {error}");
        }
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
    let mut document = Document::load("sweeps/die-h100").unwrap();
    document.set("study.cluster.gpu.model=totals").unwrap();
    let file: SweepFile = document.read().unwrap();
    let said = file.check(&document).unwrap_err().to_string();
    assert!(
        said.contains("`cluster.gpu.parts.sms` changes nothing") && said.contains("die-h100.toml:"),
        "{said}"
    );
}

#[test]
fn a_crossover_names_scenarios_and_an_axis_that_there_are() {
    let said = |assignment: &str| {
        let mut document = Document::load("sweeps/codec-or-stack").unwrap();
        document.set(assignment).unwrap();
        let file: SweepFile = document.read().unwrap();
        file.check(&document).map_or_else(|wrong| wrong.to_string(), |()| "nothing".into())
    };
    assert_eq!(said("crossovers.0.name=other words"), "nothing");
    let wrong = said("crossovers.0.along=job.sequnce");
    assert!(wrong.contains("no axis varies `job.sequnce`") && wrong.contains("job.sequence"), "{wrong}");
    assert!(said("crossovers.0.scenarios.1=batch 2").contains("there is no scenario `batch 2`"));
    assert!(said("crossovers.0.along=cluster.nics-per-gpu").contains("does not vary `cluster.nics-per-gpu`"));
}
