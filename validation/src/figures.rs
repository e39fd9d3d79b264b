//! Recordings that `trinity figure` judges by, as JSON rows.
//!
//! What was recorded elsewhere in this crate, in the form in which a command would
//! print it. Knows tables; knows nothing of claims.

use crate::{Error, engines, facts, language_models, other_models, trained};
use serde_json::{Value, json};
use trinity_config::Document;
use trinity_silicon::synthesis::{Design, Synthesis};
use trinity_study::config::SynthesisFile;

/// The rows of a recording: `data-parallel`, `pipeline`, `video-pipeline`, `85M` or `2.7M` of training runs, `other-models`,
/// `smollm2-135m`, `gemma-3-270m`, the first with its bits shared out `-linear` by layer or by `-slopes`, `silicon`, `torch`, `delta`,
/// `sparse-delta`.
pub fn rows(set: &str) -> Result<Value, Error> {
    match set {
        "other-models" => {
            let rows = other_models::rows()?.into_iter().map(|row| {
                let (kept, count) = share(&row);
                json!({ "kept": kept, "kept_ci95": widest(kept, count), "labelled": false,
                        "model": row.model, "method": row.method, "target_bits": row.target_bits,
                        "bits_per_value": row.bits_per_value, "agreement": row.agreement, "second": row.second })
            });
            Ok(rows.collect())
        }
        "smollm2-135m" | "smollm2-135m-linear" | "smollm2-135m-slopes" | "gemma-3-270m" => {
            let rows = language_models::rows()?.into_iter().filter(|row| row.model == set);
            Ok(rows.map(|row| json!(row)).collect())
        }
        "silicon" => silicon(),
        "delta" => delta(),
        "sparse-delta" => sparse_delta(),
        "torch" => scored("torch."),
        set => training(set),
    }
}

/// The notes' own benchmark, turn by turn.
const SPARSE_DELTA: &str = include_str!("../data/figures/sparse_delta.json");

fn sparse_delta() -> Result<Value, Error> {
    let damaged = |why: String| Error::Data { file: "figures/sparse_delta.json", why };
    let mut kept: Value = serde_json::from_str(SPARSE_DELTA).map_err(|error| damaged(error.to_string()))?;
    let sizes = ["raw_mib", "compressed_mib"].map(|name| (name, kept[name].clone()));
    let runs = kept["runs"].as_array_mut().ok_or_else(|| damaged("no runs".into()))?;
    for (name, size) in sizes {
        runs.iter_mut().for_each(|run| run[name] = size.clone());
    }
    Ok(kept)
}

/// The pipeline of sparse deltas on the recorded GPU: how much faster than one step after the other, and how far the
/// slowest and fastest runs of either are from that.
fn delta() -> Result<Value, Error> {
    let recording = engines::recording()?;
    let rows = recording.delta.iter().map(|point| {
        let (synchronous, pipelined) = (&point.synchronous_s, &point.pipelined_s);
        let speedup = synchronous.median / pipelined.median;
        let low = synchronous.low / pipelined.high;
        let high = synchronous.high / pipelined.low;
        json!({ "threads": point.threads, "decoder": point.decoder, "chunks": point.chunks, "speedup": speedup,
                "speedup_half": (speedup - low).max(high - speedup) })
    });
    Ok(rows.collect())
}

/// What a model kept that is a share of so many things: sentences, words, masks.
fn share(row: &other_models::Fidelity) -> (f64, f64) {
    match row.model.as_str() {
        "minilm-l6-v2" => (row.second, 300.0),
        "whisper-base" => (row.agreement, 271.0),
        _ => (row.agreement, 36.0),
    }
}

/// Half of the widest 95 % interval of the mean of so many numbers between 0 and 1 (Agresti and Coull: two of each
/// kind more).
fn widest(share: f64, count: f64) -> f64 {
    let count = count + 4.0;
    let share = (share.clamp(0.0, 1.0) * (count - 4.0) + 2.0) / count;
    1.96 * (share * (1.0 - share) / count).sqrt()
}

