//! Promises of the die model that no single die decides.

use super::*;

fn h100() -> Parts {
    let constants = Constants::committed().unwrap();
    Parts {
        process: constants.process("4n").unwrap(),
        sms: 144.0,
        sm: Sm {
            fp32_lanes: 128.0,
            fp64_lanes: 64.0,
            matrix_fma: 2048.0,
            register_kib: 256.0,
            shared_kib: 256.0,
            graphics: false,
        },
        l2_mib: 60.0,
        l2_bytes_per_clock: 6144.0,
        memory: constants.memory("hbm3").unwrap(),
        memory_units: 6.0,
        link: constants.link("nvlink4").unwrap(),
        links: 18.0,
        pcie_lanes: 16.0,
        engines: 7.0,
        codec_mm2: 0.0,
        dies: 1.0,
    }
}

#[test]
fn the_parts_of_gh100_add_up_to_its_die() {
    let area = area(Constants::committed().unwrap(), &h100());
    assert!((area.total_mm2() / 814.0 - 1.0).abs() < 0.05, "{area:?} {}", area.total_mm2());
}

#[test]
fn phys_keep_their_size_logic_and_sram_shrink() {
    let constants = Constants::committed().unwrap();
    let here = area(constants, &h100());
    let there = area(constants, &Parts { process: constants.process("7nm").unwrap(), ..h100() });
    assert_eq!(here.memory_phy_mm2, there.memory_phy_mm2);
    assert_eq!(here.link_phy_mm2, there.link_phy_mm2);
    assert!(there.network_mm2 / here.network_mm2 > there.l2_mm2 / here.l2_mm2);
    assert!(there.l2_mm2 > here.l2_mm2);
}

#[test]
fn more_of_any_part_is_never_smaller() {
    let constants = Constants::committed().unwrap();
    let base = area(constants, &h100()).total_mm2();
    let more = [
        Parts { sms: 145.0, ..h100() },
        Parts { l2_mib: 61.0, ..h100() },
        Parts { memory_units: 7.0, ..h100() },
        Parts { links: 19.0, ..h100() },
        Parts { engines: 8.0, ..h100() },
        Parts { codec_mm2: 0.1, ..h100() },
    ];
    for parts in more {
        assert!(area(constants, &parts).total_mm2() > base, "{parts:?}");
    }
}

#[test]
fn what_cannot_be_built_says_so() {
    let constants = Constants::committed().unwrap();
    let area_of = |parts: &Parts| area(constants, parts).total_mm2();
    buildable(constants, &h100(), area_of(&h100())).unwrap();
    let large = Parts { sms: 200.0, ..h100() };
    assert!(matches!(buildable(constants, &large, area_of(&large)), Err(Error::Reticle { .. })));
    let rim = Parts { memory_units: 9.0, sms: 100.0, ..h100() };
    assert!(matches!(buildable(constants, &rim, area_of(&rim)), Err(Error::Shoreline { .. })));
    let error = constants.process("2nm").unwrap_err().to_string();
    assert!(error.contains("2nm") && error.contains("samsung-8nm"), "{error}");
}

#[test]
fn a_damaged_table_is_an_error() {
    assert!(matches!(Constants::parse("[fitted]"), Err(Error::Constants { .. })));
    let text = include_str!("constants.toml").replace("generic = \"hbm2e\"", "generic = \"hbm9\"");
    assert!(Constants::parse(&text).unwrap_err().to_string().contains("hbm9"));
}

#[test]
fn a_larger_die_yields_less_and_costs_more_than_its_share() {
    let constants = Constants::committed().unwrap();
    let cost = |mm2| die_cost(constants, &h100(), mm2, mm2, &Wafer::default()).unwrap();
    assert!(cost(800.0).yield_fraction < cost(400.0).yield_fraction);
    assert!(cost(800.0).die_usd > 2.0 * cost(400.0).die_usd);
    assert_eq!(die_cost(constants, &h100(), 1e6, 1e6, &Wafer::default()), None);
}

#[test]
fn slower_clocks_draw_less_than_their_share() {
    let constants = Constants::committed().unwrap();
    let area = area(constants, &h100());
    let at = |ratio: f64| {
        let activity = Activity { matrix_flop_per_s: 1e15 * ratio, ..Activity::default() };
        power(constants, &h100(), &area, &activity, ratio).matrix_w
    };
    assert!(at(0.8) < 0.8 * at(1.0));
    assert!(supply_ratio(constants, 0.1) == supply_ratio(constants, 0.5));
}

#[test]
fn two_dies_yield_more_than_one_of_their_size_and_each_keeps_to_the_reticle() {
    let constants = Constants::committed().unwrap();
    let two = Parts { dies: 2.0, sms: 200.0, memory_units: 8.0, ..h100() };
    let one = Parts { dies: 1.0, ..two };
    let total = |parts: &Parts| area(constants, parts).total_mm2();
    assert!(matches!(buildable(constants, &one, total(&one)), Err(Error::Reticle { .. })));
    buildable(constants, &two, total(&two)).unwrap();
    let wafer = Wafer { usd: 10_000.0, defects_per_cm2: 0.2 };
    let cost = |parts: &Parts| die_cost(constants, parts, 1200.0, 1200.0, &wafer).unwrap();
    assert!(cost(&two).yield_fraction > cost(&one).yield_fraction);
    assert!(cost(&two).die_usd < cost(&one).die_usd);
    let dearer = Wafer { usd: 20_000.0, ..wafer };
    let twice = die_cost(constants, &two, 1200.0, 1200.0, &dearer).unwrap();
    assert!((twice.die_usd / cost(&two).die_usd - 2.0).abs() < 1e-12);
}
