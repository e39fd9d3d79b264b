//! Tensor commands as a user meets them.

use std::path::Path;

use crate::support::{Desk, all, floats, npy, safetensors};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/captured/sample.safetensors");

/// The sample through `trinity encode`, as `sample.tri`.
fn encoded(desk: &Desk, arguments: &str) {
    desk.ok(format!("encode {SAMPLE} --force -o sample.tri {arguments}"));
}

#[test]
fn info_says_the_same_for_any_number_of_threads() {
    let info = |threads: &str| Desk::new().ok(format!("tensors info {SAMPLE} --json --threads {threads}"));
    let one = info("1");
    assert_eq!(one, info("2"));
    assert!(one.contains("\"class\": \"weight-gradient\""));
}

#[test]
fn info_writes_a_report_with_pictures() {
    let desk = Desk::new();
    desk.ok(format!("tensors info {SAMPLE} --out ."));
    let page = desk.text("report.html");
    assert!(page.contains("layers.6.k_cache") && page.contains("viridis"));
}

#[test]
fn one_shard_of_a_set_is_coded_alone_and_it_says_so() {
    let desk = Desk::new();
    std::fs::copy(SAMPLE, desk.at("sample-1-of-2.safetensors")).unwrap();
    let coded = |file: &str| desk.run(format!("encode {file} --bits 4 --codec rtn --force -o /dev/null"));
    let said = coded("sample-1-of-2.safetensors").stderr();
    assert!(said.contains("shard 1 of 2 of `sample`"), "{said}");
    let whole = coded(SAMPLE).stderr();
    assert!(!whole.contains("shard"), "{whole}");
}

#[test]
fn a_lying_file_is_refused_with_its_byte_offset() {
    let desk = Desk::new();
    desk.write("lies.safetensors", b"\xff\0\0\0\0\0\0\0{}");
    let said = desk.refused("tensors info lies.safetensors");
    assert!(said.contains("lies.safetensors") && said.contains("at byte 8"), "{said}");
}

#[test]
fn a_tensor_smaller_than_its_container_is_refused_with_what_the_container_takes() {
    let desk = Desk::new();
    npy(&desk.at("small.npy"), (16, 16), |i| (i as f32).sin());
    let said = desk.refused("encode small.npy --bits 2");
    assert!(said.contains("2 bits/value") && said.contains("index and checksums"), "{said}");
}

#[test]
fn a_file_meets_its_bits_everything_counted_and_comes_back() {
    let desk = Desk::new();
    encoded(&desk, "--bits 2.9 --codec uniform+ac");
    let values = 768 * 768 + 3 * 512 * 768;
    let bits = 8.0 * desk.read("sample.tri").len() as f64 / f64::from(values);
    assert!((0.99 * 2.9..=2.9).contains(&bits), "{bits}");
    desk.ok("decode sample.tri -o back.safetensors");
    let info = desk.ok("tensors info back.safetensors");
    assert!(info.contains("boundary.5.activation") && info.contains("512×768"));
    assert!(desk.ok("tensors info sample.tri").contains("uniform+ac"));
}

#[test]
fn threads_do_not_change_a_container() {
    let desk = Desk::new();
    let read = |threads: &str| {
        encoded(&desk, &format!("--nmse 0.01 --codec int+cabac --threads {threads}"));
        desk.read("sample.tri")
    };
    assert_eq!(read("1"), read("2"));
}

/// What stands behind the header of a safetensors file.
fn data(bytes: &[u8]) -> &[u8] {
    &bytes[8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize..]
}

#[test]
fn lossless_is_lossless() {
    let desk = Desk::new();
    encoded(&desk, "--lossless");
    desk.ok("decode sample.tri -o back.safetensors");
    assert_eq!(data(&desk.read("back.safetensors")), data(&desk.read(SAMPLE)));
}

#[test]
fn a_flipped_bit_costs_one_tensor_and_is_named() {
    let desk = Desk::new();
    encoded(&desk, "--bits 3 --codec int+huffman");
    let mut bytes = desk.read("sample.tri");
    bytes[1000] ^= 1;
    desk.write("sample.tri", bytes);
    let run = desk.run("decode sample.tri -o back.safetensors");
    assert_eq!(run.code(), 1);
    assert!(run.stderr().contains("layers.6.k_proj.weight"), "{}", run.stderr());
    let info = desk.ok("tensors info back.safetensors");
    assert!(!info.contains("k_proj.weight  ") && info.contains("layers.6.k_cache"), "{info}");
}

