//! What comparisons share: inputs, CPU time of a command, bits and error of an
//! encode, and the mean difference between two rate curves.

use super::matrix::{Matrix, matrices};
use crate::numeric::random::Lcg;
use crate::{
    compile::cargo,
    files,
    tools::{find, output, succeed},
    workspace::target,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A picture of 8-bit luma.
#[derive(Debug, Clone)]
pub struct Gray {
    pub name: String,
    pub width: usize,
    pub height: usize,
    pub samples: Vec<u8>,
    /// A photograph rather than a tensor.
    pub natural: bool,
}

impl Gray {
    /// Keeps the first rows.
    pub fn crop(&mut self, rows: usize) {
        self.height = self.height.min(rows);
        self.samples.truncate(self.height * self.width);
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        files::write(path, &self.samples)
    }

    /// Four QPs that span about 1.5 to 4 bits a value: entropy of a Gaussian
    /// of this spread at the step of each. Photographs are predicted well, so
    /// they get finer steps than their spread suggests.
    pub fn qps(&self) -> [i32; 4] {
        let count = self.samples.len() as f64;
        let mean = self.samples.iter().map(|&s| f64::from(s)).sum::<f64>() / count;
        let variance = self.samples.iter().map(|&s| (f64::from(s) - mean).powi(2)).sum::<f64>() / count;
        let spread = if self.natural { 6.0 } else { variance.sqrt().max(0.3) };
        let at = |bits: f64| 4.0 + 6.0 * ((spread * 4.13).log2() - bits);
        let low = at(4.0).max(0.0);
        let high = at(1.5).max(low + 8.0);
        [0.0, 1.0, 2.0, 3.0].map(|i| (low + (high - low) * i / 3.0).round() as i32)
    }
}

/// What an encode came to.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub bits: f64,
    pub mse: f64,
    pub cpu_s: f64,
}

/// A folder for streams, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("trinity-{name}-{}", std::process::id()));
        files::folder(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Builds the command with optimizations; returns its path.
pub fn build_trinity() -> Result<PathBuf, String> {
    succeed(&mut cargo(&["build", "--release", "--quiet", "--package", "trinity"]))?;
    Ok(target().join("release/trinity"))
}

/// User CPU seconds of a command, its children included.
pub fn cpu_s(command: &str, folder: &Path) -> Result<f64, String> {
    let script = format!("TIMEFORMAT=%U; time {{ {command} >/dev/null 2>err.txt; }}");
    let output = output(Command::new("bash").args(["-c", &script]).current_dir(folder).stdin(Stdio::null()))?;
    if !output.status.success() {
        let said = std::fs::read_to_string(folder.join("err.txt")).unwrap_or_default();
        return Err(format!("`{command}` failed: {}", said.lines().last().unwrap_or("(silent)")));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    text.trim().parse().map_err(|_| format!("cannot read the time of `{command}`: {text}"))
}

/// Samples per second, in 10⁶, of x264's fastest preset on the matrix in 8 bits,
/// one thread; not a number where there is no x264.
pub fn x264_ultrafast(folder: &Path, matrix: &Matrix, step: f64) -> Result<f64, String> {
    if find("x264").is_none() {
        return Ok(f64::NAN);
    }
    // Over and over, so that starting up does not count.
    let copies = (1 << 24) / matrix.values.len() + 1;
    files::write(&folder.join("many.gray"), matrix.samples(8).repeat(copies))?;
    let qp = (4.0 + 6.0 * (1.5 * step / matrix.largest() * 127.0).log2()).round().clamp(1.0, 51.0);
    let command = format!(
        "x264 --preset ultrafast --tune psnr --threads 1 --keyint 1 --qp {qp} --no-deblock --input-csp i400 \
         --output-csp i400 --input-res {}x{} --fps 1 --quiet -o out.264 many.gray",
        matrix.cols, matrix.rows
    );
    Ok((matrix.values.len() * copies) as f64 / 1e6 / cpu_s(&command, folder)?)
}

/// What a process took.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu_s: f64,
    pub peak_kib: u64,
}

/// Runs a command and watches it in `/proc`, so only on Linux.
pub fn usage(command: &mut Command) -> Result<Usage, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    let folder = PathBuf::from(format!("/proc/{}", child.id()));
    let mut usage = Usage { cpu_s: 0.0, peak_kib: 0 };
    loop {
        // The kernel counts time in hundredths of a second and keeps the peak itself.
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let ticks =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(11)?.parse::<f64>().ok());
        usage.cpu_s = ticks.map_or(usage.cpu_s, |ticks| ticks / 100.0);
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        usage.peak_kib = peak.unwrap_or(usage.peak_kib);
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() && usage.cpu_s > 0.0 && usage.peak_kib > 0 => return Ok(usage),
            Some(status) => {
                return Err(format!("{command:?} ended with {status}, or was too short to watch"));
            }
            None => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
}

