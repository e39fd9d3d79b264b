//! Where a codec may stand in the forward pass.

/// A matrix of one window, a row a token.
#[derive(Debug)]
pub struct TokenRows<'m> {
    pub rows: usize,
    pub cols: usize,
    /// `rows * cols` values, row by row; a hook writes what the model goes on with.
    pub values: &'m mut [f32],
}

/// What attention of one head did for a block of queries.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a> {
    pub head: usize,
    pub start: usize,
    /// Queries after rotary positions, one behind the other.
    pub queries: &'a [f32],
    /// Values of all tokens up to the last query.
    pub values: &'a [f32],
    /// For each query the weight of every such token.
    pub weights: &'a [f32],
    /// What each query was given.
    pub mixed: &'a [f32],
}

/// What replaces tensors on their way. Called from several threads at once;
/// an answer is the bits the replaced tensor would take in store or on a wire.
pub trait Hooks: Sync {
    /// Hooks that these stand before, which do and say what these leave out.
    fn behind(&self) -> Option<&dyn Hooks> {
        None
    }

    /// K (after rotary positions, unless [`Hooks::before_rotary`]) or V of `layer`, as a cache would hold it.
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.behind().map_or(Ok(0), |hooks| hooks.kv(layer, kind, matrix))
    }

    /// The residual stream that pipeline stage `stage` sends to the next.
    fn activation(&self, stage: usize, matrix: TokenRows<'_>) -> Result<u64, String> {
        self.behind().map_or(Ok(0), |hooks| hooks.activation(stage, matrix))
    }

    /// What attention of `layer` did. For calibration, which looks and changes nothing.
    fn attention(&self, _layer: usize, _seen: Attended<'_>) {}

    /// Whether `attention` does anything.
    fn wants_attention(&self) -> bool {
        false
    }

    /// Whether `kv` is given K before rotary positions: the model turns what it leaves.
    fn before_rotary(&self) -> bool {
        self.behind().is_some_and(|hooks| hooks.before_rotary())
    }

    /// Whether `kv` does anything.
    fn wants_kv(&self) -> bool {
        self.behind().is_some_and(|hooks| hooks.wants_kv())
    }

    /// Pipeline stages; 1 has no boundary.
    fn stages(&self) -> usize {
        self.behind().map_or(1, |hooks| hooks.stages())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NoHooks;

impl Hooks for NoHooks {}
