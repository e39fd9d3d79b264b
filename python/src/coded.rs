//! Arrays to `.tri` containers and back, in memory and on disk.
//!
//! Every coded tensor in Python is a whole container: what is saved, sent or
//! pickled is what the command reads. Rates and errors are the pipeline's.

use crate::array::{Array, Memory, entries};
use crate::failure::Failure;
use crate::studies::text;
use crate::watch::{Size, Watch, run};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Instant;
use trinity_lm::coding::Coding;
use trinity_study::Progress;
use trinity_study::encode::{Calibrate, Calibration, EncodeRequest, Plan, Rules, Work, default_codec};
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::{Metrics, Rate, codec};
use trinity_tensor::file::{AtomicFile, TIED_KEY, TriWriter};
use trinity_tensor::pipeline::{EXACT_CODEC, EncodedFile, OnNonFinite, Summary, copy_coded};
use trinity_tensor::{Entry, Error, TensorFile};

/// Bytes of values up to which encoding is done where it was asked for, and of
/// containers up to which decoding is: a fraction of a second of the slowest codec,
/// in which a thread of its own would cost more than it gives.
const SMALL_VALUES_BYTES: usize = 1 << 18;
const SMALL_CODED_BYTES: usize = 1 << 20;

/// What is asked of a codec, checked.
#[derive(Debug, Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Asked {
    codec: Option<String>,
    target: String,
    amount: f64,
    allocate: String,
    all: bool,
    strict: bool,
    measure: bool,
    exclude: Vec<String>,
    bits_for: Vec<(String, f64)>,
    codec_for: Vec<(String, String)>,
    /// A text, or a calibration's file.
    calibrate: Option<PathBuf>,
}

impl Asked {
    fn target(&self) -> Result<Rate, Failure> {
        let (target, amount) = (self.target.as_str(), self.amount);
        if matches!(target, "bits" | "nmse") && !(amount > 0.0 && amount.is_finite()) {
            return Err(Failure::input(format_args!("{target}={amount}: expected a number above zero")));
        }
        Ok(rate(target, amount))
    }

    /// The codec's name, which some codec has.
    fn codec(&self, target: Rate) -> Result<String, Failure> {
        let name = self.codec.clone().unwrap_or_else(|| default_codec(target).to_owned());
        codec(&name)?;
        Ok(name)
    }

    fn rules(&self) -> Rules {
        let (exclude, bits_for) = (self.exclude.clone(), self.bits_for.clone());
        Rules { exclude, bits_for, codec_for: self.codec_for.clone() }
    }

    pub(crate) fn on_non_finite(&self) -> OnNonFinite {
        on_non_finite(self.strict)
    }

    /// What becomes of every tensor of a file, which lies at `source` where it lies anywhere.
    pub(crate) fn plan(
        &self,
        file: &TensorFile,
        place: &str,
        source: Option<&Path>,
        watch: &Watch,
    ) -> Result<(Plan, Calibration), Failure> {
        let target = self.target()?;
        let codec = self.codec(target)?;
        let asked: Allocation = self.allocate.parse().map_err(Failure::input)?;
        let allocation = if self.calibrate.is_some() { Allocation::Equal } else { asked };
        let (all, rules) = (self.all, self.rules());
        let request = EncodeRequest { codec: &codec, target, allocation, all, basis: None, rules };
        let mut plan = request.plan(file, place)?;
        let Some(text) = &self.calibrate else {
            Calibration::default().suffices(&plan)?;
            return Ok((plan, Calibration::default()));
        };
        let Rate::Bits(bits) = target else {
            return Err(Failure::input("calibrate makes the most of a rate, and none is given")
                .help("ask for one with bits="));
        };
        let coding = Coding::of_files(&codec, bits).map_err(Failure::input)?;
        let calibration = if Calibration::is_file(text) {
            Calibration::open(text, &plan, &coding, asked)?
        } else {
            std::fs::metadata(text).map_err(|error| {
                Failure::input(format!("calibrate: cannot read {}: {error}", text.display()))
            })?;
            let source = source.ok_or_else(|| {
                Failure::input("a text calibrates a model that lies in a file")
                    .help("`trinity.calibrate` makes a calibration of a model in memory")
            })?;
            let asked = Calibrate { file, plan: &plan, coding: &coding, allocation: asked };
            Calibration::measure(source, text, &asked, watch)?
        };
        calibration.suffices(&plan)?;
        plan.calibrate(&|tensor| calibration.bits_of(tensor));
        Ok((plan, calibration))
    }