/// Runs an encoder that reads `in.gray` and writes `out.bin` and `out.yuv`.
pub fn point(command: &str, input: &Gray, folder: &Path) -> Result<Point, String> {
    let cpu_s = cpu_s(command, folder)?;
    let [stream, recon] = ["out.bin", "out.yuv"].map(|name| files::bytes(&folder.join(name)));
    let (stream, recon) = (stream?, recon?);
    let count = input.samples.len();
    if recon.len() < count {
        return Err(format!("`{command}` wrote {} of {count} samples", recon.len()));
    }
    let error: u64 = input.samples.iter().zip(&recon).map(|(&a, &b)| u64::from(a.abs_diff(b)).pow(2)).sum();
    Ok(Point { bits: stream.len() as f64 * 8.0 / count as f64, mse: error as f64 / count as f64, cpu_s })
}

/// Bjøntegaard's measure: how many percent more bits `test` takes than
/// `reference` at equal error, on average over the errors both reach. Bits and
/// errors on logarithmic scales, straight lines between the points.
pub fn bd_rate(reference: &[Point], test: &[Point]) -> f64 {
    let curve = |points: &[Point]| {
        let mut curve: Vec<(f64, f64)> = points.iter().map(|p| (p.mse.max(1e-3).ln(), p.bits.ln())).collect();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    };
    let (a, b) = (curve(reference), curve(test));
    let low = a[0].0.max(b[0].0);
    let high = a[a.len() - 1].0.min(b[b.len() - 1].0);
    if low >= high {
        return f64::NAN;
    }
    let at = |curve: &[(f64, f64)], x: f64| {
        let i = curve.windows(2).position(|w| x <= w[1].0).unwrap_or(curve.len() - 2);
        let ((x0, y0), (x1, y1)) = (curve[i], curve[i + 1]);
        y0 + (y1 - y0) * ((x - x0) / (x1 - x0).max(1e-12))
    };
    let steps = 100;
    let sum: f64 = (0..=steps)
        .map(|i| low + (high - low) * f64::from(i) / f64::from(steps))
        .map(|x| at(&b, x) - at(&a, x))
        .sum();
    ((sum / f64::from(steps + 1)).exp() - 1.0) * 100.0
}

/// The tensors of a safetensors file of bf16, each aligned to 8 bit by its
/// largest magnitude.
pub fn tensors(path: &Path) -> Result<Vec<Gray>, String> {
    let gray = |matrix: Matrix| Gray {
        samples: matrix.samples(8),
        name: matrix.name,
        width: matrix.cols,
        height: matrix.rows,
        natural: false,
    };
    Ok(matrices(path)?.into_iter().map(gray).collect())
}

/// A Gaussian with row and column scales.
pub fn made_up_weights(width: usize, height: usize) -> Gray {
    let mut lcg = Lcg(1);
    let mut gaussian =
        move || (0..12).map(|_| lcg.bits31() as f64 / f64::from(1u32 << 31)).sum::<f64>() - 6.0;
    let columns: Vec<f64> = (0..width).map(|_| (0.35 * gaussian()).exp()).collect();
    let rows: Vec<f64> = (0..height).map(|_| (0.25 * gaussian()).exp()).collect();
    let samples = (0..width * height)
        .map(|i| (128.0 + 9.0 * gaussian() * columns[i % width] * rows[i / width]).clamp(0.0, 255.0) as u8)
        .collect();
    Gray { name: "made-up weights".into(), width, height, samples, natural: false }
}

/// The luma of a stream's first picture.
pub fn luma_of(stream: &Path, name: &str, folder: &Path) -> Result<Gray, String> {
    let stream = stream.canonicalize().map_err(|e| e.to_string())?;
    let command =
        format!("ffmpeg -loglevel error -y -i {} -frames:v 1 -pix_fmt gray luma.pgm", stream.display());
    cpu_s(&command, folder)?;
    let pgm = files::bytes(&folder.join("luma.pgm"))?;
    let wrong = || format!("ffmpeg made no 8-bit picture of {}", stream.display());
    // P5\nWIDTH HEIGHT\n255\n, then the samples.
    let mut lines = pgm.splitn(4, |&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line));
    let (magic, size, limit) = (lines.next(), lines.next().unwrap_or_default(), lines.next());
    let (width, height) = size.split_once(' ').ok_or_else(wrong)?;
    let (width, height): (usize, usize) =
        (width.parse().map_err(|_| wrong())?, height.parse().map_err(|_| wrong())?);
    let start = pgm.len().checked_sub(width * height).ok_or_else(wrong)?;
    if magic.as_deref() != Some("P5") || limit.as_deref() != Some("255") {
        return Err(wrong());
    }
    Ok(Gray { name: name.into(), width, height, samples: pgm[start..].to_vec(), natural: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_with_a_tenth_more_bits_measures_ten_percent() {
        let curve = |scale: f64| -> Vec<Point> {
            (1..5)
                .map(|i| Point { bits: scale * f64::from(i), mse: f64::from(100 >> i), cpu_s: 0.0 })
                .collect()
        };
        assert!((bd_rate(&curve(1.0), &curve(1.1)) - 10.0).abs() < 1e-6);
        assert!(bd_rate(&curve(1.0), &curve(1.0)).abs() < 1e-9);
    }
}
