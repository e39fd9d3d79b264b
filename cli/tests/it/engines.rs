//! Back into what engines load: GGUF under its own header, sharded folders under
//! their own index, deltas of both.

use std::fs;
use std::path::Path;

use crate::support::{Desk, Tensor, floats, safetensors};

fn values(count: usize, seed: u32) -> Vec<f32> {
    let value = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(977)) >> 9) as f32;
    (0..count as u32).map(|i| (value(i) / 2e6).sin() * 0.1).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// The pairs of a GGUF: an architecture, a vocabulary, a long text, a file type.
fn pairs() -> Vec<u8> {
    let tokens = ["a", "bc", "ß"].map(text).concat();
    [
        text("general.architecture"),
        [&8u32.to_le_bytes()[..], &text("llama")].concat(),
        text("tokenizer.ggml.tokens"),
        [&9u32.to_le_bytes()[..], &8u32.to_le_bytes(), &3u64.to_le_bytes(), &tokens].concat(),
        text("tokenizer.chat_template"),
        [&8u32.to_le_bytes()[..], &text(&"{{ x }}".repeat(1000))].concat(),
        text("general.file_type"),
        [4u32.to_le_bytes(), 0u32.to_le_bytes()].concat(),
    ]
    .concat()
}

/// Name and sides, the outermost first.
const TENSORS: [(&str, &[usize]); 4] = [
    ("token_embd.weight", &[48, 512]),
    ("blk.0.attn_q.weight", &[64, 96]),
    ("blk.0.ffn_up.weight", &[32, 40]),
    ("output_norm.weight", &[512]),
];

fn gguf(path: &Path) {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((TENSORS.len() as u64).to_le_bytes());
    file.extend(4u64.to_le_bytes());
    file.extend(pairs());
    let mut data = Vec::new();
    for (at, (name, sides)) in TENSORS.iter().enumerate() {
        file.extend(text(name));
        file.extend((sides.len() as u32).to_le_bytes());
        sides.iter().rev().for_each(|&side| file.extend((side as u64).to_le_bytes()));
        file.extend(0u32.to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes(&values(sides.iter().product(), at as u32)));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    fs::write(path, file).unwrap();
}

/// What each tensor of a file is stored as, and how far it is from another file's.
fn compared(folder: &Path, one: &str, other: &str) -> Vec<(String, String, f64)> {
    let [one, other] = [one, other].map(|name| trinity_tensor::TensorFile::open(&folder.join(name)).unwrap());
    let own = one.entries().iter().map(|entry| {
        let [a, b] = [entry, other.entry(entry.name()).unwrap()].map(|entry| {
            let tensor = entry.read().unwrap();
            let mut values = vec![0f32; tensor.len()];
            tensor.dtype().to_f32(tensor.data(), &mut values);
            values
        });
        let error: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let energy: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
        (entry.name().to_owned(), entry.stored().to_owned(), error / energy)
    });
    own.collect()
}

#[test]
fn a_gguf_becomes_one_again_with_its_tokenizer_and_in_the_format_asked_for() {
    let desk = Desk::new();
    gguf(&desk.at("m.gguf"));
    desk.ok("encode m.gguf --lossless -o m.tri -q");
    desk.ok("decode m.tri --to gguf --dtype f32 -o same.gguf");
    assert_eq!(desk.read("same.gguf"), desk.read("m.gguf"));

    for (asked, expected, most) in [
        ("f16", ["f16", "f16", "f16", "f32"], 1e-6),
        ("bf16", ["bf16", "bf16", "bf16", "f32"], 1e-5),
        ("q8_0", ["q8_0", "q8_0", "f16", "f32"], 1e-4),
        ("q4_k", ["q4_k", "q8_0", "f16", "f32"], 0.01),
    ] {
        let name = format!("{asked}.gguf");
        desk.ok(format!("decode m.tri --dtype {asked} -o {name}"));
        let found = compared(desk.path(), &name, "m.gguf");
        let stored: Vec<&str> = found.iter().map(|(_, stored, _)| stored.as_str()).collect();
        assert_eq!(stored, expected, "{asked}");
        assert!(found.iter().all(|(_, _, error)| *error < most), "{asked}: {found:?}");
        // Everything that the header says but how tensors are stored.
        let own = desk.read(&name);
        let kept = &pairs()[..pairs().len() - text("general.file_type").len() - 8];
        assert!(own.windows(kept.len()).any(|window| window == kept), "{asked}");
    }
    // Without a word, half precision; twice is refused, another name is not.
    assert!(desk.run("decode m.tri --to gguf").stderr().contains("3 in f16, 1 in f32"));
    assert!(desk.refused("decode m.tri --to gguf").contains("m.decoded.gguf"));
    assert!(desk.refused("decode m.tri --to gguf -o x.safetensors").contains("a name for safetensors"));
}

/// A folder of two shards, with an output layer that is the embedding again.
fn sharded(folder: &Path, seed: u32) {
    fs::create_dir_all(folder).unwrap();
    let shard = |at: usize| folder.join(format!("model-0000{at}-of-00002.safetensors"));
    let tensor = |name, sides: &'static [usize], seed| -> Tensor<'_> {
        (name, "F32", sides, bytes(&values(sides.iter().product(), seed)))
    };
    let embedding = |name| tensor(name, &[64, 96], 1);
    let linear = |name, seed| tensor(name, &[96, 96], seed);
    safetensors(&shard(1), &[embedding("embed_tokens.weight"), linear("layers.0.q_proj.weight", seed)]);
    safetensors(&shard(2), &[linear("layers.0.up_proj.weight", 3), embedding("lm_head.weight")]);
    let size = 4 * 2 * (64 * 96 + 96 * 96);
    let index = format!(
        r#"{{"metadata": {{"total_size": {size}}}, "weight_map": {{
  "embed_tokens.weight": "model-00001-of-00002.safetensors",
  "layers.0.q_proj.weight": "model-00001-of-00002.safetensors",
  "layers.0.up_proj.weight": "model-00002-of-00002.safetensors",
  "lm_head.weight": "model-00002-of-00002.safetensors"}}}}
