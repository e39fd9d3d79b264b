//! The forward pass.

use crate::attention::{self, Scratch, Shape};
use crate::config::{Family, LayerKind};
use crate::layer::{self, Layer};
use crate::linear::Linear;
use crate::norm::{Norm, gelu, rms_norm_in_place, silu};
use crate::rotary::Rotary;
use crate::{Attended, Checkpoint, Config, Error, Hooks, TokenRows};
use nalgebra::DMatrix;
use std::sync::Arc;
use trinity_numeric::simd::{Kernel, Width, with_width};

/// The longest window that positions are tabled for.
pub const LONGEST_WINDOW: usize = 8192;
/// Tokens whose logits are computed at a time: a vocabulary of 262,144 makes
/// a gigabyte of a whole window's.
pub(crate) const LOGIT_ROWS: usize = 64;

/// A model in memory, ready to run. Clones share what no codec replaces.
#[derive(Debug, Clone)]
pub struct Model {
    config: Config,
    /// None where the head is the embedding too.
    pub(crate) embedding: Option<Arc<Vec<f32>>>,
    /// A row for every position, where positions are learnt.
    positions: Option<Arc<Vec<f32>>>,
    layers: Vec<Layer>,
    norm: Norm,
    /// `vocabulary × hidden`.
    pub(crate) head: Arc<Linear>,
    /// For layers that see everything, and for those that see a window.
    rotary: Arc<(Rotary, Rotary)>,
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
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    residual: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// Of a few tokens at a time.
    logits: Vec<f32>,
    /// What a part of a layer adds, where it goes through a norm first.
    part: Vec<f32>,
    scratch: Scratch,
    tokens: usize,
    pub bits: HookBits,
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
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, Error> {
        let config = checkpoint.config.clone();
        let h = config.hidden_size;
        let embedding = checkpoint.read("embed_tokens.weight")?;
        let (head, embedding) = if config.tie_word_embeddings {
            (Linear::from_rows(config.vocab_size, h, &embedding), None)
        } else {
            let head = Linear::from_rows(config.vocab_size, h, &checkpoint.read("lm_head.weight")?);
            (head, Some(Arc::new(embedding)))
        };
        let positions = config.max_position_embeddings.min(LONGEST_WINDOW);
        let rotary = |rope| Rotary::new(positions, config.head_dim, rope);
        let layers = (0..config.num_hidden_layers).map(|n| Layer::load(checkpoint, n));
        let learnt =
            config.family.is_gpt2().then(|| checkpoint.read("embed_positions.weight")).transpose()?;
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            norm: layer::norm(checkpoint, "norm")?,
            positions: learnt.map(Arc::new),
            rotary: Arc::new((rotary(&config.rope), rotary(&config.rope_of_windows))),
            embedding,
            head: Arc::new(head),
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every linear weight between embedding and head, in the order they are
    /// used: what published weight compression compresses.
    pub fn weights(&self) -> Vec<Weight> {
        let of_layer = |(n, layer): (usize, &Layer)| {
            layer.linears().into_iter().map(|(part, linear)| weight(n, part, linear)).collect::<Vec<_>>()
        };
        self.layers.iter().enumerate().flat_map(of_layer).collect()
    }

    /// Puts other values into the weights that [`Model::weights`] listed, in
    /// that order. Names and shapes must be the same.
    pub fn replace_weights(&mut self, weights: &[Weight]) -> Result<(), Error> {
        let mut given = weights.iter();
        for (n, layer) in self.layers.iter_mut().enumerate() {
            for (part, linear) in layer.linears_mut() {
                let name = weight_name(n, part);
                let (rows, cols) = (linear.outputs(), linear.inputs());
                let fits = |w: &&Weight| {
                    w.name == name && (w.rows, w.cols) == (rows, cols) && w.values.len() == rows * cols
                };
                let own = given.next();
                let Some(own) = own.filter(fits) else {
                    let (expected, found) = (vec![rows, cols], own.map_or(vec![], |w| vec![w.rows, w.cols]));
                    return Err(Error::BadCheckpoint(vec![crate::Problem::Shape { name, expected, found }]));
                };
                linear.replace(&own.values);
            }
        }
        Ok(())
    }

    pub(crate) fn workspace(&self, tokens: usize) -> Workspace {
        let mut work = Workspace::default();
        work.resize(self, tokens);
        work
    }

    /// Runs one window up to the last norm; leaves what the head reads, for [`Model::logits`], and what hooks answered.
    pub(crate) fn forward(
        &self,
        tokens: &[u32],
        work: &mut Workspace,
        hooks: &dyn Hooks,
    ) -> Result<(), Error> {
        work.resize(self, tokens.len());
        let h = self.config.hidden_size;
        self.embed(tokens, &mut work.residual);
        work.bits = HookBits::default();
        let stages = hooks.stages().clamp(1, self.layers.len());
        for n in 0..self.layers.len() {
            self.attend(n, work, hooks)?;
            self.feed_forward(n, work);
            // The last layer of every stage but the last sends its residual stream on.
            let stage = (n + 1) * stages / self.layers.len();
            let boundary = stage < stages && stage != n * stages / self.layers.len();
            if boundary {
                let matrix = TokenRows { rows: tokens.len(), cols: h, values: &mut work.residual };
                work.bits.activation_values += matrix.values.len() as u64;
                work.bits.activation += hooks.activation(stage - 1, matrix).map_err(|reason| {
                    Error::Hook { place: format!("activations after layer {n}"), reason }
                })?;
            }
        }
        self.normalize_last(work);
        Ok(())
    }

    /// Turns queries of layer `n`, heads side by side, back by the rotary angles of a position: against keys there
    /// as they were before rotary positions, that is how queries count.
    pub(crate) fn undo_rotary(&self, n: usize, queries: &mut [f32], position: usize) {
        if self.positions.is_none() {
            self.rotary_of(n).0.undo(queries, position);
        }
    }

    /// The angles of a layer, and how far back it sees.
    fn rotary_of(&self, n: usize) -> (&Rotary, usize) {
        match self.config.layers[n] {
            LayerKind::Full => (&self.rotary.0, usize::MAX),
            LayerKind::Window(window) => (&self.rotary.1, window),
        }
    }

    fn normalize_last(&self, work: &mut Workspace) {
        self.norm.apply(&work.residual, self.config.rms_norm_eps as f32, &mut work.normed);
    }

    /// Logits of a few tokens out of what the head reads.
    pub(crate) fn logits<'l>(&self, hidden: &[f32], logits: &'l mut Vec<f32>) -> &'l [f32] {
        self.head.apply_into(hidden, logits)
    }

    /// Logits of a whole window of a small vocabulary, `tokens × vocabulary`.
    pub fn window_logits(&self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        let outside = |t: &&u32| **t as usize >= self.config.vocab_size;
        if let Some(token) = tokens.iter().find(outside) {
            let reason = format!("token {token} is outside the model's vocabulary");
            return Err(Error::BadFile { file: "text".into(), reason });
        }
        if tokens.is_empty() || tokens.len() > self.config.max_position_embeddings.min(LONGEST_WINDOW) {
            return Err(Error::TextTooShort { tokens: tokens.len() });
        }
        let mut work = self.workspace(tokens.len());
        self.forward(tokens, &mut work, &crate::NoHooks)?;
        let mut logits = Vec::new();
        Ok(self.logits(&work.normed, &mut logits).to_vec())
    }

    fn embed(&self, tokens: &[u32], residual: &mut [f32]) {
        let h = self.config.hidden_size;
        for (row, &token) in residual.chunks_exact_mut(h).zip(tokens) {
            match &self.embedding {
                Some(embedding) => row.copy_from_slice(&embedding[token as usize * h..][..h]),
                None => self.head.copy_row(token as usize, row),
            }
        }
        if self.config.family.scales_embeddings() {
            let scale = (h as f32).sqrt();
            residual.iter_mut().for_each(|x| *x *= scale);
        }
        if let Some(positions) = &self.positions {
            residual.iter_mut().zip(positions.iter()).for_each(|(x, p)| *x += p);
        }
    }

    fn attend(&self, n: usize, work: &mut Workspace, hooks: &dyn Hooks) -> Result<(), Error> {
        self.normalize(n, Part::Attention, work);
        self.mix(n, work, hooks)?;
        let Workspace { mixed, part, residual, .. } = work;
        self.add_output(n, Part::AttentionOut, mixed, part, residual);
        Ok(())
    }

    /// What the first linear layers of the half that `part` belongs to read.
    fn normalize(&self, n: usize, part: Part, work: &mut Workspace) {
        let norm = match part {
            Part::Attention | Part::AttentionOut => &self.layers[n].input_norm,
            Part::Feed | Part::FeedOut => &self.layers[n].feed_norm,
        };
        norm.apply(&work.residual, self.config.rms_norm_eps as f32, &mut work.normed);
    }

    /// From what Q, K and V read to what O reads.
    fn mix(&self, n: usize, work: &mut Workspace, hooks: &dyn Hooks) -> Result<(), Error> {
        let (config, layer) = (&self.config, &self.layers[n]);
        let extras = &layer.extras;
        let epsilon = config.rms_norm_eps as f32;
        layer.q.apply(&work.normed, &mut work.q, 0.0);
        layer.k.apply(&work.normed, &mut work.k, 0.0);
        layer.v.apply(&work.normed, &mut work.v, 0.0);
        rms_norm_in_place(&mut work.q, &extras.q_norm, epsilon);
        rms_norm_in_place(&mut work.k, &extras.k_norm, epsilon);
        let (rotary, window) = self.rotary_of(n);
        let mut replace = |kind: &'static str, values: &mut [f32]| {
            work.bits.kv_values += values.len() as u64;
            let matrix = TokenRows { rows: work.tokens, cols: config.kv_size(), values };
            let spent = hooks.kv(n, kind, matrix);
            work.bits.kv += spent
                .map_err(|reason| Error::Hook { place: format!("{kind} cache of layer {n}"), reason })?;
            Ok::<_, Error>(())
        };
        if hooks.wants_kv() && hooks.before_rotary() {
            replace("k", &mut work.k)?;
        }
        if self.positions.is_none() {
            rotary.apply(&mut work.q, config.q_size());
            rotary.apply(&mut work.k, config.kv_size());
        }
        if hooks.wants_kv() {
            if !hooks.before_rotary() {
                replace("k", &mut work.k)?;
            }
            replace("v", &mut work.v)?;
        }
        let shape = Shape {
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
            window,
        };
        let see = |seen: Attended<'_>| hooks.attention(n, seen);
        let see = hooks.wants_attention().then_some(&see as &dyn Fn(Attended<'_>));
        attention::attend(shape, [&work.q, &work.k, &work.v], &mut work.mixed, &mut work.scratch, see);
        Ok(())
    }

    fn feed_forward(&self, n: usize, work: &mut Workspace) {
        self.normalize(n, Part::Feed, work);
        self.gate(n, work);
        let Workspace { gate, part, residual, .. } = work;
        self.add_output(n, Part::FeedOut, gate, part, residual);
    }

    /// From what gate and up read to what down reads.
    fn gate(&self, n: usize, work: &mut Workspace) {
        let layer = &self.layers[n];
        let Some(gate) = &layer.gate else {
            layer.up.apply(&work.normed, &mut work.gate, 0.0);
            with_width(Width::widest(), Gate { gate: &mut work.gate, up: None, of: gelu });
            return;
        };
        gate.apply(&work.normed, &mut work.gate, 0.0);
        layer.up.apply(&work.normed, &mut work.up, 0.0);
        let (gate, up) = (&mut work.gate[..], Some(&work.up[..]));
        match self.config.family {
            Family::Gemma3 => with_width(Width::widest(), Gate { gate, up, of: gelu }),
            _ => with_width(Width::widest(), Gate { gate, up, of: silu }),
        }
    }
}

