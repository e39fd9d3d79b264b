//! Deltas: damage to slabs that `delta::make` wrote, applied to their base.

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use trinity_tensor::codec::Rate;
use trinity_tensor::delta::{self, Mode};
use trinity_tensor::file::{TriWriter, write_npy};
use trinity_tensor::pipeline::spec;
use trinity_tensor::{Class, Dtype, Tensor, TensorFile};

use crate::RunOutcome;
use crate::damage::{damaged, values};

const ROWS: usize = 24;
const COLS: usize = 48;

/// A base, deltas against it, and where their sums go.
struct Bench {
    base: TensorFile,
    deltas: Vec<TensorFile>,
    out: PathBuf,
    _folder: tempfile::TempDir,
}

fn bench() -> Result<Bench, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let mut data = Vec::new();
    Dtype::Bf16.extend_from_f32(&values(ROWS * COLS), &mut data);
    let file = |name: &str, data: &[u8]| -> Result<TensorFile, Box<dyn std::error::Error>> {
        let tensor = Tensor::new("t", Class::Weight, Dtype::Bf16, vec![ROWS, COLS], data.to_vec())?;
        write_npy(&at(name), &tensor)?;
        Ok(TensorFile::from_bytes(std::fs::read(at(name))?, "t")?)
    };
    let base = file("base.npy", &data)?;
    (0..data.len()).step_by(37).for_each(|place| data[place] ^= 9);
    let sparse = file("sparse.npy", &data)?;
    data.iter_mut().for_each(|byte| *byte ^= 1);
    let dense = file("dense.npy", &data)?;
    let lossy = Mode::Lossy { codec: "uniform+ac".into(), target: Rate::Nmse(0.05) };
    let mut deltas = Vec::new();
    for (name, tuned, mode) in
        [("a", &sparse, &Mode::Lossless), ("b", &dense, &Mode::Lossless), ("c", &sparse, &lossy)]
    {
        delta::make(&base, tuned, mode, &at(name))?;
        deltas.push(TensorFile::from_bytes(std::fs::read(at(name))?, "t")?);
    }
    Ok(Bench { base, deltas, out: at("out"), _folder: folder })
}

static ALONE: Mutex<()> = Mutex::new(());
static BENCH: LazyLock<Option<Bench>> = LazyLock::new(|| bench().ok());

pub fn seeds() -> Vec<Vec<u8>> {
    let deltas = BENCH.as_ref().map_or(0, |bench| bench.deltas.len());
    (0..deltas as u8).map(|which| vec![which]).collect()
}

/// The first byte names a delta; the rest is damage to its slab.
pub fn run(input: &[u8]) -> RunOutcome {
    let (Some(bench), [which, changes @ ..]) = (BENCH.as_ref(), input) else { return RunOutcome::Refused };
    let delta = &bench.deltas[usize::from(*which) % bench.deltas.len()];
    let write = || {
        let entry = &delta.entries()[0];
        let mut writer = TriWriter::over(std::io::Cursor::new(Vec::new()), delta.metadata())?;
        writer.begin(&spec(entry), entry.stored(), 1 << 21)?;
        writer.slab(&damaged(&entry.coded_slab(0)?, changes))?;
        writer.complete()
    };
    let Ok((file, _)) = write() else { return RunOutcome::Refused };
    let Ok(delta) = TensorFile::from_bytes(file.into_inner(), "t") else { return RunOutcome::Refused };
    // All write to one file, and tests run at the same time.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match delta::apply(&bench.base, &delta, &bench.out) {
        Ok(_) => RunOutcome::Accepted,
        Err(_) => RunOutcome::Reached,
    }
}
