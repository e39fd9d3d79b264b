//! What the commands of `trinity serve` are asked, and how they refuse.

use crate::failure::Failure;
use crate::table::sig3;
use trinity_study::serving::plan::Refused;
use trinity_study::serving::platform::Ask;

/// What is served, on what, by what.
#[derive(Debug, clap::Args)]
pub struct What {
    /// A model of `trinity config list` (transformers), such as Llama-3.1-70B
    #[arg(value_name = "MODEL")]
    model: String,
    /// The checkpoint's precision: bf16, fp8, fp4 or int4
    #[arg(long, value_name = "NAME", default_value = "fp8")]
    precision: String,
    /// The GPU: h100-sxm, h200-sxm, b200-sxm, b300-sxm, gb200 or gb300
    #[arg(long, value_name = "NAME", default_value = "h200-sxm")]
    gpu: String,
    /// The engine: vllm, trtllm or sglang
    #[arg(long, value_name = "NAME", default_value = "vllm")]
    engine: String,
    /// A version of the engine that was measured; the newest family unless given
    #[arg(long, value_name = "VERSION", default_value = "newest")]
    engine_version: String,
    /// Tokens of a prompt; lengths are drawn from 80 to 100 % of it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens of an answer; lengths are drawn from 80 to 100 % of it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    answer: u32,
}

impl What {
    pub fn ask(&self) -> Ask {
        Ask {
            model: self.model.clone(),
            precision: self.precision.clone(),
            gpu: self.gpu.clone(),
            engine: self.engine.clone(),
            version: self.engine_version.clone(),
            prompt_tokens: self.prompt,
            answer_tokens: self.answer,
        }
    }
}

/// A refusal, with what would help.
pub fn refused(refused: Refused) -> Failure {
    let failure = Failure::input(&refused);
    match refused {
        Refused::File(why) => why.into(),
        Refused::DoesNotFit { .. } => failure.help("give it more GPUs, or a precision with fewer bits"),
        Refused::NoneKeeps { .. } => failure.help("allow more time, or give it more GPUs or faster ones"),
        Refused::Unknown(_) => failure.help("`trinity config list` names what is built in"),
        _ => failure,
    }
}

/// How sure a time is.
pub fn sure(ttft: f64, tpot: f64) -> String {
    format!(
        "On models that the constants were fitted without, TTFT is off by {:.0} % and TPOT by {:.0} % in the mean \
         (`trinity validate --serving`).",
        100.0 * ttft,
        100.0 * tpot
    )
}

/// A number and half of its 95 % interval, where that is known.
pub fn plus_minus(value: f64, half_width: f64) -> String {
    match half_width.is_finite() {
        true => format!("{} ± {}", sig3(value), sig2(half_width)),
        false => sig3(value),
    }
}

/// A time and its 95 % interval, where that is known.
pub fn milliseconds((value_s, within_s): (f64, [f64; 2])) -> String {
    match within_s[1].is_finite() {
        true => {
            format!("{} ({} to {})", sig3(value_s * 1e3), sig3(within_s[0] * 1e3), sig3(within_s[1] * 1e3))
        }
        false => sig3(value_s * 1e3),
    }
}

/// Two significant digits.
fn sig2(value: f64) -> String {
    if value <= 0.0 {
        return "0".into();
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 1);
    let decimals = (-unit.log10().round()).max(0.0) as usize;
    format!("{:.decimals$}", (value / unit).round() * unit)
}
