//! GPTQ and AWQ: integers in groups of 128, each with an f16 scale and a zero point, chosen for what a layer reads.
//!
//! Written from their papers. Takes second moments of a layer's inputs; where they come from is the caller's affair.

use half::f16;
use nalgebra::DMatrix;

use super::contract::missed;
use super::lossy::restored_finite;
use super::{Encoded, Inputs, Moments, Rate, TensorCodec};
use crate::{Error, Tensor};

/// Values that share a scale.
pub const GROUP: usize = 128;
/// Bits that the integers may have.
const WIDTHS: std::ops::RangeInclusive<u32> = 2..=8;
const SCALE_BITS: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Frantar et al. 2023: columns in turn, each error spread over those after it.
    Gptq,
    /// Lin et al. 2024: salient channels scaled up by a power of their activations.
    Awq,
}

impl Method {
    pub const ALL: [Self; 2] = [Self::Gptq, Self::Awq];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }

    /// Its name among codecs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gptq => "gptq-128g",
            Self::Awq => "awq-128g",
        }
    }

    /// Quantizes rows of `cols` values for inputs of these second moments, columns × columns.
    ///
    /// # Errors
    ///
    /// Where the moments have no inverse.
    pub fn quantize(
        self,
        width: u32,
        cols: usize,
        values: &[f32],
        moments: &[f32],
    ) -> Result<Grouped, String> {
        match self {
            Self::Gptq => gptq(width, cols, values, moments),
            Self::Awq => Ok(awq(width, cols, values, moments)),
        }
    }
}

/// Bits per value of a width, where groups are full.
pub fn bits_per_value(width: u32) -> f64 {
    f64::from(width) + f64::from(SCALE_BITS + width) / GROUP as f64
}

/// The widest integers that so many bits per value have room for.
pub fn width_within(bits: f64) -> Option<u32> {
    // A hair above, so that a rate that was printed is enough.
    WIDTHS.rev().find(|&width| bits_per_value(width) <= bits + 5e-3)
}

/// Scale and zero point of a group: asymmetric, from least to largest.
#[derive(Debug, Clone, Copy)]
struct Grid {
    scale: f16,
    zero: u8,
    top: u8,
}

impl Grid {
    fn of(values: impl Iterator<Item = f32>, width: u32) -> Self {
        let (low, high) = values.fold((0.0f32, 0.0f32), |(low, high), v| (low.min(v), high.max(v)));
        let top = ((1u32 << width) - 1) as u8;
        let scale = f16::from_f32((high - low) / f32::from(top)).max(f16::MIN_POSITIVE_SUBNORMAL);
        let zero = (-low / scale.to_f32()).round().clamp(0.0, f32::from(top)) as u8;
        Self { scale, zero, top }
    }

    fn code(self, value: f32) -> u8 {
        (value / self.scale.to_f32() + f32::from(self.zero)).round().clamp(0.0, f32::from(self.top)) as u8
    }

    fn value(self, code: u8) -> f32 {
        (f32::from(code) - f32::from(self.zero)) * self.scale.to_f32()
    }
}

/// Whether a stream has scales of channels.
const HAS_CHANNELS: u8 = 1;
/// Whether a stream is of the transposed matrix: its rows are the layer's inputs, and groups go down its columns.
const TRANSPOSED: u8 = 2;

/// Quantized rows.
#[derive(Debug, Clone)]
pub struct Grouped {
    width: u32,
    cols: usize,
    /// What columns were multiplied by before they were rounded; nothing where they were not.
    channels: Vec<f16>,
    /// Group by group, row by row.
    grids: Vec<Grid>,
    codes: Vec<u8>,
}

impl Grouped {
    fn rounded(width: u32, cols: usize, values: &[f32]) -> Self {
        let mut own = Self { width, cols, channels: Vec::new(), grids: Vec::new(), codes: Vec::new() };
        for group in values.chunks(cols.max(1)).flat_map(|row| row.chunks(GROUP)) {
            let grid = Grid::of(group.iter().copied(), width);
            own.grids.push(grid);
            own.codes.extend(group.iter().map(|&v| grid.code(v)));
        }
        own
    }

