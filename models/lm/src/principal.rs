//! Principal components of K and V over all heads of a layer, learned on a text.
//!
//! What KVTC (arXiv 2511.01815) codes caches in: keys before rotary positions, around their mean. The paper joins
//! layers as well; here a layer is coded before the next one reads, so each has its own basis. Knows nothing of codecs.

use crate::cache::{CacheTurns, Direction};
use crate::cache_moments::{CacheMoments, LayerMoments, of_kind};
use crate::{Hooks, TokenRows};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use std::sync::Arc;
use trinity_tensor::codec::{PcaBasis, Precondition};

/// Bases of every layer's K and V.
#[derive(Debug, Clone)]
pub struct CacheBases {
    layers: Vec<[Precondition; 2]>,
}

impl CacheBases {
    /// Of K and V as `turns` leave them, where there are any.
    pub fn new(moments: &CacheMoments, turns: Option<&CacheTurns>) -> Self {
        let basis = |layer: usize, kind: usize, (mean, covariance): (Vec<f64>, DMatrix<f64>)| {
            let (mean, covariance) = match turns.map(|turns| turns.matrix(layer, kind)) {
                Some(turn) => {
                    let mean = &turn * DVector::from_vec(mean);
                    (mean.as_slice().to_vec(), &turn * covariance * turn.transpose())
                }
                None => (mean, covariance),
            };
            let cols = mean.len();
            Precondition::Pca(Arc::new(PcaBasis::from_covariance(&mean, covariance.as_slice(), cols)))
        };
        let layers = moments.layers.par_iter().enumerate();
        let of_layer =
            |(at, layer): (usize, &LayerMoments)| [0, 1].map(|kind| basis(at, kind, layer.rows[kind].law()));
        Self { layers: layers.map(of_layer).collect() }
    }

    /// Has rows of a layer's K or V coded in its basis.
    pub(crate) fn code(
        &self,
        layer: usize,
        kind: &'static str,
        matrix: TokenRows<'_>,
        hooks: &dyn Hooks,
    ) -> Result<u64, String> {
        let basis = &self.layers[layer][of_kind(kind)];
        let TokenRows { rows, cols, values } = matrix;
        let mut changed = values.to_vec();
        basis.forward(&mut changed, cols).map_err(|error| error.to_string())?;
        let bits = hooks.kv(layer, kind, TokenRows { rows, cols, values: &mut changed })?;
        basis.inverse(&mut changed, cols);
        values.copy_from_slice(&changed);
        Ok(bits)
    }
}

/// Hooks whose K and V are turned, and then put into a basis, before and back after.
#[derive(Clone, Copy)]
pub struct Changed<'h> {
    pub hooks: &'h dyn Hooks,
    pub turns: Option<&'h CacheTurns>,
    pub bases: Option<&'h CacheBases>,
}

impl std::fmt::Debug for Changed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changed").finish_non_exhaustive()
    }
}

impl Hooks for Changed<'_> {
    fn kv(&self, layer: usize, kind: &'static str, matrix: TokenRows<'_>) -> Result<u64, String> {
        let TokenRows { rows, cols, values } = matrix;
        if let Some(turns) = self.turns {
            turns.apply(layer, kind, Direction::Forward, values);
        }
        let turned = TokenRows { rows, cols, values };
        let bits = match self.bases {
            Some(bases) => bases.code(layer, kind, turned, self.hooks)?,
            None => self.hooks.kv(layer, kind, turned)?,
        };
        if let Some(turns) = self.turns {
            turns.apply(layer, kind, Direction::Back, values);
        }
        Ok(bits)
    }

    fn behind(&self) -> Option<&dyn Hooks> {
        Some(self.hooks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_moments::Keys;
    use crate::coding::CodedPaths;
    use crate::{NoHooks, Text, builtin, score};

    /// Loss of the built-in model with its cache coded, in a basis or not.
    #[test]
    fn a_basis_across_heads_makes_kvtc_lose_less() {
        let (model, text) = builtin::case(builtin::text().len(), 256);
        let scored = text.beginnings(2, 256);
        let learned = Text { windows: text.windows[8..20].to_vec() };
        let moments = CacheMoments::measure(&model, &learned, Keys::BeforeRotary, 4).unwrap();
        let bases = CacheBases::new(&moments, None);
        let paths = CodedPaths {
            kv: Some("kvtc@2.5".parse().unwrap()),
            activations: None,
            stages: 1,
            block: 256,
            sink: 4,
        };
        let plain = score(&model, &scored, &NoHooks, &|| ()).unwrap().bits_per_byte;
        let lost = |hooks: &dyn Hooks| {
            let scored = score(&model, &scored, hooks, &|| ()).unwrap();
            assert!(scored.kv_bits_per_value.unwrap() < 2.5 + 16.0 * 4.0 / 256.0 + 0.01);
            scored.bits_per_byte - plain
        };
        let (turned, as_it_is) =
            (lost(&Changed { hooks: &paths, turns: None, bases: Some(&bases) }), lost(&paths));
        assert!(turned < 0.7 * as_it_is, "{turned} against {as_it_is}");
    }
}
