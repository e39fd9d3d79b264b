//! Measured points, and a file that keeps them.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use trinity_tensor::Tensor;

/// A matrix to be coded.
#[derive(Debug, Clone)]
pub struct InputTensor {
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl InputTensor {
    pub fn of(tensor: &Tensor) -> Self {
        let (rows, cols) = tensor.matrix();
        Self { name: tensor.name().to_owned(), rows, cols, values: tensor.to_f32() }
    }

    /// Squared error of a reconstruction over the energy.
    pub fn nmse(&self, recon: &[f32]) -> f64 {
        let square = |value: f64| value * value;
        let error: f64 =
            self.values.iter().zip(recon).map(|(&v, &r)| square(f64::from(v) - f64::from(r))).sum();
        error / self.values.iter().map(|&v| square(f64::from(v))).sum::<f64>()
    }

    /// A name for these very values and their shape (FNV-1a).
    fn fingerprint(&self) -> u64 {
        let shape = [self.rows as u64, self.cols as u64];
        let shape = shape.into_iter().flat_map(u64::to_le_bytes);
        let bytes = shape.chain(self.values.iter().flat_map(|v| v.to_le_bytes()));
        trinity_numeric::hash::fnv1a(bytes)
    }
}

/// Bits per value and error of one encoding, and the plan it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub bits: f64,
    pub nmse: f64,
    pub plan: String,
}

impl Point {
    /// Bits at equal error: six decibels are a bit.
    pub fn score(&self) -> f64 {
        self.bits + 0.5 * self.nmse.max(f64::MIN_POSITIVE).log2()
    }
}

/// Points of this and earlier runs, and the file they go to.
#[derive(Debug)]
pub struct PointCache {
    known: Mutex<HashMap<String, Option<Point>>>,
    file: Option<Mutex<std::fs::File>>,
}

impl PointCache {
    /// Points in a folder, or none that outlast the run.
    pub fn open(folder: Option<&Path>) -> Result<Self, String> {
        let Some(folder) = folder else { return Ok(Self { known: Mutex::default(), file: None }) };
        let path = folder.join("points.txt");
        let said = |error: std::io::Error| format!("cannot keep points in {}: {error}", path.display());
        std::fs::create_dir_all(folder).map_err(said)?;
        let text = if path.exists() { std::fs::read_to_string(&path).map_err(said)? } else { String::new() };
        let known = text.lines().filter_map(parse).collect();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path).map_err(said)?;
        Ok(Self { known: Mutex::new(known), file: Some(Mutex::new(file)) })
    }

    /// The point under these names, made if it is not known or not to be `used`.
    pub fn point(
        &self,
        used: bool,
        codec: &str,
        alternative: &str,
        input: &InputTensor,
        bits: f64,
        make: impl FnOnce() -> Result<Option<Point>, String>,
    ) -> Result<Option<Point>, String> {
        let key = format!("{:016x} {codec} {} {bits}", input.fingerprint(), alternative.replace(' ', "/"));
        let known = self.known.lock().map_err(|e| e.to_string())?.get(&key).cloned();
        if let Some(known) = known.filter(|_| used) {
            return Ok(known);
        }
        let point = make().map_err(|error| format!("{codec} on {}: {error}", input.name))?;
        if let Some(file) = &self.file {
            let line = match &point {
                Some(point) => format!("{key} {} {:e} {}\n", point.bits, point.nmse, point.plan),
                None => format!("{key} none\n"),
            };
            let mut file = file.lock().map_err(|e| e.to_string())?;
            file.write_all(line.as_bytes()).map_err(|e| format!("cannot keep a point: {e}"))?;
        }
        self.known.lock().map_err(|e| e.to_string())?.insert(key, point.clone());
        Ok(point)
    }
}

/// A line of the file: four words of a key, then bits, error and plan, or `none`.
fn parse(line: &str) -> Option<(String, Option<Point>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let key = words.get(..4)?.join(" ");
    match words.get(4..)? {
        ["none"] => Some((key, None)),
        [bits, nmse, plan @ ..] if !plan.is_empty() => {
            let (bits, nmse) = (bits.parse().ok()?, nmse.parse().ok()?);
            Some((key, Some(Point { bits, nmse, plan: plan.join(" ") })))
        }
        _ => None,
    }
}
