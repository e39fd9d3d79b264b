//! Tensor commands as a user meets them.

use std::path::{Path, PathBuf};

use crate::support::{all, trinity};

fn sample() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/captured/sample.safetensors");
    path.to_string_lossy().into_owned()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The sample through `trinity encode`.
fn encoded(folder: &Path, arguments: &[&str]) -> PathBuf {
    let output = folder.join("sample.tri");
    let (sample, path) = (sample(), text(&output));
    trinity(["encode", &sample, "--force", "-o", &path].into_iter().chain(arguments.iter().copied())).ok();
    output
}

#[test]
fn info_says_the_same_for_any_number_of_threads() {
    let sample = sample();
    let one = trinity(["tensors", "info", &sample, "--json", "--threads", "1"]).ok();
    let two = trinity(["tensors", "info", &sample, "--json", "--threads", "2"]).ok();
    assert_eq!(one, two);
    assert!(one.contains("\"class\": \"weight-gradient\""));
}

#[test]
fn info_writes_a_report_with_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, out) = (sample(), text(folder.path()));
    trinity(["tensors", "info", &sample, "--out", &out]).ok();
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("layers.6.k_cache") && page.contains("viridis"));
}

#[test]
fn one_shard_of_a_set_is_coded_alone_and_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let shard = folder.path().join("sample-1-of-2.safetensors");
    std::fs::copy(sample(), &shard).unwrap();
    let coded =
        |file: &str| trinity(["encode", file, "--bits", "4", "--codec", "rtn", "--force", "-o", "/dev/null"]);
    let said = coded(&text(&shard)).stderr();
    assert!(said.contains("shard 1 of 2 of `sample`"), "{said}");
    let whole = coded(&sample()).stderr();
    assert!(!whole.contains("shard"), "{whole}");
}

#[test]
fn a_lying_file_is_refused_with_its_byte_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lies.safetensors");
    std::fs::write(&path, b"\xff\0\0\0\0\0\0\0{}").unwrap();
    let said = trinity(["tensors", "info", &text(&path)]).refused();
    assert!(said.contains("lies.safetensors") && said.contains("at byte 8"), "{said}");
}

#[test]
fn a_tensor_smaller_than_its_container_is_refused_with_what_the_container_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.npy");
    let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (16, 16), }            \n";
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header);
    file.extend((0..256).flat_map(|i| (i as f32).sin().to_le_bytes()));
    std::fs::write(&path, file).unwrap();
    let said = trinity(["encode", &text(&path), "--bits", "2"]).refused();
    assert!(said.contains("2 bits/value") && said.contains("index and checksums"), "{said}");
}

#[test]
fn a_file_meets_its_bits_everything_counted_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let output = encoded(folder.path(), &["--bits", "2.9", "--codec", "uniform+ac"]);
    let values = 768 * 768 + 3 * 512 * 768;
    let bits = 8.0 * std::fs::metadata(&output).unwrap().len() as f64 / f64::from(values);
    assert!((0.99 * 2.9..=2.9).contains(&bits), "{bits}");
    let back = folder.path().join("back.safetensors");
    trinity(["decode", &text(&output), "-o", &text(&back)]).ok();
    let info = trinity(["tensors", "info", &text(&back)]).ok();
    assert!(info.contains("boundary.5.activation") && info.contains("512×768"));
    assert!(trinity(["tensors", "info", &text(&output)]).ok().contains("uniform+ac"));
}

#[test]
fn threads_do_not_change_a_container() {
    let folder = tempfile::tempdir().unwrap();
    let read = |threads| {
        std::fs::read(encoded(
            folder.path(),
            &["--nmse", "0.01", "--codec", "int+cabac", "--threads", threads],
        ))
        .unwrap()
    };
    assert_eq!(read("1"), read("2"));
}

#[test]
fn lossless_is_lossless() {
    let folder = tempfile::tempdir().unwrap();
    let output = encoded(folder.path(), &["--lossless"]);
    let back = folder.path().join("back.safetensors");
    trinity(["decode", &text(&output), "-o", &text(&back)]).ok();
    let data = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[8 + header..].to_vec()
    };
    assert_eq!(data(&back), data(Path::new(&sample())));
}