    /// Codes the tensors of a file into a container.
    fn encode<W: std::io::Write + std::io::Seek>(
        &self,
        file: &TensorFile,
        place: &str,
        source: Option<&Path>,
        writer: TriWriter<W>,
        watch: &Watch,
    ) -> Result<(Plan, EncodedFile, TriWriter<W>), Failure> {
        let (plan, calibration) = self.plan(file, place, source, watch)?;
        // Arrays that are coded side by side share what began before them.
        if file.entries().len() > 1 || source.is_some() {
            watch.begin(plan.values() as u64, "encoding");
        }
        let progress = |done: usize| {
            watch.advance(done as u64);
            if watch.is_cancelled() { Err(Error::Stopped) } else { Ok(()) }
        };
        let work = Work {
            calibration: Some(&calibration),
            on_non_finite: self.on_non_finite(),
            measure: self.measure,
            progress: &progress,
            ..Work::new(file, &plan)
        };
        let (encoded, writer) = work.encode_into(writer).map_err(|error| Failure::tensor(place, &error))?;
        Ok((plan, encoded, writer))
    }
}

/// What a target says by its name and its amount.
pub(crate) fn rate(target: &str, amount: f64) -> Rate {
    match target {
        "bits" => Rate::Bits(amount),
        "nmse" => Rate::Nmse(amount),
        "qp" => Rate::Qp(amount),
        _ => Rate::Lossless,
    }
}

pub(crate) fn on_non_finite(strict: bool) -> OnNonFinite {
    if strict { OnNonFinite::Refuse } else { OnNonFinite::KeepExact }
}

/// A container with what is known of its tensor.
#[derive(Debug)]
pub(crate) struct Coded {
    pub container: Vec<u8>,
    pub entry: Entry,
    pub exact: Option<String>,
    pub metrics: Option<Metrics>,
    pub codec_s: f64,
}

/// Container, name, class, number format, shape, codec, why exact, errors,
/// and the seconds that coding took.
pub(crate) type CodedTuple<'py> = (
    Bound<'py, PyBytes>,
    String,
    &'static str,
    &'static str,
    Vec<usize>,
    String,
    Option<String>,
    Option<(f64, f64, f64, f64)>,
    f64,
);

impl Coded {
    pub fn of(container: Vec<u8>) -> Result<Self, Failure> {
        let entry = only_entry(container.clone())?;
        Ok(Self { container, entry, exact: None, metrics: None, codec_s: 0.0 })
    }

    /// With what its encoding said of it, and the seconds that took.
    pub fn with(self, summary: Option<&Summary>, codec_s: f64) -> Self {
        let exact = summary.and_then(|summary| summary.exact.clone());
        Self { exact, metrics: summary.map(|summary| summary.metrics), codec_s, ..self }
    }