/// What lets channels through, of another product of the same inputs where there is one.
struct Gate<'a, F> {
    gate: &'a mut [f32],
    up: Option<&'a [f32]>,
    of: F,
}

impl<F: Fn(f32) -> f32> Kernel for Gate<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.up {
            Some(up) => self.gate.iter_mut().zip(up).for_each(|(gate, up)| *gate = (self.of)(*gate) * up),
            None => self.gate.iter_mut().for_each(|gate| *gate = (self.of)(*gate)),
        }
    }
}

/// A model one linear layer at a time, for those who replace weights on the way.
impl Model {
    /// The residual stream of a window before the first layer.
    pub(crate) fn embedded(&self, tokens: &[u32]) -> Vec<f32> {
        let mut residual = vec![0.0; tokens.len() * self.config.hidden_size];
        self.embed(tokens, &mut residual);
        residual
    }

    /// Lets the residual stream of a window go on from before layer `n`, and `see` it before
    /// each layer from there; leaves what the head reads in `work`.
    pub(crate) fn forward_from(
        &self,
        n: usize,
        residual: &[f32],
        work: &mut Workspace,
        mut see: impl FnMut(&[f32]),
    ) -> Result<(), Error> {
        work.resize(self, residual.len() / self.config.hidden_size);
        work.residual.copy_from_slice(residual);
        for n in n..self.layers.len() {
            see(&work.residual);
            self.attend(n, work, &crate::NoHooks)?;
            self.feed_forward(n, work);
        }
        self.normalize_last(work);
        Ok(())
    }