    /// What it stands for, row by row.
    pub fn values(&self) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.codes.len());
        let mut grids = self.grids.iter();
        for row in self.codes.chunks(self.cols.max(1)) {
            for group in row.chunks(GROUP) {
                // A grid for every group: the decoder counts them.
                let Some(grid) = grids.next() else { continue };
                values.extend(group.iter().map(|&code| grid.value(code)));
            }
        }
        if !self.channels.is_empty() {
            for row in values.chunks_mut(self.cols) {
                row.iter_mut().zip(&self.channels).for_each(|(v, s)| *v /= s.to_f32());
            }
        }
        values
    }

    /// Bits as published: integers, scales and zero points; what scales channels goes into the norm before.
    pub fn published_bits(&self) -> u64 {
        let groups = self.grids.len() as u64 * u64::from(SCALE_BITS + self.width);
        self.codes.len() as u64 * u64::from(self.width) + groups
    }

    fn to_bytes(&self, inputs: Inputs) -> Vec<u8> {
        let channels = if self.channels.is_empty() { 0 } else { HAS_CHANNELS };
        let transposed = if inputs == Inputs::Columns { 0 } else { TRANSPOSED };
        let mut bytes = vec![self.width as u8, channels | transposed];
        bytes.extend(self.channels.iter().flat_map(|scale| scale.to_le_bytes()));
        bytes.extend(self.grids.iter().flat_map(|grid| grid.scale.to_le_bytes()));
        let zeros = self.grids.iter().map(|grid| grid.zero);
        pack(zeros.chain(self.codes.iter().copied()), self.width, &mut bytes);
        bytes
    }

    /// The values of a matrix that is rows × cols, row by row.
    fn values_of(bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        if bytes.get(1).is_some_and(|flags| flags & TRANSPOSED != 0) {
            return Ok(transposed(&Self::from_bytes(bytes, cols, rows)?.values(), rows));
        }
        Ok(Self::from_bytes(bytes, rows, cols)?.values())
    }

    fn from_bytes(bytes: &[u8], rows: usize, cols: usize) -> Result<Self, Error> {
        let cut = || Error::corrupt(bytes.len(), "scales or integers are cut");
        let (&[width, flags], rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
        let width = u32::from(width);
        if !WIDTHS.contains(&width) || flags & !(HAS_CHANNELS | TRANSPOSED) != 0 {
            return Err(Error::corrupt(0, "integers of no known width"));
        }
        let groups = rows * cols.div_ceil(GROUP);
        let halves = |count: usize, from: &[u8]| -> Vec<f16> {
            from[..2 * count].as_chunks::<2>().0.iter().map(|&half| f16::from_le_bytes(half)).collect()
        };
        let channels = if flags & HAS_CHANNELS != 0 { cols } else { 0 };
        let packed = ((groups + rows * cols) * width as usize).div_ceil(8);
        if rest.len() != 2 * (channels + groups) + packed {
            return Err(cut());
        }
        let (scales, rest) = rest.split_at(2 * channels);
        let (grids, rest) = rest.split_at(2 * groups);
        let (channels, grids) = (halves(channels, scales), halves(groups, grids));
        let bad = |scale: &f16| !scale.is_finite() || scale.to_f32() <= 0.0;
        if channels.iter().chain(&grids).any(bad) {
            return Err(Error::corrupt(2, "a scale that is no number above zero"));
        }
        let mut codes = unpack(rest, width, groups + rows * cols);
        let values = codes.split_off(groups);
        let top = ((1u32 << width) - 1) as u8;
        let grids = grids.into_iter().zip(codes).map(|(scale, zero)| Grid { scale, zero, top }).collect();
        Ok(Self { width, cols, channels, grids, codes: values })
    }
}

/// Rows of `cols` values the other way round.
pub(super) fn transposed(values: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|col| values.iter().skip(col).step_by(cols).copied()).collect()
}

