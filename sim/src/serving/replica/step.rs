//! The time of one step of a replica, as tables over its tokens and caches.
//!
//! Products, experts and collectives are tabulated at powers of two of tokens,
//! attention over powers of two of sequences and lengths; in between lines are
//! drawn. Built once for a placement (`build.rs`), a table answers in nanoseconds.

/// Table entries over tokens: 1 to 32,768.
pub(super) const POINTS: usize = 16;
/// Over decoding sequences: 1 to 1,024; over cached tokens of each: 128 to 131,072.
pub(super) const BATCHES: usize = 11;
pub(super) const LENGTHS: usize = 11;
pub(super) const LEAST_LENGTH: f64 = 128.0;
/// Over prompts of a step: 1, 4, 16, 64; over their tokens: 32 to 32,768.
pub(super) const PROMPTS: usize = 4;
pub(super) const PROMPT_LENGTHS: usize = 11;
pub(super) const LEAST_PROMPT: f64 = 32.0;

/// What a step of one replica costs. Tokens and sequences are those of one
/// attention rank; the other ranks are taken to be as busy.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTable {
    pub(super) linear_s: [f64; POINTS],
    pub(super) head_s: [f64; POINTS],
    pub(super) step_s: f64,
    pub(super) sequence_s: f64,
    pub(super) prompt_step_s: f64,
    /// Attention of decoding steps, by sequences and length.
    pub(super) decode_s: Box<[[f64; LENGTHS]; BATCHES]>,
    /// Attention of prompts, by prompts of a step and their length.
    pub(super) prompts_s: [[f64; PROMPT_LENGTHS]; PROMPTS],
    /// Per cached token that sparse attention's index reads.
    pub(super) index_s: f64,
    /// Per decoding sequence: states of linear attention.
    pub(super) state_s: f64,
    /// Per prompt token: states of linear attention.
    pub(super) prompt_token_s: f64,
    /// Tokens of a cache that attention reads at most.
    pub(super) attended: f64,
    pub(super) cache_tokens: f64,
    pub(super) kv_token_bytes: f64,
    /// Tokens of a sequence that a decoding step passes through the model, and
    /// what drafting them takes over a plain step.
    pub(super) verified: f64,
    pub(super) drafting: f64,
    pub(super) coded: CodedCache,
}

/// What a codec adds, in seconds per token of one GPU's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CodedCache {
    /// A cached token that a decoding step reads is decoded.
    pub read_s: f64,
    /// A new token is coded.
    pub write_s: f64,
    /// A token that was cached outside the GPU is brought back.
    pub load_s: f64,
}

fn at(table: &[f64; POINTS], tokens: f64) -> f64 {
    let tokens = tokens.max(1.0);
    let below = (tokens.log2() as usize).min(POINTS - 1);
    if below == POINTS - 1 {
        return table[below] * tokens / f64::from(1u32 << below);
    }
    let start = f64::from(1u32 << below);
    table[below] + (table[below + 1] - table[below]) * (tokens - start) / start
}

/// The cell of a value on an axis of powers of `2^stride` from `least`, and
/// where in the cell it lies; beyond the axis, its last cell goes on.
fn cell(value: f64, least: f64, stride: u32, count: usize) -> (usize, f64) {
    let ratio = (value / least).max(0.0);
    let exponent = if ratio < 1.0 { 0.0 } else { ratio.log2() / f64::from(stride) };
    let below = (exponent as usize).min(count - 2);
    let (start, end) =
        (f64::from(1u32 << (below as u32 * stride)), f64::from(1u32 << ((below as u32 + 1) * stride)));
    (below, (ratio - start) / (end - start))
}

fn between<const N: usize>(
    table: &[[f64; N]],
    (row, down): (usize, f64),
    (column, along): (usize, f64),
) -> f64 {
    let line = |row: usize| table[row][column] + (table[row][column + 1] - table[row][column]) * along;
    let (first, second) = (line(row), line(row + 1));
    first + (second - first) * down
}

impl StepTable {
    /// Tokens of cache that one attention rank holds.
    pub fn cache_tokens(&self) -> f64 {
        self.cache_tokens
    }

