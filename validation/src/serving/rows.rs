//! Services against what engines measured: time to first token and time per
//! token of rows that state engine, model, GPU, placement and load.
//!
//! A row that cannot be put to the model is named with its reason; none is
//! dropped in silence. Beside each error stands that of AIConfigurator, where
//! its predictions lie beside the table.

use crate::Error;
use crate::csv::{CsvRow, Problem, Table};
use crate::score::{Pair, Stats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use trinity_sim::serving::replica::Placement;
use trinity_study::serving::library::Library;
use trinity_study::serving::measured::{Arrangement, Expected, Service, Workers};

/// Columns that every table of services has.
const COLUMNS: &str = "id,backend,backend_version,model,system,mode,isl,osl,concurrency,precision_eff,tp_fix,dp_fix,\
     ttft_ms,tpot_ms";

/// Predictions of AIConfigurator, in the folder of the table.
const PEER: &str = "aiconfigurator_predictions.csv";
const PEER_COLUMNS: &str = "id,variant,ttft_pred_ms,tpot_pred_ms,status";

/// Both sets.
pub const TTFT: &str = "Serving TTFT";
pub const TPOT: &str = "Serving TPOT";

/// One row of a table of services, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub id: String,
    pub engine: String,
    pub version: String,
    pub gpu: String,
    pub model: String,
    /// Whether the table calls the row fit for use.
    pub usable: bool,
    pub measured_ttft_ms: f64,
    pub measured_tpot_ms: f64,
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
    /// Predicted over measured, less one.
    pub ttft_error: Option<f64>,
    pub tpot_error: Option<f64>,
    pub aiconfigurator_ttft_error: Option<f64>,
    pub aiconfigurator_tpot_error: Option<f64>,
    /// Why there is no prediction, or what was assumed for it.
    pub remark: Option<String>,
}

/// Rows of all tables.
#[derive(Clone, Debug, Default)]
pub struct Services {
    pub rows: Vec<Judged>,
    /// What each row describes, where it does.
    pub services: Vec<Option<Service>>,
    pub malformed: Vec<Problem>,
}

/// One line of what comes out: a group of rows, one of the two times.
#[derive(Clone, Debug)]
pub struct Group {
    pub set: String,
    pub pairs: Vec<Pair>,
    /// AIConfigurator's mean error on the rows of the group that it predicted.
    pub peer_mape: Option<f64>,
    /// Our mean error on those very rows.
    pub ours_on_peer_rows: Option<f64>,
    pub unscored: usize,
    pub unscored_because: Option<String>,
}

pub(super) fn damaged(error: impl std::fmt::Display) -> Error {
    Error::Data { file: "configs/engines", why: error.to_string() }
}

/// What is built in of engines.
pub(super) fn library() -> Result<Library, Error> {
    Library::load().map_err(damaged)
}

/// The peer's times of a row.
type PeerTimes = BTreeMap<String, (f64, f64)>;

impl Services {
    /// Reads `path` and predicts every row.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_with(path, &library()?)
    }

    /// Reads `path` and predicts every row with what `library` has.
    pub fn read_with(path: &Path, library: &Library) -> Result<Self, Error> {
        let table = Table::read(path, COLUMNS)?;
        let peer = path.parent().map(|folder| folder.join(PEER)).filter(|path| path.exists());
        let peer = peer.map(|path| peer_times(&path)).transpose()?.unwrap_or_default();
        let greatest = greatest_concurrencies(&table);
        let (read, malformed) = table.each(|row| {
            let judged = judge(row, &peer)?;
            let greatest_concurrency = greatest.get(&deployment(row)).copied().unwrap_or(0);
            let service = service(row, &judged.model);
            Ok((judged, service.map(|service| Service { greatest_concurrency, ..service })))
        });
        let (mut rows, asked): (Vec<Judged>, Vec<_>) = read.into_iter().unzip();
        let known: Vec<Service> = asked.iter().filter_map(|service| service.clone().ok()).collect();
        let mut expected = library.expect_all(&known).into_iter();
        for (row, service) in rows.iter_mut().zip(&asked) {
            let outcome = match service {
                Ok(_) => expected.next().unwrap_or_else(|| Err("no answer".into())),
                Err(why) => Err(why.clone()),
            };
            row.answer(outcome);
        }
        Ok(Self { rows, services: asked.into_iter().map(Result::ok).collect(), malformed })
    }

    /// Adds the rows of another table.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.services.extend(other.services);
        self.malformed.extend(other.malformed);
    }

    /// Usable rows, all together and by engine, GPU and model.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<(u8, String), Vec<&Judged>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.usable) {
            let names = [String::new(), row.engine.clone(), row.gpu.clone(), row.model.clone()];
            for (order, name) in names.into_iter().enumerate() {
                groups.entry((order as u8, name)).or_default().push(row);
            }
        }
        let mut list = Vec::new();
        for (set, first) in [(TTFT, true), (TPOT, false)] {
            for ((_, name), rows) in &groups {
                let set = if name.is_empty() { set.to_owned() } else { format!("{set}, {name}") };
                list.push(group(set, rows, first));
            }
        }
        list
    }
}

