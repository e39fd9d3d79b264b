//! A language model in the loop: what a bit rate does to accuracy.
//!
//! A Llama-style forward pass (RMSNorm, rotary positions, SwiGLU,
//! grouped-query attention) in f32 over safetensors checkpoints, and a scorer
//! that answers in bits per byte. [`Hooks`] let a caller replace the KV cache
//! and the activations between pipeline stages by what a codec makes of them;
//! weights are replaced before the run with [`Model::replace_weights`].
//!
//! Knows transformers and text; codecs are met in [`coding`] and [`weights`]
//! alone, by name, so that any can be tried.
#![forbid(unsafe_code)]

mod attention;
pub mod builtin;
mod checkpoint;
pub mod coding;
mod config;
mod error;
mod hooks;
mod linear;
mod model;
mod rotary;
mod score;
mod text;
pub mod weights;

pub use checkpoint::{Checkpoint, Problem};
pub use config::Config;
pub use error::Error;
pub use hooks::{Hooks, Matrix, NoHooks};
pub use model::{Model, Weight};
pub use score::{Score, score};
pub use text::{Text, Window};
