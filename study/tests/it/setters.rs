//! A setter puts a value where setting it in the document and reading that
//! again would.
use crate::says;
use trinity_config::{Document, builtin};
use trinity_study::config::{Settable, StudyFile, SweepFile};

fn read(name: &str) -> (Document, SweepFile) {
    let document = Document::load(name).unwrap_or_else(|d| panic!("{d}"));
    let file = document.read().unwrap_or_else(|d| panic!("{d}"));
    (document, file)
}

/// The study after an assignment, by either way; `None` where it is refused.
fn both(document: &Document, file: &SweepFile, assignment: &str) -> [Option<String>; 2] {
    let assignment = format!("study.{assignment}");
    let mut whole = document.clone();
    let by_document = whole.set(&assignment).ok().and_then(|()| whole.read::<SweepFile>().ok());
    let mut study = file.study.clone();
    let by_setter = document.assignment(&assignment).and_then(|parsed| {
        StudyFile::setter(&parsed.keys()[1..])?(&mut study, parsed.value())?;
        Ok(study)
    });
    [by_document.map(|file| format!("{:?}", file.study)), by_setter.ok().map(|study| format!("{study:?}"))]
}

#[test]
fn every_value_of_every_sweep_can_be_set_where_it_stands() {
    for name in builtin::names().filter(|name| name.starts_with("sweeps/")) {
        let (document, file) = read(name);
        for setting in document.settings() {
            let Some(path) = setting.path.strip_prefix("study.") else { continue };
            let [by_document, by_setter] = both(&document, &file, &format!("{path}={}", setting.value));
            assert!(by_document.is_some(), "{name}: {path}");
            assert_eq!(by_document, by_setter, "{name}: {path}={}", setting.value);
        }
    }
}

#[test]
fn tables_lists_and_files_are_laid_over_as_the_document_lays_them() {
    let (document, file) = read("sweeps/llama-7b");
    for assignment in [
        "cluster.gpu.extends=gpus/h100",
        "cluster.codec.extends=codecs/h264",
        "cluster.codec.extends=codecs/h264-stages",
        "cluster.extends=clusters/dgx-h100",
        "cluster.nic={ bandwidth = \"50 Gbit/s\", area = \"1 mm2\" }",
        "cluster.gpu.gemm-efficiency=[[1e9, 0.5]]",
        "job={ microbatch = 2, compression = { kv = 3.0 } }",
        "job.llm.extends=llms/deepseek-v3",
        "job.llm.moe.top-k=3",
        "job.parallelism.data=many",
        "job.parallelism.bogus=1",
        "job.parallelism.data.deeper=1",
        "job.compression.weights=99 bits",
        "cluster.gpu=3",
        "bogus=1",
    ] {
        let [by_document, by_setter] = both(&document, &file, assignment);
        assert_eq!(by_document, by_setter, "{assignment}");
    }
}

#[test]
fn what_leads_nowhere_is_refused_with_what_was_meant() {
    let (document, _) = read("sweeps/llama-7b");
    let parsed = document.assignment("study.job.parallelism.dta=1").unwrap();
    let Err(said) = StudyFile::setter(&parsed.keys()[1..]) else { panic!("there is no such key") };
    says(said, &["unknown key `dta`", "did you mean `data`?", "tensor, sequence-parallel, pipeline"]);
}

#[test]
fn a_sweep_checks_the_values_of_its_axes_together_with_the_rest() {
    let document = Document::load("sweeps/llama-7b").unwrap();
    let document = document.with(&["axes.0.path=job.llm.kv-heads", "axes.0.values=[5]"]).unwrap();
    says(document.checked::<SweepFile>().unwrap_err(), &["cannot share these KV heads evenly"]);
}
