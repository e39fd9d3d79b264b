//! `extends`, `--set`, and where each value came from.

use serde::Deserialize;
use std::fs;
use trinity_config::{Area, DataSize, Document, Power};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Gpu {
    area: Area,
    memory: DataSize,
    power: Power,
    #[serde(default)]
    links: Vec<Link>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Link {
    lanes: u32,
}

const BASE: &str = "\
source = \"datasheet\"
area = { value = \"826 mm2\", source = \"Table 3\", note = \"7 nm\" }
memory = \"40 GB\"
power = \"400 W\"
[[links]]
lanes = 12
";

/// A folder with `base.toml` and a `study.toml` of the given text.
fn study(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base.toml"), BASE).unwrap();
    let path = folder.path().join("study.toml");
    fs::write(&path, text).unwrap();
    (folder, path.to_str().unwrap().to_string())
}

#[test]
fn a_file_overrides_what_it_extends_and_keeps_the_rest() {
    let (_folder, path) = study("extends = \"base.toml\"\nmemory = \"80 GB\"\n");
    let gpu: Gpu = Document::load(&path).unwrap().read().unwrap();
    assert_eq!((gpu.area.mm2(), gpu.memory.gb(), gpu.power.w()), (826.0, 80.0, 400.0));
    assert_eq!(gpu.links, [Link { lanes: 12 }]);
}

#[test]
fn every_value_knows_its_file_line_and_source() {
    let (_folder, path) = study("extends = \"base.toml\"\n\nmemory = \"80 GB\"\n");
    let mut document = Document::load(&path).unwrap();
    document.set("power = 350 W").unwrap();
    let shown: Vec<String> = document
        .settings()
        .into_iter()
        .map(|setting| {
            let file = setting.place.source.name.rsplit('/').next().unwrap().to_string();
            let source = setting.source.unwrap_or_default();
            format!("{} = {} | {file}:{} | {source}", setting.path, setting.value, setting.place.line())
        })
        .collect();
    assert_eq!(
        shown,
        [
            "area = \"826 mm2\" | base.toml:2 | Table 3; 7 nm",
            "memory = \"80 GB\" | study.toml:3 | ",
            "power = \"350 W\" | --set:1 | ",
            "links.0.lanes = 12 | base.toml:6 | datasheet",
        ]
    );
}

#[test]
fn extends_works_inside_a_table_and_as_a_list() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cluster {
        gpu: Gpu,
    }
    let (folder, path) = study("[gpu]\nextends = [\"base.toml\", \"big.toml\"]\npower = \"1 kW\"\n");
    fs::write(folder.path().join("big.toml"), "memory = \"141 GB\"\npower = \"700 W\"\n").unwrap();
    let gpu = Document::load(&path).unwrap().read::<Cluster>().unwrap().gpu;
    assert_eq!((gpu.area.mm2(), gpu.memory.gb(), gpu.power.w()), (826.0, 141.0, 1000.0));
}

#[test]
fn set_reaches_items_of_arrays_and_takes_any_toml_value() {
    let (_folder, path) = study("extends = \"base.toml\"\n");
    let mut document = Document::load(&path).unwrap();
    document.set("links.0.lanes=18").unwrap();
    document.set("memory=\"96 GB\"").unwrap();
    let gpu: Gpu = document.read().unwrap();
    assert_eq!((gpu.links[0].lanes, gpu.memory.gb()), (18, 96.0));
    document.set("links=[{ lanes = 1 }, { lanes = 2 }]").unwrap();
    assert_eq!(document.read::<Gpu>().unwrap().links.len(), 2);
}

#[test]
fn set_can_lay_a_whole_file_over() {
    let (folder, path) = study("extends = \"base.toml\"\nmemory = \"80 GB\"\n");
    let big = folder.path().join("big.toml");
    fs::write(&big, "memory = \"141 GB\"\n").unwrap();
    let mut document = Document::load(&path).unwrap();
    document.set(&format!("extends={}", big.display())).unwrap();
    assert_eq!(document.read::<Gpu>().unwrap().memory.gb(), 141.0);
}
