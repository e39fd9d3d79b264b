//! The forward pass.

use crate::attention::{self, Scratch, Shape};
use crate::linear::Linear;
use crate::rotary::Rotary;
use crate::{Checkpoint, Config, Error, Hooks, Matrix};

/// A model in memory, ready to run.
#[derive(Debug, Clone)]
pub struct Model {
    config: Config,
    embedding: Vec<f32>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// `vocabulary × hidden`; the embedding itself where it is tied.
    head: Linear,
    rotary: Rotary,
}

#[derive(Debug, Clone)]
struct Layer {
    input_norm: Vec<f32>,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    post_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// A 2-D weight of the model, for a codec to replace.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// `layers.3.q_proj.weight`.
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

/// One window's buffers, reused from window to window: no allocation per token.
#[derive(Debug)]
pub(crate) struct Workspace {
    residual: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    logits: Vec<f32>,
    scratch: Scratch,
    tokens: usize,
}

/// Bits the hooks answered for one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HookBits {
    pub kv: u64,
    pub kv_values: u64,
    pub activation: u64,
    pub activation_values: u64,
}

impl Model {
    /// Reads every tensor of a checkpoint into f32.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, Error> {
        let config = checkpoint.config.clone();
        let read = |name: &str| -> Result<Vec<f32>, Error> {
            let entry = checkpoint.entry(name).ok_or_else(|| {
                Error::BadCheckpoint(vec![crate::Problem::Missing { name: name.into(), shape: vec![] }])
            })?;
            let tensor = entry.read()?;
            let mut values = vec![0.0; tensor.len()];
            tensor.dtype().to_f32(tensor.data(), &mut values);
            Ok(values)
        };
        let (h, m) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_size(), config.kv_size());
        let layer = |n: usize| -> Result<Layer, Error> {
            let vector = |part: &str| read(&format!("layers.{n}.{part}.weight"));
            let linear =
                |part: &str, rows, cols| Ok::<_, Error>(Linear::from_rows(rows, cols, &vector(part)?));
            Ok(Layer {
                input_norm: vector("input_layernorm")?,
                q: linear("q_proj", q, h)?,
                k: linear("k_proj", kv, h)?,
                v: linear("v_proj", kv, h)?,
                o: linear("o_proj", h, q)?,
                post_norm: vector("post_attention_layernorm")?,
                gate: linear("gate_proj", m, h)?,
                up: linear("up_proj", m, h)?,
                down: linear("down_proj", h, m)?,
            })
        };
        let embedding = read("embed_tokens.weight")?;
        let head = if config.tie_word_embeddings {
            Linear::from_rows(config.vocab_size, h, &embedding)
        } else {
            Linear::from_rows(config.vocab_size, h, &read("lm_head.weight")?)
        };
        Ok(Self {
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_, _>>()?,
            norm: read("norm.weight")?,
            rotary: Rotary::new(config.max_position_embeddings, config.head_dim(), config.rope_theta),
            embedding,
            head,
            config,
        })
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every linear weight between embedding and head, in the order they are
    /// used: what weight compression compresses. Embedding, head and norms stay.
    pub fn weights(&self) -> Vec<Weight> {
        let mut weights = Vec::new();
        for (n, layer) in self.layers.iter().enumerate() {
            for (part, linear) in layer.linears() {
                weights.push(Weight {
                    name: format!("layers.{n}.{part}.weight"),
                    rows: linear.outputs(),
                    cols: linear.inputs(),
                    values: linear.to_rows(),
                });
            }
        }
        weights
    }

    /// Puts other values into the weights that [`Model::weights`] listed, in
    /// that order. Names and shapes must be the same.
    pub fn replace_weights(&mut self, weights: &[Weight]) -> Result<(), Error> {
        let mut given = weights.iter();
        for (n, layer) in self.layers.iter_mut().enumerate() {
            for (part, linear) in layer.linears_mut() {
                let name = format!("layers.{n}.{part}.weight");
                let shape = (linear.outputs(), linear.inputs());
                match given.next() {
                    Some(w)
                        if w.name == name
                            && (w.rows, w.cols) == shape
                            && w.values.len() == w.rows * w.cols =>
                    {
                        *linear = Linear::from_rows(w.rows, w.cols, &w.values);
                    }
                    other => {
                        return Err(Error::BadCheckpoint(vec![crate::Problem::Shape {
                            name,
                            expected: vec![shape.0, shape.1],
                            found: other.map_or(vec![], |w| vec![w.rows, w.cols]),
                        }]));
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn workspace(&self, tokens: usize) -> Workspace {
        let c = &self.config;
        Workspace {
            residual: vec![0.0; tokens * c.hidden_size],
            normed: vec![0.0; tokens * c.hidden_size],
            q: vec![0.0; tokens * c.q_size()],
            k: vec![0.0; tokens * c.kv_size()],
            v: vec![0.0; tokens * c.kv_size()],
            mixed: vec![0.0; tokens * c.q_size()],
            gate: vec![0.0; tokens * c.intermediate_size],
            up: vec![0.0; tokens * c.intermediate_size],
            logits: vec![0.0; tokens * c.vocab_size],
            scratch: Scratch::new(tokens, c.head_dim()),
            tokens,
        }
    }

    /// Runs one window; answers the logits, `tokens × vocabulary`.
    pub(crate) fn forward<'w>(
        &self,
        tokens: &[u32],
        work: &'w mut Workspace,
        hooks: &dyn Hooks,
    ) -> Result<(&'w [f32], HookBits), Error> {
        work.resize(self, tokens.len());
        let h = self.config.hidden_size;
        for (row, &token) in work.residual.chunks_exact_mut(h).zip(tokens) {
            row.copy_from_slice(&self.embedding[token as usize * h..][..h]);
        }
        let mut bits = HookBits::default();
        let stages = hooks.stages().clamp(1, self.layers.len());
        for (n, layer) in self.layers.iter().enumerate() {
            self.attend(n, layer, work, hooks, &mut bits)?;
            self.feed_forward(layer, work);
            // The last layer of every stage but the last sends its residual stream on.
            let stage = (n + 1) * stages / self.layers.len();
            let boundary = stage < stages && stage != n * stages / self.layers.len();
            if boundary {
                let matrix = Matrix { rows: tokens.len(), cols: h, values: &mut work.residual };
                bits.activation_values += matrix.values.len() as u64;
                bits.activation += hooks.activation(stage - 1, matrix).map_err(|reason| Error::Hook {
                    place: format!("activations after layer {n}"),
                    reason,
                })?;
            }
        }
        rms_norm(&work.residual, &self.norm, self.config.rms_norm_eps as f32, &mut work.normed);
        self.head.apply(&work.normed, &mut work.logits, 0.0);
        Ok((&work.logits, bits))
    }

    fn attend(
        &self,
        n: usize,
        layer: &Layer,
        work: &mut Workspace,
        hooks: &dyn Hooks,
        bits: &mut HookBits,
    ) -> Result<(), Error> {
        let config = &self.config;
        rms_norm(&work.residual, &layer.input_norm, config.rms_norm_eps as f32, &mut work.normed);
        layer.q.apply(&work.normed, &mut work.q, 0.0);
        layer.k.apply(&work.normed, &mut work.k, 0.0);
        layer.v.apply(&work.normed, &mut work.v, 0.0);
        self.rotary.apply(&mut work.q, config.q_size());
        self.rotary.apply(&mut work.k, config.kv_size());
        if hooks.wants_kv() {
            for (kind, values) in [("k", &mut work.k), ("v", &mut work.v)] {
                let matrix = Matrix { rows: work.tokens, cols: config.kv_size(), values };
                bits.kv_values += matrix.values.len() as u64;
                bits.kv += hooks
                    .kv(n, kind, matrix)
                    .map_err(|reason| Error::Hook { place: format!("{kind} cache of layer {n}"), reason })?;
            }
        }
        let shape = Shape {
            heads: config.num_attention_heads,
            kv_heads: config.kv_heads(),
            head_dim: config.head_dim(),
        };
        attention::attend(shape, &work.q, &work.k, &work.v, &mut work.mixed, &mut work.scratch);
        layer.o.apply(&work.mixed, &mut work.residual, 1.0);
        Ok(())
    }

    fn feed_forward(&self, layer: &Layer, work: &mut Workspace) {
        rms_norm(&work.residual, &layer.post_norm, self.config.rms_norm_eps as f32, &mut work.normed);
        layer.gate.apply(&work.normed, &mut work.gate, 0.0);
        layer.up.apply(&work.normed, &mut work.up, 0.0);
        for (gate, up) in work.gate.iter_mut().zip(&work.up) {
            // SiLU(gate) · up.
            *gate = *gate / (1.0 + (-*gate).exp()) * up;
        }
        layer.down.apply(&work.gate, &mut work.residual, 1.0);
    }
}

impl Layer {
    fn linears(&self) -> [(&'static str, &Linear); 7] {
        [
            ("q_proj", &self.q),
            ("k_proj", &self.k),
            ("v_proj", &self.v),
            ("o_proj", &self.o),
            ("gate_proj", &self.gate),
            ("up_proj", &self.up),
            ("down_proj", &self.down),
        ]
    }

    fn linears_mut(&mut self) -> [(&'static str, &mut Linear); 7] {
        [
            ("q_proj", &mut self.q),
            ("k_proj", &mut self.k),
            ("v_proj", &mut self.v),
            ("o_proj", &mut self.o),
            ("gate_proj", &mut self.gate),
            ("up_proj", &mut self.up),
            ("down_proj", &mut self.down),
        ]
    }
}

impl Workspace {
    /// Fits another window length; allocates only when a window is longer than any before.
    fn resize(&mut self, model: &Model, tokens: usize) {
        if tokens == self.tokens {
            return;
        }
        let c = &model.config;
        for (buffer, channels) in [
            (&mut self.residual, c.hidden_size),
            (&mut self.normed, c.hidden_size),
            (&mut self.q, c.q_size()),
            (&mut self.k, c.kv_size()),
            (&mut self.v, c.kv_size()),
            (&mut self.mixed, c.q_size()),
            (&mut self.gate, c.intermediate_size),
            (&mut self.up, c.intermediate_size),
            (&mut self.logits, c.vocab_size),
        ] {
            buffer.resize(tokens * channels, 0.0);
        }
        self.scratch = Scratch::new(tokens, c.head_dim());
        self.tokens = tokens;
    }
}

/// `x / rms(x) · weight`, row by row.
fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    for (row, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        let mean = row.iter().map(|v| v * v).sum::<f32>() / weight.len() as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        for ((o, v), w) in out.iter_mut().zip(row).zip(weight) {
            *o = v * scale * w;
        }
    }
}