    /// What `part` of layer `n` reads where the residual stream enters that
    /// half of the layer as `residual`.
    pub(crate) fn reads(
        &self,
        n: usize,
        part: Part,
        residual: &[f32],
        work: &mut Workspace,
        hooks: &dyn Hooks,
    ) -> Result<Vec<f32>, Error> {
        work.resize(self, residual.len() / self.config.hidden_size);
        work.residual.copy_from_slice(residual);
        self.normalize(n, part, work);
        Ok(match part {
            Part::Attention | Part::Feed => work.normed.clone(),
            Part::AttentionOut => {
                self.mix(n, work, hooks)?;
                work.mixed.clone()
            }
            Part::FeedOut => {
                self.gate(n, work);
                work.gate.clone()
            }
        })
    }

    /// Lets a residual stream past the half of layer `n` that the output of `out` ends.
    pub(crate) fn pass(
        &self,
        (n, out): (usize, Part),
        residual: &mut [f32],
        work: &mut Workspace,
        hooks: &dyn Hooks,
    ) -> Result<(), Error> {
        let reads = self.reads(n, out, residual, work, hooks)?;
        self.add_output(n, out, &reads, &mut Vec::new(), residual);
        Ok(())
    }

    /// Adds what the last linear layer of a half makes of `reads` to the
    /// residual stream, through a norm where there is one (`buffer` is for that).
    pub(crate) fn add_output(
        &self,
        n: usize,
        part: Part,
        reads: &[f32],
        buffer: &mut Vec<f32>,
        residual: &mut [f32],
    ) {
        let layer = &self.layers[n];
        let extras = &layer.extras;
        let (linear, norm) = match part {
            Part::Attention | Part::Feed => return,
            Part::AttentionOut => (&layer.o, &extras.attention_out_norm),
            Part::FeedOut => (&layer.down, &extras.feed_out_norm),
        };
        if norm.is_empty() {
            linear.apply(reads, residual, 1.0);
            return;
        }
        buffer.resize(residual.len(), 0.0);
        linear.apply(reads, buffer, 0.0);
        rms_norm_in_place(buffer, norm, self.config.rms_norm_eps as f32);
        residual.iter_mut().zip(&*buffer).for_each(|(r, p)| *r += p);
    }

