//! Promises of a GPU given by its parts.

use super::*;
use crate::job::Math;
use trinity_silicon::die::{Constants, Sm};

fn settled(mut die: Die) -> Die {
    die.settle();
    die
}

/// An H200 as NVIDIA describes it.
pub(crate) fn h200() -> Die {
    let constants = Constants::committed().unwrap();
    settled(Die {
        constants,
        process: constants.process("4n").unwrap(),
        sms: 132.0,
        spare_sms: 12.0,
        sm: Sm {
            fp32_lanes: 128.0,
            fp64_lanes: 64.0,
            matrix_fma: 2048.0,
            register_kib: 256.0,
            shared_kib: 228.0,
            graphics: false,
        },
        matrix_flop_per_clock: MatrixRates { fp32: 2048.0, fp16: 4096.0, fp8: 8192.0 },
        special_per_clock: 16.0,
        sms_sharing_loads: 2.0,
        clock_hz: 1.98e9,
        matrix_clock_hz: 1.83e9,
        nominal_hz: 0.0,
        l2_mib: 60.0,
        spare_l2_mib: 0.0,
        l2_bytes_per_clock: 5120.0,
        memory: constants.memory("hbm3e").unwrap(),
        memory_units: 6.0,
        spare_memory_units: 0.0,
        memory_bits_per_s_per_pin: 6.25e9,
        memory_bytes_per_unit: 23.5e9,
        link: constants.link("nvlink4").unwrap(),
        links: 18.0,
        link_bytes_per_s: 25e9,
        pcie_lanes: 16.0,
        engines: 7.0,
        dies: 1.0,
        wafer: trinity_silicon::die::Wafer::default(),
        power_limit_w: 700.0,
        roofline: Roofline::default(),
    })
}

#[test]
fn the_datasheet_follows_from_the_parts() {
    let die = h200();
    let peak = die.peak_flops();
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 5e-4, "{a} {b}");
    near(peak.fp16, 989.4e12);
    near(peak.fp8, 1978.9e12);
    near(peak.fp32, 494.7e12);
    near(peak.vector, 66.9e12);
    near(die.memory_bytes_per_s(), 4800e9);
    near(die.memory_bytes(), 141e9);
    near(die.links_bytes_per_s(), 450e9);
}

#[test]
fn a_large_product_runs_below_the_boost_clock_and_at_the_power_limit() {
    let die = h200();
    let clock = die.roofline.sustained_clock_hz;
    // 1,475 MHz were measured on a product of 8192.
    assert!((clock / 1.475e9 - 1.0).abs() < 0.05, "{clock}");
    assert!((die.roofline.idle_power_w / 122.0 - 1.0).abs() < 0.05, "{}", die.roofline.idle_power_w);
    assert!((die.roofline.busy_power_w / 700.0 - 1.0).abs() < 0.01, "{}", die.roofline.busy_power_w);
    let free = Die { power_limit_w: 3000.0, ..die };
    // The clock that matrix rates are stated at.
    assert_eq!(Roofline::of(&free).sustained_clock_hz, 1.83e9);
}

#[test]
fn more_of_a_part_never_slows_a_kernel_down() {
    // At a power limit that does not bind, since more SMs lower the clock.
    let base = Die { power_limit_w: 1e6, ..h200() };
    let more = [
        Die { sms: 140.0, ..base },
        Die { l2_mib: 80.0, ..base },
        Die { l2_bytes_per_clock: 6144.0, ..base },
        Die { memory_units: 7.0, ..base },
        Die { clock_hz: 2.2e9, ..base },
    ];
    for size in
        [(4096.0, 4096.0, 4096.0), (64.0, 8192.0, 8192.0), (1.0, 28672.0, 8192.0), (300.0, 500.0, 700.0)]
    {
        let (m, n, k) = size;
        let at = |die: &Die| Roofline::of(die).gemm((1.0, m, n, k), 2.0, 2.0, Math::Fp16).time_s;
        for die in &more {
            assert!(at(die) <= at(&base) * (1.0 + 1e-12), "{size:?} {die:?}");
        }
    }
}

