//! The configurations that come with the project, read as the model reads them.
use trinity_config::{Checked, Document, builtin};
use trinity_silicon::table3;
use trinity_sim::kernels::{Format, Matmul};
use trinity_study::config::{
    ClusterFile, CodecFile, DesignsFile, ExplorationFile, FiguresFile, FrameworkFile, GpuFile, KernelsFile,
    LlmFile, NicFile, SwitchFile, SynthesisFile, TechnologyFile,
};
use trinity_study::kernels;

fn read<T: serde::de::DeserializeOwned + Checked>(name: &str) -> T {
    T::load(name).unwrap_or_else(|d| panic!("{d}"))
}

#[test]
fn every_file_reads_and_checks() {
    for name in builtin::names() {
        match name.split('/').next() {
            Some("gpus") => drop(read::<GpuFile>(name)),
            Some("nics") => drop(read::<NicFile>(name)),
            Some("switches") => drop(read::<SwitchFile>(name)),
            Some("codecs") => drop(read::<CodecFile>(name)),
            Some("llms") => drop(read::<LlmFile>(name)),
            Some("clusters") => drop(read::<ClusterFile>(name)),
            Some("frameworks") => drop(read::<FrameworkFile>(name)),
            Some("technologies") => drop(read::<TechnologyFile>(name)),
            Some("silicon") => drop(read::<SynthesisFile>(name)),
            Some("explorations") => drop(read::<ExplorationFile>(name)),
            Some("designs") => drop(read::<DesignsFile>(name)),
            Some("figures") => drop(read::<FiguresFile>(name)),
            Some("calibrations") if name.contains("/kernels/") => drop(read::<KernelsFile>(name)),
            _ => {}
        }
    }
}

#[test]
fn every_value_carries_its_source() {
    let choices = ["topology", "all-reduce", "cpu", "name"];
    let mut missing = Vec::new();
    for name in builtin::names() {
        // What a profile may choose from is a choice, not a datum with a source.
        if ["sweeps/", "profiles/", "figures/", "designs/"].iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        for setting in Document::load(name).unwrap().settings() {
            let key = setting.path.rsplit('.').next().unwrap();
            // What an exploration names is a choice; what it counts is not.
            let names = ["title", "name", "silicon", "origin", "coder", "link", "basis"];
            let named = name.starts_with("explorations/") && names.contains(&key);
            let is_choice = choices.contains(&key) || setting.path == "node" || named;
            if !is_choice && setting.source.is_none() {
                missing.push(format!("{name}: {}", setting.path));
            }
        }
    }
    assert!(missing.is_empty(), "without a source: {}", missing.join(", "));
}

/// A product of 4096 × 8192 × 8192 by every GPU's curve: between a third and all of its datasheet's rate.
#[test]
fn measured_kernels_answer_for_every_gpu_they_are_of() {
    for gpu in kernels::GPUS {
        let kernels = kernels::of(gpu).unwrap_or_else(|d| panic!("{d}")).unwrap();
        let product = Matmul { m: 4096.0, n: 8192.0, k: 8192.0, format: Format::Bf16 };
        let timed = kernels.matmul_s(&product).unwrap();
        let rate = 2.0 * 4096.0 * 8192.0 * 8192.0 / timed.s / kernels.device().bf16_flops;
        assert!((0.33..1.0).contains(&rate) && !timed.extrapolated, "{gpu}: {rate}");
        let beyond = kernels.matmul_s(&Matmul { m: 1e6, ..product }).unwrap();
        assert!(beyond.extrapolated && beyond.s > 100.0 * timed.s, "{gpu}: {beyond:?}");
    }
    assert!(kernels::of("abacus").unwrap_or_else(|d| panic!("{d}")).is_none());
}

