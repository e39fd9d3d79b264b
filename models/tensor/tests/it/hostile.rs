//! Files that lie: a typed error that says where, never a panic.

use trinity_tensor::stats::profile;
use trinity_tensor::{Dtype, Error, TensorFile};

use crate::files::{gguf, npy, zip_archive};
use crate::{noise, safetensors, write_safetensors};

/// Opens and reads everything: an error is welcome, a panic is not.
fn exercise(bytes: Vec<u8>) -> Result<(), Error> {
    let file = TensorFile::from_bytes(bytes, "t")?;
    for entry in file.entries() {
        profile(entry)?;
        entry.read()?;
    }
    Ok(())
}

fn small_files() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    write_safetensors(&path, &[noise("a", Dtype::F16, &[3, 4], 1), noise("b", Dtype::F8e4m3, &[5], 2)]);
    let member = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", &[1; 24]);
    vec![
        ("safetensors", std::fs::read(&path).unwrap()),
        ("npy", member.clone()),
        ("npz", zip_archive(&[("a.npy", member.clone(), false), ("b.npy", member, true)])),
        ("pt", include_bytes!("../data/lone.pt").to_vec()),
        ("gguf", gguf(&[("a", &[32, 2], 8, vec![3; 68]), ("b", &[3], 0, vec![0; 12])])),
    ]
}

#[test]
fn every_truncation_is_an_error() {
    for (format, bytes) in small_files() {
        exercise(bytes.clone()).unwrap();
        for len in 0..bytes.len() {
            assert!(
                exercise(bytes[..len].to_vec()).is_err(),
                "{format} cut to {len} of {} bytes",
                bytes.len()
            );
        }
    }
}

#[test]
fn no_flipped_bit_makes_a_panic() {
    for (_, bytes) in small_files() {
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            exercise(flipped).ok();
        }
    }
}

#[test]
fn lies_in_a_safetensors_header_are_named_with_their_place() {
    let one = |info: &str| safetensors(&format!(r#"{{"a": {info}}}"#), &[0; 8]);
    for (bytes, expected) in [
        (safetensors("{}", &[0; 8]), "belong to none (at byte 10)"),
        ((1u64 << 40).to_le_bytes().to_vec(), "header of 1099511627776 bytes"),
        (200u64.to_le_bytes().iter().chain(b"{ ").copied().collect(), "200 bytes announced"),
        (
            one(r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#),
            "does not take the 8 bytes it spans (at byte 9)",
        ),
        (one(r#"{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,8]}"#), "does not take"),
        (one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#), "does not take"),
        (one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,16]}"#), "spans bytes 0 to 16"),
        (one(r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#), "spans bytes 8 to 0"),
        (one(r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#), "invalid value"),
        (one("7"), "at byte"),
        (
            safetensors(
                r#"{"a": {"dtype":"U8","shape":[6],"data_offsets":[0,6]}, "b": {"dtype":"U8","shape":[6],"data_offsets":[2,8]}}"#,
                &[0; 8],
            ),
            "tensor `b` overlaps",
        ),
        (
            safetensors(
                r#"{"a": {"dtype":"U8","shape":[4],"data_offsets":[0,4]}, "a": {"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
                &[0; 8],
            ),
            "appears twice",
        ),
    ] {
        let error = TensorFile::from_bytes(bytes, "t").unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("at byte"), "expected {expected}, got: {error}");
    }
}

#[test]
fn lies_in_npy_and_gguf_headers_are_named_with_their_place() {
    for (bytes, expected) in [
        (
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }", &[]),
            "does not take",
        ),
        (
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", &[]),
            "dimension",
        ),
        (npy("{'descr': '<f4', 'shape': (1,), }", &[0; 4]), "missing"),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[0; 4]), "quoted string"),
        (gguf(&[("a", &[1 << 60], 0, vec![])]), "past the end"),
        (gguf(&[("a", &[31], 8, vec![0; 34])]), "impossible"),
        (gguf(&[("a", &[64], 8, vec![0; 34])]), "past the end"),
        (gguf(&[("a", &[4], 99, vec![0; 16])]), "number format 99"),
    ] {
        let error = TensorFile::from_bytes(bytes, "t").unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("at byte"), "expected {expected}, got: {error}");
    }
}

#[test]
fn empty_and_foreign_files_are_errors() {
    for bytes in [vec![], vec![0], b"hello, world".to_vec(), vec![0xff; 100]] {
        assert!(TensorFile::from_bytes(bytes, "t").is_err());
    }
}

#[test]
fn a_pickle_that_wants_to_run_code_is_refused_by_name() {
    let refused = |bytes: Vec<u8>| TensorFile::from_bytes(bytes, "t").unwrap_err().to_string();
    let message = refused(include_bytes!("../data/evil.pt").to_vec());
    assert!(message.contains(".system") && message.contains("runs no code"), "{message}");
    let pickle = |bytes: &[u8]| zip_archive(&[("x/data.pkl", bytes.to_vec(), false)]);
    for (bytes, named) in [
        (pickle(b"\x80\x02cbuiltins\neval\n."), "builtins.eval"),
        (pickle(b"\x80\x02}."), "no tensor"),
        (pickle(b"\x80\x02c__torch__.Model\nX\n)\x81."), "__torch__.Model"),
        (pickle(b"\x80\x02\x81."), "class"),
        (pickle(b"\x80\x02R."), "stack is empty"),
        (pickle(b"\x80\x02]q\x00h\x00a."), "nested more than"),
        (pickle(b"\x80\x02X\xff\xff\xff\xff."), "ends inside"),
        (b"\x80\x02}q\x00.".to_vec(), "bare pickle"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), "before 1.6"),
        (zip_archive(&[]), "empty zip"),
        (zip_archive(&[("readme.txt", vec![1], false)]), "none of the zip archive's 1 members"),
    ] {
        let message = refused(bytes);
        assert!(message.contains(named), "{named}: {message}");
    }
}

#[test]
fn tuples_that_double_without_end_are_stopped() {
    // t = (t, t), forty times over.
    let mut pickle = b"\x80\x02)q\x00".to_vec();
    for _ in 0..40 {
        pickle.extend(b"0h\x00h\x00\x86q\x00");
    }
    pickle.push(b'.');
    let bytes = zip_archive(&[("x/data.pkl", pickle, false)]);
    assert!(TensorFile::from_bytes(bytes, "t").unwrap_err().to_string().contains("unfold"));
    // A long name that is recalled for every tensor is no such thing.
    let name = [b'n'; 200];
    let mut pickle = [b"\x80\x02X\xc8\x00\x00\x00", &name[..], b"q\x00"].concat();
    pickle.extend(b"h\x000".repeat(100_000));
    pickle.push(b'.');
    let said = TensorFile::from_bytes(zip_archive(&[("x/data.pkl", pickle, false)]), "t").unwrap_err();
    assert!(!said.to_string().contains("unfold"), "{said}");
}