/// Facts that a source prints, beside what our models arrive at.
fn scored(family: &str) -> Result<Value, Error> {
    let facts = facts::facts()?;
    let named: Vec<&str> = facts.iter().filter_map(|fact| fact.model.as_deref()).collect();
    let named = named.into_iter().filter(|model| model.starts_with(family));
    let rows = named.zip(facts::score(&facts, family)?).map(|(model, pair)| {
        json!({ "name": model, "what": pair.what, "source": pair.measured, "ours": pair.predicted })
    });
    Ok(rows.collect())
}

/// Areas and energies that the paper prints, and what counting, synthesis and arithmetic say.
fn silicon() -> Result<Value, Error> {
    let mut rows = Vec::new();
    for family in ["headline.", "silicon."] {
        if let Value::Array(found) = scored(family)? {
            rows.extend(found);
        }
    }
    let SynthesisFile(xk264) = Document::load("silicon/xk264")?.read()?;
    for design in &xk264.design {
        let scale = trinity_silicon::table3::THROUGHPUT_GBPS / design.gbps;
        rows.push(json!({ "name": format!("netlist.{}", design.name), "what": design.what,
                          "ours": design.area_mm2 * scale }));
        if let Some(power_w) = netlist_power_w(&xk264, design) {
            rows.push(json!({ "name": format!("netlist.{}.power", design.name), "what": design.what,
                              "ours": power_w * scale }));
        }
    }
    for row in trinity_silicon::table3::ROWS {
        rows.push(
            json!({ "name": format!("column.{}", row.name), "what": "printed pJ/bit over power by throughput",
                          "ours": row.column_ratio() }),
        );
    }
    Ok(Value::Array(rows))
}

/// Logic, flip-flops and wires of one instance at its own clock, where every stage has its watts; memories are not in it.
fn netlist_power_w(synthesis: &Synthesis, design: &Design) -> Option<f64> {
    let stages = synthesis.stage.iter().filter(|stage| stage.design == design.name);
    let stages_w: f64 = stages.map(|stage| stage.power_w).sum::<Option<f64>>()?;
    let clock_share = design.clock_ghz * synthesis.assumed.clock_ps / 1000.0;
    Some(stages_w * synthesis.assumed.wire_power.unwrap_or(1.0) * clock_share)
}

/// Runs beside the uncoded ones of their seeds.
fn training(set: &str) -> Result<Value, Error> {
    let runs = trained::runs()?;
    let found = trained::paired(&runs, set)
        .ok_or_else(|| Error::Data { file: "training/runs.csv", why: format!("there is no set {set}") })?;
    let rows = found.into_iter().map(|(run, uncoded)| {
        json!({ "run": run.name, "seed": run.seed, "steps": run.steps, "bits_per_byte": run.bits_per_byte,
                "weight_gradient_bits": run.weight_gradient_bits, "activation_bits": run.activation_bits,
                "activation_gradient_bits": run.activation_gradient_bits,
                "loss_percent": 100.0 * (run.bits_per_byte / uncoded.bits_per_byte - 1.0),
                "choices": run.choices, "choices_kept_percent": 100.0 * run.choices / uncoded.choices })
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_rows_and_no_other_is_known() {
        for set in ["data-parallel", "pipeline", "85M", "2.7M", "other-models", "silicon", "torch", "delta"] {
            assert!(rows(set).unwrap().as_array().is_some_and(|rows| rows.len() > 2), "{set}");
        }
        assert!(rows("nothing").is_err());
    }

    /// What the netlist takes for 100 Gb/s follows from one instance.
    #[test]
    fn an_encoder_is_as_many_instances_as_its_rate_takes() {
        let silicon = rows("silicon").unwrap();
        let of = |name: &str| {
            let rows = silicon.as_array().unwrap();
            rows.iter().find(|row| row["name"] == name).unwrap()["ours"].as_f64().unwrap()
        };
        assert!((of("netlist.xk264") - 0.10923 * 100.0 / 5.972).abs() < 1e-3);
        assert!(of("silicon.h264-encoder.area") > of("netlist.xk264"));
        // 237.5 mW at 1 GHz without wires (`configs/silicon/xk264.toml`), 0.4 GHz.
        assert!((of("netlist.xk264.power") - 0.2375 * 1.15 * 0.4 * 100.0 / 5.972).abs() < 1e-3);
    }
}