    pub fn tuple(self, py: Python<'_>) -> CodedTuple<'_> {
        let entry = &self.entry;
        let metrics = self.metrics.filter(|metrics| !metrics.nmse.is_nan());
        (
            PyBytes::new(py, &self.container),
            entry.name().to_owned(),
            entry.class().name(),
            entry.dtype().name(),
            entry.shape().to_vec(),
            entry.stored().to_owned(),
            self.exact,
            metrics.map(|m| (m.nmse, m.snr_db, m.mae, m.max_abs_error)),
            self.codec_s,
        )
    }
}

/// The tensor of a container that holds one.
pub(crate) fn only_entry(container: Vec<u8>) -> Result<Entry, Failure> {
    if !container.starts_with(b"TRIN") {
        let message =
            format!("these {} bytes are no coded tensor: a .tri container begins with TRIN", container.len());
        return Err(
            Failure::input(message).help("`Encoded.bytes` is one; `trinity.read` reads other tensor files")
        );
    }
    let file = TensorFile::from_bytes(container, "tensor")?;
    match file.entries() {
        [entry] => Ok(entry.clone()),
        entries => {
            Err(Failure::input(format_args!("expected a container of one tensor, found {}", entries.len())))
        }
    }
}

fn tuples(py: Python<'_>, coded: Vec<Coded>) -> Vec<CodedTuple<'_>> {
    coded.into_iter().map(|coded| coded.tuple(py)).collect()
}

fn size(bytes: usize, small: usize) -> Size {
    if bytes <= small { Size::Small } else { Size::Large }
}

/// A file of tensors in memory; `carried` says what those are really whose format no codec knows.
pub(crate) fn gathered(
    entries: Vec<Entry>,
    carried: &BTreeMap<String, String>,
) -> Result<TensorFile, Failure> {
    let of = |entry: &Entry| {
        let key = format!("carried.{}", entry.name());
        carried.get(&key).map(|text| (key, text.clone()))
    };
    let texts = entries.iter().filter_map(of).collect();
    Ok(TensorFile::of(entries, texts)?)
}

/// What containers are written into in memory.
type Writer = TriWriter<Cursor<Vec<u8>>>;

/// A container of one tensor that `code` fills, what was said of it, and the seconds that took.
pub(crate) fn contained(
    entry: &Entry,
    carried: &BTreeMap<String, String>,
    code: impl FnOnce(&TensorFile, Writer) -> Result<(EncodedFile, Writer), Failure>,
) -> Result<(Vec<u8>, Option<Summary>, f64), Failure> {
    let start = Instant::now();
    let file = gathered(vec![entry.clone()], carried)?;
    let writer = TriWriter::over(Cursor::new(Vec::new()), file.metadata())?;
    let (mut encoded, writer) = code(&file, writer)?;
    let (cursor, _) = writer.complete()?;
    Ok((cursor.into_inner(), encoded.tensors.pop(), start.elapsed().as_secs_f64()))
}

/// One array to a container of its own.
fn encode_one(
    entry: &Entry,
    asked: &Asked,
    carried: &BTreeMap<String, String>,
    watch: &Watch,
) -> Result<Coded, Failure> {
    let (container, summary, codec_s) = contained(entry, carried, |file, writer| {
        let (_, encoded, writer) = asked.encode(file, entry.name(), None, writer, watch)?;
        Ok((encoded, writer))
    })?;
    let stored = summary.as_ref().map(|summary| summary.codec.clone()).unwrap_or_default();
    let entry = entry.clone().with_stored(stored);
    let coded = Coded { container, entry, exact: None, metrics: None, codec_s };
    Ok(coded.with(summary.as_ref(), codec_s))
}

/// Codes every array into a container of its own.
#[pyfunction]
pub fn encode<'py>(
    py: Python<'py>,
    arrays: Vec<Array>,
    asked: Asked,
    carried: BTreeMap<String, String>,
    report: Option<Py<PyAny>>,
) -> PyResult<Vec<CodedTuple<'py>>> {
    let size = size(arrays.iter().map(Array::bytes).sum(), SMALL_VALUES_BYTES);
    let entries = entries(arrays)?;
    let coded = run(py, size, report.as_ref(), move |watch| {
        watch.begin(entries.iter().map(|entry| entry.len() as u64).sum(), "encoding");
        match entries.as_slice() {
            [only] => Ok(vec![encode_one(only, &asked, &carried, watch)?]),
            many => many.par_iter().map(|entry| encode_one(entry, &asked, &carried, watch)).collect(),
        }
    })?;
    Ok(tuples(py, coded))
}

