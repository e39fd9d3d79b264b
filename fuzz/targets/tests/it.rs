//! Every target keeps its word, without a fuzzer.

use std::path::Path;
use trinity_fuzz_targets::{Counts, TARGETS, Target};
use trinity_numeric::random::Lcg;

#[test]
fn every_seed_is_accepted_and_reaches_the_code_its_target_is_named_for() {
    for target in &TARGETS {
        let counts = Counts::new();
        let seeds = target.checked_seeds();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        seeds.iter().for_each(|seed| target.count(seed, &counts));
        println!("{}", counts.text(target));
    }
}

#[test]
fn findings_of_the_past_stay_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../findings");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !path.is_dir() {
            assert_eq!(name, "README.md", "findings lie in folders named as their targets");
            continue;
        }
        let target = Target::named(name).unwrap_or_else(|| panic!("no target named {name}"));
        for finding in std::fs::read_dir(&path).unwrap() {
            let finding = finding.unwrap().path();
            println!("{}: {:?}", finding.display(), (target.run)(&std::fs::read(&finding).unwrap()));
        }
    }
}

/// Not a fuzzer, but damage of a few kinds to every seed, on every test run.
#[test]
fn no_damaged_seed_panics() {
    let mut lcg = Lcg(1);
    let mut random = move || lcg.bits31() as usize;
    for target in &TARGETS {
        let counts = Counts::new();
        for seed in (target.seeds)() {
            for _ in 0..6 {
                let mut input = seed.clone();
                for _ in 0..1 + random() % 3 {
                    let place = random() % (input.len() + 1);
                    match (random() % 4, input.get_mut(place)) {
                        (0, _) => input.truncate(place),
                        (1, _) => input.insert(place, random() as u8),
                        (_, Some(byte)) => *byte ^= 1 << (random() % 8),
                        (_, None) => input.extend((0..4).map(|_| random() as u8)),
                    }
                }
                target.count(&input, &counts);
            }
        }
        println!("{}", counts.text(target));
    }
}

#[test]
fn every_target_has_a_binary_of_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    let mut binaries: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    binaries.sort();
    assert_eq!(binaries, TARGETS.map(|target| target.name));
}
