//! Codecs on a piece say what the comparison says of the whole, where the piece is all of it.
use std::sync::Arc;
use trinity_study::rates::{block, rates, way};
use trinity_tensor::codec::{Rate, codec};
use trinity_tensor::pipeline::evaluate;
use trinity_tensor::{Dtype, Entry};

fn entry() -> Entry {
    let values = (0..64 * 48).map(|at| ((at * 37 % 101) as f32 - 50.0) * 0.01 + (at as f32 / 40.0).sin());
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    Entry::in_memory("layers.0.k_proj.weight", Dtype::F32, vec![64, 48], Arc::new(bytes)).unwrap()
}

#[test]
fn the_whole_as_a_piece_gives_the_comparisons_bits_and_decibels() {
    for name in ["trinity", "trinity-lite", "h265", "uniform+ac", "rtn"] {
        let found = rates(&entry(), name, &[Rate::Bits(3.0)], 1 << 20).unwrap();
        let told = evaluate(&entry(), &*codec(name).unwrap(), Rate::Bits(3.0)).unwrap();
        assert_eq!(found[0].bits_per_value, Some(told.bits_per_value), "{name}");
        assert_eq!(found[0].snr_db, Some(told.metrics.snr_db), "{name}");
    }
}

#[test]
fn one_rate_out_of_reach_and_unknown_names_are_told_apart() {
    let own = rates(&entry(), "nf4", &[Rate::Bits(2.0)], 1 << 20).unwrap();
    assert!(own.len() == 1 && own[0].target == "own" && own[0].bits_per_value.unwrap() > 4.0);
    let missed = rates(&entry(), "h265", &[Rate::Bits(0.001)], 1 << 20).unwrap();
    assert!(missed[0].missed.is_some() && missed[0].bits_per_value.is_none());
    assert!(rates(&entry(), "h256", &[Rate::Bits(3.0)], 1 << 20).is_err());
}

#[test]
fn a_block_comes_with_its_stages() {
    let found = block(&entry(), "trinity", Rate::Bits(3.0), 1024).unwrap();
    assert_eq!(found.original.len(), found.rows * found.columns);
    assert!(found.original.len() <= 1024 && found.decoded.len() == found.original.len());
    assert!(!found.stages.is_empty() && found.snr_db.unwrap() > 5.0);
}

#[test]
fn prediction_and_residual_make_the_values() {
    let found = way(&entry(), 0.01, 1 << 20).unwrap().unwrap();
    assert!(found.nmse <= 0.01 && !found.blocks.is_empty());
    for ((value, predicted), residual) in found.values.iter().zip(&found.prediction).zip(&found.residual) {
        assert!((value - predicted - residual).abs() < 1e-6, "{value} is not {predicted} + {residual}");
    }
}