#[test]
fn a_flipped_bit_costs_one_tensor_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = encoded(folder.path(), &["--bits", "3", "--codec", "int+huffman"]);
    let mut bytes = std::fs::read(&output).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&output, bytes).unwrap();
    let back = folder.path().join("back.safetensors");
    let run = trinity(["decode", &text(&output), "-o", &text(&back)]);
    assert_eq!(run.code(), 1);
    assert!(run.stderr().contains("layers.6.k_proj.weight"), "{}", run.stderr());
    let info = trinity(["tensors", "info", &text(&back)]).ok();
    assert!(!info.contains("k_proj.weight  ") && info.contains("layers.6.k_cache"), "{info}");
}

#[test]
fn a_file_whose_only_tensor_is_damaged_says_so_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    npy(&folder.path().join("one.npy"), 64, 64);
    trinity(["encode", &at("one.npy"), "--bits", "4", "-o", &at("one.tri")]).ok();
    let mut bytes = std::fs::read(at("one.tri")).unwrap();
    // Before the index, which stands at the end.
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    std::fs::write(at("one.tri"), bytes).unwrap();
    for output in ["one-back.npy", "one-back.safetensors"] {
        let run = trinity(["decode", &at("one.tri"), "-o", &at(output)]);
        assert_eq!(run.code(), 1, "{}", run.stderr());
        assert!(run.stderr().contains("1 of 1 tensors damaged"), "{}", run.stderr());
        assert!(!Path::new(&at(output)).exists(), "{output} was written");
    }
}

#[test]
fn a_comparison_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, out) = (sample(), text(folder.path()));
    let compare = || {
        trinity([
            "compare",
            &sample,
            "--tensor",
            "k_cache",
            "--codecs",
            "rtn-128g,nf4",
            "--bits",
            "3,4.5",
            "--out",
            &out,
        ])
        .ok()
    };
    let table = compare();
    assert!(table.contains("rtn-128g") && table.contains("gaussian bound"), "{table}");
    let csv = folder.path().join("compare.csv");
    let first = std::fs::read_to_string(&csv).unwrap();
    assert!(first.starts_with(
        "file,tensor,class,codec,precondition,target,bits_per_value,nmse,snr_db,mae,max_abs_error,encode_mb_s,decode_mb_s,gap_bits,missed,obstacle,device,key\n"
    ));
    // Speeds differ from run to run: unchanged ones show that nothing ran again.
    compare();
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), first);
    assert!(folder.path().join("report.html").exists());
}

#[test]
fn tensors_of_one_name_in_two_files_keep_rows_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let npy = |name: &str, factor: f32| {
        let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (32, 32), }            \n";
        let mut file = b"\x93NUMPY\x01\0".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header);
        file.extend((0..1024).flat_map(|i| ((i as f32).sin() * factor).to_le_bytes()));
        let path = folder.path().join(name).join("w.npy");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, file).unwrap();
        text(&path)
    };
    let (base, tuned, out) = (npy("base", 1.0), npy("tuned", 100.0), text(&folder.path().join("out")));
    let compare = ["compare", &base, &tuned, "--codecs", "rtn-128g", "--bits", "4", "--out", &out];
    trinity(compare).ok();
    let csv = folder.path().join("out/compare.csv");
    let first = std::fs::read_to_string(&csv).unwrap();
    assert!(first.contains(&format!("{base}:w,")) && first.contains(&format!("{tuned}:w,")), "{first}");
    trinity(compare).ok();
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), first);
}

#[test]
fn an_anchor_that_is_not_compared_is_refused() {
    let said = trinity(["compare", &sample(), "--codecs", "rtn", "--anchor", "h265"]).refused();
    assert!(said.contains("h265") && said.contains("rtn"), "{said}");
}

#[test]
fn an_unknown_codec_is_refused_with_the_names_there_are() {
    let said = trinity(["encode", &sample(), "--bits", "3", "--codec", "mp3"]).refused();
    assert!(said.contains("mp3") && said.contains("uniform+ac"), "{said}");
}

