//! What no codec understands is carried to the bit, and one bad value does not
//! take the others with it.

use trinity_tensor::codec::Rate;
use trinity_tensor::file::{SafetensorsWriter, Spec};
use trinity_tensor::pipeline::{EncodedFile, OnNonFinite, encode_file, spec};
use trinity_tensor::{Dtype, Error, TensorFile};

use crate::files::npy;
use crate::safetensors;

/// A safetensors file of floats, a mask, indices and a format nobody knows.
fn checkpoint(floats: &[f32]) -> Vec<u8> {
    let rows = floats.len() / 64;
    let header = format!(
        r#"{{"w":{{"dtype":"F32","shape":[{rows},64],"data_offsets":[0,{0}]}},"mask":{{"dtype":"BOOL","shape":[2,3],"data_offsets":[{0},{1}]}},"ids":{{"dtype":"I64","shape":[2],"data_offsets":[{1},{2}]}},"odd":{{"dtype":"F4","shape":[2,8],"data_offsets":[{2},{3}]}}}}"#,
        floats.len() * 4,
        floats.len() * 4 + 6,
        floats.len() * 4 + 22,
        floats.len() * 4 + 30,
    );
    let mut data: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
    data.extend([1, 0, 1, 1, 0, 0]);
    data.extend([7i64, -9].iter().flat_map(|id| id.to_le_bytes()));
    data.extend([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]);
    safetensors(&header, &data)
}

fn floats() -> Vec<f32> {
    (0..64 * 64).map(|at: usize| (at as f32 * 0.37).sin() + (at % 5) as f32 * 0.1).collect()
}

fn encode(file: &TensorFile, path: &std::path::Path, on: OnNonFinite) -> Result<EncodedFile, Error> {
    encode_file(file, &|_| ("uniform+ac".into(), Rate::Bits(3.0)), None, on, path, &|_| ())
}

#[test]
fn formats_that_no_codec_knows_are_carried_to_the_bit_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let source = checkpoint(&floats());
    let file = TensorFile::from_bytes(source.clone(), "m").unwrap();
    assert_eq!(file.entry("mask").unwrap().stored(), "BOOL");
    assert_eq!(file.entry("odd").unwrap().carried().unwrap().to_string(), "F4 [2, 8]");
    assert_eq!(file.entry("ids").unwrap().dtype(), Dtype::I64);
    let tri = folder.path().join("m.tri");
    let coded = encode(&file, &tri, OnNonFinite::Refuse).unwrap();
    let kept: Vec<_> =
        coded.tensors.iter().filter(|tensor| tensor.exact.is_some()).map(|t| t.tensor.as_str()).collect();
    assert_eq!(kept, ["mask", "ids", "odd"]);
    // Values are those of their own format: sixteen of four bits, not eight bytes.
    let odd = coded.tensors.last().unwrap();
    assert_eq!((odd.values, odd.bits_per_value), (16, odd.bytes as f64 / 2.0), "{odd:?}");
    let w = &coded.tensors[0];
    assert!(w.exact.is_none() && w.metrics.nmse > 0.0 && w.metrics.nmse < 0.1, "{w:?}");
    assert!((coded.metrics.nmse - w.metrics.nmse).abs() < 0.5 * w.metrics.nmse, "{:?}", coded.metrics);
    // Back into safetensors, under the names and shapes they came with.
    let decoded = TensorFile::open(&tri).unwrap();
    let out = folder.path().join("back.safetensors");
    let specs: Vec<Spec> = decoded.entries().iter().map(spec).collect();
    let mut writer = SafetensorsWriter::create(&out, &specs, decoded.metadata()).unwrap();
    for entry in decoded.entries() {
        writer.write(entry.read().unwrap().data()).unwrap();
    }
    writer.finish().unwrap();
    let back = TensorFile::open(&out).unwrap();
    for name in ["mask", "odd", "ids"] {
        let (was, is) = (file.entry(name).unwrap(), back.entry(name).unwrap());
        assert_eq!((was.carried(), was.stored()), (is.carried(), is.stored()), "{name}");
        assert_eq!(was.read().unwrap().data(), is.read().unwrap().data(), "{name}");
    }
    let text = String::from_utf8_lossy(&std::fs::read(&out).unwrap()).into_owned();
    assert!(text.contains(r#""dtype":"F4","shape":[2,8]"#) && !text.contains("carried."), "{text}");
}

#[test]
fn one_value_that_is_not_finite_keeps_its_tensor_exact_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = floats();
        values[1234] = bad;
        let file = TensorFile::from_bytes(checkpoint(&values), "m").unwrap();
        let tri = folder.path().join("m.tri");
        let coded = encode(&file, &tri, OnNonFinite::KeepExact).unwrap();
        let said = coded.tensors[0].exact.clone().unwrap();
        assert!(said.contains("value 1234 is"), "{said}");
        let decoded = TensorFile::open(&tri).unwrap();
        let (was, is) =
            (file.entry("w").unwrap().read().unwrap(), decoded.entry("w").unwrap().read().unwrap());
        assert_eq!(was.data(), is.data());
        assert!(matches!(
            encode(&file, &tri, OnNonFinite::Refuse),
            Err(Error::NonFinite { index: 1234, .. })
        ));
    }
}

