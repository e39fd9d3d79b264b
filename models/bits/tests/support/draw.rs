//! How much of what could be tested is, and which part: tests of several crates include this file by its path.

/// Whether all of it is asked for: by `TRINITY_GRID=full`, or under `cargo xtask test --all`.
pub fn is_whole_grid() -> bool {
    std::env::var("TRINITY_GRID").is_ok_and(|grid| grid == "full")
        || std::env::var_os("TRINITY_TEST_ALL").is_some()
}

/// The seed asked for by `TRINITY_SEED`, or one that no run before had.
pub fn seed() -> u64 {
    let asked = std::env::var("TRINITY_SEED").ok().and_then(|seed| seed.parse().ok());
    asked.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64 >> 10)
    })
}

/// All cases where all is asked for, else a random part of them, which says its seed where it fails.
#[allow(dead_code, reason = "of those who include this file, some draw in a way of their own")]
pub fn drawn<T>(mut cases: Vec<T>, part: usize) -> Vec<T> {
    if !is_whole_grid() {
        let mut state = seed();
        eprintln!("TRINITY_SEED={state}");
        for place in 0..part {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = place + (state >> 33) as usize % (cases.len() - place);
            cases.swap(place, other);
        }
        cases.truncate(part);
    }
    cases
}
