//! Video codecs as tensor codecs: align to integers, tile into frames, code.
//!
//! A fractional QP is made of a whole one and a gain: samples scaled down by
//! 2^(f/6) look to the quantizer like a QP higher by f, so any rate can be met
//! with a codec whose QP is an integer, whatever its steps are.

use trinity_bits::{Chroma, Frame, Rate};

use super::align::SampleGrid;
use super::ffmpeg::Ffmpeg;
use super::frame_codec::{FrameCodec, Step};
use super::tiling::{Limits, Tiling};
use super::{Matrix, MatrixCodec};
use crate::Error;

/// This project's H.265 or H.264.
#[derive(Debug)]
struct Own {
    preset: Preset,
    chroma: Chroma,
}

#[derive(Debug)]
enum Preset {
    H265(trinity_h265::Preset),
    H264(trinity_h264::Preset),
}

/// Samples have 12 bits: the grid is then finer than any step of interest, and
/// outliers do not starve the rest of levels as they do with the paper's 8.
const DEPTH: u32 = 12;
/// Largest frame: within every level's limits, large beside any transform.
const SIDE: usize = 4096;

impl Own {
    fn standard(&self) -> &'static str {
        match self.preset {
            Preset::H265(_) => "h265",
            Preset::H264(_) => "h264",
        }
    }

    fn failed(&self, error: impl std::error::Error) -> Error {
        Error::External { program: self.standard().to_owned(), problem: error.to_string() }
    }
}

impl FrameCodec for Own {
    fn name(&self) -> String {
        let (is_default, preset) = match self.preset {
            Preset::H265(preset) => (preset == Default::default(), preset.name()),
            Preset::H264(preset) => (preset == Default::default(), preset.name()),
        };
        let preset = if is_default { String::new() } else { format!("-{preset}") };
        let packing = PACKINGS.iter().find(|(_, own)| *own == self.chroma);
        let packing = packing.map_or(String::new(), |(name, _)| format!("-{name}"));
        format!("{}{preset}{packing}", self.standard())
    }

    fn limits(&self) -> Limits {
        Limits { least: 1, side: SIDE, chroma: self.chroma, depth: DEPTH }
    }

    fn steps(&self) -> Vec<Step> {
        Step::even(-6 * (DEPTH as i32 - 8), 51)
    }

    fn encode(&self, frames: &[Frame], qp: i32) -> Result<Vec<u8>, Error> {
        // Rows and slices are tasks of the pool that slabs and jobs run in.
        let (rate, threads) = (Rate::Qp(qp.into()), 0);
        match self.preset {
            Preset::H265(preset) => {
                let params = trinity_h265::Params { rate, preset, threads, ..Default::default() };
                trinity_h265::encode(frames, &trinity_h265::Params { picture_hash: false, ..params })
                    .map(|coded| coded.stream)
                    .map_err(|error| self.failed(error))
            }
            Preset::H264(preset) => {
                let params = trinity_h264::Params { rate, preset, threads, ..Default::default() };
                trinity_h264::encode(frames, &params)
                    .map(|coded| coded.stream)
                    .map_err(|error| self.failed(error))
            }
        }
    }

    fn decode(&self, stream: &[u8], _size: (usize, usize)) -> Result<Vec<Frame>, Error> {
        match self.preset {
            Preset::H265(_) => trinity_h265::decode(stream).map_err(|error| self.failed(error)),
            Preset::H264(_) => trinity_h264::decode(stream).map_err(|error| self.failed(error)),
        }
    }
}

/// Packings other than luma alone, as names have them: neutral chroma, for
/// hardware without 4:0:0, and three planes of values.
const PACKINGS: [(&str, Chroma); 2] = [("420", Chroma::C420), ("444", Chroma::C444)];

/// A frame codec by name: `h265`, `h264-fast`, `h265-444`, `h265-slow-420`, or an external one.
pub(crate) fn find(name: &str) -> Option<Box<dyn FrameCodec>> {
    let (rest, chroma) = PACKINGS
        .into_iter()
        .find_map(|(packing, chroma)| Some((name.strip_suffix(packing)?.strip_suffix('-')?, chroma)))
        .unwrap_or((name, Chroma::C400));
    let (codec, preset) = rest.split_once('-').unwrap_or((rest, "medium"));
    let preset = match codec {
        "h265" => Preset::H265(preset.parse().ok()?),
        "h264" => Preset::H264(trinity_h264::Preset::ALL.into_iter().find(|own| own.name() == preset)?),
        _ => return Some(Box::new(Ffmpeg::named(name)?)),
    };
    Some(Box::new(Own { preset, chroma }))
}

