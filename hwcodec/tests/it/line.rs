//! The line-rate codec's kernels, as far as they can be tested without a GPU.

use trinity_codec::line::{self, Options, Plan, Transform};
use trinity_hwcodec::Error;
use trinity_hwcodec::line::{Direction, Format, Variant, compile};

/// Every kind of plan that a stream can ask for, in one format each.
fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let formats = [Format::F32, Format::Bf16, Format::F16, Format::F8E4M3, Format::F8E5M2];
    for (n, format) in formats.into_iter().enumerate() {
        let bit = |place: usize| (n + 1) >> place & 1 == 1;
        let directions =
            [Direction::Encode { within_budgets: bit(1) }, Direction::Decode].map(|direction| Variant {
                direction,
                whole_steps: n < 2,
                // Rows that an encoder codes together.
                row_steps: if n == 1 && direction != Direction::Decode { 16 } else { 0 },
                log2_lanes: [5, 5, 2, 0, 4][n],
                log2_states: [3, 0, 2, 3, 0][n],
                size: [0, 64, 32, 0, 64][n],
                predicts: bit(0),
                means: bit(1),
                row_classes: bit(2),
                transposed: bit(0),
                format,
                listed: bit(0),
                steps: bit(1),
            });
        variants.extend(directions);
    }
    // Plain tiles in lists, whose kernels go a way of their own.
    for log2_states in [0, 2, 3] {
        let directions = [Direction::Encode { within_budgets: false }, Direction::Decode];
        variants.extend(directions.map(|direction| Variant {
            direction,
            whole_steps: true,
            row_steps: if direction == Direction::Decode { 0 } else { 16 },
            log2_lanes: 5,
            log2_states,
            size: 0,
            predicts: false,
            means: false,
            row_classes: true,
            transposed: false,
            format: Format::Bf16,
            listed: true,
            steps: direction != Direction::Decode,
        }));
    }
    variants
}

#[test]
fn kernels_compile_for_compute_90_where_nvrtc_is() {
    for variant in variants() {
        match compile(variant, (9, 0)) {
            Ok(_) => {}
            Err(Error::NoLibrary { library, .. }) => {
                eprintln!("skipped: {library} is not on this machine");
                return;
            }
            Err(other) => panic!("{variant:?}: {other}"),
        }
    }
}

#[test]
fn a_variant_provides_for_what_its_plan_needs_and_no_more() {
    let values: Vec<f32> = (0..64 * 256).map(|at| ((at * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let found = line::choose(&values, 64, 256, 0.25, &Options::default()).unwrap();
    let plain = Plan {
        transposed: false,
        log2_lanes: 5,
        tile_cols: 256,
        log2_states: 3,
        transform: Transform::None,
        above: vec![0; 256],
        means: vec![0; 256],
        row_table: None,
        ..found
    };
    let (encode, decode) = (Direction::Encode { within_budgets: false }, Direction::Decode);
    let of = |plan: &Plan, direction| Variant::of(plan, Format::Bf16, direction);
    let own = of(&plain, encode);
    assert!(own.whole_steps && !own.predicts && !own.means && !own.row_classes && own.size == 0);
    // Rows are kept in registers by who encodes them, where a search may look a value's costs up.
    assert_eq!((own.row_steps, of(&plain, decode).row_steps), (8, 0));
    let with_means = Plan { means: vec![1; 256], ..plain.clone() };
    assert_eq!((of(&with_means, encode).row_steps, of(&with_means, encode).means), (0, true));
    let without_trellis = Plan { log2_states: 0, ..with_means };
    assert_eq!(of(&without_trellis, encode).row_steps, 8);
    let predicted = Plan { above: vec![4; 256], ..plain.clone() };
    assert_eq!((of(&predicted, encode).row_steps, of(&predicted, decode).predicts), (0, true));
    for (tile_cols, whole_steps, row_steps) in [(192, true, 0), (100, false, 0), (128, true, 4)] {
        let other = of(&Plan { tile_cols, ..plain.clone() }, encode);
        assert_eq!((other.whole_steps, other.row_steps), (whole_steps, row_steps), "{tile_cols}");
    }
    // Each thing is told the compiler once, and products stay apart from sums.
    let mut options = own.options((9, 0));
    assert!(options.iter().any(|own| own == "--fmad=false"), "{options:?}");
    let told = options.len();
    options.sort_by(|a, b| a.split('=').next().cmp(&b.split('=').next()));
    options.dedup_by(|a, b| a.split('=').next() == b.split('=').next());
    assert_eq!(options.len(), told, "{options:?}");
}
