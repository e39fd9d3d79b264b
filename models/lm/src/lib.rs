//! A language model in the loop: what a bit rate does to accuracy.
//!
//! The forward pass of Llama, Qwen 2 and 3 and Gemma 3 models (RMSNorm, rotary
//! positions, gated feed-forward, grouped-query attention) in f32, from a
//! Hugging Face folder or a GGUF file, and a scorer that answers in bits per
//! byte and in how far predictions moved ([`Fidelity`]). [`Hooks`] let a caller replace the KV cache
//! and the activations between pipeline stages by what a codec makes of them;
//! weights are replaced before the run with [`Model::replace_weights`].
//!
//! Knows transformers and text; codecs are met in [`coding`] and [`weights`]
//! alone, by name, so that any can be tried.
//!
//! ```no_run
//! use trinity_lm::{Model, NoHooks, Text, builtin, score};
//!
//! let checkpoint = builtin::tiny()?;
//! let text = Text::new(&builtin::text()[..2048], &checkpoint, 1024)?;
//! let score = score(&Model::load(&checkpoint)?, &text, &NoHooks, &|| ())?;
//! println!("{:.3} bits per byte", score.bits_per_byte);
//! # Ok::<(), trinity_lm::Error>(())
//! ```
#![forbid(unsafe_code)]

mod accumulator;
mod attention;
mod baselines;
pub mod builtin;
pub mod cache;
pub mod cache_choice;
pub mod cache_moments;
pub mod calibrate;
mod checkpoint;
mod cholesky;
pub mod coding;
mod config;
mod error;
mod fidelity;
mod gguf;
mod hooks;
pub mod keeper;
mod layer;
mod linear;
mod model;
mod nearby;
mod norm;
pub mod principal;
mod probe;
mod progressive;
mod rotary;
mod score;
mod tables;
mod text;
mod tokenizer;
pub mod weights;

pub use checkpoint::Checkpoint;
pub use config::{Config, Family, LayerKind};
pub use error::{Error, Problem};
pub use fidelity::Fidelity;
pub use hooks::{Attended, Hooks, NoHooks, TokenRows};
pub use model::{LONGEST_WINDOW, Model, Weight};
pub use score::{Reference, Score, score, score_against};
pub use text::{Text, Window};