/// A frame codec as a codec of matrices.
#[derive(Debug)]
pub(crate) struct Video(pub Box<dyn FrameCodec>);

/// Bytes before the stream: the gain, and [`TURNED`] or [`ESCAPED`]. Where the
/// latter is set, a count of outliers follows, then each with its place.
const HEADER: usize = 5;
const TURNED: u8 = 1;
const ESCAPED: u8 = 2;
/// Place and value of an outlier.
const OUTLIER: usize = 8;
/// How far beyond a codec's finest step the gain may go, in QPs. Samples then
/// exceed their depth in the outliers, which travel beside the stream: a few
/// dozen of them can keep all other values below an encoder's least step.
const HEADROOM: f64 = 24.0;
/// Side of the piece on which the orientation is tried.
const TRIAL: usize = 128;
const TRIAL_QP: f64 = 24.0;
/// Bit of a choice that changes whole QPs once an octave; bit 0 is the orientation.
const OCTAVES: u8 = 2;

impl Video {
    fn grid(&self) -> SampleGrid {
        SampleGrid::full(self.0.limits().depth)
    }

    /// Whether columns should run along the scan: the cheaper of both ways on
    /// a piece from the middle.
    fn transposed(&self, matrix: &Matrix) -> Result<bool, Error> {
        let (rows, cols) = (matrix.rows.min(TRIAL), matrix.cols.min(TRIAL));
        if rows < 32 || cols < 32 {
            return Ok(false);
        }
        let (top, left) = ((matrix.rows - rows) / 2, (matrix.cols - cols) / 2);
        let piece: Vec<f32> = (top..top + rows)
            .flat_map(|row| &matrix.values[row * matrix.cols + left..][..cols])
            .copied()
            .collect();
        let grid = self.grid();
        let qp = whole_step(&self.0.steps(), TRIAL_QP).qp;
        let cost = |transposed| {
            let tiling = Tiling::new(rows, cols, transposed, self.0.limits());
            self.0.encode(&tiling.cut(&piece, |value| grid.sample(value)), qp).map(|stream| stream.len())
        };
        Ok(cost(true)? < cost(false)?)
    }
}

impl MatrixCodec for Video {
    fn name(&self) -> String {
        self.0.name()
    }

    fn knobs(&self, _matrix: &Matrix) -> (f64, f64) {
        let steps = self.0.steps();
        let end = |step: Option<&Step>| -step.map_or(0.0, |step| step.even_qp);
        (end(steps.last()), end(steps.first()) + HEADROOM)
    }

    fn guess(&self, matrix: &Matrix, bits: f64) -> Option<f64> {
        let energy: f64 = matrix.values.iter().map(|&value| f64::from(value).powi(2)).sum();
        let rms = (energy / matrix.values.len() as f64).sqrt();
        // QP 4 is a step of one at 8 bits; a Gaussian takes log2(σ √(2πe) / step) bits.
        Some(-(4.0 + 6.0 * ((rms * 127.0).log2() + 2.05 - bits)))
    }

    fn qp_knob(&self, qp: f64) -> Option<f64> {
        let steps = self.0.steps();
        let above = steps.partition_point(|step| f64::from(step.qp) < qp).clamp(1, steps.len() - 1);
        let (a, b) = (steps[above - 1], steps[above]);
        let share = (qp - f64::from(a.qp)) / f64::from(b.qp - a.qp);
        Some(-(a.even_qp + share * (b.even_qp - a.even_qp)))
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let (header, rest) =
            bytes.split_first_chunk::<HEADER>().ok_or_else(|| Error::corrupt(0, "the header is cut"))?;
        let gain = f32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let flags = header[4];
        if !gain.is_finite() || gain <= 0.0 || flags > TURNED | ESCAPED {
            return Err(Error::corrupt(0, "no such gain or orientation"));
        }
        let (outliers, stream) = if flags & ESCAPED == 0 { (Vec::new(), rest) } else { read_outliers(rest)? };
        let tiling = Tiling::new(rows, cols, flags & TURNED != 0, self.0.limits());
        let frames = self.0.decode(stream, tiling.size())?;
        let grid = self.grid().with_gain(gain);
        let mut values = tiling
            .join(&frames, |sample| grid.value(sample))
            .ok_or_else(|| Error::corrupt(HEADER, "another number or size of frames than the shape takes"))?;
        for (index, value) in outliers {
            let place = values.get_mut(index).filter(|_| value.is_finite());
            *place.ok_or_else(|| Error::corrupt(HEADER, "an outlier outside the tensor"))? = value;
        }
        Ok(values)
    }