/// The moments of those inputs alone, out of the moments of all; nothing where they are not all there.
fn moments_of(inputs: std::ops::Range<usize>, moments: &[f32]) -> Option<Vec<f32>> {
    let size = moments.len().isqrt();
    let fits = size * size == moments.len() && inputs.end <= size;
    fits.then(|| inputs.clone().flat_map(|i| &moments[i * size..][inputs.clone()]).copied().collect())
}

/// Numbers of `width` bits, up to 8, the first in the lowest bits.
pub(super) fn pack(numbers: impl Iterator<Item = u8>, width: u32, bytes: &mut Vec<u8>) {
    let (mut held, mut bits) = (0u32, 0);
    for number in numbers {
        held |= u32::from(number) << bits;
        bits += width;
        while bits >= 8 {
            bytes.push(held as u8);
            (held, bits) = (held >> 8, bits - 8);
        }
    }
    if bits > 0 {
        bytes.push(held as u8);
    }
}

pub(super) fn unpack(bytes: &[u8], width: u32, count: usize) -> Vec<u8> {
    let mask = ((1u32 << width) - 1) as u8;
    let number = |i: usize| {
        let at = i * width as usize;
        let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
        ((byte(at / 8) | byte(at / 8 + 1) << 8) >> (at % 8)) as u8 & mask
    };
    (0..count).map(number).collect()
}

fn gptq(width: u32, cols: usize, values: &[f32], moments: &[f32]) -> Result<Grouped, String> {
    let mean = (0..cols).map(|i| f64::from(moments[i * (cols + 1)])).sum::<f64>() / cols.max(1) as f64;
    let damped = DMatrix::from_fn(cols, cols, |i, j| {
        f64::from(moments[i * cols + j]) + if i == j { 0.01 * mean } else { 0.0 }
    });
    // The upper Cholesky factor of the inverse, as the paper's algorithm has it.
    let inverse = damped.cholesky().ok_or("its moments have no inverse")?.inverse();
    let upper = inverse.cholesky().ok_or("its moments have no inverse")?.l().transpose();
    let upper: Vec<f32> = (0..cols * cols).map(|i| upper[(i / cols, i % cols)] as f32).collect();
    let mut own = Grouped { width, cols, channels: Vec::new(), grids: Vec::new(), codes: Vec::new() };
    let mut row = vec![0.0; cols];
    for original in values.chunks_exact(cols.max(1)) {
        row.copy_from_slice(original);
        let mut grid = Grid::of(std::iter::empty(), width);
        for j in 0..cols {
            if j % GROUP == 0 {
                // From the weights as they are by now.
                grid = Grid::of(row[j..(j + GROUP).min(cols)].iter().copied(), width);
                own.grids.push(grid);
            }
            let code = grid.code(row[j]);
            own.codes.push(code);
            let error = (row[j] - grid.value(code)) / upper[j * cols + j];
            let shares = &upper[j * cols..][j + 1..cols];
            row[j + 1..].iter_mut().zip(shares).for_each(|(v, share)| *v -= error * share);
        }
    }
    Ok(own)
}

/// Exponents that AWQ tries, from none to all of the activations' size.
const AWQ_STEPS: usize = 20;