#[test]
fn model_sizes_are_the_published_ones() {
    let published = [
        ("llms/pythia-160m", 162.3e6),
        ("llms/pythia-1.4b", 1414.6e6),
        ("llms/llama-2-7b", 6738.4e6),
        ("llms/llama-3-8b", 8030.3e6),
        ("llms/llama-3-70b", 70553.7e6),
        ("llms/llama-3-405b", 405.85e9),
        ("llms/gpt-3-175b", 174.6e9),
        ("llms/deepseek-v3", 671.0e9),
    ];
    for (name, parameters) in published {
        let llm = read::<LlmFile>(name).resolve();
        assert!((llm.parameters() / parameters - 1.0).abs() < 0.003, "{name}: {}", llm.parameters());
    }
}

#[test]
fn the_technology_file_says_what_the_silicon_model_was_held_against_table_3_with() {
    let file: TechnologyFile = read("technologies/asap7");
    assert_eq!(file.0, trinity_silicon::stages::Technology::ASAP7);
}

#[test]
fn codec_files_say_what_table_3_prints() {
    let rows = [
        ("codecs/h264", table3::H264_ENCODER, table3::H264_DECODER),
        ("codecs/h265", table3::H265_ENCODER, table3::H265_DECODER),
        ("codecs/three-in-one", table3::THREE_IN_ONE_ENCODER, table3::THREE_IN_ONE_DECODER),
    ];
    for (name, encoder, decoder) in rows {
        let file: CodecFile = read(name);
        for (block, row) in [(&file.encoder, encoder), (&file.decoder, decoder)] {
            assert_eq!(block.cost().area_mm2, row.area_mm2);
            assert_eq!(block.cost().power_w, row.power_w);
            assert_eq!(block.printed_energy.unwrap().pj_per_bit(), row.printed_pj_per_bit);
        }
    }
}

/// Area, power and throughput of the encoder made of stages, after `sets`.
fn staged(sets: &[&str]) -> trinity_sim::Codec {
    let document = Document::load("codecs/h264-stages").and_then(|document| document.with(sets));
    let file = document.and_then(|document| document.checked::<CodecFile>());
    file.unwrap_or_else(|d| panic!("{d}")).resolve()
}

#[test]
fn a_codec_made_of_stages_costs_what_its_stages_cost() {
    let whole = staged(&["encoder.stages.without=[]"]);
    let table = read::<CodecFile>("codecs/h264").resolve();
    assert!((whole.area_mm2 / table.area_mm2 - 1.0).abs() < 1e-9, "{whole:?} {table:?}");
    assert!((whole.encode_values_per_s / table.encode_values_per_s - 1.0).abs() < 1e-9);

    let intra = staged(&[]);
    assert!(intra.area_mm2 < 0.75 * whole.area_mm2 && intra.encode_j_per_value < whole.encode_j_per_value);
    assert_eq!(intra.encode_values_per_s, whole.encode_values_per_s);

    let lone = staged(&["encoder.stages.copies={ cavlc = 2 }"]);
    assert!(lone.area_mm2 > intra.area_mm2 && lone.encode_values_per_s == intra.encode_values_per_s);
    let all = "encoder.stages.copies={ cavlc = 2, intra-prediction = 2, transform-and-quantization = 2, \
               current-block-registers = 2 }";
    let double = staged(&[all]);
    assert!((double.encode_values_per_s / intra.encode_values_per_s - 2.0).abs() < 1e-9);
    let encoder_mm2 = |codec: &trinity_sim::Codec| codec.area_mm2 - 0.97;
    assert!((encoder_mm2(&double) / encoder_mm2(&intra) - 2.0).abs() < 1e-9);
}

#[test]
fn a_stage_that_the_design_lacks_is_refused() {
    let document = Document::load("codecs/h264-stages").unwrap();
    let document = document.with(&["encoder.stages.without=[\"cabac-core\"]"]).unwrap();
    let complaint = document.checked::<CodecFile>().unwrap_err().to_string();
    assert!(complaint.contains("no stage `cabac-core`") && complaint.contains("cavlc"), "{complaint}");
}
