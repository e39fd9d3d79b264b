//! What is written is read back, byte for byte, in every format.

use std::io::Write;

use flate2::write::DeflateEncoder;
use half::f16;
use proptest::prelude::*;
use trinity_tensor::file::{List, write_npy};
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

use crate::{noise, sample_path, write_safetensors};

fn any_shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..7, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn safetensors_keep_every_byte(shapes in prop::collection::vec(any_shape(), 1..5), seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let tensors: Vec<Tensor> = (0..)
            .zip(&shapes)
            .zip(Dtype::ALL.into_iter().cycle().skip((seed % 10) as usize))
            .map(|((i, shape), dtype)| noise(&format!("tensor \"{i}\"\n"), dtype, shape, seed ^ i))
            .collect();
        write_safetensors(&path, &tensors);
        let file = TensorFile::open(&path).unwrap();
        for tensor in &tensors {
            prop_assert_eq!(&file.entry(tensor.name()).unwrap().read().unwrap(), tensor);
        }
    }

    #[test]
    fn npy_keeps_every_byte(shape in any_shape(), which in 0usize..10, seed: u64) {
        let dtype = Dtype::ALL[which];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name.npy");
        let tensor = noise("name", dtype, &shape, seed);
        match write_npy(&path, &tensor) {
            Ok(()) => prop_assert_eq!(TensorFile::open(&path).unwrap().entries()[0].read().unwrap(), tensor),
            Err(error) => prop_assert!(matches!(dtype, Dtype::F8e4m3 | Dtype::F8e5m2), "{error}"),
        }
    }
}

#[test]
fn a_class_that_the_name_does_not_tell_survives_in_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let tensor = Tensor::new("x", Class::KvCache, Dtype::U8, vec![1], vec![7]).unwrap();
    write_safetensors(&path, &[tensor]);
    assert_eq!(TensorFile::open(&path).unwrap().entries()[0].class(), Class::KvCache);
}

#[test]
fn the_sample_holds_one_tensor_of_each_kind() {
    let file = TensorFile::open(&sample_path()).unwrap();
    let classes: Vec<Class> = file.entries().iter().map(|entry| entry.class()).collect();
    assert_eq!(classes, [Class::Weight, Class::KvCache, Class::Activation, Class::WeightGradient]);
}

/// An npy of version 1.0 around a header text.
pub fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn fortran_order_and_big_endian_arrays_are_put_in_our_order() {
    // numpy: np.asfortranarray(np.arange(6, dtype='>i2').reshape(2, 3))
    let data: Vec<u8> = [0i16, 3, 1, 4, 2, 5].iter().flat_map(|value| value.to_be_bytes()).collect();
    let bytes = npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", &data);
    let tensor = TensorFile::from_bytes(bytes, "a").unwrap().entries()[0].read().unwrap();
    let expected: Vec<u8> = (0i16..6).flat_map(i16::to_le_bytes).collect();
    assert_eq!((tensor.shape(), tensor.data()), (&[2, 3][..], expected.as_slice()));
}

