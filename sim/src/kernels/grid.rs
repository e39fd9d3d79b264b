//! Where corrections have their knots.
//!
//! Chosen on the H100's and B200's tables: coordinates that matter together
//! share a grid, knots stand closest where kernels change (a warp's worth of
//! rows, a full wave of tiles). The same for every GPU, so that a file holds
//! values alone.

use super::kind::Kind;
use std::sync::LazyLock;

/// One coordinate of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Which of [`Kind::coordinates`].
    pub coordinate: usize,
    /// Ascending, in log2; at least two.
    pub knots: Vec<f64>,
}

/// One grid over some coordinates.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    pub axes: Vec<Axis>,
}

/// Coordinates and knots of the terms of a family.
type Sketch = &'static [&'static [(usize, &'static [f64])]];

mod matmul {
    const M: &[f64] =
        &[1., 8., 16., 32., 64., 96., 128., 192., 256., 512., 1024., 2048., 4096., 8192., 32768.];
    /// Whole and begun tiles of 16 rows, and every tile of 256 up to 4096.
    const ROWS: &[f64] = &[
        1., 4., 8., 15.5, 16.5, 32., 48., 64., 80., 96., 112., 128., 160., 192., 224., 256., 512., 768.,
        1024., 1280., 1536., 1792., 2048., 2560., 3072., 3584., 4096., 8192., 16384., 32768.,
    ];
    const N: &[f64] = &[32., 128., 512., 1024., 2048., 3072., 4096., 6144., 8192., 16384., 65536.];
    /// Every width that was measured.
    const WIDTHS: &[f64] = &[
        32., 64., 128., 256., 512., 768., 1024., 1536., 2048., 2560., 3072., 3584., 4096., 5120., 6144.,
        7168., 8192., 10240., 12288., 16384., 51200., 65536.,
    ];
    const K: &[f64] = &[32., 256., 1024., 4096., 16384., 65536.];
    /// Rows in whole tiles of 16, of four, and others.
    const RAGGED: &[f64] = &[1., 2., 4.];
    /// A wave that is full and one that has just begun stand side by side.
    const WAVES: &[f64] =
        &[0.01, 0.1, 0.25, 0.5, 0.75, 1., 1.01, 1.5, 2., 2.01, 3., 3.01, 4., 4.01, 6., 8., 16., 64., 2000.];
    pub const TERMS: super::Sketch = &[
        &[(0, M), (1, N), (2, N)],
        &[(3, RAGGED), (0, ROWS), (1, N)],
        &[(3, RAGGED), (0, ROWS), (2, N)],
        &[(4, WAVES), (2, K)],
        &[(5, WAVES), (2, K)],
        &[(1, WIDTHS), (2, WIDTHS)],
    ];
}

mod attention {
    const TOKENS: &[f64] =
        &[1., 16., 32., 64., 128., 256., 512., 1024., 1536., 2048., 3072., 4096., 6144., 8192., 16384.];
    const TOKENS_COARSE: &[f64] = &[1., 64., 256., 1024., 4096., 16384.];
    const SEQUENCE_HEADS: &[f64] = &[1., 4., 16., 32., 64., 96., 128., 256., 512., 1024., 4096., 16384.];
    const SEQUENCE_HEADS_COARSE: &[f64] = &[1., 8., 32., 128., 512., 2048., 16384.];
    const HEADS: &[f64] = &[1., 4., 8., 16., 32., 96.];
    const GROUP: &[f64] = &[1., 2., 8., 32.];
    const HEAD_DIM: &[f64] = &[64., 128., 192., 256., 512.];
    const WINDOWS: &[f64] = &[1., 2., 8., 128.];
    const BATCH: &[f64] = &[1., 4., 16., 64., 256.];
    /// Kernels without a window and with one.
    const WINDOWED: &[f64] = &[1., 2.];
    const WAVES: &[f64] =
        &[0.01, 0.1, 0.25, 0.5, 0.75, 1., 1.01, 1.5, 2., 2.01, 3., 3.01, 4., 4.01, 6., 8., 16., 64., 2000.];
    pub const CONTEXT: super::Sketch = &[
        &[(0, TOKENS), (1, SEQUENCE_HEADS), (4, HEAD_DIM)],
        &[(0, TOKENS_COARSE), (6, BATCH), (2, HEADS), (3, GROUP)],
        &[(0, TOKENS_COARSE), (4, HEAD_DIM), (5, WINDOWS), (1, SEQUENCE_HEADS_COARSE)],
        &[(0, TOKENS_COARSE), (3, GROUP), (4, HEAD_DIM), (5, WINDOWS)],
        &[(2, HEADS), (3, GROUP), (4, HEAD_DIM), (6, BATCH)],
        &[(7, WINDOWED), (0, TOKENS), (1, SEQUENCE_HEADS_COARSE)],
        &[(8, WAVES), (0, TOKENS_COARSE), (4, HEAD_DIM)],
    ];

    const LENGTH: &[f64] =
        &[2., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096., 8192., 16384., 32768., 131072.];
    const LENGTH_COARSE: &[f64] = &[2., 64., 256., 1024., 4096., 16384., 131072.];
    const SEQUENCES: &[f64] = &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512., 1024., 2048.];
    const SEQUENCES_COARSE: &[f64] = &[1., 8., 32., 128., 512., 2048.];
    const KV_HEADS: &[f64] = &[1., 2., 4., 8.];
    const KV_ENDS: &[f64] = &[1., 8.];
    const READERS: &[f64] = &[1., 2., 4., 8., 16., 96.];
    const READERS_COARSE: &[f64] = &[1., 4., 16., 96.];
    const PASSED: &[f64] = &[1., 2., 8., 64., 1024.];
    const SEQUENCE_KV: &[f64] =
        &[1., 2., 4., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096., 16384.];
    const SEQUENCE_KV_COARSE: &[f64] = &[1., 16., 64., 256., 1024., 16384.];
    /// Closest around the L2 of a GPU: 32 to 256 MiB.
    const CACHE_BYTES: &[f64] = &[
        65536.,
        1048576.,
        4194304.,
        8388608.,
        16777216.,
        25165824.,
        33554432.,
        50331648.,
        67108864.,
        1e8,
        134217728.,
        201326592.,
        268435456.,
        536870912.,
        2147483648.,
        17179869184.,
    ];
    /// Heads of kernels without a window, then of blocks of those that have one.
    const WINDOW_HEADS: &[f64] =
        &[1., 2., 8., 32., 64., 128., 256., 512., 1024., 2048., 4096., 8192., 32768., 524288.];
    const WINDOW_HEADS_COARSE: &[f64] = &[1., 2., 64., 512., 4096., 524288.];
    pub const GENERATION: super::Sketch = &[
        &[(0, LENGTH), (1, SEQUENCES), (2, KV_HEADS)],
        &[(0, LENGTH), (6, SEQUENCE_KV), (4, HEAD_DIM)],
        &[(0, LENGTH_COARSE), (3, READERS_COARSE), (4, HEAD_DIM), (6, SEQUENCE_KV_COARSE)],
        &[(5, PASSED), (1, SEQUENCES_COARSE), (4, HEAD_DIM), (2, KV_ENDS)],
        &[(3, READERS), (1, SEQUENCES_COARSE), (2, KV_HEADS)],
        &[(7, CACHE_BYTES), (0, LENGTH_COARSE), (3, READERS_COARSE)],
        &[(8, WINDOW_HEADS), (0, LENGTH_COARSE), (4, HEAD_DIM)],
        &[(8, WINDOW_HEADS_COARSE), (0, LENGTH_COARSE), (6, SEQUENCE_KV_COARSE)],
    ];

    const MLA_LENGTH: &[f64] =
        &[1., 16., 64., 128., 256., 512., 1024., 2048., 4096., 8192., 16384., 32768., 131072.];
    const MLA_LENGTH_COARSE: &[f64] = &[1., 64., 256., 1024., 4096., 32768., 131072.];
    const MLA_BATCH: &[f64] = &[1., 4., 16., 64., 256., 1024.];
    const MLA_HEADS: &[f64] = &[1., 8., 32., 64., 128.];
    const MLA_SEQUENCE_HEADS: &[f64] = &[1., 8., 32., 64., 128., 256., 512., 2048., 16384., 131072.];
    pub const LATENT: super::Sketch = &[
        &[(0, MLA_LENGTH), (3, MLA_SEQUENCE_HEADS)],
        &[(0, MLA_LENGTH_COARSE), (1, MLA_BATCH), (2, MLA_HEADS)],
    ];
}

mod moe {
    const PER_EXPERT: &[f64] = &[0.004, 0.03, 0.1, 0.3, 1., 2., 4., 8., 16., 32., 64., 256., 1024., 8192.];
    const PER_EXPERT_COARSE: &[f64] = &[0.004, 0.1, 1., 4., 16., 64., 256., 8192.];
    const LOCAL: &[f64] = &[1., 2., 4., 8., 32., 128., 512.];
    const LOCAL_COARSE: &[f64] = &[1., 4., 16., 64., 512.];
    const INTER: &[f64] = &[16., 64., 128., 256., 512., 1024., 2048., 4096., 16384.];
    const INTER_COARSE: &[f64] = &[32., 256., 1024., 4096., 16384.];
    const HIDDEN: &[f64] = &[2048., 3072., 4096., 5120., 7168.];
    const TOP_K: &[f64] = &[1., 2., 4., 8., 22.];
    const SKEW: &[f64] = &[1., 2., 4.];
    const TOKENS: &[f64] = &[1., 8., 32., 128., 512., 2048., 16384.];
    const EXPERT_PARALLEL: &[f64] = &[1., 2., 4., 8., 16., 64., 256.];
    const EXPERTS: &[f64] = &[8., 32., 128., 256., 512.];
    pub const TERMS: super::Sketch = &[
        &[(0, PER_EXPERT), (1, LOCAL), (2, INTER)],
        &[(0, PER_EXPERT_COARSE), (3, HIDDEN), (4, TOP_K), (8, EXPERTS)],
        &[(0, PER_EXPERT_COARSE), (5, SKEW), (1, LOCAL), (8, EXPERTS)],
        &[(6, TOKENS), (2, INTER_COARSE), (3, HIDDEN)],
        &[(1, LOCAL_COARSE), (2, INTER), (3, HIDDEN)],
        &[(6, TOKENS), (7, EXPERT_PARALLEL), (5, SKEW)],
    ];
}

/// Every power of two from 256 bytes to 1 GiB.
const BYTES: &[f64] = &[
    256.,
    512.,
    1024.,
    2048.,
    4096.,
    8192.,
    16384.,
    32768.,
    65536.,
    131072.,
    262144.,
    524288.,
    1048576.,
    2097152.,
    4194304.,
    8388608.,
    16777216.,
    33554432.,
    67108864.,
    134217728.,
    268435456.,
    536870912.,
    1073741824.,
];
const COLLECTIVE: Sketch = &[&[(0, BYTES), (1, &[2., 4., 8.])]];

fn build(sketch: Sketch) -> Vec<Term> {
    let axis = |&(coordinate, knots): &(usize, &[f64])| Axis {
        coordinate,
        knots: knots.iter().map(|knot| knot.log2()).collect(),
    };
    sketch.iter().map(|axes| Term { axes: axes.iter().map(axis).collect() }).collect()
}

static MATMUL: LazyLock<Vec<Term>> = LazyLock::new(|| build(matmul::TERMS));
static CONTEXT: LazyLock<Vec<Term>> = LazyLock::new(|| build(attention::CONTEXT));
static GENERATION: LazyLock<Vec<Term>> = LazyLock::new(|| build(attention::GENERATION));
static MOE: LazyLock<Vec<Term>> = LazyLock::new(|| build(moe::TERMS));
static LATENT: LazyLock<Vec<Term>> = LazyLock::new(|| build(attention::LATENT));
static COLLECTIVES: LazyLock<Vec<Term>> = LazyLock::new(|| build(COLLECTIVE));

impl Kind {
    /// The grids whose sum is the correction.
    pub fn terms(self) -> &'static [Term] {
        match self {
            Self::Matmul(_) => &MATMUL,
            Self::ContextAttention(_) => &CONTEXT,
            Self::GenerationAttention(_) => &GENERATION,
            Self::Moe(_) => &MOE,
            Self::MlaContext(_)
            | Self::MlaGeneration(_)
            | Self::MlaContextModule(_)
            | Self::MlaGenerationModule(_) => &LATENT,
            Self::Collective(_) => &COLLECTIVES,
        }
    }
}
