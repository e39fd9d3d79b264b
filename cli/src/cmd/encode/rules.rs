//! What is said of single tensors on the command line, or in a file.

use crate::failure::Failure;
use crate::output;
use std::path::{Path, PathBuf};
use trinity_study::encode::Rules;

/// Options that name tensors by patterns.
#[derive(Debug, Default, clap::Args)]
pub struct RuleArgs {
    /// Keep tensors exact whose name matches: a glob (`*.norm.*`), or a part of
    /// the name without `*` and `?`. May be given again
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Give tensors so many bits per value of their own; of several patterns
    /// that match, the last holds
    #[arg(long, value_name = "PATTERN=BITS", value_parser = with_bits)]
    bits_for: Vec<(String, f64)>,
    /// Code tensors with another codec
    #[arg(long, value_name = "PATTERN=CODEC", value_parser = with_codec)]
    codec_for: Vec<(String, String)>,
    /// The same from a TOML file: `exclude = […]`, `[bits-for]`, `[codec-for]`;
    /// options hold where both match
    #[arg(long, value_name = "FILE.toml")]
    rules: Option<PathBuf>,
}

fn split(text: &str) -> Result<(&str, &str), String> {
    text.rsplit_once('=')
        .filter(|(pattern, _)| !pattern.is_empty())
        .ok_or_else(|| "expected PATTERN=VALUE".into())
}

fn with_bits(text: &str) -> Result<(String, f64), String> {
    let (pattern, bits) = split(text)?;
    let bits = bits.parse::<f64>().ok().filter(|bits| *bits > 0.0 && bits.is_finite());
    Ok((pattern.to_owned(), bits.ok_or("expected a number above zero")?))
}

fn with_codec(text: &str) -> Result<(String, String), String> {
    let (pattern, codec) = split(text)?;
    Ok((pattern.to_owned(), codec.to_owned()))
}

impl RuleArgs {
    pub fn is_given(&self) -> bool {
        let Self { exclude, bits_for, codec_for, rules } = self;
        !exclude.is_empty() || !bits_for.is_empty() || !codec_for.is_empty() || rules.is_some()
    }

    /// All of them, those of the file first.
    pub fn rules(&self) -> Result<Rules, Failure> {
        let (exclude, bits_for) = (self.exclude.clone(), self.bits_for.clone());
        let given = Rules { exclude, bits_for, codec_for: self.codec_for.clone() };
        match &self.rules {
            None => Ok(given),
            Some(path) => {
                output::protect(path);
                Ok(Rules::read(&toml(path)?)?.and(given))
            }
        }
    }
}

/// A path that is read as a file, and never as the name of something built in.
fn toml(path: &Path) -> Result<String, Failure> {
    let text = path.display().to_string();
    if path.extension().is_some_and(|ending| ending == "toml") {
        return Ok(text);
    }
    Err(Failure::input(format_args!("--rules {text}: expected a file that ends in .toml")))
}