#[test]
fn a_file_whose_only_tensor_is_damaged_says_so_and_writes_nothing() {
    let desk = Desk::new();
    rows_alike(&desk.at("one.npy"), 64, 64);
    desk.ok("encode one.npy --bits 4 -o one.tri");
    let mut bytes = desk.read("one.tri");
    // Before the index, which stands at the end.
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    desk.write("one.tri", bytes);
    for output in ["one-back.npy", "one-back.safetensors"] {
        let run = desk.run(format!("decode one.tri -o {output}"));
        assert_eq!(run.code(), 1, "{}", run.stderr());
        assert!(run.stderr().contains("1 of 1 tensors damaged"), "{}", run.stderr());
        assert!(!desk.at(output).exists(), "{output} was written");
    }
}

#[test]
fn a_comparison_goes_on_where_it_stopped() {
    let desk = Desk::new();
    let line = format!("compare {SAMPLE} --tensor k_cache --codecs rtn-128g,nf4 --bits 3,4.5 --out .");
    let compare = || desk.ok(&line);
    let table = compare();
    assert!(table.contains("rtn-128g") && table.contains("gaussian bound"), "{table}");
    let csv = desk.at("compare.csv");
    let first = std::fs::read_to_string(&csv).unwrap();
    assert!(first.starts_with(
        "file,tensor,class,codec,precondition,target,bits_per_value,nmse,snr_db,mae,max_abs_error,encode_mb_s,decode_mb_s,gap_bits,missed,obstacle,device,key\n"
    ));
    // Speeds differ from run to run: unchanged ones show that nothing ran again.
    compare();
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), first);
    assert!(desk.at("report.html").exists());
}

#[test]
fn tensors_of_one_name_in_two_files_keep_rows_of_their_own() {
    let desk = Desk::new();
    for (folder, factor) in [("base", 1.0), ("tuned", 100.0)] {
        npy(&desk.at(format!("{folder}/w.npy")), (32, 32), |i| (i as f32).sin() * factor);
    }
    let compare = "compare base/w.npy tuned/w.npy --codecs rtn-128g --bits 4 --out out";
    desk.ok(compare);
    let first = desk.text("out/compare.csv");
    assert!(first.contains("base/w.npy:w,") && first.contains("tuned/w.npy:w,"), "{first}");
    desk.ok(compare);
    assert_eq!(desk.text("out/compare.csv"), first);
}

#[test]
fn an_anchor_that_is_not_compared_is_refused() {
    let said = Desk::new().refused(format!("compare {SAMPLE} --codecs rtn --anchor h265"));
    assert!(said.contains("h265") && said.contains("rtn"), "{said}");
}

#[test]
fn an_unknown_codec_is_refused_with_the_names_there_are() {
    let said = Desk::new().refused(format!("encode {SAMPLE} --bits 3 --codec mp3"));
    assert!(said.contains("mp3") && said.contains("uniform+ac"), "{said}");
}

#[test]
fn an_exact_delta_gives_the_tuned_file_back() {
    let desk = Desk::new();
    let base = SAMPLE;
    let mut bytes = desk.read(base);
    let at = bytes.len() - 5000;
    bytes[at] ^= 0x11;
    bytes[at + 400] ^= 1;
    desk.write("tuned.safetensors", &bytes);
    desk.ok(format!("delta make {base} tuned.safetensors -o d.tri"));
    assert!(desk.read("d.tri").len() < 2000);
    desk.ok(format!("delta apply {base} d.tri -o back.safetensors"));
    assert_eq!(data(&desk.read("back.safetensors")), data(&bytes));
}

#[test]
fn an_ablation_switches_stages_on_one_by_one_at_one_error() {
    let desk = Desk::new();
    let rows = desk.json(format!("compare {SAMPLE} --tensor k_proj --ablate --sample 16384 --out . --json"));
    let bits: Vec<f64> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["step"].is_u64())
        .map(|row| row["bits_per_value"].as_f64().unwrap())
        .collect();
    assert!(bits.len() >= 5 && bits[0] > bits[1] && bits[1] > bits[2], "{bits:?}");
    let page = desk.text("report.html");
    assert!(page.contains("+ intra prediction") && page.contains("no transform"));
    assert!(desk.at("ablate.csv").exists());
}