fn awq(width: u32, cols: usize, values: &[f32], moments: &[f32]) -> Grouped {
    let sizes: Vec<f32> = (0..cols).map(|i| moments[i * (cols + 1)].max(1e-12).sqrt()).collect();
    let weighed = DMatrix::from_row_slice(cols, cols, moments);
    let mut best: Option<(f64, Grouped)> = None;
    for step in 0..AWQ_STEPS {
        let exponent = step as f32 / AWQ_STEPS as f32;
        let mut scales: Vec<f32> = sizes.iter().map(|s| s.powf(exponent).max(1e-4)).collect();
        let bounds = scales.iter().fold((f32::MAX, 0f32), |(low, high), s| (low.min(*s), high.max(*s)));
        let middle = (bounds.0 * bounds.1).sqrt();
        scales.iter_mut().for_each(|s| *s /= middle);
        let channels: Vec<f16> =
            scales.iter().map(|&s| f16::from_f32(s).max(f16::MIN_POSITIVE_SUBNORMAL)).collect();
        let mut scaled = values.to_vec();
        for row in scaled.chunks_exact_mut(cols.max(1)) {
            row.iter_mut().zip(&channels).for_each(|(v, s)| *v *= s.to_f32());
        }
        let tried = Grouped { channels, ..Grouped::rounded(width, cols, &scaled) };
        let errors: Vec<f32> = tried.values().iter().zip(values).map(|(a, b)| a - b).collect();
        // A column is a row of the weight.
        let errors = DMatrix::from_column_slice(cols, values.len() / cols.max(1), &errors);
        let cost = (&weighed * &errors).component_mul(&errors).iter().map(|&e| f64::from(e)).sum();
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, tried));
        }
    }
    best.map_or_else(|| Grouped::rounded(width, cols, values), |(_, found)| found)
}

/// A method as a codec of files.
#[derive(Debug)]
pub(crate) struct Calibrated(pub Method);

impl Calibrated {
    fn refuse(&self, tensor: &Tensor, target: Rate, reason: impl Into<Box<str>>) -> Error {
        missed(target, tensor, self.name(), reason)
    }
}

impl TensorCodec for Calibrated {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn needs_moments(&self) -> bool {
        true
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let reason = "it rounds a layer's weights for what the layer reads, which a calibration says";
        Err(self.refuse(tensor, target, reason))
    }

