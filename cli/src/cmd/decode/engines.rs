//! Decoded tensors as an engine loads them: one safetensors file, a folder with
//! its index, a GGUF.
//!
//! Says which tensors are rounded and what files result; how they are written is
//! the library's to know.

use std::collections::BTreeMap;
use std::path::Path;

use indicatif::ProgressBar;
use trinity_study::encode::Kind;
use trinity_tensor::export::{Shards, Stored, Written, write_gguf, write_safetensors};
use trinity_tensor::file::{GgufHeader, OriginPart};
use trinity_tensor::{Dtype, Error, TensorFile};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Spool};
use crate::tensor_files::{bad_input, not_written};

/// A file to be written for engines, and how.
pub struct Job<'a> {
    pub file: &'a TensorFile,
    /// What messages call the file.
    pub place: &'a str,
    /// The number format that is asked for.
    pub dtype: Option<Stored>,
    pub ctx: &'a Context,
}

impl Job<'_> {
    fn progress(&self, tensors: &[Written<'_>]) -> ProgressBar {
        self.ctx.progress(tensors.iter().map(|own| own.entry.len() as u64).sum(), "decoding")
    }

    fn bad(&self, error: &Error) -> Failure {
        bad_input(self.place, error)
    }

    fn failed(&self, output: &Path, error: &Error) -> Failure {
        let failure = not_written(self.place, output, error);
        match error.root() {
            Error::Unsupported { format: "f16", .. } => failure.help("--dtype bf16 has room for it"),
            _ => failure,
        }
    }

    /// Every float tensor in the format that is asked for: an engine takes a model in one.
    fn rounded<'t>(&self, tensors: Vec<Written<'t>>) -> Result<Vec<Written<'t>>, Failure> {
        let Some(asked) = self.dtype else { return Ok(tensors) };
        if let Stored::Blocks(format) = asked {
            let message = format!("safetensors has no {}: its blocks are those of GGUF", format.name());
            return Err(Failure::input(message).help("--to gguf writes them; or ask for f32, f16 or bf16"));
        }
        let to = |own: Written<'t>| {
            let is_float = own.entry.dtype().is_float() && own.entry.carried().is_none();
            if is_float { Written { stored: asked, ..own } } else { own }
        };
        Ok(tensors.into_iter().map(to).collect())
    }

    pub fn safetensors(&self, tensors: Vec<Written<'_>>, output: &Path) -> Result<(), Failure> {
        let tensors = self.rounded(tensors)?;
        let spool = Spool::create(output)?;
        let progress = self.progress(&tensors);
        write_safetensors(self.file, &tensors, spool.path(), &|values| progress.inc(values as u64))
            .map_err(|error| self.failed(output, &error))?;
        progress.finish_and_clear();
        spool.finish()
    }

    /// A folder: the shards that the tensors came in under their index, or one file;
    /// with the small files that the container carries.
    pub fn folder(&self, tensors: Vec<Written<'_>>, folder: &Path) -> Result<(), Failure> {
        let tensors = self.rounded(tensors)?;
        let index = self.file.kept(OriginPart::Index).and_then(|text| text.map(Shards::parse).transpose());
        let index = index.map_err(|error| self.bad(&error))?;
        let dealt = match &index {
            Some(index) => index.deal(&tensors),
            None => BTreeMap::from([("model.safetensors".to_owned(), tensors.clone())]),
        };
        let files = self.files()?;
        let progress = self.progress(&tensors);
        let mut spools = Vec::new();
        for (name, own) in &dealt {
            let path = folder.join(name);
            let spool = Spool::create(&path)?;
            write_safetensors(self.file, own, spool.path(), &|values| progress.inc(values as u64))
                .map_err(|error| self.failed(&path, &error))?;
            spools.push(spool);
        }
        progress.finish_and_clear();
        // All of them, or none; the index last, which makes them a model.
        spools.into_iter().try_for_each(Spool::finish)?;
        for (name, text) in files {
            output::write(&folder.join(name), text.as_bytes())?;
        }
        match index {
            Some(index) => output::write(&folder.join(Shards::INDEX_NAME), &index.text(&dealt)),
            None => Ok(()),
        }
    }

    /// Small files of a model's folder, by name.
    fn files(&self) -> Result<BTreeMap<String, String>, Failure> {
        let kept = self.file.kept(OriginPart::Files).map_err(|error| self.bad(&error))?;
        let Some(text) = kept else { return Ok(BTreeMap::new()) };
        let files: BTreeMap<String, String> = serde_json::from_slice(&text).map_err(|error| {
            Failure::input(format_args!("{}: its files are damaged: {error}", self.place))
        })?;
        match files.keys().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            None => Ok(files),
            Some(name) => Err(Failure::input(format_args!(
                "{}: `{}` is no name of a file in a folder",
                self.place,
                name.escape_debug()
            ))),
        }
    }

    /// A GGUF under the header that the tensors came with; vectors as they are.
    pub fn gguf<'t>(&self, tensors: Vec<Written<'t>>, output: &Path) -> Result<(), Failure> {
        let kept = self.file.kept(OriginPart::Gguf).map_err(|error| self.bad(&error))?;
        let Some(bytes) = kept else {
            let message = format!(
                "{}: made of no GGUF, so that neither tokenizer nor metadata of one are in it",
                self.place
            );
            let help = "encode the model's GGUF; or decode to safetensors, and let llama.cpp convert that";
            return Err(Failure::input(message).help(help));
        };
        let header = GgufHeader::parse(bytes).map_err(|error| self.bad(&error))?;
        let asked = self.dtype.unwrap_or(Stored::Plain(Dtype::F16));
        let to = |own: Written<'t>| {
            let is_matrix = own.entry.dtype().is_float() && Kind::of(own.entry).kept_because().is_none();
            if is_matrix { Written { stored: asked.fitting(own.entry.matrix().1), ..own } } else { own }
        };
        let tensors: Vec<Written<'t>> = tensors.into_iter().map(to).collect();
        let spool = Spool::create(output)?;
        let progress = self.progress(&tensors);
        write_gguf(header, &tensors, spool.path(), &|values| progress.inc(values as u64))
            .map_err(|error| self.failed(output, &error))?;
        progress.finish_and_clear();
        self.ctx.remark(summary(&tensors));
        spool.finish()
    }
}

/// How many tensors are in which format.
fn summary(tensors: &[Written<'_>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    tensors.iter().for_each(|own| *counts.entry(own.stored.name()).or_default() += 1);
    let said: Vec<String> = counts.iter().map(|(name, count)| format!("{count} in {name}")).collect();
    format!("tensors: {}", said.join(", "))
}