#[test]
fn an_exact_delta_gives_the_tuned_file_back() {
    let folder = tempfile::tempdir().unwrap();
    let (base, tuned) = (sample(), folder.path().join("tuned.safetensors"));
    let mut bytes = std::fs::read(&base).unwrap();
    let at = bytes.len() - 5000;
    bytes[at] ^= 0x11;
    bytes[at + 400] ^= 1;
    std::fs::write(&tuned, &bytes).unwrap();
    let (delta, back) = (folder.path().join("d.tri"), folder.path().join("back.safetensors"));
    trinity(["delta", "make", &base, &text(&tuned), "-o", &text(&delta)]).ok();
    assert!(std::fs::metadata(&delta).unwrap().len() < 2000);
    trinity(["delta", "apply", &base, &text(&delta), "-o", &text(&back)]).ok();
    let data =
        |bytes: &[u8]| bytes[8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize..].to_vec();
    assert_eq!(data(&std::fs::read(&back).unwrap()), data(&bytes));
}

#[test]
fn an_ablation_switches_stages_on_one_by_one_at_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, out) = (sample(), text(folder.path()));
    let said = trinity([
        "compare", &sample, "--tensor", "k_proj", "--ablate", "--sample", "16384", "--out", &out, "--json",
    ])
    .ok();
    let rows: serde_json::Value = serde_json::from_str(&said).unwrap();
    let bits: Vec<f64> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["step"].is_u64())
        .map(|row| row["bits_per_value"].as_f64().unwrap())
        .collect();
    assert!(bits.len() >= 5 && bits[0] > bits[1] && bits[1] > bits[2], "{bits:?}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("+ intra prediction") && page.contains("no transform"));
    assert!(folder.path().join("ablate.csv").exists());
}

#[test]
fn a_tensor_is_shown_as_block_prediction_residual_and_coefficients() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, out) = (sample(), text(folder.path()));
    let said = trinity(["compare", &sample, "--show", "k_cache", "--sample", "16384", "--out", &out]).ok();
    assert!(said.contains("prediction") && said.contains("residual"), "{said}");
    let svg = std::fs::read_to_string(folder.path().join("show.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<rect").count() > 4 * 64 * 64);
    assert!(std::fs::read_to_string(folder.path().join("report.html")).unwrap().contains("Figure 3"));
    let refused = trinity(["compare", &sample, "--show", "nothing"]).refused();
    assert!(refused.contains("layers.6.k_cache"), "{refused}");
}

#[test]
fn a_designers_profile_is_a_codec_and_its_files_need_it_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let design = folder.path().join("my-design.toml");
    let profile = "name = \"mine\"\ndescription = \"plain\"\npipeline = \"trinity\"\n[stages]\nquantization = \"trellis-4\"\n";
    std::fs::write(&design, profile).unwrap();
    let tri = encoded(folder.path(), &["--bits", "3", "--codec", &text(&design)]);
    std::fs::remove_file(&design).unwrap();
    assert!(trinity(["tensors", "info", &text(&tri)]).ok().contains("trinity:mine"));
    let back = text(&folder.path().join("back.safetensors"));
    trinity(["decode", &text(&tri), "-o", &back]).ok();
    std::fs::write(&design, profile.replace("trellis-4", "trellis-5")).unwrap();
    let said = trinity(["encode", &sample(), "--bits", "3", "--codec", &text(&design)]).refused();
    assert!(said.contains("my-design.toml") && said.contains("trellis-5"), "{said}");
}