/// Codes the tensors of one model: the policy, the ties and the budget are those
/// of its file. Gives each as a container of its own, and the table of kinds as JSON.
#[pyfunction]
pub fn encode_model<'py>(
    py: Python<'py>,
    arrays: Vec<Array>,
    asked: Asked,
    carried: BTreeMap<String, String>,
    report: Option<Py<PyAny>>,
) -> PyResult<(Vec<CodedTuple<'py>>, String)> {
    let entries = entries(arrays)?;
    let (coded, kinds) = run(py, Size::Large, report.as_ref(), move |watch| {
        let file = gathered(entries, &carried)?;
        let start = Instant::now();
        let writer = TriWriter::over(Cursor::new(Vec::new()), file.metadata())?;
        let (plan, encoded, writer) = asked.encode(&file, "these tensors", None, writer, watch)?;
        let (cursor, _) = writer.complete()?;
        let codec_s = start.elapsed().as_secs_f64() / file.entries().len().max(1) as f64;
        let made = TensorFile::from_bytes(cursor.into_inner(), "model")?;
        let known: HashMap<String, Summary> =
            encoded.tensors.into_iter().map(|summary| (summary.tensor.clone(), summary)).collect();
        let one = |entry: &Entry| {
            let container = alone(made.entry(entry.name())?, entry.name(), made.metadata())?;
            Ok(Coded::of(container)?.with(known.get(entry.name()), codec_s))
        };
        let coded = file.entries().iter().map(one).collect::<Result<Vec<_>, Failure>>()?;
        Ok((coded, text(&plan.kinds())?))
    })?;
    Ok((tuples(py, coded), kinds))
}

/// The table of kinds of a model's tensors, or of a file's, as JSON: what would be done.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    arrays: Vec<Array>,
    source: Option<PathBuf>,
    asked: Asked,
    carried: BTreeMap<String, String>,
) -> PyResult<String> {
    let entries = entries(arrays)?;
    run(py, Size::Large, None, move |watch| {
        let place = source.as_ref().map_or_else(|| "these tensors".into(), |path| path.display().to_string());
        let file = match &source {
            Some(source) => TensorFile::open(source)?,
            None => gathered(entries, &carried)?,
        };
        let (plan, _) = asked.plan(&file, &place, source.as_deref(), watch)?;
        text(&plan.kinds())
    })
}

/// Codes arrays, or the tensors of a file, into one container at `path`, as
/// the command does; returns its summary as JSON.
#[pyfunction]
pub fn encode_file(
    py: Python<'_>,
    path: PathBuf,
    arrays: Vec<Array>,
    source: Option<PathBuf>,
    asked: Asked,
    metadata: BTreeMap<String, String>,
    report: Option<Py<PyAny>>,
) -> PyResult<String> {
    let entries = entries(arrays)?;
    run(py, Size::Large, report.as_ref(), move |watch| {
        let place = source.as_ref().unwrap_or(&path).display().to_string();
        let refused = |error: Error| Failure::tensor(&place, &error);
        let file = match &source {
            Some(source) => TensorFile::open(source)?,
            None => TensorFile::of(entries, metadata).map_err(refused)?,
        };
        let texts = file.texts().map_err(refused)?;
        let writer = TriWriter::create(&path, &texts).map_err(refused)?;
        let (plan, encoded, writer) = asked.encode(&file, &place, source.as_deref(), writer, watch)?;
        let bytes = writer.finish().map_err(refused)?;
        let share = |is_exact: bool| {
            let own: Vec<&Summary> =
                encoded.tensors.iter().filter(|tensor| tensor.exact.is_some() == is_exact).collect();
            serde_json::json!({
                "tensors": own.len(),
                "values": own.iter().map(|tensor| tensor.values).sum::<usize>(),
                "bytes": own.iter().map(|tensor| tensor.bytes).sum::<u64>(),
            })
        };
        let summary = serde_json::json!({
            "output": path,
            "bytes": bytes,
            "values": plan.values(),
            "bits_per_value": 8.0 * bytes as f64 / plan.values().max(1) as f64,
            "nmse": encoded.metrics.nmse,
            "snr_db": encoded.metrics.snr_db,
            "mae": encoded.metrics.mae,
            "max_abs_error": encoded.metrics.max_abs_error,
            "coded": share(false),
            "exact": share(true),
            "kinds": plan.kinds(),
            "tensors": encoded.tensors,
        });
        Ok(summary.to_string())
    })
}

