//! Products of matrices on the unit for tiles that some processors have (AMX), of f32 as sums of two bf16.
//!
//! A value is its nearest bf16 and the bf16 nearest to what is left, which is 16 bits of its mantissa; of the four products
//! of such halves the smallest is left out. The errors, some 2⁻¹⁶ of each product, are far below what a codec leaves and
//! what a text tells of moments. With [`Halves::First`] the second half is left out on both sides: 2⁻⁸, enough
//! for sums that are themselves estimates. Knows numbers alone; who has no such unit multiplies otherwise.

use crate::simd::{Kernel, Width, with_width};
use std::ops::Range;

/// Vectors of a tile, and pairs of terms in it.
const TILE: usize = 16;
/// Vectors of each side that are multiplied at once: two tiles.
const BLOCK: usize = 2 * TILE;
/// Terms of a tile.
const TERMS: usize = 2 * TILE;
/// Words of a tile.
const WORDS: usize = TILE * TILE;

/// How much of each value is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// The nearest bf16.
    First,
    /// And what is left, as another.
    Both,
}

impl Halves {
    fn count(self) -> usize {
        match self {
            Self::First => 1,
            Self::Both => 2,
        }
    }
}

/// A processor's unit for tiles, which this process may use.
#[derive(Debug, Clone, Copy)]
pub struct Unit(());

impl Unit {
    /// Nothing where there is none, or the system does not grant it.
    pub fn get() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            use std::sync::OnceLock;
            static GRANTED: OnceLock<bool> = OnceLock::new();
            if *GRANTED.get_or_init(amx::is_granted) {
                return Some(Self(()));
            }
        }
        None
    }
}

/// Vectors of a product, as tiles: for each sixteen of them their terms, 32 at a time, the first halves before the second.
#[derive(Debug)]
pub struct Side {
    words: Vec<u32>,
    vectors: usize,
    /// Tiles of terms.
    depth: usize,
    halves: Halves,
}

impl Side {
    fn empty(vectors: usize, terms: usize, halves: Halves) -> Self {
        let depth = terms.div_ceil(TERMS);
        let words = vec![0; vectors.next_multiple_of(BLOCK) * depth * TILE * halves.count()];
        Self { words, vectors, depth, halves }
    }

    /// The left side out of vectors that lie one behind the other.
    pub fn left_of_rows(rows: &[f32], terms: usize, halves: Halves) -> Self {
        let vectors = rows.len() / terms.max(1);
        let mut side = Self::empty(vectors, terms, halves);
        if terms > 0 {
            with_width(Width::widest(), Rows { rows, terms, side: &mut side });
        }
        side
    }

    /// The left side: some of the vectors of a matrix of so many, which has the first terms of all, then the second, and so on.
    pub fn left_of_columns((values, all): (&[f32], usize), vectors: Range<usize>, halves: Halves) -> Self {
        Self::of_columns((values, all), vectors, halves, true)
    }

    /// The right side, as [`Side::left_of_columns`].
    pub fn right_of_columns((values, all): (&[f32], usize), vectors: Range<usize>, halves: Halves) -> Self {
        Self::of_columns((values, all), vectors, halves, false)
    }

    fn of_columns((values, all): (&[f32], usize), vectors: Range<usize>, halves: Halves, left: bool) -> Self {
        let mut side = Self::empty(vectors.len(), values.len() / all.max(1), halves);
        if !vectors.is_empty() {
            with_width(Width::widest(), Columns { values, all, first: vectors.start, left, side: &mut side });
        }
        side
    }
}

/// The nearest bf16, ties to even, in the upper half of a word.
#[inline(always)]
fn nearest(x: f32) -> u32 {
    let bits = x.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000
}

/// A value's halves, each in the upper half of a word.
#[inline(always)]
fn halves(x: f32) -> [u32; 2] {
    let first = nearest(x);
    [first, nearest(x - f32::from_bits(first))]
}

