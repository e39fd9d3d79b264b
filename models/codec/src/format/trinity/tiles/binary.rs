//! One tile in adaptive binary arithmetic code: the stage for what no model of
//! scales fits, such as few distinct values, mostly zeros, or one sign.
//!
//! A uniform quantizer; every level as a string of bits in contexts of its
//! neighbours to the left and above. Plays the part of [`crate::format::trinity::tiles::adaptive`] for
//! plans with binary entropy coding.

use crate::Error;
use crate::entropy::binary::{Decoder, Encoder, Probability};
use crate::format::trinity::plan::{Plan, Scalars};
use crate::format::trinity::tiles::coded::{Coded, coded_width, rows_of};
use crate::stage::transform::Transformer;
use crate::stage::trellis::{MAX_LEVEL, Points};

/// Classes of neighbourhoods.
const CLASSES: usize = 7;
/// Magnitudes below this are unary.
const UNARY: usize = 15;
/// Bits of the largest magnitude.
const LENGTHS: usize = 23;

/// Contexts of all bits of a level.
#[derive(Debug)]
struct Contexts {
    zero: [Probability; CLASSES],
    negative: [Probability; 3],
    /// Probabilities by sign: what is left of one side says nothing of the other.
    more: [[[Probability; UNARY]; CLASSES]; 2],
    /// Beyond unary: how many bits follow, and those bits by place.
    longer: [Probability; LENGTHS],
    place: [[Probability; LENGTHS]; LENGTHS],
}

impl Default for Contexts {
    fn default() -> Self {
        let fresh = Probability::default();
        Self {
            zero: [fresh; CLASSES],
            negative: [fresh; 3],
            more: [[[fresh; UNARY]; CLASSES]; 2],
            longer: [fresh; LENGTHS],
            place: [[fresh; LENGTHS]; LENGTHS],
        }
    }
}

/// A bit on its way out or in: what is given when writing comes back, what
/// was read when reading.
trait Bits {
    fn bit(&mut self, probability: &mut Probability, bit: bool) -> bool;
}

impl Bits for Encoder {
    fn bit(&mut self, probability: &mut Probability, bit: bool) -> bool {
        self.put(probability, bit);
        bit
    }
}

impl Bits for Decoder<'_> {
    fn bit(&mut self, probability: &mut Probability, _: bool) -> bool {
        self.get(probability)
    }
}

impl Contexts {
    /// One level beside the two before it. The same steps write and read, so
    /// that they cannot differ; a reader passes any level.
    fn level(&mut self, bits: &mut impl Bits, left: i32, above: i32, level: i32) -> i32 {
        let around = left.unsigned_abs().saturating_add(above.unsigned_abs());
        let class = match around {
            0..=2 => around as usize,
            3..=4 => 3,
            5..=8 => 4,
            9..=16 => 5,
            _ => 6,
        };
        if !bits.bit(&mut self.zero[class], level != 0) {
            return 0;
        }
        let sign = (left.signum() + above.signum()).signum() + 1;
        let negative = bits.bit(&mut self.negative[sign as usize], level < 0);
        let wanted = level.unsigned_abs();
        let mut magnitude = 1;
        for (i, more) in self.more[usize::from(negative)][class].iter_mut().enumerate() {
            if !bits.bit(more, wanted > i as u32 + 1) {
                break;
            }
            magnitude += 1;
        }
        if magnitude > UNARY as u32 {
            magnitude += self.rest(bits, wanted.wrapping_sub(magnitude));
        }
        if negative { -(magnitude as i32) } else { magnitude as i32 }
    }

    /// A number without a bound: the length of what is one larger, then its
    /// bits below the first.
    fn rest(&mut self, bits: &mut impl Bits, wanted: u32) -> u32 {
        let wanted = wanted.wrapping_add(1).max(1);
        let mut length = 0;
        while length + 1 < LENGTHS && bits.bit(&mut self.longer[length], wanted.ilog2() as usize > length) {
            length += 1;
        }
        let mut value = 1;
        for place in (0..length).rev() {
            value =
                value << 1 | u32::from(bits.bit(&mut self.place[length][place], wanted >> place & 1 == 1));
        }
        value - 1
    }
}

/// Encodes all coded rows of a tile; `rows` holds their values and gets their
/// reconstruction.
pub fn encode(plan: &Plan, scalars: &Scalars, cols: usize, rows: &mut [f32]) -> Coded {
    let width = coded_width(plan, cols);
    let mut transformer = Transformer::new(plan.transform, 1, cols.next_multiple_of(plan.transform.width()));
    let points = Points::new(&scalars.centroids);
    let mut coded = Coded::default();
    let (mut bits, mut contexts) = (Encoder::default(), Contexts::default());
    let (mut above, mut levels) = (vec![0; width], vec![0; width]);
    let mut coefficients = vec![0.0; width];
    for values in rows.chunks_exact_mut(width) {
        transformer.forward(values, &mut coefficients);
        let mut left = 0;
        for ((level, coefficient), &above) in levels.iter_mut().zip(&mut coefficients).zip(&above) {
            let target = *coefficient / (2.0 * scalars.step);
            let limit = (MAX_LEVEL / 2) as f32;
            *level = target.round_ties_even().clamp(-limit, limit) as i32;
            contexts.level(&mut bits, left, above, *level);
            left = *level;
            if *level != 0 {
                let (sum, count) = &mut coded.drift[0][level.unsigned_abs().min(3) as usize - 1];
                *sum += f64::from(2.0 * (target.abs() - level.unsigned_abs() as f32));
                *count += 1;
            }
            *coefficient = points.value(*level, scalars.step);
        }
        let original = values.to_vec();
        transformer.inverse(&coefficients, values);
        coded.squared_error +=
            values.iter().zip(&original).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        std::mem::swap(&mut above, &mut levels);
    }
    coded.bytes = bits.finish();
    coded.bits.symbols = 8.0 * coded.bytes.len() as f64;
    coded
}

/// Decodes all coded rows of a tile.
pub fn decode(
    plan: &Plan,
    scalars: &Scalars,
    cols: usize,
    count: usize,
    bytes: &[u8],
) -> Result<Vec<f32>, Error> {
    let points = Points::new(&scalars.centroids);
    let (mut bits, mut contexts) = (Decoder::new(bytes), Contexts::default());
    let mut above = vec![0; coded_width(plan, cols)];
    let values = rows_of(plan, cols, count, |coefficients| {
        let mut left = 0;
        for (level, coefficient) in above.iter_mut().zip(coefficients) {
            *level = contexts.level(&mut bits, left, *level, 0);
            left = *level;
            *coefficient = points.value(*level, scalars.step);
        }
        bits.check()
    })?;
    bits.finish()?;
    Ok(values)
}