/// A zip archive, written by hand so that the tests share no code with the reader.
pub fn zip_archive(members: &[(&str, Vec<u8>, bool)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content, deflate) in members {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let stored = if *deflate {
            let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        } else {
            content.clone()
        };
        let mut fields = Vec::new();
        fields.extend([20, 0, 0, 0, if *deflate { 8 } else { 0 }, 0, 0, 0, 0x21, 0]);
        fields.extend(crc.sum().to_le_bytes());
        fields.extend((stored.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        let offset = archive.len() as u32;
        archive.extend(b"PK\x03\x04");
        archive.extend(&fields);
        archive.extend(name.as_bytes());
        archive.extend(&stored);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, count) = (archive.len() as u32, members.len() as u16);
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    archive
}

#[test]
fn npz_members_are_read_stored_and_deflated() {
    let data: Vec<u8> = (0..200).collect();
    let member = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (20, 10), }", &data);
    let archive = zip_archive(&[("a.npy", member.clone(), false), ("b/c.npy", member, true)]);
    let file = TensorFile::from_bytes(archive, "").unwrap();
    for (entry, name) in file.entries().iter().zip(["a", "b/c"]) {
        assert_eq!(entry.name(), name);
        assert_eq!(entry.read().unwrap().data(), data);
    }
}

#[test]
fn a_flipped_bit_in_an_npz_member_is_caught_by_its_checksum() {
    let member = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (200,), }", &[9; 200]);
    let mut archive = zip_archive(&[("a.npy", member, false)]);
    archive[180] ^= 4;
    let file = TensorFile::from_bytes(archive, "").unwrap();
    let error = file.entries()[0].read().unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

/// A GGUF of version 3 with one metadata pair.
pub fn gguf(tensors: &[(&str, &[u64], u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    text(&mut bytes, "general.name");
    bytes.extend(8u32.to_le_bytes());
    text(&mut bytes, "test");
    text(&mut bytes, "tokens");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    text(&mut bytes, "a");
    text(&mut bytes, "bc");
    let mut offset = 0u64;
    for (name, dims, kind, data) in tensors {
        text(&mut bytes, name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset = (offset + data.len() as u64).next_multiple_of(32);
    }
    for (_, _, _, data) in tensors {
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(data);
    }
    bytes
}

#[test]
fn gguf_blocks_decode_as_their_format_says() {
    let scale = f16::from_f32(0.5).to_le_bytes();
    let low = f16::from_f32(-2.0).to_le_bytes();
    let nibbles: Vec<u8> = (0..16u8).map(|i| i | (15 - i) << 4).collect();
    let q8: Vec<u8> = scale.into_iter().chain((0..32).map(|i| (i as i8 - 16) as u8)).collect();
    let q4_0: Vec<u8> = scale.into_iter().chain(nibbles.clone()).collect();
    let q4_1: Vec<u8> = scale.into_iter().chain(low).chain(nibbles.clone()).collect();
    let q5_0: Vec<u8> = scale.into_iter().chain([0xff, 0, 0, 0]).chain(nibbles.clone()).collect();
    let q5_1: Vec<u8> = scale.into_iter().chain(low).chain([0, 0, 0, 0x80]).chain(nibbles).collect();
    let bytes = gguf(&[
        ("q8", &[32, 1], 8, q8),
        ("q4_0", &[32], 2, q4_0),
        ("q4_1", &[32], 3, q4_1),
        ("q5_0", &[32], 6, q5_0),
        ("q5_1", &[32], 7, q5_1),
        ("plain", &[2, 3], 30, vec![0; 12]),
    ]);
    let file = TensorFile::from_bytes(bytes, "").unwrap();
    assert_eq!(file.metadata()["general.name"], "test");
    assert_eq!(file.entry("plain").unwrap().shape(), [3, 2]);
    assert_eq!(file.entry("q8").unwrap().stored(), "q8_0");
    let values = |name: &str| floats(&file, name);
    let nibble = |i: usize| if i < 16 { i as f32 } else { (31 - i) as f32 };
    for i in 0..32 {
        assert_eq!(values("q8")[i], 0.5 * (i as f32 - 16.0));
        assert_eq!(values("q4_0")[i], 0.5 * (nibble(i) - 8.0));
        assert_eq!(values("q4_1")[i], 0.5 * nibble(i) - 2.0);
        assert_eq!(values("q5_0")[i], 0.5 * (nibble(i) + if i < 8 { 16.0 } else { 0.0 } - 16.0));
        assert_eq!(values("q5_1")[i], 0.5 * (nibble(i) + if i == 31 { 16.0 } else { 0.0 }) - 2.0);
    }
}

#[test]
fn a_sharded_set_is_one_file_through_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (noise("a", Dtype::Bf16, &[3, 2], 1), noise("b", Dtype::F32, &[5], 2));
    write_safetensors(&folder.path().join("m-1.safetensors"), std::slice::from_ref(&a));
    write_safetensors(&folder.path().join("m-2.safetensors"), std::slice::from_ref(&b));
    let index = folder.path().join("m.safetensors.index.json");
    let write = |text: &str| std::fs::write(&index, text).unwrap();
    write(r#"{"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#);
    let file = TensorFile::open(&index).unwrap();
    assert_eq!(file.entry("a").unwrap().read().unwrap(), a);
    assert_eq!(file.entry("b").unwrap().read().unwrap(), b);
    for broken in [
        r#"{"weight_map": {"a": "m-1.safetensors", "b": "../m-2.safetensors"}}"#,
        r#"{"weight_map": {"a": "m-1.safetensors", "c": "m-2.safetensors"}}"#,
        r#"{"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors"}}"#,
        r#"{"weight_map": {"a": "m-3.safetensors"}}"#,
        r#"{"weight_map": 3}"#,
    ] {
        write(broken);
        assert!(TensorFile::open(&index).is_err(), "{broken}");
    }
}

fn floats(file: &TensorFile, name: &str) -> Vec<f32> {
    file.entry(name).unwrap().read().unwrap().to_f32()
}

#[test]
fn every_block_format_of_gguf_decodes_as_the_gguf_package_does() {
    let bytes = include_bytes!("../data/gguf_blocks.gguf");
    let file = TensorFile::from_bytes(bytes.to_vec(), "").unwrap();
    let mut formats = 0;
    for entry in file.entries().iter().filter(|entry| !entry.name().ends_with(".f32")) {
        assert_eq!(entry.stored(), entry.name().to_lowercase());
        let (ours, theirs) = (floats(&file, entry.name()), floats(&file, &format!("{}.f32", entry.name())));
        assert_eq!(ours.len(), theirs.len(), "{}", entry.name());
        for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(a.to_bits(), b.to_bits(), "{} value {i}: {a} against {b}", entry.name());
        }
        formats += 1;
    }
    assert_eq!(formats, 21);
    let texts = ["a", "bc", "ß"].map(str::to_owned).to_vec();
    assert_eq!(file.list("tokenizer.ggml.tokens").unwrap(), Some(List::Texts(texts)));
    assert_eq!(file.list("tokenizer.ggml.scores").unwrap(), Some(List::Numbers(vec![0.5, -1.25, 3.0])));
    assert_eq!(file.list("nothing").unwrap(), None);
}

#[test]
fn a_state_dict_of_pytorch_is_read_as_pytorch_saved_it() {
    let file = TensorFile::from_bytes(include_bytes!("../data/state.pt").to_vec(), "state").unwrap();
    let names: Vec<&str> = file.entries().iter().map(|entry| entry.name()).collect();
    let model = ["plain", "transposed", "cut", "half", "steps", "mask", "parameter", "empty"];
    let mut expected: Vec<String> = model.iter().map(|name| format!("model.{name}")).collect();
    expected.extend(["linear.weight", "linear.bias", "list.0"].map(str::to_owned));
    assert_eq!(names, expected);
    let at = |row: usize, col: usize| (6 * row + col) as f32 / 8.0;
    let grid = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| -> Vec<f32> {
        rows.flat_map(|r| cols.clone().map(move |c| at(r, c))).collect()
    };
    assert_eq!(floats(&file, "model.plain"), grid(0..4, 0..6));
    assert_eq!(floats(&file, "model.cut"), grid(1..3, 2..5));
    assert_eq!(file.entry("model.transposed").unwrap().shape(), [6, 4]);
    let turned: Vec<f32> = (0..6).flat_map(|c| (0..4).map(move |r| at(r, c))).collect();
    assert_eq!(floats(&file, "model.transposed"), turned);
    assert_eq!(floats(&file, "model.half")[..3], [-1.0, -0.875, -0.75]);
    assert_eq!(file.entry("model.steps").unwrap().dtype(), Dtype::I64);
    assert_eq!(floats(&file, "model.steps"), [7.0]);
    assert_eq!(
        (file.entry("model.mask").unwrap().stored(), floats(&file, "model.mask")),
        ("bool", vec![1.0, 0.0, 1.0])
    );
    assert_eq!(floats(&file, "model.parameter"), [1.5, -2.0]);
    assert_eq!(floats(&file, "linear.weight"), [1.0, 1.0]);
    let lone = TensorFile::from_bytes(include_bytes!("../data/lone.pt").to_vec(), "lone").unwrap();
    assert_eq!(floats(&lone, "lone"), [1.0, 2.0]);
}

#[test]
fn a_folder_is_read_through_its_index_or_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let message = TensorFile::open(folder.path()).unwrap_err();
    assert!(format!("{:?}", message).contains("no .safetensors"), "{message:?}");
    let (a, b) = (noise("a", Dtype::Bf16, &[3, 2], 1), noise("b", Dtype::F32, &[5], 2));
    write_safetensors(&folder.path().join("model-00001-of-00002.safetensors"), std::slice::from_ref(&a));
    write_safetensors(&folder.path().join("model-00002-of-00002.safetensors"), std::slice::from_ref(&b));
    let read = |name: &str| TensorFile::open(folder.path()).unwrap().entry(name).unwrap().read().unwrap();
    assert_eq!((read("a"), read("b")), (a.clone(), b.clone()));
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    assert_eq!((read("a"), read("b")), (a, b));
    // An index that names itself is not followed.
    let index = r#"{"weight_map": {"a": "model.safetensors.index.json"}}"#;
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    assert!(TensorFile::open(folder.path()).is_err());
}

#[test]
fn a_configuration_stands_for_the_tensors_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (a, b) = (noise("a", Dtype::Bf16, &[3, 2], 1), noise("b", Dtype::F32, &[5], 2));
    std::fs::write(at("small.json"), r#"{"hidden_size": 2}"#).unwrap();
    let said = || format!("{:?}", TensorFile::open(&at("small.json")).unwrap_err());
    assert!(said().contains("weight_map"), "{}", said());
    write_safetensors(&at("small-1-of-2.safetensors"), std::slice::from_ref(&a));
    assert!(said().contains("1 of its 2 shards"), "{}", said());
    write_safetensors(&at("small-2-of-2.safetensors"), std::slice::from_ref(&b));
    write_safetensors(&at("other-1-of-1.safetensors"), std::slice::from_ref(&b));
    let file = TensorFile::open(&at("small.json")).unwrap();
    let read = |name: &str| file.entry(name).unwrap().read().unwrap();
    assert_eq!((file.entries().len(), read("a"), read("b")), (2, a.clone(), b));
    write_safetensors(&at("small.safetensors"), std::slice::from_ref(&a));
    assert_eq!(TensorFile::open(&at("small.json")).unwrap().entries().len(), 1);
    // A name that nothing has stands for nothing.
    std::fs::remove_file(at("small.json")).unwrap();
    assert!(said().contains("NotFound"), "{}", said());
}

#[test]
fn a_file_too_short_for_any_header_is_of_no_known_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tri");
    for bytes in [&b""[..], b"abc", b"abcdefg"] {
        std::fs::write(&path, bytes).unwrap();
        let said = TensorFile::open(&path).unwrap_err().root().to_string();
        assert!(said.contains("no known tensor format"), "{bytes:?}: {said}");
    }
}