struct Rows<'a> {
    rows: &'a [f32],
    terms: usize,
    side: &'a mut Side,
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { rows, terms, side } = self;
        let count = side.halves.count();
        for (vector, row) in rows.chunks_exact(terms).enumerate() {
            let tiles = &mut side.words[vector / TILE * side.depth * count * WORDS..];
            for (tile, own) in row.chunks(TERMS).zip(tiles.chunks_exact_mut(count * WORDS)) {
                let mut values = [0.0; TERMS];
                match tile.len() {
                    TERMS => values.copy_from_slice(&tile[..TERMS]),
                    some => values[..some].copy_from_slice(tile),
                }
                let at = vector % TILE * TILE;
                let (first, second) = own.split_at_mut(WORDS);
                for (pair, word) in values.chunks_exact(2).zip(&mut first[at..at + TILE]) {
                    *word = nearest(pair[0]) >> 16 | nearest(pair[1]);
                }
                if count == 2 {
                    for (pair, word) in values.chunks_exact(2).zip(&mut second[at..at + TILE]) {
                        *word = halves(pair[0])[1] >> 16 | halves(pair[1])[1];
                    }
                }
            }
        }
    }
}

struct Columns<'a> {
    values: &'a [f32],
    all: usize,
    first: usize,
    left: bool,
    side: &'a mut Side,
}

impl Kernel for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { values, all, first, left, side } = self;
        let (vectors, depth, count) = (side.vectors, side.depth, side.halves.count());
        for at in (0..vectors).step_by(TILE) {
            let width = TILE.min(vectors - at);
            let tiles = &mut side.words[at / TILE * depth * count * WORDS..];
            for (terms, own) in values.chunks(TERMS * all).zip(tiles.chunks_exact_mut(count * WORDS)) {
                let mut tile = [[0u32; WORDS]; 2];
                for pair in 0..TILE {
                    let mut two = [[0.0f32; TILE]; 2];
                    for (half, into) in two.iter_mut().enumerate() {
                        let from = (2 * pair + half) * all + first + at;
                        match terms.get(from..from + width) {
                            // A copy of a size that is known is no call.
                            Some(own) if width == TILE => into[..TILE].copy_from_slice(&own[..TILE]),
                            Some(own) => into[..width].copy_from_slice(own),
                            None => {}
                        }
                    }
                    for i in 0..TILE {
                        let (a, b) = (halves(two[0][i]), halves(two[1][i]));
                        tile[0][pair * TILE + i] = a[0] >> 16 | b[0];
                        tile[1][pair * TILE + i] = a[1] >> 16 | b[1];
                    }
                }
                for (tile, own) in tile.iter().zip(own.chunks_exact_mut(WORDS)) {
                    if left {
                        turn(tile, own);
                    } else {
                        own.copy_from_slice(tile);
                    }
                }
            }
        }
    }
}

/// Rows for columns.
#[inline(always)]
fn turn(tile: &[u32; WORDS], into: &mut [u32]) {
    for i in 0..TILE {
        for j in 0..TILE {
            into[i * TILE + j] = tile[j * TILE + i];
        }
    }
}

/// Where products go: those of a left vector side by side, `from` the place of the first, `stride` values before those
/// of the next left vector.
#[derive(Debug)]
pub struct Sums<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
    pub from: usize,
}

/// Adds to `into` the product of every left vector with every right one.
///
/// # Panics
///
/// Where the sides have not as many terms or halves, or `into` has no room.
pub fn add_products(_: Unit, left: &Side, right: &Side, into: &mut Sums<'_>) {
    assert!(left.depth == right.depth && left.halves == right.halves, "two sides of one product");
    assert!(into.from + right.vectors <= into.stride, "room for a row");
    assert!(left.vectors * into.stride <= into.values.len(), "room for every row");
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    amx::add_products(left, right, into);
}

