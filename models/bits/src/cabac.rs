//! The binary arithmetic engine that H.264 (clause 9.3) and H.265 (clause 9.3)
//! share: context states, decoder, encoder, and a counter that prices bins
//! without coding them.
//!
//! Knows bins and their contexts; which bin means what is the standards'
//! business. Syntax code written against [`BinWriter`] serves both writing
//! ([`Encoder`]) and rate estimation ([`BitCounter`]).

mod decoder;
mod encoder;
mod tables;

pub use decoder::Decoder;
pub use encoder::{BinWriter, BitCounter, Encoder};

use tables::{FRACTIONAL_BITS, RANGE_TAB_LPS, TRANS_IDX_LPS};

/// The adaptive state of one context variable: `pStateIdx << 1 | valMps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Context(u8);

impl Context {
    /// From the slope `m` and offset `n` of a context's initialization
    /// (H.264 clause 9.3.1.1, H.265 equation 9-6).
    pub const fn from_slope(m: i32, n: i32, slice_qp: i32) -> Self {
        let qp = if slice_qp < 0 {
            0
        } else if slice_qp > 51 {
            51
        } else {
            slice_qp
        };
        let state = ((m * qp) >> 4) + n;
        let state = if state < 1 {
            1
        } else if state > 126 {
            126
        } else {
            state
        };
        Self(if state <= 63 { ((63 - state) << 1) as u8 } else { (((state - 64) << 1) | 1) as u8 })
    }

    /// From an H.265 `initValue` (equation 9-5).
    pub const fn from_init_value(init_value: u8, slice_qp: i32) -> Self {
        let m = (init_value >> 4) as i32 * 5 - 45;
        let n = (((init_value & 15) as i32) << 3) - 16;
        Self::from_slope(m, n, slice_qp)
    }

    /// pStateIdx, 0 (even odds) to 62 (nearly certain).
    pub const fn state(self) -> u8 {
        self.0 >> 1
    }

    /// valMps, the more probable value.
    pub const fn mps(self) -> bool {
        self.0 & 1 == 1
    }

    /// What coding `bin` here costs, in 1/32768 bit.
    #[inline(always)]
    pub fn cost(self, bin: bool) -> u32 {
        FRACTIONAL_BITS[usize::from((self.0 ^ u8::from(bin)) & 127)]
    }

    /// Adapts as coding `bin` would.
    #[inline(always)]
    pub fn update(&mut self, bin: bool) {
        let less_probable = (self.0 & 1) ^ u8::from(bin);
        self.0 = NEXT_STATE[usize::from((self.0 << 1) | less_probable)];
    }
}

/// One bit in the unit of [`Context::cost`] and [`BitCounter`].
pub const ONE_BIT: u32 = 1 << 15;

/// The four LPS sub-ranges of a state packed into one word, indexed by the
/// context byte: the load does not wait for the range, only a shift does.
static LPS_RANGES: [u32; 128] = {
    let mut table = [0; 128];
    let mut at = 0;
    while at < 128 {
        table[at] = u32::from_le_bytes(RANGE_TAB_LPS[at / 2]);
        at += 1;
    }
    table
};

/// The next context byte, indexed by `context << 1 | less_probable`.
static NEXT_STATE: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (state, mps, less_probable) = (at >> 2, (at >> 1) as u8 & 1, at & 1 == 1);
        table[at] = if !less_probable {
            ((if state < 62 { state as u8 + 1 } else { state as u8 }) << 1) | mps
        } else {
            let mps = if state == 0 { mps ^ 1 } else { mps };
            (TRANS_IDX_LPS[state] << 1) | mps
        };
        at += 1;
    }
    table
};

