//! One layer's weights out of a checkpoint, whichever way its family stores them.
//!
//! Knows names and shapes; what is computed with them is the forward pass's.

use crate::linear::Linear;
use crate::norm::Norm;
use crate::{Checkpoint, Error};

#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub input_norm: Norm,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub o: Linear,
    /// Before the feed-forward part.
    pub feed_norm: Norm,
    /// What `up` is multiplied with; GPT-2 has none.
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
    pub extras: Extras,
}

/// What some families have and others have not; empty where they have not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub q_norm: Vec<f32>,
    pub k_norm: Vec<f32>,
    /// Of what attention and feed-forward add to the residual stream.
    pub attention_out_norm: Vec<f32>,
    pub feed_out_norm: Vec<f32>,
}

/// A norm by name, with the bias that its family has.
pub(crate) fn norm(checkpoint: &Checkpoint, name: &str) -> Result<Norm, Error> {
    let config = &checkpoint.config;
    let mut weight = checkpoint.read(&format!("{name}.weight"))?;
    weight.iter_mut().for_each(|w| *w += config.norm_offset);
    let bias = config.family.is_gpt2().then(|| checkpoint.read(&format!("{name}.bias"))).transpose()?;
    Ok(Norm { weight, bias })
}

/// `rows × cols` the other way round: GPT-2 stores inputs by outputs.
fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|col| (0..rows).map(move |row| values[row * cols + col])).collect()
}

impl Layer {
    pub fn load(checkpoint: &Checkpoint, n: usize) -> Result<Self, Error> {
        if checkpoint.config.family.is_gpt2() {
            return Self::load_gpt2(checkpoint, n);
        }
        let config = &checkpoint.config;
        let family = config.family;
        let (h, m) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_size(), config.kv_size());
        let read = |part: &str| checkpoint.read(&format!("layers.{n}.{part}"));
        let norm = |part: &str| norm(checkpoint, &format!("layers.{n}.{part}"));
        let linear = |part: &str, rows, cols| {
            Ok::<_, Error>(Linear::from_rows(rows, cols, &read(&format!("{part}.weight"))?))
        };
        let projection = |part: &str, rows| match (linear(part, rows, h)?, family.has_qkv_bias()) {
            (own, true) => Ok::<_, Error>(own.with_bias(read(&format!("{part}.bias"))?)),
            (own, false) => Ok(own),
        };
        let mut extras = Extras::default();
        if family.has_qk_norm() {
            extras.q_norm = norm("q_norm")?.weight;
            extras.k_norm = norm("k_norm")?.weight;
        }
        // Where attention's output has a norm of its own, that one bears the
        // name that elsewhere belongs to the norm before the feed-forward part.
        let mut feed_norm = norm("post_attention_layernorm")?;
        if family.has_outer_norms() {
            let own = std::mem::replace(&mut feed_norm, norm("pre_feedforward_layernorm")?);
            extras.attention_out_norm = own.weight;
            extras.feed_out_norm = norm("post_feedforward_layernorm")?.weight;
        }
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            q: projection("q_proj", q)?,
            k: projection("k_proj", kv)?,
            v: projection("v_proj", kv)?,
            o: linear("o_proj", h, q)?,
            feed_norm,
            gate: Some(linear("gate_proj", m, h)?),
            up: linear("up_proj", m, h)?,
            down: linear("down_proj", h, m)?,
            extras,
        })
    }

    /// Q, K and V in one tensor, every weight inputs by outputs, a bias beside each.
    fn load_gpt2(checkpoint: &Checkpoint, n: usize) -> Result<Self, Error> {
        let (h, m) = (checkpoint.config.hidden_size, checkpoint.config.intermediate_size);
        let read = |part: &str| checkpoint.read(&format!("layers.{n}.{part}"));
        let norm = |part: &str| norm(checkpoint, &format!("layers.{n}.{part}"));
        let linear = |part: &str, rows, cols| {
            let values = transposed(&read(&format!("{part}.weight"))?, cols, rows);
            Ok::<_, Error>(Linear::from_rows(rows, cols, &values).with_bias(read(&format!("{part}.bias"))?))
        };
        let fused = transposed(&read("qkv_proj.weight")?, h, 3 * h);
        let bias = read("qkv_proj.bias")?;
        let third = |at: usize| {
            let own = Linear::from_rows(h, h, &fused[at * h * h..(at + 1) * h * h]);
            own.with_bias(bias[at * h..(at + 1) * h].to_vec())
        };
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            q: third(0),
            k: third(1),
            v: third(2),
            o: linear("o_proj", h, h)?,
            feed_norm: norm("post_attention_layernorm")?,
            gate: None,
            up: linear("up_proj", m, h)?,
            down: linear("down_proj", h, m)?,
            extras: Extras::default(),
        })
    }

    /// Its linear weights by name, in the order they are used.
    pub fn linears(&self) -> Vec<(&'static str, &Linear)> {
        let attention = [("q_proj", &self.q), ("k_proj", &self.k), ("v_proj", &self.v), ("o_proj", &self.o)];
        let gate = self.gate.as_ref().map(|gate| ("gate_proj", gate));
        let feed = [("up_proj", &self.up), ("down_proj", &self.down)];
        attention.into_iter().chain(gate).chain(feed).collect()
    }

    /// As [`Layer::linears`], for a codec to replace.
    pub fn linears_mut(&mut self) -> Vec<(&'static str, &mut Linear)> {
        let attention = [
            ("q_proj", &mut self.q),
            ("k_proj", &mut self.k),
            ("v_proj", &mut self.v),
            ("o_proj", &mut self.o),
        ];
        let gate = self.gate.as_mut().map(|gate| ("gate_proj", gate));
        let feed = [("up_proj", &mut self.up), ("down_proj", &mut self.down)];
        attention.into_iter().chain(gate).chain(feed).collect()
    }
}