    fn encode_weighted(&self, tensor: &Tensor, target: Rate, moments: Moments<'_>) -> Result<Encoded, Error> {
        let Rate::Bits(bits) = target else {
            return Err(self.refuse(tensor, target, "it has whole bits per value, and no other target"));
        };
        let Some(width) = width_within(bits) else {
            let least = bits_per_value(*WIDTHS.start());
            let reason = format!("with its scales it takes {least:.2} bits/value or more");
            return Err(self.refuse(tensor, target, reason));
        };
        Encoded::of_normalized(tensor, |matrix| {
            // Groups go along a layer's inputs.
            let (values, inputs) = match moments.inputs {
                Inputs::Columns => (matrix.values, 0..matrix.cols),
                Inputs::Rows { first } => {
                    (transposed(&matrix.values, matrix.cols), first..first.saturating_add(matrix.rows))
                }
            };
            let count = inputs.len();
            let own = moments_of(inputs, moments.values)
                .ok_or_else(|| format!("{} moments for {count} inputs", moments.values.len()));
            let quantized = own.and_then(|own| self.0.quantize(width, count, &values, &own));
            let quantized = quantized.map_err(|reason| self.refuse(tensor, target, reason))?;
            Ok(quantized.to_bytes(moments.inputs))
        })
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        restored_finite(encoded, Grouped::values_of)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lossy::normalize;
    use super::*;
    use crate::{Class, Dtype};

    fn tensor(values: &[f32], shape: [usize; 2]) -> Tensor {
        Tensor::of_f32("w", Class::Weight, Dtype::F32, shape.to_vec(), values).unwrap()
    }

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 1.7).sin() + 0.3 * (i as f32 * 0.31).cos()).collect()
    }

    /// Moments of inputs that lean on each other and differ in size.
    fn moments(cols: usize) -> Vec<f32> {
        let seen: Vec<f32> = (0..4 * cols * cols)
            .map(|i| ((i * 7919 % 1013) as f32 / 506.5 - 1.0) * (1.0 + (i % cols) as f32 / 8.0))
            .collect();
        let seen = DMatrix::from_row_slice(4 * cols, cols, &seen);
        (seen.transpose() * seen).as_slice().to_vec()
    }

    fn cost(errors: &[f32], moments: &[f32], cols: usize) -> f64 {
        let at = |row: &[f32], i: usize, j: usize| f64::from(row[i] * moments[i * cols + j] * row[j]);
        let of = |row: &[f32]| (0..cols * cols).map(|ij| at(row, ij / cols, ij % cols)).sum::<f64>();
        errors.chunks(cols).map(of).sum()
    }

    #[test]
    fn what_layers_read_makes_errors_cheaper_than_rounding_alone() {
        let (rows, cols) = (12, 160);
        let (values, moments) = (wave(rows * cols), moments(cols));
        let lost = |quantized: &Grouped| {
            let errors: Vec<f32> = quantized.values().iter().zip(&values).map(|(a, b)| a - b).collect();
            cost(&errors, &moments, cols)
        };
        let plain = lost(&Grouped::rounded(3, cols, &values));
        for method in Method::ALL {
            let own = lost(&method.quantize(3, cols, &values, &moments).unwrap());
            assert!(own < 0.95 * plain, "{method:?}: {own} against {plain}");
        }
    }

    #[test]
    fn a_weight_whose_rows_are_inputs_is_rounded_as_its_transpose() {
        let (outputs, inputs) = (12, 160);
        let (values, moments) = (wave(outputs * inputs), moments(inputs));
        let plain = tensor(&values, [outputs, inputs]);
        let turned = tensor(&transposed(&values, inputs), [inputs, outputs]);
        let decoded = |codec: &Calibrated, encoded: &Encoded| codec.decode(encoded).unwrap().to_f32();
        for method in Method::ALL {
            let (codec, target) = (Calibrated(method), Rate::Bits(bits_per_value(3)));
            let rows = |first| Moments { inputs: Inputs::Rows { first }, values: &moments };
            let first = codec.encode_weighted(&plain, target, Moments::of_columns(&moments)).unwrap();
            let second = codec.encode_weighted(&turned, target, rows(0)).unwrap();
            assert_eq!(decoded(&codec, &second), transposed(&decoded(&codec, &first), inputs));
            // A slab that begins with a later input has the moments of its own, and no more than there are.
            let half = tensor(&transposed(&values, inputs)[80 * outputs..], [80, outputs]);
            assert!(codec.decode(&codec.encode_weighted(&half, target, rows(80)).unwrap()).is_ok());
            assert!(codec.encode_weighted(&half, target, rows(81)).is_err());
            for cut in 2..second.bytes.len() {
                assert!(codec.decode(&second.cut(cut)).is_err(), "{method:?}: {cut}");
            }
        }
    }

    #[test]
    fn streams_come_back_and_cut_ones_are_errors() {
        let (rows, cols) = (12, 160);
        let tensor = tensor(&wave(rows * cols), [rows, cols]);
        for method in Method::ALL {
            let codec = Calibrated(method);
            for width in [2, 3, 4, 8] {
                let target = Rate::Bits(bits_per_value(width));
                let encoded =
                    codec.encode_weighted(&tensor, target, Moments::of_columns(&moments(cols))).unwrap();
                let quantized = {
                    let (matrix, _) = normalize(&tensor).unwrap().unwrap();
                    method.quantize(width, cols, &matrix.values, &moments(cols)).unwrap()
                };
                let read = Grouped::from_bytes(&encoded.bytes[2..], rows, cols).unwrap();
                assert_eq!(read.values(), quantized.values(), "{method:?} {width}");
                assert!(codec.decode(&encoded).is_ok());
                for cut in 2..encoded.bytes.len() {
                    assert!(codec.decode(&encoded.cut(cut)).is_err(), "{method:?} {width}: {cut}");
                }
            }
            assert!(codec.encode(&tensor, Rate::Bits(4.0)).is_err());
            let moments = moments(cols);
            let known = Moments::of_columns(&moments);
            assert!(codec.encode_weighted(&tensor, Rate::Bits(2.0), known).is_err());
            assert!(codec.encode_weighted(&tensor, Rate::Lossless, known).is_err());
        }
        assert_eq!((width_within(3.15), width_within(3.0), width_within(2.0)), (Some(3), Some(2), None));
    }
}
