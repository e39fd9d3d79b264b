//! The H200 recording that the project carries: it replays exactly, and says what we say it says.

use std::path::{Path, PathBuf};
use trinity_hwcodec::calibration::Calibration;
use trinity_hwcodec::recording::Recording;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/h200")
}

fn recording() -> Recording {
    Recording::read(&folder().join("recording.json")).unwrap()
}

#[test]
fn the_recording_and_its_calibration_are_one() {
    let text = std::fs::read_to_string(folder().join("recording.json")).unwrap();
    assert!(recording().to_json().unwrap() == text, "reading and writing changed the recording");
    let fitted = Calibration::from_recording(&recording()).unwrap();
    let committed = Calibration::read(&folder().join("calibration.toml")).unwrap();
    assert!(fitted == committed, "calibration.toml is not the fit of recording.json");
}

#[test]
fn the_fit_predicts_sizes_it_never_saw_within_ten_percent() {
    for model in Calibration::from_recording(&recording()).unwrap().nvdec {
        assert!(model.held_out_points >= 20 && model.held_out_worst_error < 0.10, "{model:?}");
        assert_eq!(model.bound_by(1024.0 * 1024.0, 2.9 * 1024.0 * 1024.0), "coded bits");
    }
}

#[test]
fn every_stream_of_ours_was_equal_and_decoding_overlaps_with_products() {
    let recording = recording();
    let verify = recording.verify.unwrap();
    assert!(verify.streams >= 150 && verify.equal == verify.streams && verify.refused == 0);
    for point in recording.overlap.iter().filter(|o| o.what.ends_with("gemm")) {
        assert!(point.fraction_of_ideal() >= 0.90, "{}", point.what);
    }
}