    /// OᵀO of each head's channels in layer `n`: how far a change of what a head
    /// mixed goes into the residual stream.
    pub(crate) fn output_moments(&self, n: usize) -> Vec<DMatrix<f32>> {
        let (dim, heads) = (self.config.head_dim, self.config.num_attention_heads);
        (0..heads).map(|head| self.layers[n].o.column_moments(head * dim..(head + 1) * dim)).collect()
    }

    /// Whether a part's products go to the residual stream as they are.
    pub(crate) fn adds_as_it_is(&self, n: usize, part: Part) -> bool {
        let extras = &self.layers[n].extras;
        match part {
            Part::Attention | Part::Feed => false,
            Part::AttentionOut => extras.attention_out_norm.is_empty(),
            Part::FeedOut => extras.feed_out_norm.is_empty(),
        }
    }

    /// Puts other values into the weight of that name.
    pub(crate) fn replace_weight(&mut self, weight: &Weight) {
        for (n, layer) in self.layers.iter_mut().enumerate() {
            for (part, linear) in layer.linears_mut() {
                if weight.name == weight_name(n, part) {
                    linear.replace(&weight.values);
                }
            }
        }
    }

    pub(crate) fn part_inputs(&self, n: usize, part: Part) -> usize {
        let layer = &self.layers[n];
        match part {
            Part::Attention => layer.q.inputs(),
            Part::AttentionOut => layer.o.inputs(),
            Part::Feed => layer.up.inputs(),
            Part::FeedOut => layer.down.inputs(),
        }
    }