#[test]
fn stages_say_what_they_chose_and_what_they_cost() {
    let sample = sample();
    let said = trinity(["compare", &sample, "--stages", "--bits", "3", "--tensor", "k_cache"]).ok();
    for word in ["trinity,", "trinity-lite,", "quantization", "serial values", "mm²", "Table 3"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let refused = trinity(["compare", &sample, "--stages", "--codecs", "h265", "--bits", "3"]).refused();
    assert!(refused.contains("trinity-lite"), "{refused}");
}

/// A file of rows that have much in common.
fn npy(path: &Path, rows: usize, cols: usize) -> String {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    header.push_str(&" ".repeat(127 - 10 - header.len()));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    let value =
        |i: usize| (0.3 * (i % cols) as f32 + 0.7 * (i / cols) as f32).sin() + (i * 7919 % 97) as f32 * 1e-3;
    file.extend((0..rows * cols).flat_map(|i| value(i).to_le_bytes()));
    std::fs::write(path, file).unwrap();
    text(path)
}

#[test]
fn a_basis_is_a_file_of_its_own_that_both_sides_need() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let samples = npy(&folder.path().join("samples.npy"), 200, 48);
    let values = npy(&folder.path().join("values.npy"), 64, 48);
    let narrow = npy(&folder.path().join("narrow.npy"), 64, 40);
    let (grouped, whole) = (at("group.basis"), at("rank.basis"));
    let (coded, back) = (at("values.tri"), at("back.npy"));
    let said = trinity(["tensors", "basis", &samples, "--group", "32", "-o", &grouped]).ok();
    assert!(said.contains(&format!("{} bits", 8 * std::fs::read(&grouped).unwrap().len())), "{said}");
    trinity(["tensors", "basis", &samples, "--rank", "48", "-o", &whole]).ok();
    for (basis, codec) in [(&grouped, "trinity"), (&whole, "trinity"), (&whole, "uniform+ac")] {
        let encode = [
            "encode", &values, "--nmse", "0.01", "--codec", codec, "--basis", basis, "-o", &coded, "--force",
        ];
        let said = trinity(encode).ok();
        assert!(said.contains("the basis not counted: "), "{said}");
        assert!(trinity(encode.into_iter().chain(["--json"])).ok().contains("\"basis_bits\""));
        trinity(["decode", &coded, "--basis", basis, "-o", &back, "--force"]).ok();
        let said = trinity(["decode", &coded, "-o", &back, "--force"]).refused();
        assert!(said.contains("none is given"), "{codec}: {said}");
        let other = if basis == &grouped { &whole } else { &grouped };
        let said = trinity(["decode", &coded, "--basis", other, "-o", &back, "--force"]).refused();
        assert!(said.contains("was coded with basis"), "{codec}: {said}");
    }
    let refused = |input: &str, codec: &str, basis: &str| {
        let encode = ["encode", input, "--nmse", "0.01", "--codec", codec, "--basis", basis];
        trinity(encode.into_iter().chain(["-o", &coded, "--force"])).refused()
    };
    let absent = refused(&values, "trinity", &at("nowhere.basis"));
    assert!(absent.contains("nowhere.basis") && absent.contains("trinity tensors basis"), "{absent}");
    assert!(refused(&values, "trinity", &values).contains("not a PCA basis"));
    assert!(refused(&values, "h265", &grouped).contains("Trinity codec"));
    for basis in [&grouped, &whole] {
        let said = refused(&narrow, "trinity", basis);
        assert!(said.contains("it is for ") && said.contains("48") && said.contains("40"), "{said}");
    }
    let said = trinity(["tensors", "basis", &samples, &narrow, "-o", &grouped, "--force"]).refused();
    assert!(said.contains("narrow") && said.contains("--tensor"), "{said}");
}

#[test]
fn a_profile_that_is_wrong_is_refused_with_its_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mine.toml");
    std::fs::write(
        &profile,
        "name = \"mine\"\ndescription = \"\"\npipeline = \"trinity\"\n[stages]\ntransform = [\"dct-7\"]\n",
    )
    .unwrap();
    let (sample, profile) = (sample(), text(&profile));
    let said = trinity(["encode", &sample, "--bits", "3", "--codec", &profile]).refused();
    assert!(said.contains("mine.toml:5:14") && said.contains("dct-8x8"), "{said}");
}

