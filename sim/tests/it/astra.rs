//! Collectives against ASTRA-sim's analytical backends, one chunk at a time.
use std::path::Path;
use trinity_sim::collective::{
    Algorithm, Link, Switching, Topology, all_gather, all_reduce, all_to_all_by, reduce_scatter,
};
use trinity_sim::compression::Channel;

const GIB: f64 = 1_073_741_824.0;

struct Case {
    op: String,
    algorithm: Algorithm,
    topology: Topology,
    switching: Switching,
    ranks: u32,
    bytes: f64,
    bytes_per_s: f64,
    latency_s: f64,
}

impl Case {
    fn seconds(&self) -> f64 {
        let link = Link {
            bytes_per_s: self.bytes_per_s,
            latency_s: self.latency_s,
            launch_s: 0.0,
            topology: self.topology,
            switching: self.switching,
            all_reduce: self.algorithm,
            energy_j_per_bit: 0.0,
        };
        let channel = Channel::raw(link, 8.0);
        match self.op.as_str() {
            "all_reduce" => all_reduce(&channel, self.ranks, self.bytes),
            // ASTRA-sim counts what one rank brings.
            "all_gather" => all_gather(&channel, self.ranks, self.bytes * f64::from(self.ranks)),
            "reduce_scatter" => reduce_scatter(&channel, self.ranks, self.bytes),
            "all_to_all" => all_to_all_by(&channel, self.algorithm, self.ranks, self.bytes),
            other => panic!("{other}"),
        }
    }
}

fn case(ranks: u32, algorithm: Algorithm, topology: Topology, switching: Switching) -> Case {
    Case {
        op: "all_reduce".into(),
        algorithm,
        topology,
        switching,
        ranks,
        bytes: 1_048_576.0,
        bytes_per_s: 50.0 * GIB,
        latency_s: 500e-9,
    }
}

/// Worked by hand from the closed forms.
#[test]
fn known_answers() {
    use Algorithm::{Direct, DoubleTree, HalvingDoubling, Ring};
    let step = 1_048_576.0 / 4.0 / (50.0 * GIB);
    let whole = 4.0 * step;
    let hop = 500e-9;
    let cases = [
        (case(4, Ring, Topology::Ring, Switching::Uncontended), 6.0 * (hop + step)),
        (case(4, Ring, Topology::Switch, Switching::StoreAndForward), 6.0 * 2.0 * (hop + step)),
        (case(4, Ring, Topology::Switch, Switching::CutThrough), 6.0 * (2.0 * hop + step)),
        (
            case(4, HalvingDoubling, Topology::FullyConnected, Switching::Uncontended),
            2.0 * (hop + whole / 2.0) + 2.0 * (hop + whole / 4.0),
        ),
        (case(4, DoubleTree, Topology::FullyConnected, Switching::Uncontended), 4.0 * (hop + whole)),
        (case(4, Direct, Topology::Switch, Switching::Uncontended), 2.0 * (2.0 * hop + step)),
        (case(4, Direct, Topology::Switch, Switching::StoreAndForward), 2.0 * (2.0 * hop + whole)),
    ];
    for (case, expected) in cases {
        let seconds = case.seconds();
        assert!((seconds / expected - 1.0).abs() < 1e-12, "{} {seconds} {expected}", case.op);
    }
}

/// Every recorded run with one active chunk; with more, chunks contend in an
/// order that no closed form covers.
#[test]
fn equal_to_the_recorded_runs() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find_map(|folder| std::fs::read_to_string(folder.join("shared/runs/astra_sim.csv")).ok());
    let Some(text) = recorded else {
        eprintln!("skipped: no shared/runs/astra_sim.csv above this crate");
        return;
    };
    let mut rows = 0;
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        if f[9] != "1" {
            continue;
        }
        let splits: f64 = f[8].parse().unwrap();
        let case = Case {
            op: f[0].into(),
            algorithm: match f[1] {
                "ring" => Algorithm::Ring,
                "direct" => Algorithm::Direct,
                "halvingDoubling" => Algorithm::HalvingDoubling,
                "doubleBinaryTree" => Algorithm::DoubleTree,
                other => panic!("{other}"),
            },
            topology: match f[2] {
                "Ring" => Topology::Ring,
                "Switch" => Topology::Switch,
                "FullyConnected" => Topology::FullyConnected,
                other => panic!("{other}"),
            },
            switching: if f[3] == "Aware" { Switching::StoreAndForward } else { Switching::Uncontended },
            ranks: f[4].parse().unwrap(),
            bytes: f[5].parse::<f64>().unwrap() / splits,
            bytes_per_s: f[6].parse::<f64>().unwrap() * GIB,
            latency_s: f[7].parse::<f64>().unwrap() * 1e-9,
        };
        let measured: f64 = f[12].parse::<f64>().unwrap() * 1e-9;
        let seconds = splits * case.seconds();
        assert!((seconds / measured - 1.0).abs() < 0.01, "{line}: {:.0} ns", seconds * 1e9);
        rows += 1;
    }
    assert!(rows > 300, "{rows}");
}