    /// What the one layer that ends a half adds beside its products.
    pub(crate) fn part_bias(&self, n: usize, part: Part) -> &[f32] {
        match part {
            Part::Attention | Part::Feed => &[],
            Part::AttentionOut => self.layers[n].o.bias(),
            Part::FeedOut => self.layers[n].down.bias(),
        }
    }

    /// The weights of a part, in the order that [`Model::weights`] has.
    pub(crate) fn part_weights(&self, n: usize, part: Part) -> Vec<Weight> {
        let linears = self.layers[n].linears();
        let own = linears.iter().filter(|(name, _)| part.readers().contains(name));
        own.map(|(name, linear)| weight(n, name, linear)).collect()
    }

    /// Puts other values into the weights that [`Model::part_weights`] listed.
    pub(crate) fn replace_part(&mut self, n: usize, part: Part, weights: &[Weight]) {
        let linears = self.layers[n].linears_mut();
        let own = linears.into_iter().filter(|(name, _)| part.readers().contains(name));
        for ((_, linear), weight) in own.zip(weights) {
            linear.replace(&weight.values);
        }
    }
}

/// Linear layers of one layer that read the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Attention,
    AttentionOut,
    Feed,
    FeedOut,
}

impl Part {
    /// In the order they are used.
    pub(crate) const ALL: [Self; 4] = [Self::Attention, Self::AttentionOut, Self::Feed, Self::FeedOut];

    /// Those of each half of a layer, the one whose output ends it last.
    pub(crate) const HALVES: [[Self; 2]; 2] =
        [[Self::Attention, Self::AttentionOut], [Self::Feed, Self::FeedOut]];

    pub(crate) fn readers(self) -> &'static [&'static str] {
        match self {
            Self::Attention => &["q_proj", "k_proj", "v_proj"],
            Self::AttentionOut => &["o_proj"],
            Self::Feed => &["gate_proj", "up_proj"],
            Self::FeedOut => &["down_proj"],
        }
    }
}

fn weight_name(n: usize, part: &str) -> String {
    format!("layers.{n}.{part}.weight")
}

fn weight(n: usize, part: &str, linear: &Linear) -> Weight {
    let (rows, cols) = (linear.outputs(), linear.inputs());
    Weight { name: weight_name(n, part), rows, cols, values: linear.to_rows() }
}

impl Workspace {
    /// What the head reads, after [`Model::forward`], and the buffer for logits.
    pub(crate) fn hidden_and_logits(&mut self) -> (&[f32], &mut Vec<f32>) {
        (&self.normed, &mut self.logits)
    }

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
        ] {
            buffer.resize(tokens * channels, 0.0);
        }
        self.scratch = Scratch::new(tokens, c.head_dim);
        self.tokens = tokens;
    }
}
