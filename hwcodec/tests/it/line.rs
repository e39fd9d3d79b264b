//! The line-rate codec's kernels, as far as they can be tested without a GPU.

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