#[test]
fn a_tensor_is_shown_as_block_prediction_residual_and_coefficients() {
    let desk = Desk::new();
    let said = desk.ok(format!("compare {SAMPLE} --show k_cache --sample 16384 --out ."));
    assert!(said.contains("prediction") && said.contains("residual"), "{said}");
    let svg = desk.text("show.svg");
    assert!(svg.starts_with("<svg") && svg.matches("<rect").count() > 4 * 64 * 64);
    assert!(desk.text("report.html").contains("Figure 3"));
    let refused = desk.refused(format!("compare {SAMPLE} --show nothing"));
    assert!(refused.contains("layers.6.k_cache"), "{refused}");
}

#[test]
fn a_designers_profile_is_a_codec_and_its_files_need_it_no_more() {
    let desk = Desk::new();
    let profile = "name = \"mine\"\ndescription = \"plain\"\npipeline = \"trinity\"\n[stages]\nquantization = \"trellis-4\"\n";
    desk.write("my-design.toml", profile);
    encoded(&desk, "--bits 3 --codec my-design.toml");
    std::fs::remove_file(desk.at("my-design.toml")).unwrap();
    assert!(desk.ok("tensors info sample.tri").contains("trinity:mine"));
    desk.ok("decode sample.tri -o back.safetensors");
    desk.write("my-design.toml", profile.replace("trellis-4", "trellis-5"));
    let said = desk.refused(format!("encode {SAMPLE} --bits 3 --codec my-design.toml"));
    assert!(said.contains("my-design.toml") && said.contains("trellis-5"), "{said}");
}