/// The LPS sub-range of `context` within `range` (256 to 510).
#[inline(always)]
fn lps_range(context: Context, range: u32) -> u32 {
    (LPS_RANGES[usize::from(context.0 & 127)] >> ((range >> 3) & 0x18)) & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Bin {
        Context(usize, bool),
        Bypass(bool),
        Bypasses(u32, u32),
        Aligned(u32, u32),
        Terminate,
        Pcm(Vec<u8>),
    }

    fn bin() -> impl Strategy<Value = Bin> {
        prop_oneof![
            12 => (0usize..4, 0u32..10).prop_map(|(c, v)| Bin::Context(c, v as usize > c * 3)),
            3 => any::<bool>().prop_map(Bin::Bypass),
            2 => (any::<u32>(), 1u32..=32).prop_map(|(v, n)| Bin::Bypasses(v >> (32 - n), n)),
            1 => (any::<u32>(), 1u32..=32).prop_map(|(v, n)| Bin::Aligned(v >> (32 - n), n)),
            1 => Just(Bin::Terminate),
            1 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Bin::Pcm),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_of_bins_round_trips(bins in prop::collection::vec(bin(), 0..400)) {
            let mut contexts = [20, 154, 80, 220].map(|v| Context::from_init_value(v, 30));
            let mut encoder = Encoder::new();
            for bin in &bins {
                match bin {
                    Bin::Context(c, v) => encoder.encode(&mut contexts[*c], *v),
                    Bin::Bypass(v) => encoder.bypass(*v),
                    Bin::Bypasses(v, n) => encoder.bypass_bits(*v, *n),
                    Bin::Aligned(v, n) => {
                        encoder.align_bypass();
                        encoder.bypass_bits(*v, *n);
                    }
                    Bin::Terminate => encoder.terminate(false),
                    Bin::Pcm(bytes) => {
                        encoder.terminate(true);
                        encoder.flush();
                        encoder.raw_bytes(bytes);
                    }
                }
            }
            encoder.terminate(true);
            let stream = encoder.finish();

            let mut contexts = [20, 154, 80, 220].map(|v| Context::from_init_value(v, 30));
            let mut decoder = Decoder::new(&stream);
            for bin in &bins {
                match bin {
                    Bin::Context(c, v) => prop_assert_eq!(decoder.decode(&mut contexts[*c]), *v),
                    Bin::Bypass(v) => prop_assert_eq!(decoder.bypass(), *v),
                    Bin::Bypasses(v, n) => prop_assert_eq!(decoder.bypass_bits(*n), *v),
                    Bin::Aligned(v, n) => {
                        decoder.align_bypass();
                        prop_assert_eq!(decoder.bypass_bits(*n), *v);
                    }
                    Bin::Terminate => prop_assert!(!decoder.terminate()),
                    Bin::Pcm(bytes) => {
                        prop_assert!(decoder.terminate());
                        let at = decoder.byte_position();
                        prop_assert_eq!(&stream[at..at + bytes.len()], &bytes[..]);
                        decoder.restart(at + bytes.len());
                    }
                }
                prop_assert!(!decoder.overrun());
            }
            prop_assert!(decoder.terminate());
            prop_assert!(!decoder.overrun());
            prop_assert_eq!(decoder.byte_position(), stream.len());
        }

        #[test]
        fn peeked_bypass_bins_equal_single_ones(bytes in prop::collection::vec(any::<u8>(), 2..40), steps in prop::collection::vec((1u32..=22, 0u32..=22), 1..40)) {
            let mut one = Decoder::new(&bytes);
            let mut many = one.clone();
            for &(n, used) in &steps {
                let used = used.min(n);
                let peeked = many.peek_bypass(n);
                many.skip_bypass(peeked, n, used);
                let single = (0..used).fold(0, |bins, _| bins << 1 | u32::from(one.bypass()));
                prop_assert_eq!(peeked >> (n - used), single);
            }
        }
    }

    #[test]
    fn the_counter_agrees_with_the_encoder_within_half_a_percent() {
        let mut seed = 1u32;
        let (mut a, mut b) = (Context::from_init_value(154, 30), Context::from_init_value(154, 30));
        let (mut encoder, mut counter) = (Encoder::new(), BitCounter::default());
        for _ in 0..200_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bin = seed >> 24 < 40;
            encoder.encode(&mut a, bin);
            counter.encode(&mut b, bin);
        }
        let written = encoder.finish().len() as f64 * 8.0;
        assert!((counter.bits() / written - 1.0).abs() < 0.005, "{} {written}", counter.bits());
    }

    #[test]
    fn tables_are_the_standards() {
        let sum: u32 = RANGE_TAB_LPS
            .iter()
            .enumerate()
            .map(|(i, row)| row.iter().zip(1..).map(|(&v, j)| u32::from(v) * j).sum::<u32>() * (i as u32 + 1))
            .sum();
        let trans: u32 = TRANS_IDX_LPS.iter().zip(1..).map(|(&v, i)| u32::from(v) * i).sum();
        assert_eq!((sum, trans), (680_153, 61_354));
        for state in 0..63 {
            let lps = 0.5 * (0.0375f64).powf(state as f64 / 63.0);
            let bits = |p: f64| (-p.log2() * 32768.0).round() as u32;
            assert_eq!(FRACTIONAL_BITS[2 * state], bits(1.0 - lps));
            assert_eq!(FRACTIONAL_BITS[2 * state + 1], bits(lps));
            for (quarter, &value) in RANGE_TAB_LPS[state].iter().enumerate() {
                let exact = (288.0 + 64.0 * quarter as f64) * lps;
                assert!((f64::from(value) - exact).abs() < 2.0 + 0.12 * exact, "{state} {quarter}");
            }
        }
    }
}