    /// Bytes that a token takes in the cache of one GPU.
    pub fn kv_token_bytes(&self) -> f64 {
        self.kv_token_bytes
    }

    /// The same table with another number of cached tokens.
    pub fn with_cache_tokens(self, cache_tokens: f64) -> Self {
        Self { cache_tokens, ..self }
    }

    /// The same table with a cache that is coded or lies elsewhere.
    pub fn with_coded_cache(self, coded: CodedCache) -> Self {
        Self { coded, ..self }
    }

    /// A step that decodes `batch` sequences whose caches hold `cached` tokens.
    pub fn decode_s(&self, batch: f64, cached: f64) -> f64 {
        let batch = batch.max(1.0);
        let plain = |tokens: f64| at(&self.linear_s, tokens) + at(&self.head_s, tokens);
        let drafting_s = if self.drafting > 0.0 { self.drafting * plain(batch) } else { 0.0 };
        plain(batch * self.verified)
            + drafting_s
            + self.overhead_s(batch)
            + self.decode_attention_s(batch, cached)
    }

    /// By how much each decoding step is longer than the one before it.
    pub fn decode_growth_s(&self, batch: f64, cached: f64) -> f64 {
        let batch = batch.max(1.0);
        let now_s = self.decode_attention_s(batch, cached);
        let later_s = self.decode_attention_s(batch, cached + GROWTH_STEPS * batch);
        ((later_s - now_s) / GROWTH_STEPS).max(0.0)
    }

    /// A step with `prompts` beside `batch` decoding sequences.
    pub fn mixed_s(&self, prompts: &PromptWork, batch: f64, cached: f64) -> f64 {
        let sampled = batch + prompts.finished;
        at(&self.linear_s, prompts.tokens + batch * self.verified)
            + at(&self.head_s, sampled)
            + self.overhead_s(sampled)
            + self.prompt_step_s
            + self.prompt_attention_s(prompts)
            + if batch > 0.0 { self.decode_attention_s(batch, cached) } else { 0.0 }
    }

    fn overhead_s(&self, sequences: f64) -> f64 {
        self.step_s + self.sequence_s * sequences
    }

    fn decode_attention_s(&self, batch: f64, cached: f64) -> f64 {
        let length = (cached / batch).min(self.attended);
        let along = cell(length, LEAST_LENGTH, 1, LENGTHS);
        let down = cell(batch, 1.0, 1, BATCHES);
        let read = cached.min(self.attended * batch);
        between(&self.decode_s[..], down, along)
            + self.index_s * cached
            + self.state_s * batch
            + self.coded.read_s * read
            + self.coded.write_s * batch
    }

    /// Prompts are taken to be alike, of the length that their pairs tell.
    fn prompt_attention_s(&self, prompts: &PromptWork) -> f64 {
        if prompts.tokens <= 0.0 {
            return 0.0;
        }
        let seen = (prompts.pairs / prompts.tokens).min(self.attended);
        let length = (2.0 * seen).max(1.0);
        let count = prompts.tokens / length;
        let along = cell(length, LEAST_PROMPT, 1, PROMPT_LENGTHS);
        // Part of a prompt takes its part of the time.
        let part = count.min(1.0);
        part * between(&self.prompts_s, cell(count.max(1.0), 1.0, 2, PROMPTS), along)
            + prompts.pairs * self.index_s * INDEX_OF_PROMPTS
            + prompts.tokens * (self.prompt_token_s + self.coded.write_s)
            + prompts.loaded * self.coded.load_s
    }
}

/// Steps over which the growth of attention is read off.
const GROWTH_STEPS: f64 = 64.0;

/// Scoring a prompt's pairs is a matrix product: it takes this share of what
/// reading the index for one token alone does.
const INDEX_OF_PROMPTS: f64 = 0.02;

/// Prompt tokens of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptWork {
    pub tokens: f64,
    /// Pairs of a token and one that it attends to.
    pub pairs: f64,
    /// Prompts that end in the step.
    pub finished: f64,
    /// Tokens whose cache is brought back from outside the GPU.
    pub loaded: f64,
}