/// Bytes, their number format and shape, and what they really are where they
/// are carried.
type Decoded = (Memory, &'static str, Vec<usize>, Option<(String, Vec<usize>)>);

fn decode_entry(entry: &Entry, watch: &Watch) -> Result<Decoded, Failure> {
    if watch.is_cancelled() {
        return Err(Failure::run("stopped before the end"));
    }
    let tensor = entry.read()?;
    watch.advance(entry.len() as u64);
    let (dtype, shape) = (tensor.dtype().name(), tensor.shape().to_vec());
    let carried = entry.carried().map(|carried| (carried.dtype.clone(), carried.shape.clone()));
    Ok((Memory::new(tensor.into_data()), dtype, shape, carried))
}

fn decode_entries(entries: &[Entry], watch: &Watch) -> Result<Vec<Decoded>, Failure> {
    watch.begin(entries.iter().map(|entry| entry.len() as u64).sum(), "decoding");
    match entries {
        [only] => Ok(vec![decode_entry(only, watch)?]),
        many => many.par_iter().map(|entry| decode_entry(entry, watch)).collect(),
    }
}

/// The tensors of containers that hold one each.
#[pyfunction]
pub fn decode(
    py: Python<'_>,
    containers: Vec<PyBackedBytes>,
    report: Option<Py<PyAny>>,
) -> PyResult<Vec<Decoded>> {
    let size = size(containers.iter().map(|bytes| bytes.len()).sum(), SMALL_CODED_BYTES);
    run(py, size, report.as_ref(), move |watch| {
        let entries = containers.iter().map(|bytes| only_entry(bytes.to_vec()));
        let entries: Vec<Entry> = entries.collect::<Result<_, Failure>>()?;
        decode_entries(&entries, watch)
    })
}

/// Seconds that decoding a container takes, everything of Python left out: what
/// the overhead of a call is held against.
#[pyfunction]
pub fn decode_s(container: PyBackedBytes) -> PyResult<f64> {
    let start = Instant::now();
    only_entry(container.to_vec())?.read().map_err(Failure::from)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Name, class, and the decoded tensor, of every tensor of a file of any
/// format whose name contains `only`.
#[pyfunction]
pub fn read(
    py: Python<'_>,
    path: PathBuf,
    only: Option<String>,
    report: Option<Py<PyAny>>,
) -> PyResult<Vec<(String, &'static str, Decoded)>> {
    run(py, Size::Large, report.as_ref(), move |watch| {
        let file = TensorFile::open(&path)?;
        let wanted = |entry: &&Entry| only.as_ref().is_none_or(|text| entry.name().contains(text.as_str()));
        let entries: Vec<Entry> = file.entries().iter().filter(wanted).cloned().collect();
        let decoded = decode_entries(&entries, watch)?;
        let named = entries.iter().zip(decoded);
        Ok(named.map(|(entry, decoded)| (entry.name().to_owned(), entry.class().name(), decoded)).collect())
    })
}

/// A tensor of a container, still coded, as a container of its own.
fn alone(entry: &Entry, name: &str, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Error> {
    let key = format!("carried.{}", entry.name());
    let carried = metadata.get(&key).map(|value| (format!("carried.{name}"), value.clone()));
    let texts: BTreeMap<String, String> = carried.into_iter().collect();
    let mut writer = TriWriter::over(Cursor::new(Vec::new()), &texts)?;
    copy_coded(entry, name, &mut writer)?;
    Ok(writer.complete()?.0.into_inner())
}

/// Every tensor of a `.tri` file, still coded, and the texts beside them.
#[pyfunction]
pub fn load<'py>(
    py: Python<'py>,
    path: PathBuf,
    report: Option<Py<PyAny>>,
) -> PyResult<(Vec<CodedTuple<'py>>, BTreeMap<String, String>)> {
    let (coded, metadata) = run(py, Size::Large, report.as_ref(), move |watch| {
        let place = path.display().to_string();
        let file = TensorFile::open(&path)?;
        if file.format() != "tri" {
            return Err(Failure::input(format_args!(
                "{place}: a {} file holds no coded tensors",
                file.format()
            ))
            .help("`trinity.read` reads its tensors, `trinity.encode` codes them"));
        }
        watch.begin(file.entries().len() as u64, "loading");
        let own = |entry: &Entry| {
            let container = alone(entry, entry.name(), file.metadata())
                .map_err(|error| Failure::tensor(&place, &error))?;
            watch.advance(1);
            Coded::of(container)
        };
        let coded = file.entries().iter().map(own).collect::<Result<Vec<_>, Failure>>()?;
        Ok((coded, file.metadata().clone()))
    })?;
    Ok((tuples(py, coded), metadata))
}

/// Writes coded tensors under these names into one container at `path`; or,
/// where no path is given, returns it.
#[pyfunction]
pub fn write<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    named: Vec<(String, PyBackedBytes)>,
    metadata: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = run(py, Size::Large, None, move |_| {
        let place = path.as_ref().map_or_else(String::new, |path| path.display().to_string());
        let refused = |error: Error| Failure::tensor(&place, &error);
        let mut writer = TriWriter::over(Cursor::new(Vec::new()), &metadata).map_err(refused)?;
        let mut written: HashMap<Vec<Vec<u8>>, String> = HashMap::new();
        for (name, bytes) in &named {
            let file = TensorFile::from_bytes(bytes.to_vec(), name).map_err(refused)?;
            file.metadata().iter().filter(|(key, _)| key.starts_with("carried.")).for_each(|(_, value)| {
                writer.text(format!("carried.{name}"), value.clone());
            });
            let [entry] = file.entries() else {
                return Err(Failure::input(format_args!("`{name}`: expected a container of one tensor")));
            };
            // What another tensor holds is written once, as when a model is encoded.
            match same(entry, name, &mut written).map_err(refused)? {
                Some(other) => writer.text(format!("{TIED_KEY}{name}"), other),
                None => copy_coded(entry, name, &mut writer).map_err(refused)?,
            }
        }
        let (cursor, _) = writer.complete().map_err(refused)?;
        let Some(path) = path else { return Ok(cursor.into_inner()) };
        let mut file = AtomicFile::create(&path).map_err(refused)?;
        std::io::Write::write_all(&mut file, cursor.get_ref())
            .map_err(|error| Failure::run(format_args!("cannot write {}: {error}", path.display())))?;
        file.commit().map_err(refused)?;
        Ok(Vec::new())
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// The tensor among those written that holds the same; this one is from now on among them.
fn same(
    entry: &Entry,
    name: &str,
    written: &mut HashMap<Vec<Vec<u8>>, String>,
) -> Result<Option<String>, Error> {
    let is_lossy = entry.stored() != EXACT_CODEC && !entry.is_empty();
    let Some((_, slabs)) = entry.slabs().filter(|_| is_lossy) else { return Ok(None) };
    let described = format!("{} {} {:?}", entry.stored(), entry.dtype().name(), entry.shape());
    let mut key = vec![described.into_bytes()];
    for index in 0..slabs {
        key.push(entry.coded_slab(index)?);
    }
    if let Some(other) = written.get(&key) {
        return Ok(Some(other.clone()));
    }
    written.insert(key, name.to_owned());
    Ok(None)
}

/// What containers of one tensor each hold.
#[pyfunction]
pub fn describe<'py>(py: Python<'py>, containers: Vec<PyBackedBytes>) -> PyResult<Vec<CodedTuple<'py>>> {
    let own = |bytes: &PyBackedBytes| Coded::of(bytes.to_vec());
    Ok(tuples(py, containers.iter().map(own).collect::<Result<_, Failure>>()?))
}

/// Every codec by name.
#[pyfunction]
pub fn codec_names() -> Vec<String> {
    let mut names = trinity_tensor::codec::names();
    // What the hooks' default goes by; the same codec as `trinity-lite`.
    names.push("line".into());
    names
}