#[test]
fn stages_say_what_they_chose_and_what_they_cost() {
    let desk = Desk::new();
    let said = desk.ok(format!("compare {SAMPLE} --stages --bits 3 --tensor k_cache"));
    for word in ["trinity,", "trinity-lite,", "quantization", "serial values", "mm²", "Table 3"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let refused = desk.refused(format!("compare {SAMPLE} --stages --codecs h265 --bits 3"));
    assert!(refused.contains("trinity-lite"), "{refused}");
}

/// A file of rows that have much in common.
fn rows_alike(path: &Path, rows: usize, cols: usize) {
    npy(path, (rows, cols), |i| {
        (0.3 * (i % cols) as f32 + 0.7 * (i / cols) as f32).sin() + (i * 7919 % 97) as f32 * 1e-3
    });
}

#[test]
fn a_basis_is_a_file_of_its_own_that_both_sides_need() {
    let desk = Desk::new();
    for (name, rows, cols) in [("samples", 200, 48), ("values", 64, 48), ("narrow", 64, 40)] {
        rows_alike(&desk.at(format!("{name}.npy")), rows, cols);
    }
    let said = desk.ok("tensors basis samples.npy --group 32 -o group.basis");
    assert!(said.contains(&format!("{} bits", 8 * desk.read("group.basis").len())), "{said}");
    desk.ok("tensors basis samples.npy --rank 48 -o rank.basis");
    for (basis, other, codec) in
        [("group", "rank", "trinity"), ("rank", "group", "trinity"), ("rank", "group", "uniform+ac")]
    {
        let encode = format!(
            "encode values.npy --nmse 0.01 --codec {codec} --basis {basis}.basis -o values.tri --force"
        );
        let said = desk.ok(&encode);
        assert!(said.contains("the basis not counted: "), "{said}");
        assert!(desk.ok(format!("{encode} --json")).contains("\"basis_bits\""));
        let decode = "decode values.tri -o back.npy --force";
        desk.ok(format!("{decode} --basis {basis}.basis"));
        let said = desk.refused(decode);
        assert!(said.contains("none is given"), "{codec}: {said}");
        let said = desk.refused(format!("{decode} --basis {other}.basis"));
        assert!(said.contains("was coded with basis"), "{codec}: {said}");
    }
    let refused = |input: &str, codec: &str, basis: &str| {
        let coded = "-o values.tri --force";
        desk.refused(format!("encode {input}.npy --nmse 0.01 --codec {codec} --basis {basis} {coded}"))
    };
    let absent = refused("values", "trinity", "nowhere.basis");
    assert!(absent.contains("nowhere.basis") && absent.contains("trinity tensors basis"), "{absent}");
    assert!(refused("values", "trinity", "values.npy").contains("not a PCA basis"));
    assert!(refused("values", "h265", "group.basis").contains("Trinity codec"));
    for basis in ["group.basis", "rank.basis"] {
        let said = refused("narrow", "trinity", basis);
        assert!(said.contains("it is for ") && said.contains("48") && said.contains("40"), "{said}");
    }
    let said = desk.refused("tensors basis samples.npy narrow.npy -o group.basis --force");
    assert!(said.contains("narrow") && said.contains("--tensor"), "{said}");
}

#[test]
fn a_profile_that_is_wrong_is_refused_with_its_line_and_column() {
    let desk = Desk::new();
    desk.write(
        "mine.toml",
        "name = \"mine\"\ndescription = \"\"\npipeline = \"trinity\"\n[stages]\ntransform = [\"dct-7\"]\n",
    );
    let said = desk.refused(format!("encode {SAMPLE} --bits 3 --codec mine.toml"));
    assert!(said.contains("mine.toml:5:14") && said.contains("dct-8x8"), "{said}");
}

/// A safetensors file of f32 tensors.
fn waves(path: &Path, tensors: &[(&str, &[usize])]) {
    let wave = |&(name, shape)| floats(name, shape, |i| ((i * i) as f32 * 0.37).sin());
    safetensors(path, &tensors.iter().map(wave).collect::<Vec<_>>());
}

#[test]
fn norms_biases_and_vectors_stay_exact_unless_all_is_asked_for() {
    let desk = Desk::new();
    let path = desk.at("m.safetensors");
    waves(&path, &[("a.q_proj.weight", &[64, 640]), ("a.norm.weight", &[576]), ("a.q_proj.bias", &[640])]);
    let encode = |more: &str| {
        desk.ok(format!("encode m.safetensors --codec uniform+ac --bits 4 --force -o m.tri {more}"));
        assert!(8.0 * desk.read("m.tri").len() as f64 <= 4.0 * (64.0 * 640.0 + 576.0 + 640.0));
        desk.ok("decode m.tri -o back.safetensors --force");
        // The last 1216 values are the norm's and the bias's.
        let tail = |file: &str| {
            let bytes = desk.read(file);
            bytes[bytes.len() - 4 * 1216..].to_vec()
        };
        tail("m.safetensors") == tail("back.safetensors")
    };
    assert!(encode(""));
    assert!(!encode("--all"));
    waves(&path, &[("a.norm.weight", &[576])]);
    let said = desk.refused("encode m.safetensors --bits 4 -o m.tri --force");
    assert!(said.contains("stay exact") && said.contains("--all"), "{said}");
}

#[test]
fn a_pt_file_is_read_and_one_that_would_run_code_is_refused() {
    let desk = Desk::new();
    let data = |name: &str| format!("{}/../models/tensor/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    assert!(desk.ok(format!("tensors info {}", data("state.pt"))).contains("model.transposed"));
    let said = desk.refused(format!("encode {} --bits 3 -o t.tri", data("evil.pt")));
    assert!(said.contains("system") && said.contains("runs no code") && !desk.at("t.tri").exists(), "{said}");
}

/// A model on the desk, and as many bytes of a text in `sample.txt`.
fn model(desk: &Desk, bytes: usize) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/lm/data");
    for name in ["tiny.json", "tiny.safetensors"] {
        std::fs::copy(data.join(name), desk.at(name)).unwrap();
    }
    desk.write("sample.txt", &desk.read(data.join("eval.txt"))[32768..][..bytes]);
}

#[test]
fn a_calibrated_file_decodes_as_any_other_to_a_model_that_lost_less() {
    if !all() {
        eprintln!("SKIPPED: calibrating takes a minute; `cargo xtask test --all` does it");
        return;
    }
    let desk = Desk::new();
    model(&desk, 24576);
    let lost = |name: &str, more: &str| {
        let encode = "encode tiny.safetensors --bits 3 -o t.tri --force --json";
        let rate = desk.json(format!("{encode} {more}"))["bits_per_value"].as_f64().unwrap();
        assert!((2.97..=3.0).contains(&rate), "{more:?}: {rate}");
        desk.ok(format!("decode t.tri -o {name}.safetensors"));
        std::fs::copy(desk.at("tiny.json"), desk.at(format!("{name}.json"))).unwrap();
        let row = desk.json(format!("eval {name}.safetensors --windows 8 --json"));
        row["bits_per_byte"].as_f64().unwrap()
    };
    let plain = lost("plain", "");
    let calibrated = lost("calibrated", "--calibrate sample.txt");
    assert!(calibrated < plain, "{calibrated} against {plain}");
}

#[test]
fn quantizers_of_papers_make_files_and_say_what_they_need() {
    let desk = Desk::new();
    model(&desk, 16384);
    let windows = if all() { "4" } else { "1" };
    let encode = |more: &str| desk.run(format!("encode tiny.safetensors -o t.tri --force {more}"));
    let lost = |more: &str| {
        encode(more).ok();
        let row = desk.json(format!("eval t.tri --original tiny.safetensors --windows {windows} --json"));
        row["delta_bits_per_byte"].as_f64().unwrap()
    };
    let rounded = lost("--bits 3.2 --codec rtn-128g --codec-for embed=q8_0");
    // Half a minute each.
    for codec in if all() { &["gptq-128g", "awq-128g"][..] } else { &[] } {
        let own = lost(&format!("--bits 3.15 --codec {codec} --codec-for embed=q8_0 --calibrate sample.txt"));
        assert!(own < 0.8 * rounded, "{codec}: {own} against {rounded}");
    }
    let (q4, q3) = (lost("--bits 4.5 --codec q4_k"), lost("--bits 3.5 --codec q3_k"));
    assert!(q4 < q3 && q3 < rounded, "{q4} {q3} {rounded}");
    let refused = |more: &str| encode(more).refused();
    let said = refused("--bits 3.15 --codec gptq-128g");
    assert!(said.contains("nothing says what") && said.contains("--calibrate"), "{said}");
    let said = refused("--bits 2 --codec gptq-128g --calibrate sample.txt");
    assert!(said.contains("2.14 bits/value or more"), "{said}");
    let said = refused("--bits 4 --codec q4_k");
    assert!(said.contains("takes 4.5"), "{said}");
    let said = refused("--bits 4.5 --codec nvfp4");
    assert!(said.contains("as published") && said.contains("gptq-128g"), "{said}");
}

#[test]
fn a_calibration_that_cannot_be_is_refused_with_a_way_out() {
    let desk = Desk::new();
    waves(&desk.at("w.safetensors"), &[("w", &[64, 64])]);
    desk.write("sample.txt", "some words of a language");
    let refused = |more: &str| {
        let said = desk.refused(format!("encode w.safetensors -o w.tri --calibrate sample.txt {more}"));
        assert!(!desk.at("w.tri").exists(), "{said}");
        said
    };
    let said = refused("--bits 3");
    assert!(said.contains("runs the model") && said.contains("config.json"), "{said}");
    let said = refused("--bits 3 --codec h265");
    assert!(said.contains("h265 cannot weigh") && said.contains("trinity"), "{said}");
    assert!(refused("--nmse 0.01").contains("--bits"));
    let said = refused("--bits 3 --allocate linear");
    assert!(said.contains("not by layers") && said.contains("equal-slope"), "{said}");
}

#[test]
fn a_size_is_met_and_one_out_of_reach_says_what_is_in_it() {
    let desk = Desk::new();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/lm/data/tiny.safetensors");
    let encode = |size: &str, more: &str| {
        let sized = format!("--codec trinity-lite --target-size '{size}' --force -o sized.tri");
        desk.run(format!("encode {model} {sized} {more}"))
    };
    for (more, least) in [("--allocate equal", 870_000), ("--bits-for *.up_proj.*=4", 850_000)]
        .into_iter()
        .take(if all() { 2 } else { 1 })
    {
        encode("0.9 MB", more).ok();
        let bytes = desk.read("sized.tri").len();
        assert!((least..=900_000).contains(&bytes), "{bytes} with {more:?}");
    }
    for (size, expected) in
        [("1 kB", "is too small"), ("1 GB", "--lossless"), ("3 parsec", "80MB"), ("0 MB", "above zero")]
    {
        let said = encode(size, "").refused();
        assert!(said.contains(expected), "{size}: {said}");
    }
    let formats = encode("0.9 MB", "--codec-for *.up_proj.*=nf4").refused();
    assert!(formats.contains("a rate of its own"), "{formats}");
}