fn group(set: String, rows: &[&Judged], first_token: bool) -> Group {
    let times = |row: &Judged| match first_token {
        true => (row.ttft_ms, row.measured_ttft_ms, row.ttft_error, row.aiconfigurator_ttft_error),
        false => (row.tpot_ms, row.measured_tpot_ms, row.tpot_error, row.aiconfigurator_tpot_error),
    };
    let mut pairs = Vec::new();
    let (mut peer, mut ours) = (Vec::new(), Vec::new());
    let mut unscored = Vec::new();
    for row in rows {
        let (predicted, measured, own, theirs) = times(row);
        match predicted {
            Some(predicted) => pairs.push(Pair { what: row.id.clone(), predicted, measured }),
            None => unscored.push(format!("{}: {}", row.id, row.remark.as_deref().unwrap_or("no reason"))),
        }
        if let (Some(own), Some(theirs)) = (own, theirs) {
            ours.push(own);
            peer.push(theirs);
        }
    }
    Group {
        set,
        pairs,
        peer_mape: Stats::of(&peer).map(|stats| stats.mape),
        ours_on_peer_rows: Stats::of(&ours).map(|stats| stats.mape),
        unscored: unscored.len(),
        unscored_because: unscored.into_iter().next(),
    }
}

fn peer_times(path: &Path) -> Result<PeerTimes, Error> {
    let table = Table::read(path, PEER_COLUMNS)?;
    let mut times = PeerTimes::new();
    for row in table.rows() {
        let (Ok(Some(ttft)), Ok(Some(tpot))) = (row.positive("ttft_pred_ms"), row.positive("tpot_pred_ms"))
        else {
            continue;
        };
        // `fix` is the corrected deployment of rows whose parallelism was inflated.
        if row.text("variant") == "fix" || !times.contains_key(row.text("id")) {
            times.insert(row.text("id").to_owned(), (ttft, tpot));
        }
    }
    Ok(times)
}

/// The columns that rows of one deployment share: all but those of the load.
const DEPLOYMENT: &str = "backend,backend_version,model,system,precision_eff,mode,isl,osl,origin,image,tp_fix,dp_fix,\
     moe_ep_fix,prefill_num_workers,prefill_tp_size,prefill_attention_dp_size,prefill_moe_ep_size,\
     decode_num_workers,decode_tp_size,decode_attention_dp_size,decode_moe_ep_size,decode_pp_size";

fn deployment(row: &CsvRow<'_>) -> String {
    DEPLOYMENT.split(',').map(|column| row.text(column)).collect::<Vec<_>>().join("|")
}

/// The greatest concurrency of each deployment in the table.
fn greatest_concurrencies(table: &Table) -> BTreeMap<String, u32> {
    let mut greatest = BTreeMap::new();
    for row in table.rows() {
        if let Ok(Some(concurrency)) = row.count("concurrency") {
            let own: &mut u32 = greatest.entry(deployment(&row)).or_default();
            *own = concurrency.max(*own);
        }
    }
    greatest
}