/// A safetensors file of f32 tensors, by hand.
fn safetensors(path: &Path, tensors: &[(&str, &[usize])]) {
    let (mut header, mut data) = (String::from("{"), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let values: usize = shape.iter().product();
        data.extend((0..values).flat_map(|i| ((i * i) as f32 * 0.37).sin().to_le_bytes()));
        let comma = if header.len() > 1 { "," } else { "" };
        header += &format!(
            r#"{comma}"{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{start},{}]}}"#,
            data.len()
        );
    }
    header += "}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn norms_biases_and_vectors_stay_exact_unless_all_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    safetensors(
        &path,
        &[("a.q_proj.weight", &[64, 640]), ("a.norm.weight", &[576]), ("a.q_proj.bias", &[640])],
    );
    let (tri, back) = (folder.path().join("m.tri"), folder.path().join("back.safetensors"));
    let encode = |more: &[&str]| {
        let arguments =
            ["encode", &text(&path), "--codec", "uniform+ac", "--bits", "4", "--force", "-o", &text(&tri)];
        trinity(arguments.into_iter().chain(more.iter().copied())).ok();
        assert!(8.0 * std::fs::metadata(&tri).unwrap().len() as f64 <= 4.0 * (64.0 * 640.0 + 576.0 + 640.0));
        trinity(["decode", &text(&tri), "-o", &text(&back), "--force"]).ok();
        // The last 1216 values are the norm's and the bias's.
        let tail = |path: &Path| {
            let bytes = std::fs::read(path).unwrap();
            bytes[bytes.len() - 4 * 1216..].to_vec()
        };
        tail(&path) == tail(&back)
    };
    assert!(encode(&[]));
    assert!(!encode(&["--all"]));
    safetensors(&path, &[("a.norm.weight", &[576])]);
    let said = trinity(["encode", &text(&path), "--bits", "4", "-o", &text(&tri), "--force"]).refused();
    assert!(said.contains("stay exact") && said.contains("--all"), "{said}");
}

#[test]
fn a_pt_file_is_read_and_one_that_would_run_code_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = |name: &str| format!("{}/../models/tensor/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    assert!(trinity(["tensors", "info", &data("state.pt")]).ok().contains("model.transposed"));
    let tri = text(&folder.path().join("t.tri"));
    let said = trinity(["encode", &data("evil.pt"), "--bits", "3", "-o", &tri]).refused();
    assert!(said.contains("system") && said.contains("runs no code") && !Path::new(&tri).exists(), "{said}");
}

#[test]
fn a_calibrated_file_decodes_as_any_other_to_a_model_that_lost_less() {
    if !all() {
        eprintln!("SKIPPED: calibrating takes a minute; `cargo xtask test --all` does it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let data = |name: &str| format!("{}/../models/lm/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(data("tiny.json"), at("tiny.json")).unwrap();
    std::fs::copy(data("tiny.safetensors"), at("tiny.safetensors")).unwrap();
    let sample = std::fs::read(data("eval.txt")).unwrap();
    std::fs::write(at("sample.txt"), &sample[32768..57344]).unwrap();
    let lost = |name: &str, more: &[&str]| {
        let (tri, back, model) = (at("t.tri"), at(name), at("tiny.safetensors"));
        let said =
            trinity([&["encode", &model, "--bits", "3", "-o", &tri, "--force", "--json"], more].concat())
                .ok();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let rate = said["bits_per_value"].as_f64().unwrap();
        assert!((2.97..=3.0).contains(&rate), "{more:?}: {rate}");
        trinity(["decode", &tri, "-o", &back]).ok();
        std::fs::copy(data("tiny.json"), std::path::Path::new(&back).with_extension("json")).unwrap();
        let said = trinity(["eval", &back, "--windows", "8", "--json"]).ok();
        let row: serde_json::Value = serde_json::from_str(&said).unwrap();
        row["bits_per_byte"].as_f64().unwrap()
    };
    let plain = lost("plain.safetensors", &[]);
    let calibrated = lost("calibrated.safetensors", &["--calibrate", &at("sample.txt")]);
    assert!(calibrated < plain, "{calibrated} against {plain}");
}

#[test]
fn quantizers_of_papers_make_files_and_say_what_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name));
    let data = |name: &str| format!("{}/../models/lm/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(data("tiny.json"), at("tiny.json")).unwrap();
    std::fs::copy(data("tiny.safetensors"), at("tiny.safetensors")).unwrap();
    let sample = std::fs::read(data("eval.txt")).unwrap();
    std::fs::write(at("sample.txt"), &sample[32768..49152]).unwrap();
    let (model, tri, sample) = (at("tiny.safetensors"), at("t.tri"), at("sample.txt"));
    let windows = if all() { "4" } else { "1" };
    let lost = |more: &[&str]| {
        trinity([&["encode", &model, "-o", &tri, "--force"], more].concat()).ok();
        let said = trinity(["eval", &tri, "--original", &model, "--windows", windows, "--json"]).ok();
        let row: serde_json::Value = serde_json::from_str(&said).unwrap();
        row["delta_bits_per_byte"].as_f64().unwrap()
    };
    let rounded = lost(&["--bits", "3.2", "--codec", "rtn-128g", "--codec-for", "embed=q8_0"]);
    // Half a minute each.
    for codec in if all() { &["gptq-128g", "awq-128g"][..] } else { &[] } {
        let own =
            lost(&["--bits", "3.15", "--codec", codec, "--codec-for", "embed=q8_0", "--calibrate", &sample]);
        assert!(own < 0.8 * rounded, "{codec}: {own} against {rounded}");
    }
    let (q4, q3) = (lost(&["--bits", "4.5", "--codec", "q4_k"]), lost(&["--bits", "3.5", "--codec", "q3_k"]));
    assert!(q4 < q3 && q3 < rounded, "{q4} {q3} {rounded}");
    let refused =
        |more: &[&str]| trinity([&["encode", &model, "-o", &tri, "--force"], more].concat()).refused();
    let said = refused(&["--bits", "3.15", "--codec", "gptq-128g"]);
    assert!(said.contains("nothing says what") && said.contains("--calibrate"), "{said}");
    let said = refused(&["--bits", "2", "--codec", "gptq-128g", "--calibrate", &sample]);
    assert!(said.contains("2.14 bits/value or more"), "{said}");
    let said = refused(&["--bits", "4", "--codec", "q4_k"]);
    assert!(said.contains("takes 4.5"), "{said}");
    let said = refused(&["--bits", "4.5", "--codec", "nvfp4"]);
    assert!(said.contains("as published") && said.contains("gptq-128g"), "{said}");
}

