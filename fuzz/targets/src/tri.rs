//! A `.tri` container from any bytes: as a whole file, and as damage to a slab
//! that a codec wrote, put into a container by the library's own writer so that
//! its checksums are right and the codec is reached.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::LazyLock;

use trinity_tensor::codec::{Rate, codec, names};
use trinity_tensor::file::{Spec, TriWriter};
use trinity_tensor::{Class, Dtype, Tensor};

use crate::RunOutcome;
use crate::damage::{damaged, values};
use crate::tensors::read_all;

const ROWS: usize = 40;
const COLS: usize = 48;
/// Programs of others are not run by a fuzzer.
const EXTERNAL: [&str; 4] = ["x264", "x265", "svtav1", "aom"];

/// Every codec, and what it makes of a small matrix.
static SLABS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let data = values(ROWS * COLS).iter().flat_map(|value| value.to_le_bytes()).collect();
    let Ok(tensor) = Tensor::new("t", Class::Weight, Dtype::F32, vec![ROWS, COLS], data) else {
        return Vec::new();
    };
    let mut codecs = names();
    codecs.retain(|name| !EXTERNAL.contains(&name.as_str()));
    codecs.extend(["h265-444", "hadamard/uniform+ac", "residual/uniform+ac/rtn-128g"].map(String::from));
    let slab = |name: String| {
        let target = if name == "zstd" { Rate::Lossless } else { Rate::Nmse(0.03) };
        let coded = codec(&name).and_then(|codec| codec.encode(&tensor, target));
        (name, coded.map(|coded| coded.bytes).unwrap_or_default())
    };
    codecs.into_iter().map(slab).collect()
});

/// First byte of an input that names a codec, a shape and changes to its slab.
const DAMAGE: u8 = 0xff;

/// A container of one tensor with one slab.
fn container(codec: &str, rows: usize, cols: usize, slab: &[u8]) -> Vec<u8> {
    let spec = Spec { name: "t".into(), class: Class::Weight, dtype: Dtype::F32, shape: vec![rows, cols] };
    let write = || {
        let mut writer = TriWriter::over(Cursor::new(Vec::new()), &BTreeMap::new())?;
        writer.begin(&spec, codec, 1 << 21)?;
        // A shape without values has no slab.
        if rows * cols > 0 {
            writer.slab(slab)?;
        }
        writer.complete()
    };
    write().map(|(file, _)| file.into_inner()).unwrap_or_default()
}

/// Whole files, and inputs that name a codec without damage.
pub fn seeds() -> Vec<Vec<u8>> {
    let files = SLABS.iter().map(|(codec, slab)| container(codec, ROWS, COLS, slab));
    let named = (0..SLABS.len() as u8).map(|which| vec![DAMAGE, which, ROWS as u8, COLS as u8]);
    files.chain(named).collect()
}

pub fn run(input: &[u8]) -> RunOutcome {
    match input {
        [DAMAGE, which, rows, cols, changes @ ..] => {
            let (codec, whole) = &SLABS[usize::from(*which) % SLABS.len()];
            let (rows, cols) = (usize::from(*rows), usize::from(*cols));
            read_all(container(codec, rows, cols, &damaged(whole, changes)), "tri")
        }
        _ => read_all(input.to_vec(), "tri"),
    }
}