/// The instructions. Where each of them is sound is said beside it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code)]
mod amx {
    use super::{BLOCK, Halves, Side, Sums, TILE, WORDS};
    use crate::simd::{Kernel, Width, with_width};
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    /// Vectors of the left side that stay in cache while all of the right side goes by.
    const NEAR: usize = 4 * BLOCK;
    /// Tiles of terms that are summed before a sum is put down.
    const DEEP: usize = 64;

    /// Of `arch_prctl`: asks that this process may use a state that is large, and which one.
    const SYSTEM_CALL: usize = 158;
    const ASK: usize = 0x1023;
    const TILE_DATA: usize = 18;

    /// Whether the processor has tiles of bf16 and the system lets this process have them.
    pub(super) fn is_granted() -> bool {
        if Width::widest() < Width::Avx512 {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        let (bf16, tile) = (features >> 22 & 1, features >> 24 & 1);
        if bf16 & tile == 0 {
            return false;
        }
        let mut answer = SYSTEM_CALL as isize;
        // SAFETY: a call of the system that takes two numbers and touches no memory of this process.
        unsafe {
            asm!("syscall", inlateout("rax") answer, in("rdi") ASK, in("rsi") TILE_DATA,
                 lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        answer == 0
    }

    /// What configures all eight tiles: sixteen rows of 64 bytes.
    #[repr(C, align(64))]
    struct Shape([u8; 64]);

    static SHAPE: Shape = {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = TILE as u8;
            tile += 1;
        }
        Shape(bytes)
    };

    /// A sum of a block, put down.
    #[repr(C, align(64))]
    struct Block([f32; BLOCK * BLOCK]);

    /// This thread's tiles, while they are configured.
    pub(super) struct Tiles {
        sums: Box<Block>,
    }

    fn with_tiles(work: impl FnOnce(&mut Tiles)) {
        let mut tiles = Tiles { sums: Box::new(Block([0.0; BLOCK * BLOCK])) };
        // SAFETY: only reached with a `Unit`, so that tiles are there and granted; the shape is one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPE, options(nostack, readonly)) };
        work(&mut tiles);
        // SAFETY: as above.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    pub(super) fn add_products(left: &Side, right: &Side, into: &mut Sums<'_>) {
        with_tiles(|tiles| with_width(Width::widest(), Products { tiles, left, right, into }));
    }

    struct Products<'a, 'b> {
        tiles: &'a mut Tiles,
        left: &'a Side,
        right: &'a Side,
        into: &'a mut Sums<'b>,
    }

    impl Kernel for Products<'_, '_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            let Self { tiles, left, right, into } = self;
            let step = left.halves.count() * WORDS;
            for deep in (0..left.depth).step_by(DEEP) {
                let depth = DEEP.min(left.depth - deep);
                let at = |vector: usize| (vector / TILE * left.depth + deep) * step;
                for near in (0..left.vectors).step_by(NEAR) {
                    for column in (0..right.vectors).step_by(BLOCK) {
                        for row in (near..left.vectors.min(near + NEAR)).step_by(BLOCK) {
                            let words = [&left.words[at(row)..], &right.words[at(column)..]];
                            let found = tiles.product(words, left.depth * step, depth, left.halves);
                            let size = BLOCK.min(right.vectors - column);
                            let rows = into.values[row * into.stride..].chunks_exact_mut(into.stride);
                            for (own, found) in rows.take(left.vectors - row).zip(found.chunks_exact(BLOCK)) {
                                let own = &mut own[into.from + column..][..size];
                                match size {
                                    BLOCK => add(&mut own[..BLOCK], &found[..BLOCK]),
                                    _ => add(own, &found[..size]),
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn add(own: &mut [f32], more: &[f32]) {
        own.iter_mut().zip(more).for_each(|(own, more)| *own += more);
    }

    /// Four sums, in tiles 0 to 3 over all of `depth`, to which the lines add a tile of terms, and put down at `sums`.
    /// Sixteen vectors of a side begin at `a` and `b`, the next sixteen at `c` and `d`.
    macro_rules! sum_of_products {
        ($step:literal, ($a:ident, $b:ident, $apart:ident, $depth:ident, $sums:ident), $($line:literal,)+) => {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "2:",
                $($line,)+
                concat!("add {a}, ", $step), concat!("add {b}, ", $step),
                concat!("add {c}, ", $step), concat!("add {d}, ", $step),
                "sub {depth}, 1",
                "jnz 2b",
                "add {row}, 64",
                "tilestored [{sums} + {row}*1], tmm0",
                "tilestored [{sums} + {row}*1 + 64], tmm1",
                "tilestored [{sums} + {row}*1 + 2048], tmm2",
                "tilestored [{sums} + {row}*1 + 2112], tmm3",
                a = inout(reg) $a => _, b = inout(reg) $b => _,
                c = inout(reg) $a.wrapping_add($apart) => _, d = inout(reg) $b.wrapping_add($apart) => _,
                depth = inout(reg) $depth => _, row = inout(reg) 64usize => _, sums = in(reg) $sums,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        };
    }

    impl Tiles {
        /// The products of 32 vectors with 32, over so many tiles of terms; sixteen vectors are `apart` words from the next.
        pub(super) fn product(
            &mut self,
            [left, right]: [&[u32]; 2],
            apart: usize,
            depth: usize,
            halves: Halves,
        ) -> &[f32; BLOCK * BLOCK] {
            let step = halves.count() * WORDS;
            assert!(left.len() >= apart + depth * step && right.len() >= apart + depth * step);
            let (a, b) = (left.as_ptr(), right.as_ptr());
            let sums = self.sums.0.as_mut_ptr();
            // SAFETY: tiles are configured (`with_tiles`); every tile that is read lies within `left` and `right`, as was
            // just asserted, and the four that are written fill `sums`, which is 32 rows of 128 bytes.
            unsafe {
                match halves {
                    Halves::First => sum_of_products!(
                        "1024",
                        (a, b, apart, depth, sums),
                        "tileloadd tmm4, [{a} + {row}*1]",
                        "tileloadd tmm6, [{b} + {row}*1]",
                        "tileloadd tmm5, [{c} + {row}*1]",
                        "tileloadd tmm7, [{d} + {row}*1]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                    ),
                    // First by second halves, first by first, second by first.
                    Halves::Both => sum_of_products!(
                        "2048",
                        (a, b, apart, depth, sums),
                        "tileloadd tmm4, [{a} + {row}*1]",
                        "tileloadd tmm6, [{b} + {row}*1 + 1024]",
                        "tileloadd tmm5, [{c} + {row}*1]",
                        "tileloadd tmm7, [{d} + {row}*1 + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tileloadd tmm6, [{b} + {row}*1]",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "tileloadd tmm7, [{d} + {row}*1]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                        "tileloadd tmm4, [{a} + {row}*1 + 1024]",
                        "tileloadd tmm5, [{c} + {row}*1 + 1024]",
                        "tdpbf16ps tmm0, tmm4, tmm6",
                        "tdpbf16ps tmm1, tmm4, tmm7",
                        "tdpbf16ps tmm2, tmm5, tmm6",
                        "tdpbf16ps tmm3, tmm5, tmm7",
                    ),
                }
            }
            &self.sums.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Lcg;

    /// Left vectors, right vectors and terms: blocks that are not full, and terms enough for two sums.
    const CASES: [[usize; 3]; 6] =
        [[1, 1, 1], [32, 32, 32], [33, 17, 31], [200, 64, 100], [64, 96, 2100], [5, 70, 4129]];

    /// Vectors one behind the other.
    fn random(vectors: usize, terms: usize, seed: u64) -> Vec<f32> {
        let mut random = Lcg(seed);
        (0..vectors * terms).map(|_| random.gaussian() * random.gaussian().exp2()).collect()
    }

    fn columns(rows: &[f32], terms: usize) -> Vec<f32> {
        let vectors = rows.len() / terms;
        (0..terms).flat_map(|term| (0..vectors).map(move |vector| rows[vector * terms + term])).collect()
    }

    /// The plain products, and what each may err by a unit.
    fn exact(left: &[f32], right: &[f32], terms: usize) -> Vec<[f64; 2]> {
        let product = |a: &[f32], b: &[f32]| {
            let each = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            [each.clone().sum(), each.map(f64::abs).sum::<f64>()]
        };
        let rows = left.chunks_exact(terms);
        rows.flat_map(|a| right.chunks_exact(terms).map(move |b| product(a, b))).collect()
    }

    #[test]
    fn two_halves_are_a_value_to_sixteen_bits() {
        for x in random(1, 4096, 1).into_iter().chain([0.0, -0.0, 1.0, 65_535.0, 1e-30, -3e38]) {
            let [first, second] = halves(x).map(f32::from_bits);
            assert!((first - x).abs() <= x.abs() * 2f32.powi(-8), "{x}: {first}");
            assert!((first + second - x).abs() <= x.abs() * 2f32.powi(-16), "{x}: {first} and {second}");
        }
        assert_eq!(
            halves(1.0 + 2f32.powi(-8)).map(f32::from_bits),
            [1.0, 2f32.powi(-8)],
            "a tie goes to even"
        );
    }

    #[test]
    fn sides_of_rows_and_of_columns_are_the_same_tiles() {
        for [vectors, _, terms] in CASES {
            let rows = random(vectors, terms, 2);
            for halves in [Halves::First, Halves::Both] {
                let of_rows = Side::left_of_rows(&rows, terms, halves);
                let of_columns = Side::left_of_columns((&columns(&rows, terms), vectors), 0..vectors, halves);
                assert_eq!(of_rows.words, of_columns.words, "{vectors} of {terms}, {halves:?}");
            }
        }
    }

    #[test]
    fn products_are_those_of_plain_loops() {
        let Some(unit) = Unit::get() else {
            eprintln!("left out: this processor has no unit for tiles");
            return;
        };
        for [rows, width, terms] in CASES {
            let (a, b) = (random(rows, terms, 3), random(width, terms, 4));
            for (halves, error) in [(Halves::First, 2f64.powi(-7)), (Halves::Both, 2f64.powi(-15))] {
                let left = Side::left_of_rows(&a, terms, halves);
                let right = Side::right_of_columns((&columns(&b, terms), width), 0..width, halves);
                let mut found = vec![1.0; rows * width];
                let mut into = Sums { values: &mut found, stride: width, from: 0 };
                add_products(unit, &left, &right, &mut into);
                for (found, [sum, size]) in found.iter().zip(exact(&a, &b, terms)) {
                    let off = (f64::from(*found) - 1.0 - sum).abs();
                    assert!(off <= error * size + 1e-6, "{found} for {sum}, {halves:?}");
                }
            }
        }
    }

    #[test]
    fn products_go_where_they_are_told() {
        let Some(unit) = Unit::get() else { return };
        let (a, b) = (random(3, 50, 5), random(40, 50, 6));
        let side = Side::right_of_columns((&columns(&b, 50), 40), 0..40, Halves::Both);
        let left = Side::left_of_rows(&a, 50, Halves::Both);
        let mut alone = vec![0.0; 3 * 40];
        add_products(unit, &left, &side, &mut Sums { values: &mut alone, stride: 40, from: 0 });
        let mut wide = vec![0.0; 3 * 50];
        add_products(unit, &left, &side, &mut Sums { values: &mut wide, stride: 50, from: 7 });
        for (wide, alone) in wide.chunks_exact(50).zip(alone.chunks_exact(40)) {
            assert_eq!(&wide[7..47], alone);
            assert!(wide[..7].iter().chain(&wide[47..]).all(|x| *x == 0.0));
        }
    }
}