fn judge(row: &CsvRow<'_>, peer: &PeerTimes) -> Result<Judged, Problem> {
    let (measured_ttft_ms, measured_tpot_ms) = (row.required("ttft_ms")?, row.required("tpot_ms")?);
    let family = row.text("model_family");
    let model = if family.is_empty() { row.text("model") } else { family };
    let id = row.text("id").to_owned();
    let theirs = peer.get(&id);
    Ok(Judged {
        id,
        engine: row.text("backend").to_owned(),
        version: row.text("backend_version").to_owned(),
        gpu: row.text("system").to_owned(),
        model: model.to_owned(),
        usable: row.text("usable") != "0",
        measured_ttft_ms,
        measured_tpot_ms,
        ttft_ms: None,
        tpot_ms: None,
        ttft_error: None,
        tpot_error: None,
        aiconfigurator_ttft_error: theirs.map(|t| t.0 / measured_ttft_ms - 1.0),
        aiconfigurator_tpot_error: theirs.map(|t| t.1 / measured_tpot_ms - 1.0),
        remark: None,
    })
}

impl Judged {
    fn answer(&mut self, outcome: Result<Expected, String>) {
        match outcome {
            Err(why) => self.remark = Some(why),
            Ok(expected) => {
                let (ttft_ms, tpot_ms) = (expected.ttft_s * 1e3, expected.tpot_s * 1e3);
                (self.ttft_ms, self.tpot_ms) = (Some(ttft_ms), Some(tpot_ms));
                self.ttft_error = Some(ttft_ms / self.measured_ttft_ms - 1.0);
                self.tpot_error = Some(tpot_ms / self.measured_tpot_ms - 1.0);
                self.remark = expected.beyond_memory.then(|| {
                    "the GPUs as stated do not hold the weights; the cache was taken to be without limit"
                        .to_owned()
                });
            }
        }
    }
}

/// A count that a row states, in its own words where it does not.
fn stated(row: &CsvRow<'_>, name: &str) -> Result<u32, String> {
    row.required_count(name).map_err(|problem| problem.message)
}

/// A count that is one where a row does not state it.
fn or_one(row: &CsvRow<'_>, name: &str) -> Result<u32, String> {
    row.count(name).map(|n| n.unwrap_or(1)).map_err(|problem| problem.message)
}

/// The service that a row describes; a sentence where it does not.
fn service(row: &CsvRow<'_>, model: &str) -> Result<Service, String> {
    let arrangement = match row.text("mode") {
        "disagg" => {
            Arrangement::Disaggregated { prefill: workers(row, "prefill")?, decode: workers(row, "decode")? }
        }
        _ => Arrangement::Aggregated(aggregated(row)?),
    };
    Ok(Service {
        engine: row.text("backend").to_owned(),
        version: row.text("backend_version").to_owned(),
        model: model.to_owned(),
        gpu: row.text("system").to_owned(),
        precision: row.text("precision_eff").to_owned(),
        measured: row.text("measured_date").to_owned(),
        prompt_tokens: stated(row, "isl")?,
        answer_tokens: stated(row, "osl")?,
        concurrency: stated(row, "concurrency")?,
        greatest_concurrency: stated(row, "concurrency")?,
        arrangement,
    })
}

fn aggregated(row: &CsvRow<'_>) -> Result<Placement, String> {
    let (mut tensor, mut data) = (stated(row, "tp_fix")?, stated(row, "dp_fix")?);
    // Rows of InferenceX' vLLM that the converter wrote as data parallel: the
    // same measurements occur elsewhere as tensor parallel with experts dealt out.
    let inflated =
        row.text("quality").contains("par_inflated") && row.text("origin").starts_with("inferencex");
    if row.text("backend") == "vllm" && inflated && data > 1 {
        (tensor, data) = (tensor * data, 1);
    }
    Ok(placement(tensor, data, or_one(row, "moe_ep_fix")?))
}

/// Experts that are not dealt out are cut along the GPUs of the replica.
fn placement(tensor: u32, attention_data: u32, expert: u32) -> Placement {
    let gpus = tensor.saturating_mul(attention_data);
    let expert = if expert > 0 && gpus.is_multiple_of(expert) { expert } else { 1 };
    Placement { tensor, attention_data, expert_tensor: gpus / expert, expert }
}