#[test]
fn a_calibration_that_cannot_be_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    safetensors(&path, &[("w", &[64, 64])]);
    let sample = text(&folder.path().join("sample.txt"));
    std::fs::write(&sample, "some words of a language").unwrap();
    let (file, tri) = (text(&path), text(&folder.path().join("w.tri")));
    let refused = |more: &[&str]| {
        let said = trinity([&["encode", &file, "-o", &tri, "--calibrate", &sample], more].concat()).refused();
        assert!(!Path::new(&tri).exists(), "{said}");
        said
    };
    let said = refused(&["--bits", "3"]);
    assert!(said.contains("runs the model") && said.contains("config.json"), "{said}");
    let said = refused(&["--bits", "3", "--codec", "h265"]);
    assert!(said.contains("h265 cannot weigh") && said.contains("trinity"), "{said}");
    assert!(refused(&["--nmse", "0.01"]).contains("--bits"));
    let said = refused(&["--bits", "3", "--allocate", "linear"]);
    assert!(said.contains("not by layers") && said.contains("equal-slope"), "{said}");
}

#[test]
fn a_size_is_met_and_one_out_of_reach_says_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/lm/data/tiny.safetensors");
    let out = folder.path().join("sized.tri").to_string_lossy().into_owned();
    let encode = |size: &'static str, more: &[&'static str]| {
        let words =
            ["encode", model, "--codec", "trinity-lite", "--target-size", size, "--force", "-o", &out];
        trinity(words.into_iter().chain(more.iter().copied()))
    };
    for (more, least) in
        [(&["--allocate", "equal"][..], 870_000), (&["--bits-for", "*.up_proj.*=4"], 850_000)]
            .into_iter()
            .take(if all() { 2 } else { 1 })
    {
        encode("0.9 MB", more).ok();
        let bytes = std::fs::metadata(&out).unwrap().len();
        assert!((least..=900_000).contains(&bytes), "{bytes} with {more:?}");
    }
    for (size, expected) in
        [("1 kB", "is too small"), ("1 GB", "--lossless"), ("3 parsec", "80MB"), ("0 MB", "above zero")]
    {
        let said = encode(size, &[]).refused();
        assert!(said.contains(expected), "{size}: {said}");
    }
    let formats = encode("0.9 MB", &["--codec-for", "*.up_proj.*=nf4"]).refused();
    assert!(formats.contains("a rate of its own"), "{formats}");
}
