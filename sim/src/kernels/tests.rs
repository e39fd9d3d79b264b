use super::*;
use proptest::prelude::*;

pub(crate) const DEVICE: Device = Device {
    bf16_flops: 989e12,
    fp8_flops: 1979e12,
    fp4_flops: 1979e12,
    memory_bytes_per_s: 3.35e12,
    link_bytes_per_s: 450e9,
    sms: 132.0,
};

const KIND: Kind = Kind::Collective(Collective::AllReduce);

fn knots(kind: Kind) -> usize {
    kind.terms().iter().map(Term::len).sum()
}

fn kernels(values: &[f64]) -> Kernels {
    let (steps, digits) = quantize(values);
    let ranges = vec![(256.0, 1_073_741_824.0), (2.0, 8.0)];
    Kernels::new("test", DEVICE, &[Measured { kind: KIND, ranges, steps, digits: &digits }]).unwrap()
}

fn all_reduce(bytes: f64, ranks: f64) -> CollectiveShape {
    CollectiveShape { op: Collective::AllReduce, bytes, ranks }
}

#[test]
fn every_kind_is_found_by_the_names_it_is_written_with() {
    let formats = Format::ALL.into_iter();
    let module = |attention| MlaFormats { attention, kv: Format::Fp8, products: Format::Nvfp4 };
    let kinds = formats.flat_map(|format| {
        [
            Kind::Matmul(format),
            Kind::ContextAttention(format),
            Kind::GenerationAttention(format),
            Kind::Moe(format),
            Kind::MlaContext(format),
            Kind::MlaGeneration(format),
            Kind::MlaContextModule(module(format)),
            Kind::MlaGenerationModule(module(format)),
        ]
    });
    for kind in kinds.chain(Collective::ALL.map(Kind::Collective)) {
        assert_eq!(Kind::named(kind.family(), &kind.variant()), Some(kind));
        assert!(kind.coordinates().len() <= MAX_COORDINATES, "{kind}");
        for axis in kind.terms().iter().flat_map(|term| &term.axes) {
            assert!(axis.coordinate < kind.coordinates().len(), "{kind}");
            assert!(axis.knots.windows(2).all(|pair| pair[0] < pair[1]), "{kind}: {:?}", axis.knots);
        }
    }
    assert_eq!(Kind::named("matmul", "fp7"), None);
}

#[test]
fn a_correction_of_nothing_is_the_roofline() {
    let kernels = kernels(&vec![0.0; knots(KIND)]);
    let shape = all_reduce(1e6, 4.0);
    let timed = kernels.collective_s(&shape).unwrap();
    let roofline_s = shape.coordinates(&DEVICE).unwrap().roofline_s;
    assert!((timed.s / roofline_s - 1.0).abs() < 1e-4, "{timed:?}, {roofline_s}");
    assert!(!timed.extrapolated);
}

#[test]
fn sizes_beyond_the_measured_ones_are_answered_and_said() {
    let kernels = kernels(&vec![0.5; knots(KIND)]);
    let within = kernels.collective_s(&all_reduce(1e9, 8.0)).unwrap();
    let beyond = kernels.collective_s(&all_reduce(1e10, 72.0)).unwrap();
    assert!(!within.extrapolated && beyond.extrapolated);
    assert!(beyond.s > 9.0 * within.s, "the roofline goes on: {beyond:?}, {within:?}");
}

#[test]
fn a_format_that_was_not_measured_is_an_error_with_what_was() {
    let kernels = kernels(&vec![0.0; knots(KIND)]);
    let shape = Matmul { m: 1.0, n: 1.0, k: 1.0, format: Format::Nvfp4 };
    let error = kernels.matmul_s(&shape).unwrap_err().to_string();
    assert_eq!(error, "matmul nvfp4 was never measured on test; measured: nothing of the kind");
}