#[test]
fn a_kernel_is_held_up_where_its_shape_says() {
    let roofline = h200().roofline;
    let level = |m, n, k| roofline.gemm((1.0, m, n, k), 2.0, 2.0, Math::Fp16).level;
    assert_eq!(level(8192.0, 8192.0, 8192.0), Level::Arithmetic);
    assert_eq!(level(1.0, 28672.0, 8192.0), Level::Memory);
    assert_eq!(level(64.0, 64.0, 64.0), Level::Latency);
}

#[test]
fn smaller_shared_memory_takes_smaller_tiles_and_more_l2_traffic() {
    let die = h200();
    let small = Die { sm: Sm { shared_kib: 64.0, ..die.sm }, ..die };
    let bytes =
        |die: &Die| Roofline::of(die).gemm((1.0, 4096.0, 4096.0, 4096.0), 2.0, 2.0, Math::Fp16).l2_bytes;
    assert!(bytes(&small) > bytes(&die));
}

#[test]
fn a_die_that_cannot_be_made_is_refused() {
    let die = h200();
    assert!(die.buildable(0.0).is_ok());
    assert!(die.roofline.check(0.0).is_ok());
    assert!(die.roofline.check(500.0).is_err());
    let wide = Die { sms: 60.0, memory_units: 10.0, ..die };
    assert!(Roofline::of(&wide).check(0.0).is_err() && wide.buildable(0.0).is_err());
}

#[test]
fn a_clock_beyond_the_process_is_refused_and_one_within_costs_supply() {
    let die = h200();
    let at = |clock_hz: f64| settled(Die { clock_hz, matrix_clock_hz: clock_hz, ..die });
    assert!(matches!(at(10e9).buildable(0.0), Err(trinity_silicon::die::Error::Clock { .. })));
    assert!(matches!(at(10e9).roofline.check(0.0), Err(crate::Infeasible::Clock { .. })));
    let (usual, fast) = (at(2.52e9), at(3.5e9));
    assert!(fast.buildable(0.0).is_ok());
    // At the same power limit a die built for a higher clock computes no faster.
    assert!(fast.roofline.sustained_clock_hz <= usual.roofline.sustained_clock_hz * 1.001);
    assert!(fast.roofline.idle_power_w > usual.roofline.idle_power_w);
}

#[test]
fn a_boost_clock_above_what_the_circuits_were_built_for_buys_nothing_at_the_power_limit() {
    let at = |clock_hz: f64| settled(Die { clock_hz, nominal_hz: 1.98e9, ..h200() }).roofline;
    let usual = at(1.98e9);
    for clock_hz in [2.2e9, 2.4e9, 3.0e9, 3.9e9] {
        let fast = at(clock_hz);
        assert!(fast.sustained_clock_hz <= usual.sustained_clock_hz * 1.002, "{clock_hz}");
        assert!(fast.idle_power_w > usual.idle_power_w, "{clock_hz}");
    }
    assert!(at(1.2e9).sustained_clock_hz <= 1.2e9);
}

#[test]
fn a_gpu_never_draws_more_than_its_limit_and_below_idle_is_refused() {
    for limit_w in [130.0, 150.0, 200.0, 307.0, 500.0, 700.0] {
        let die = settled(Die { power_limit_w: limit_w, ..h200() });
        assert!(die.buildable(0.0).is_ok(), "{limit_w}");
        assert!(die.roofline.busy_power_w <= limit_w * 1.005, "{limit_w}: {}", die.roofline.busy_power_w);
    }
    let die = settled(Die { power_limit_w: 50.0, ..h200() });
    assert!(matches!(die.buildable(0.0), Err(trinity_silicon::die::Error::Power { .. })));
    assert!(matches!(die.roofline.check(0.0), Err(crate::Infeasible::Power { .. })));
}

#[test]
fn the_matrix_clock_bounds_products() {
    let fast = Die { power_limit_w: 1e6, ..h200() };
    let slow = Die { matrix_clock_hz: 1.2e9, ..fast };
    let at = |die: &Die| Roofline::of(die).gemm((1.0, 8192.0, 8192.0, 8192.0), 2.0, 2.0, Math::Fp16).time_s;
    assert!(at(&slow) > 1.3 * at(&fast), "{} {}", at(&slow), at(&fast));
}