fn workers(row: &CsvRow<'_>, stage: &str) -> Result<Workers, String> {
    let count = |name: &str| -> Result<u32, String> {
        let name = format!("{stage}_{name}");
        row.count(&name).map_err(|problem| problem.message)?.ok_or_else(|| format!("`{name}` is not stated"))
    };
    let or_one = |name: &str| or_one(row, &format!("{stage}_{name}"));
    Ok(Workers {
        count: count("num_workers")?,
        placement: placement(count("tp_size")?, or_one("attention_dp_size")?, or_one("moe_ep_size")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "id,backend,backend_version,model,model_family,system,mode,isl,osl,concurrency,precision_eff,\
                          tp_fix,dp_fix,moe_ep_fix,ttft_ms,tpot_ms,usable";

    fn read(rows: &str) -> Services {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serving.csv");
        std::fs::write(&path, format!("{HEADER}\n{rows}")).unwrap();
        Services::read(&path).unwrap()
    }

    #[test]
    fn a_row_is_answered_under_its_own_id() {
        let rows = read("a,vllm,0.12.0,x,Qwen3-32B,h100_sxm,agg,1024,512,32,bf16,2,1,,242,21,1\n");
        let row = &rows.rows[0];
        assert_eq!(row.id, "a");
        assert!(row.ttft_error.unwrap().abs() < 0.6 && row.tpot_error.unwrap().abs() < 0.4, "{row:?}");
    }

    #[test]
    fn rows_that_cannot_be_put_to_the_model_say_why() {
        let rows = read(
            "a,vllm,,x,Nobody-1B,h100_sxm,agg,1024,512,32,bf16,2,1,,242,21,1\n\
             b,tgi,,x,Qwen3-32B,h100_sxm,agg,1024,512,32,bf16,2,1,,242,21,1\n\
             c,vllm,,x,Qwen3-32B,h100_sxm,disagg,1024,512,32,bf16,,,,242,21,1\n\
             d,vllm,,x,Qwen3-32B,h100_sxm,agg,1024,512,32,fp4,2,1,,242,21,1\n\
             e,vllm,,x,Qwen3-32B,h100_sxm,agg,1024,512,32,bf16,3,1,,242,21,1\n",
        );
        let said: Vec<&str> = rows.rows.iter().map(|row| row.remark.as_deref().unwrap()).collect();
        let expected =
            ["`Nobody-1B` is not known", "`tgi` is not known", "`prefill_num_workers`", "nvfp4", "64 heads"];
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.contains(expected), "{said}");
        }
        let all = rows.groups();
        assert!(all.iter().filter(|g| g.set == TTFT).all(|g| g.unscored == 5 && g.pairs.is_empty()));
    }

    #[test]
    fn a_row_without_a_measured_time_is_malformed() {
        let rows = read("a,vllm,,x,Qwen3-32B,h100_sxm,agg,1024,512,32,bf16,2,1,,none,21,1\n");
        assert!(rows.rows.is_empty() && rows.malformed[0].to_string().contains("ttft_ms"));
    }

    /// The bars of the issue on the open rows, where they are there.
    #[test]
    fn measured_services_are_met_within_their_bars() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/runs/serving/serving.csv");
        if !path.exists() {
            eprintln!("skipped: no {}", path.display());
            return;
        }
        let services = Services::read(&path).unwrap();
        for group in services.groups() {
            let Some(stats) = Stats::of_pairs(&group.pairs) else { continue };
            eprintln!(
                "{:45} {:5} mean {:5.1} median {:5.1} bias {:5.1} | peer {:?} ours there {:?} unscored {}",
                group.set,
                stats.n,
                stats.mape * 100.0,
                stats.median_ape * 100.0,
                stats.bias * 100.0,
                group.peer_mape,
                group.ours_on_peer_rows,
                group.unscored
            );
        }
        let of = |set: &str| {
            let group = services.groups().into_iter().find(|g| g.set == set).unwrap();
            Stats::of_pairs(&group.pairs).unwrap()
        };
        assert!(of(TTFT).mape < 0.25 && of(TPOT).mape < 0.12, "{:?} {:?}", of(TTFT), of(TPOT));
        assert!(of(TTFT).median_ape < 0.16 && of(TPOT).median_ape < 0.08);
        // No engine and no GPU errs by more than half as much again.
        for name in
            ["sglang", "trtllm", "vllm", "b200_sxm", "b300_sxm", "gb200", "gb300", "h100_sxm", "h200_sxm"]
        {
            let (ttft, tpot) = (of(&format!("{TTFT}, {name}")), of(&format!("{TPOT}, {name}")));
            assert!(ttft.mape < 0.375 && tpot.mape < 0.18, "{name}: {ttft:?} {tpot:?}");
        }
    }
}