#[test]
fn sizes_that_are_none_are_refused() {
    let kernels = kernels(&vec![0.0; knots(KIND)]);
    for (bytes, ranks) in [(0.0, 2.0), (f64::NAN, 2.0), (f64::INFINITY, 2.0), (1e6, 1.0), (-1.0, 2.0)] {
        let error = kernels.collective_s(&all_reduce(bytes, ranks)).unwrap_err();
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
}

#[test]
fn damaged_curves_are_refused() {
    let steps = Steps { low: 0.0, step: 0.01 };
    let ranges = vec![(1.0, 2.0), (2.0, 8.0)];
    let good = quantize(&vec![0.0; knots(KIND)]).1;
    let damaged = |ranges: &[(f64, f64)], steps, digits: &str| {
        let measured = Measured { kind: KIND, ranges: ranges.to_vec(), steps, digits };
        Kernels::new("test", DEVICE, &[measured]).unwrap_err().to_string()
    };
    assert!(damaged(&ranges, steps, &good[1..]).contains("values for"));
    assert!(damaged(&ranges, steps, &good.replacen('A', "!", 1)).contains("base64"));
    assert!(damaged(&ranges[1..], steps, &good).contains("ranges for"));
    assert!(damaged(&[(0.0, 1.0), (2.0, 8.0)], steps, &good).contains("coordinate from 0"));
    assert!(damaged(&ranges, Steps { step: 0.0, ..steps }, &good).contains("steps of 0"));
}

fn context(batch: f64, tokens: f64, prefix: f64, window: Option<f64>) -> ContextAttention {
    let kv = Format::Bf16;
    ContextAttention { batch, tokens, prefix, heads: 32.0, kv_heads: 8.0, head_dim: 128.0, window, kv }
}

#[test]
fn a_prefix_costs_and_is_said_to_be_unmeasured() {
    let at = |prefix| context(1.0, 1024.0, prefix, None).coordinates(&DEVICE).unwrap();
    let (alone, after) = (at(0.0), at(8192.0));
    assert!(!alone.unmeasured && after.unmeasured);
    assert!(after.roofline_s > alone.roofline_s);
}

/// FlashAttention 2 takes a block for each head where a window is stated, however short the sequence is.
#[test]
fn a_kernel_with_a_window_is_another_one_also_where_the_window_hides_nothing() {
    let generation = |window| GenerationAttention {
        batch: 64.0,
        length: 16.0,
        heads: 32.0,
        kv_heads: 8.0,
        head_dim: 128.0,
        window,
        kv: Format::Bf16,
    };
    let at = |window| generation(window).coordinates(&DEVICE).unwrap();
    assert_eq!(at(None).roofline_s.to_bits(), at(Some(128.0)).roofline_s.to_bits());
    assert_ne!(at(None), at(Some(128.0)));
    let at = |window| context(64.0, 16.0, 0.0, window).coordinates(&DEVICE).unwrap();
    assert_eq!(at(None).roofline_s.to_bits(), at(Some(128.0)).roofline_s.to_bits());
    assert_ne!(at(None), at(Some(128.0)));
}

#[test]
fn rows_in_whole_tiles_in_fours_and_others_are_told_apart() {
    let ragged =
        |m| Matmul { m, n: 4096.0, k: 4096.0, format: Format::Fp8Block }.coordinates(&DEVICE).unwrap();
    assert_eq!([16.0, 12.0, 13.0].map(|m| ragged(m).log2[3]), [0.0, 1.0, 2.0]);
}

proptest! {
    #[test]
    fn shares_of_the_corners_around_any_point_sum_to_one(x in -5.0..40.0_f64, y in -5.0..40.0_f64) {
        let mut log2 = [x; MAX_COORDINATES];
        log2[1] = y;
        let mut corners = [Corner::default(); MAX_CORNERS];
        for kind in [KIND, Kind::Moe(Format::Bf16), Kind::ContextAttention(Format::Fp8)] {
            for term in kind.terms() {
                let around = term.corners(&log2, &mut corners);
                let sum: f64 = around.iter().map(|corner| corner.share).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9);
                prop_assert!(around.iter().all(|corner| corner.at < term.len()));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back_to_half_a_step(values in prop::collection::vec(-3.0..3.0_f64, 69)) {
        prop_assert_eq!(knots(KIND), 69);
        let (steps, digits) = quantize(&values);
        let read = digits::values(&digits, steps).unwrap();
        for (value, read) in values.iter().zip(read) {
            prop_assert!((value - f64::from(read)).abs() <= steps.step * 0.51, "{} {}", value, read);
        }
    }
}