#[test]
fn numpy_formats_that_no_codec_knows_are_carried() {
    for (descr, width, name) in [
        ("|b1", 1, "BOOL"),
        ("<u4", 4, "U32"),
        (">u8", 8, "U64"),
        ("<c16", 16, "npy:<c16"),
        ("<U5", 20, "npy:<U5"),
    ] {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (3, 2), }}\n");
        let data: Vec<u8> = (0..6 * width).map(|at| at as u8).collect();
        let file = TensorFile::from_bytes(npy(&header, &data), "x");
        let file = file.unwrap_or_else(|error| panic!("{descr}: {error}"));
        let entry = &file.entries()[0];
        assert_eq!(entry.carried().unwrap().to_string(), format!("{name} [3, 2]"));
        let data = entry.read().unwrap();
        assert_eq!(data.len(), 6 * width);
        assert_eq!(data.data()[0], if descr.starts_with('>') { width as u8 - 1 } else { 0 });
    }
    for bad in ["|O", "<U", ">c16", "<q4"] {
        let header = format!("{{'descr': '{bad}', 'fortran_order': False, 'shape': (0,), }}\n");
        assert!(TensorFile::from_bytes(npy(&header, &[]), "x").is_err(), "{bad}");
    }
}

#[test]
fn unsigned_and_complex_values_are_counted_as_values_and_not_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, width) in [("U16", 2), ("U32", 4), ("U64", 8), ("C64", 8)] {
        let count = 4096;
        // Bytes without a pattern: no coder takes fewer bits than there are.
        let noise: Vec<u8> = (0..count * width)
            .map(|at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        let header =
            format!(r#"{{"t":{{"dtype":"{dtype}","shape":[64,64],"data_offsets":[0,{}]}}}}"#, noise.len());
        let file = TensorFile::from_bytes(safetensors(&header, &noise), "m").unwrap();
        assert_eq!(file.entry("t").unwrap().stated_values(), count, "{dtype}");
        let lossless = |_: &trinity_tensor::Entry| ("zstd".into(), Rate::Lossless);
        let tri = folder.path().join(format!("{dtype}.tri"));
        let coded = encode_file(&file, &lossless, None, OnNonFinite::Refuse, &tri, &|_| ()).unwrap();
        let tensor = &coded.tensors[0];
        let bits = 8.0 * tensor.bytes as f64 / count as f64;
        assert_eq!((tensor.values, tensor.bits_per_value), (count, bits), "{dtype}");
        // A file read back counts the same.
        assert_eq!(TensorFile::open(&tri).unwrap().entry("t").unwrap().stated_values(), count, "{dtype}");
    }
}
