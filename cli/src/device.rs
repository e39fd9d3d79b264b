//! `--device`: who codes streams of the line-rate codec, this CPU or a GPU.
//!
//! The bytes and values are the same either way. What a GPU does not code is
//! said, never passed over.

use crate::context::Context;
use crate::failure::Failure;
use serde::Serialize;
use std::sync::Arc;
use trinity_hwcodec::Error;
use trinity_hwcodec::line::Cuda;
use trinity_tensor::codec::{Device, StreamCounts, decoded_counts, encoded_counts, has_kernels, use_device};

/// Who may code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Choice {
    /// This CPU
    #[default]
    Cpu,
    /// An NVIDIA GPU, through the driver and NVRTC: for trinity-lite, line-fast and line-uniform
    Cuda,
    /// A GPU where there is one and the codec has kernels, else the CPU
    Auto,
}

/// The flag, for commands that code tensors.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DeviceArgs {
    /// Who codes trinity-lite, line-fast and line-uniform; bytes and values are
    /// the same. Plans are chosen on the CPU either way
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "cpu")]
    device: Choice,
}

/// Who coded, as JSON says it.
#[derive(Debug, Clone, Serialize)]
pub struct Used {
    /// `cpu` or `cuda`.
    kind: &'static str,
    name: String,
    /// Streams under the codec's name that the CPU coded although a GPU was there.
    streams_on_cpu: usize,
}

/// The device that was chosen; at the end it says what it did.
#[derive(Debug)]
pub struct Chosen {
    cuda: Option<Arc<Cuda>>,
}

impl DeviceArgs {
    /// Opens what was asked for, before any work is done. `codecs` are the
    /// names that will be coded under.
    pub fn open<'a>(
        self,
        codecs: impl IntoIterator<Item = &'a str>,
        ctx: &Context,
    ) -> Result<Chosen, Failure> {
        let mut codecs: Vec<&str> = codecs.into_iter().collect();
        codecs.sort_unstable();
        codecs.dedup();
        let (able, others): (Vec<&str>, Vec<&str>) = codecs.into_iter().partition(|name| has_kernels(name));
        if self.device == Choice::Cpu {
            return Ok(Chosen { cuda: None });
        }
        if able.is_empty() {
            if self.device == Choice::Auto {
                return Ok(Chosen { cuda: None });
            }
            let (named, have) = (others.join(", "), if others.len() == 1 { "has" } else { "have" });
            return Err(Failure::input(format_args!("--device cuda: {named} {have} no kernels for a GPU"))
                .help("trinity-lite, line-fast and line-uniform have"));
        }
        let cuda = match Cuda::open(0) {
            Ok(cuda) => Arc::new(cuda),
            Err(error) if self.device == Choice::Auto => {
                ctx.remark(format!("coding on the CPU: {error}"));
                return Ok(Chosen { cuda: None });
            }
            Err(error) => return Err(failure(&error)),
        };
        // A command chooses once, so nothing was chosen before.
        let _ = use_device(cuda.clone());
        if !others.is_empty() {
            ctx.remark(format!(
                "{} code on the CPU; on {}: {}",
                others.join(", "),
                cuda.name(),
                able.join(", ")
            ));
        }
        Ok(Chosen { cuda: Some(cuda) })
    }
}

/// No driver is the user's to mend (exit 2); anything else is a failed run.
fn failure(error: &Error) -> Failure {
    match error {
        Error::NoDriver { .. } => Failure::input(format_args!("--device cuda: {error}"))
            .help("leave --device out: the CPU writes the same bytes"),
        other => Failure::run(format_args!("--device cuda: {other}")),
    }
}

impl Chosen {
    /// Says what the GPU coded and what went to the CPU after all.
    pub fn remark(&self, ctx: &Context) {
        let Some(cuda) = &self.cuda else { return };
        let (done, load) = self.done();
        let on_cpu = match load.on_cpu {
            0 => String::new(),
            n => format!(
                "; {n} went to the CPU, being of the arithmetic coder that small or plain tensors get"
            ),
        };
        ctx.remark(format!("{} {done} {} streams{on_cpu}", cuda.name(), load.on_device));
    }

    /// What was encoded, or where nothing was, decoded.
    fn done(&self) -> (&'static str, StreamCounts) {
        match encoded_counts() {
            none if none == StreamCounts::default() => ("decoded", decoded_counts()),
            encoded => ("encoded", encoded),
        }
    }

    /// Who coded.
    pub fn used(&self) -> Used {
        match &self.cuda {
            None => Used { kind: "cpu", name: "this CPU".into(), streams_on_cpu: 0 },
            Some(cuda) => Used { kind: cuda.kind(), name: cuda.name(), streams_on_cpu: self.done().1.on_cpu },
        }
    }
}