"#
    );
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    fs::write(folder.join("config.json"), "{\"vocab_size\": 64}").unwrap();
}

#[test]
fn a_sharded_folder_becomes_one_again_under_its_own_index() {
    let desk = Desk::new();
    sharded(&desk.at("in"), 2);
    desk.ok("encode in --lossless --files -o m.tri -q");
    desk.ok("decode m.tri --to safetensors -o out");
    for name in ["model.safetensors.index.json", "config.json"] {
        assert_eq!(desk.read(format!("out/{name}")), desk.read(format!("in/{name}")), "{name}");
    }
    let same = compared(desk.path(), "out", "in");
    assert!(same.len() == 4 && same.iter().all(|(_, _, error)| *error == 0.0), "{same:?}");
    // What is tied has the same values after a loss, too, and half of the bytes are said by the index.
    desk.ok("encode in --bits 4 -o lossy.tri -q");
    desk.ok("decode lossy.tri --to safetensors --dtype bf16 -o half");
    let tensors = trinity_tensor::TensorFile::open(&desk.at("half")).unwrap();
    let content = |name: &str| tensors.entry(name).unwrap().content().unwrap();
    assert_eq!(content("embed_tokens.weight"), content("lm_head.weight"));
    let index = desk.text("half/model.safetensors.index.json");
    assert!(index.contains(&format!("\"total_size\": {}", 2 * 2 * (64 * 96 + 96 * 96))), "{index}");
    assert!(!desk.at("half/config.json").exists());

    assert!(desk.refused("decode m.tri --to safetensors -o out").contains("exists already"));
    assert!(
        desk.refused("decode m.tri --to safetensors --dtype q4_k -o x").contains("blocks are those of GGUF")
    );
    assert!(desk.refused("decode m.tri --to gguf -o x.gguf").contains("made of no GGUF"));
    assert!(desk.run("encode in/config.json --lossless --files -o x.tri").code() != 0);
    let said = desk.refused("encode in/model-00001-of-00002.safetensors --lossless --files -o x.tri");
    assert!(said.contains("is a file"), "{said}");
}

#[test]
fn a_value_that_half_precision_has_no_room_for_is_named() {
    let desk = Desk::new();
    let value = |i: usize| if i == 77 { 1e6 } else { 1.0 };
    safetensors(&desk.at("big.safetensors"), &[floats("w", &[16, 32], value)]);
    desk.ok("encode big.safetensors --lossless -o big.tri -q");
    let said = desk.refused("decode big.tri --dtype f16 -o x.safetensors");
    assert!(said.contains("value 77 of tensor `w`") && said.contains("--dtype bf16"), "{said}");
    assert!(!desk.at("x.safetensors").exists());
    desk.ok("decode big.tri --dtype bf16 -o x.safetensors");
}

#[test]
fn a_delta_of_folders_goes_through_a_pipe_and_makes_a_folder() {
    let desk = Desk::new();
    sharded(&desk.at("base"), 2);
    sharded(&desk.at("tuned"), 7);
    let delta = desk.piped("delta make base tuned -o -", &[]);
    assert!(delta.status.success(), "{}", String::from_utf8_lossy(&delta.stderr));
    let apply = |bytes: &[u8], output: &str| desk.piped(format!("delta apply base - -o {output}"), bytes);
    assert!(apply(&delta.stdout, "again").status.success());
    let same = compared(desk.path(), "again", "tuned");
    assert!(same.len() == 4 && same.iter().all(|(_, _, error)| *error == 0.0), "{same:?}");
    let index = "model.safetensors.index.json";
    assert_eq!(desk.read(format!("again/{index}")), desk.read(format!("tuned/{index}")));
    // One file, where a file is named; and nothing where the delta was cut or is another's.
    desk.write("d.tri", &delta.stdout);
    desk.ok("delta apply base d.tri -o one.safetensors");
    let cut = apply(&delta.stdout[..delta.stdout.len() / 2], "cut");
    assert_eq!(cut.status.code(), Some(2), "{}", String::from_utf8_lossy(&cut.stderr));
    assert!(!desk.at(format!("cut/{index}")).exists());
    assert!(desk.refused("delta apply tuned d.tri -o other").contains("is not the base"));
    assert!(!desk.at(format!("other/{index}")).exists());
}
