//! A study written down is the same study when it is read again.
use trinity_config::builtin;
use trinity_study::sweep::{Study, SweepRequest};

fn load(sweep: &str, text: Option<String>, sets: &[&str]) -> Study {
    let sets = sets.iter().map(|&set| set.to_owned()).collect();
    Study::load(&SweepRequest { sweep: sweep.into(), text, sets, top: 10 })
        .unwrap_or_else(|e| panic!("{sweep}: {e}"))
}

#[test]
fn every_built_in_sweep_survives_being_written_as_one_file() {
    let sweeps: Vec<&str> = builtin::names().filter(|name| name.starts_with("sweeps/")).collect();
    assert!(sweeps.len() > 8);
    for name in sweeps {
        let study = load(name, None, &[]);
        let again = load("written.toml", Some(study.toml()), &[]);
        assert_eq!(again.fingerprint(), study.fingerprint(), "{name}:\n{}", study.toml());
        let sources = |study: &Study| -> Vec<(String, String, Option<String>)> {
            let settings = study.document.settings().into_iter();
            let mut all: Vec<_> = settings.map(|own| (own.path, own.value, own.source)).collect();
            all.sort();
            all
        };
        assert_eq!(sources(&again), sources(&study), "{name}");
    }
}

#[test]
fn what_was_set_is_written_too() {
    let sets = ["budget=30000 mm2", "study.cluster.nic.extends=nics/cx7", "axes.0.values=[1, 2]"];
    let study = load("sweeps/llama-7b", None, &sets);
    let again = load("written.toml", Some(study.toml()), &[]);
    assert_eq!(again.fingerprint(), study.fingerprint());
    assert_eq!(again.file.budget_mm2(), Some(30_000.0));
    assert_ne!(study.fingerprint(), load("sweeps/llama-7b", None, &[]).fingerprint());
}
