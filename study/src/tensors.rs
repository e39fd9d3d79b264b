//! Tensors as people bring them: what a file holds, and what is wrong with it
//! in a sentence.
//!
//! Joins files with statistics. Knows nothing of how a line is shown.

use crate::Error;
use serde::Serialize;
use trinity_config::nearest;
use trinity_tensor::codec::file_names;
use trinity_tensor::stats::{Profile, profile};
use trinity_tensor::{Class, Entry};

/// What a codec could exploit in one tensor.
#[derive(Debug, Serialize)]
pub struct Line {
    pub file: String,
    pub tensor: String,
    pub dtype: String,
    pub stored: String,
    pub shape: Vec<usize>,
    pub class: Class,
    pub offset: u64,
    /// Whether the format is one that no codec knows: bytes are carried as they are.
    pub carried: bool,
    #[serde(flatten)]
    pub profile: Profile,
}

impl Line {
    /// Measures a tensor of `file`. Fails where it cannot be read.
    pub fn measure(file: &str, entry: &Entry) -> Result<Self, Error> {
        let place = || format!("{file}: tensor `{}`", entry.name().escape_debug());
        let profile = match entry.carried() {
            // Statistics of bytes would say nothing of the values they are part of.
            Some(_) => Profile::unread(entry.stated_values()),
            None => profile(entry).map_err(|error| Error::Tensor { subject: place(), error })?,
        };
        Ok(Self {
            file: file.to_owned(),
            tensor: entry.name().to_owned(),
            dtype: entry.carried().map_or_else(|| entry.dtype().name().to_owned(), |own| own.dtype.clone()),
            stored: entry.stored().to_owned(),
            shape: entry.carried().map_or_else(|| entry.shape().to_vec(), |own| own.shape.clone()),
            carried: entry.carried().is_some(),
            class: entry.class(),
            offset: entry.offset(),
            profile,
        })
    }
}

/// An error of the tensor library and its causes, as one sentence.
pub fn sentence(error: &trinity_tensor::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// No codec has this name; one may have been meant.
pub fn unknown_codec(name: &str) -> Error {
    if trinity_lm::coding::is_published(name) {
        let message = format!(
            "`{name}` is a quantizer that `trinity eval` judges as published; no container holds its format"
        );
        let help = "quantizers that files hold: rtn-128g, nf4, mxfp4, q2_k, q3_k, q4_k, q8_0, and with --calibrate \
                    gptq-128g and awq-128g";
        return Error::input(message, help);
    }
    let known = file_names();
    // What is made of several may be misspelt in any of them.
    let parts: Vec<&str> = name.split('/').collect();
    let meant: Option<Vec<String>> = parts
        .iter()
        .map(|part| match *part {
            "hadamard" | "residual" => Some((*part).to_owned()),
            part if known.iter().any(|known| known == part) => Some(part.to_owned()),
            part => nearest(part, &known),
        })
        .collect();
    let help = match meant.map(|meant| meant.join("/")) {
        Some(meant) if meant != name => format!("did you mean `{meant}`?"),
        _ => format!("codecs: {}; or a profile as FILE.toml", known.join(", ")),
    };
    Error::input(format_args!("no codec named `{name}`"), help)
}
