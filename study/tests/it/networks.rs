//! Adapters, switches and links draw what they draw, and tiers that do not
//! stack are refused in a sentence.

use crate::estimated;
use trinity_config::{Document, builtin};
use trinity_study::config::{ClusterFile, NicFile};

fn nic(name: &str) -> trinity_sim::Nic {
    Document::load(name).unwrap().read::<NicFile>().unwrap().resolve()
}

/// Watts of an adapter that sends and receives at its rate.
fn busy_w(nic: &trinity_sim::Nic) -> f64 {
    nic.idle_power_w + 8.0 * nic.bytes_per_s * nic.energy_j_per_bit
}

#[test]
fn a_connectx_7_draws_25_watts_and_not_a_kilowatt() {
    let watts = busy_w(&nic("nics/cx7"));
    assert!((20.0..30.0).contains(&watts), "{watts} W");
}

#[test]
fn every_adapter_draws_what_its_file_says_and_only_the_papers_more() {
    for name in builtin::names().filter(|name| name.starts_with("nics/")) {
        let file: NicFile = Document::load(name).unwrap().read().unwrap();
        let (watts, stated) = (busy_w(&file.resolve()), file.active_power.unwrap().w());
        if name == "nics/cx5-llm265" {
            assert!(watts > 500.0, "LLM.265 charges 5,120 pJ/bit at the board: {watts} W");
        } else {
            assert!((watts / stated - 1.0).abs() < 0.01, "{name}: {watts} W, {stated} W stated");
        }
    }
}

#[test]
fn every_link_of_every_cluster_states_its_watts_with_and_without_traffic() {
    for name in builtin::names().filter(|name| name.starts_with("clusters/")) {
        let file: ClusterFile = Document::load(name).unwrap().read().unwrap();
        for (link, tier) in [("intra", &file.intra), ("host", &file.host)] {
            let idle_w = tier.idle_power.unwrap_or_else(|| panic!("{name}, {link}: no idle watts")).w();
            let active_w = tier.active_power.unwrap_or_else(|| panic!("{name}, {link}: no active watts")).w();
            let resolved = tier.resolve();
            let busy_w = idle_w + 8.0 * resolved.bytes_per_s * resolved.energy_j_per_bit;
            assert!(
                (busy_w / active_w - 1.0).abs() < 0.02,
                "{name}, {link}: {busy_w} W, {active_w} W stated"
            );
        }
    }
}

#[test]
fn wires_are_not_most_of_the_energy_of_a_dgx() {
    let job = "phase = \"training\"\nsequence = 4096\nglobal-batch = 512\nrecompute = \"full\"\n\
               llm = { extends = \"llms/llama-3-70b\" }\n\
               parallelism = { tensor = 8, pipeline = 4, data = 16, zero = 1, sequence-parallel = true }\n";
    let outcome = estimated("clusters/dgx-h100", job, &[]).unwrap();
    let energy = outcome.estimate.energy;
    let network_j = energy.wire_j + energy.nic_idle_j + energy.switch_idle_j;
    let share = network_j / energy.total_j();
    assert!((0.02..0.25).contains(&share), "{share} of the energy is the network's");
}

fn refused(tiers: &str) -> String {
    let text = format!("extends = \"clusters/dgx-h100\"\nnetwork.tiers = [{tiers}]\n");
    let document = Document::parse("mine.toml", &text).unwrap();
    document.checked::<ClusterFile>().unwrap_err().to_string()
}

#[test]
fn tiers_that_do_not_stack_are_refused_each_in_its_sentence() {
    let switch = "switch = { extends = \"switches/quantum-2\" }";
    let said = refused(&format!("{{ reach = 250, oversubscription = 1, {switch} }}"));
    assert!(said.contains("a tier of 250 GPUs is not made of whole domains: a node has 8"), "{said}");
    assert!(said.contains("mine.toml:2:") && said.contains("a multiple of 8"), "{said}");
    let said = refused(&format!("{{ reach = 256, {switch} }}, {{ reach = 4096, {switch} }}"));
    assert!(said.contains("a tier without a bandwidth to the next"), "{said}");
    let said = refused(&format!("{{ reach = 256, bandwidth = \"0 Gbit/s\", {switch} }}"));
    assert!(said.contains("`bandwidth` is 0"), "{said}");
    let said = refused(&format!(
        "{{ reach = 256, oversubscription = 1, {switch} }}, {{ reach = 300, oversubscription = 1, {switch} }}"
    ));
    assert!(said.contains("the tier below has 256"), "{said}");
    let said = refused(&format!("{{ reach = 256, oversubscription = 0.5, {switch} }}"));
    assert!(said.contains("`oversubscription` is 0.5"), "{said}");
}

#[test]
fn an_adapter_that_costs_nothing_for_want_of_a_word_is_refused() {
    let text = "bandwidth = \"400 Gbit/s\"\nlatency = \"1 us\"\narea = \"100 mm2\"\nidle-power = \"18 W\"\n";
    let document = Document::parse("nic.toml", text).unwrap();
    let said = document.checked::<NicFile>().unwrap_err().to_string();
    assert!(said.contains("neither `active-power` nor `energy` is stated"), "{said}");
    let document = Document::parse("nic.toml", &format!("{text}active-power = \"9 W\"\n")).unwrap();
    let said = document.checked::<NicFile>().unwrap_err().to_string();
    assert!(said.contains("9 W at the full rate, but 18 W without traffic"), "{said}");
}

/// Clusters whose GPUs have no units for a format, and the format.
const LACKING: [(&str, &str); 5] = [
    ("clusters/dgx-h100", "fp4"),
    ("clusters/dgx-a100", "fp8"),
    ("clusters/dgx-a100", "fp4"),
    ("clusters/rtx3090-cx5", "fp8"),
    ("clusters/mi300x", "fp4"),
];

#[test]
fn a_format_that_the_gpu_lacks_is_named() {
    for (cluster, format) in LACKING {
        for by_parts in [false, true] {
            // AMD's and the paper's GPUs aside, each has parts, too.
            if by_parts && !cluster.contains("dgx") {
                continue;
            }
            let sets: &[&str] = if by_parts { &["cluster.gpu.model=parts"] } else { &[] };
            let job = format!(
                "phase = \"training\"\nsequence = 4096\nllm = {{ extends = \"llms/llama-3-8b\" }}\n\
                 precision = {{ math = \"{format}\" }}\nparallelism = {{ tensor = 8 }}\n"
            );
            let said = estimated(cluster, &job, sets).unwrap_err().to_string();
            let sentence = format!("the matrix units of the GPU have no {format}");
            assert!(said.contains(&sentence), "{cluster}: {said}");
        }
    }
}
