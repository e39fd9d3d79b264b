//! Sweeps: a point is its index, however it is reached.
use trinity_config::Document;
use trinity_sim::sweep::{Accumulator, SweepPlan, evaluate};
use trinity_study::config::SweepFile;

fn plan(name: &str) -> SweepPlan {
    let document = Document::load(name).unwrap_or_else(|d| panic!("{d}"));
    let file: SweepFile = document.read().unwrap_or_else(|d| panic!("{d}"));
    file.plan(&document, 10).unwrap_or_else(|d| panic!("{d}"))
}

const SWEEPS: [&str; 5] =
    ["sweeps/llama-7b", "sweeps/figure-15", "sweeps/figure-16b", "sweeps/kv-spill", "sweeps/slow-wires"];

/// Neighbours share what one GPU does and one point moves along the axes:
/// neither may show in any number.
#[test]
fn a_point_on_the_way_equals_the_point_computed_alone() {
    for name in SWEEPS {
        let plan = plan(name);
        let mut seen = 0;
        evaluate(&plan, 0..plan.space.len(), |index, _, _, outcome| {
            seen += 1;
            assert_eq!(*outcome, plan.space.point(index).estimate(), "{name}, point {index}");
        });
        assert_eq!(seen, plan.space.len());
    }
}

#[test]
fn any_cut_merges_to_the_same_tally() {
    for name in SWEEPS {
        let plan = plan(name);
        let len = plan.space.len();
        let mut whole = evaluate(&plan, 0..len, |_, _, _, _| ());
        whole.sort();
        for parts in [2, 3, 7, 64] {
            let mut merged = Accumulator::new(&plan);
            // Backwards: the order of parts must not matter either.
            for part in (0..parts).rev() {
                let range = len * part / parts..len * (part + 1) / parts;
                merged.merge(&plan, &evaluate(&plan, range, |_, _, _, _| ()));
            }
            merged.sort();
            assert!(merged == whole, "{name} in {parts} parts");
        }
    }
}

#[test]
fn the_wide_study_has_a_hundred_million_points() {
    let len = plan("sweeps/llama-7b-wide").space.len();
    assert!((100_000_000..101_000_000).contains(&len), "{len}");
}