    fn choose(&self, matrix: &Matrix) -> Result<u8, Error> {
        self.transposed(matrix).map(u8::from)
    }

    /// Rate jumps where the whole QP does, on heavy tails more than it falls in
    /// between; where a target lies in a jump, the gain alone goes an octave.
    fn other_choice(&self, choice: u8) -> Option<u8> {
        (choice & OCTAVES == 0).then_some(choice | OCTAVES)
    }

    fn encode(&self, matrix: &Matrix, knob: f64, choice: u8) -> Result<Vec<u8>, Error> {
        let steps = self.0.steps();
        let finest = steps.first().map_or(0.0, |step| step.even_qp);
        let whole =
            if choice & OCTAVES == 0 { -knob } else { ((-knob - finest) / 6.0).floor() * 6.0 + finest };
        let step = whole_step(&steps, whole);
        let full = self.grid();
        let gain = full.gain * 2f64.powf((knob + step.even_qp) / 6.0) as f32;
        let grid = full.with_gain(gain);
        let transposed = choice & TURNED != 0;
        let tiling = Tiling::new(matrix.rows, matrix.cols, transposed, self.0.limits());
        let frames = tiling.cut(&matrix.values, |value| grid.sample(value));
        let mut bytes = gain.to_le_bytes().to_vec();
        bytes.push(if transposed { TURNED } else { 0 });
        if gain > full.gain {
            bytes[HEADER - 1] |= ESCAPED;
            write_outliers(matrix, full.gain / gain, &mut bytes);
        }
        bytes.extend(self.0.encode(&frames, step.qp)?);
        Ok(bytes)
    }
}

/// Values of a larger magnitude than samples can show: a count, then place and
/// value of each.
fn write_outliers(matrix: &Matrix, largest: f32, bytes: &mut Vec<u8>) {
    let outliers = || matrix.values.iter().enumerate().filter(|(_, value)| value.abs() > largest);
    bytes.extend((outliers().count() as u32).to_le_bytes());
    for (index, value) in outliers() {
        bytes.extend((index as u32).to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
}

type Outliers = Vec<(usize, f32)>;

/// What [`write_outliers`] wrote, and the rest.
fn read_outliers(bytes: &[u8]) -> Result<(Outliers, &[u8]), Error> {
    let cut = || Error::corrupt(HEADER, "the outliers are cut");
    let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
    let len = (u32::from_le_bytes(*count) as usize).checked_mul(OUTLIER).ok_or_else(cut)?;
    let (list, stream) = rest.split_at_checked(len).ok_or_else(cut)?;
    let (list, _) = list.as_chunks::<OUTLIER>();
    let outlier = |&[a, b, c, d, e, f, g, h]: &[u8; OUTLIER]| {
        (u32::from_le_bytes([a, b, c, d]) as usize, f32::from_le_bytes([e, f, g, h]))
    };
    Ok((list.iter().map(outlier).collect(), stream))
}

/// The whole QP at or below a fractional one.
fn whole_step(steps: &[Step], even_qp: f64) -> Step {
    let passed = steps.partition_point(|step| step.even_qp <= even_qp).max(1) - 1;
    steps.get(passed).copied().unwrap_or(Step { qp: 0, even_qp: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fractional_qp_is_a_whole_one_and_a_gain() {
        let steps = Step::even(-24, 51);
        for (qp, whole) in [(27.3, 27), (27.0, 27), (-30.0, -24), (60.0, 51)] {
            assert_eq!(whole_step(&steps, qp).qp, whole, "{qp}");
        }
        for name in Ffmpeg::names() {
            let steps = find(name).unwrap().steps();
            assert!(steps.is_sorted_by(|a, b| a.qp < b.qp && a.even_qp < b.even_qp), "{name}");
        }
    }
}
