//! A checkpoint on disk: configuration and tensors, checked against each other.
//!
//! Takes Hugging Face's names (`model.layers.0.self_attn.q_proj.weight`), the
//! short ones (`layers.0.q_proj.weight`) and a GGUF's. Every tensor that is
//! missing, of another shape or unknown is reported in one message.

use crate::config::Family;
use crate::error::Problem;
use crate::{Config, Error, gguf};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trinity_tensor::file::shard_of;
use trinity_tensor::{Entry, TensorFile};

/// A configuration and the tensors that fit it.
#[derive(Debug)]
pub struct Checkpoint {
    pub config: Config,
    /// Where the configuration was found; `tokenizer.json` is looked for beside it.
    pub config_path: PathBuf,
    files: Vec<TensorFile>,
    /// One GGUF file, with names, rows and a tokenizer of its own.
    is_gguf: bool,
}

impl Checkpoint {
    /// A hash of the configuration and of every tensor's name and content.
    pub fn content(&self) -> Result<u64, Error> {
        let mut hash = trinity_tensor::ContentHash::default();
        hash.add(format!("{:?}", self.config).as_bytes());
        for entry in self.files.iter().flat_map(TensorFile::entries) {
            hash.add(entry.name().as_bytes());
            hash.add(&entry.content()?.to_le_bytes());
        }
        Ok(hash.finish())
    }

    /// Opens what `path` names: a folder with `config.json`, a configuration
    /// (`tiny.json`, or `tiny`), a safetensors file (one shard stands for all),
    /// a GGUF file, or a `.tri` file of one of them.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if begins_with(path, b"GGUF") {
            return Self::of_gguf(path, TensorFile::open(path)?);
        }
        if begins_with(path, b"TRIN") {
            return Self::open_coded(path);
        }
        let (config_path, tensor_paths) = locate(path)?;
        let config = Config::read(&config_path)?;
        let files = tensor_paths.iter().map(|p| TensorFile::open(p)).collect::<Result<Vec<_>, _>>()?;
        Self { config, config_path, files, is_gguf: false }.checked()
    }

    /// A checkpoint out of bytes that are already in memory.
    pub fn from_bytes(config: Config, tensors: Vec<u8>) -> Result<Self, Error> {
        let files = vec![TensorFile::from_bytes(tensors, "model")?];
        Self { config, config_path: "config.json".into(), files, is_gguf: false }.checked()
    }

    /// The same model with the tensors of another file, such as one that was
    /// coded and decoded again.
    ///
    /// # Errors
    ///
    /// Where the file lacks a tensor of the model, or has one of another shape.
    pub fn holding(&self, file: TensorFile) -> Result<Self, Error> {
        let (config, config_path) = (self.config.clone(), self.config_path.clone());
        Self { config, config_path, files: vec![file], is_gguf: self.is_gguf }.checked()
    }

    /// All tensors as one file, as an encoder takes them.
    ///
    /// # Errors
    ///
    /// Where two shards hold a tensor of one name.
    pub fn tensors(&self) -> Result<TensorFile, Error> {
        if let [only] = self.files.as_slice() {
            return Ok(only.clone());
        }
        let texts = self.files.iter().flat_map(|file| file.metadata().clone()).collect();
        Ok(TensorFile::of(self.entries().cloned().collect(), texts)?)
    }

    /// A container: its configuration is what a GGUF's texts say, or lies beside it.
    fn open_coded(path: &Path) -> Result<Self, Error> {
        let file = TensorFile::open(path)?;
        if file.metadata().contains_key("general.architecture") {
            return Self::of_gguf(path, file);
        }
        let own = path.with_extension("json");
        let beside = path.with_file_name("config.json");
        let config_path = if own.is_file() { own } else { beside };
        if !config_path.is_file() {
            return Err(Error::BadFile {
                file: path.display().to_string(),
                reason: format!(
                    "no configuration: neither {} nor config.json is beside it; name the model that it was \
                     made from as the original, or put its config.json and tokenizer.json there",
                    path.with_extension("json").display()
                ),
            });
        }
        let config = Config::read(&config_path)?;
        Self { config, config_path, files: vec![file], is_gguf: false }.checked()
    }

    fn of_gguf(path: &Path, file: TensorFile) -> Result<Self, Error> {
        let config = gguf::config(&file)
            .map_err(|what| Error::Unsupported { file: path.display().to_string(), what })?;
        Self { config, config_path: path.to_owned(), files: vec![file], is_gguf: true }.checked()
    }

    #[cfg(feature = "tokenizers")]
    pub(crate) fn gguf(&self) -> Option<&TensorFile> {
        self.files.first().filter(|_| self.is_gguf)
    }

    /// The values of the tensor with a short name.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>, Error> {
        let entry = self.entries().find(|e| self.short_name(e.name()) == name).ok_or_else(|| {
            Error::BadCheckpoint(vec![Problem::Missing { name: name.into(), shape: vec![] }])
        })?;
        let tensor = entry.read()?;
        let mut values = vec![0.0; tensor.len()];
        tensor.dtype().to_f32(tensor.data(), &mut values);
        Ok(self.as_used(name, values))
    }

    /// Values of the weight with a short name, in the order its file has them, as the model uses them.
    pub fn as_used(&self, name: &str, mut values: Vec<f32>) -> Vec<f32> {
        if self.is_paired(name) {
            gguf::unpair_rows(&mut values, self.config.head_dim, self.config.hidden_size);
        }
        values
    }

    /// Values of the weight with a short name in the order its file has them.
    pub fn as_stored(&self, name: &str, mut values: Vec<f32>) -> Vec<f32> {
        if self.is_paired(name) {
            gguf::pair_rows(&mut values, self.config.head_dim, self.config.hidden_size);
        }
        values
    }

    /// Whether linear weights lie in the file inputs by outputs, several in one tensor: what a text says of
    /// them cannot be said of the file's tensors.
    pub fn stores_weights_fused(&self) -> bool {
        self.config.family.is_gpt2()
    }

    /// Whether rows of a weight stand in pairs in its file.
    fn is_paired(&self, name: &str) -> bool {
        let turned = name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight");
        self.is_gguf && self.config.family == Family::Llama && turned
    }

    /// A tensor's name as the rest of this crate has it.
    pub fn short_name(&self, name: &str) -> String {
        match (self.is_gguf, self.config.family) {
            (true, family) => gguf::short_name(name, family),
            (false, Family::Gpt2) => gpt2_name(name),
            (false, _) => short_name(name),
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.files.iter().flat_map(|f| f.entries())
    }

    /// This checkpoint, where its tensors are those of its configuration.
    fn checked(self) -> Result<Self, Error> {
        let expected = expected(&self.config);
        let mut found: BTreeMap<String, &[usize]> = BTreeMap::new();
        let mut problems = Vec::new();
        for entry in self.entries() {
            let name = self.short_name(entry.name());
            // Inverse frequencies that older checkpoints carry: derived, not needed.
            // So are the triangles that hide the future in older GPT-2 files.
            let triangle = name.ends_with("attn.bias") || name.ends_with("attn.masked_bias");
            if name.ends_with("rotary_emb.inv_freq") || triangle {
                continue;
            }
            match expected.iter().find(|(known, _)| *known == name) {
                None => {
                    let nearest = nearest(&name, expected.iter().map(|(known, _)| known.as_str()));
                    problems.push(Problem::Unknown { name: entry.name().into(), nearest });
                }
                Some((_, shape)) if shape.as_slice() != entry.shape() => problems.push(Problem::Shape {
                    name: entry.name().into(),
                    expected: shape.clone(),
                    found: entry.shape().to_vec(),
                }),
                Some(_) => {}
            }
            if found.insert(name.clone(), entry.shape()).is_some() {
                problems.push(Problem::Twice { name: entry.name().into() });
            }
        }
        for (name, shape) in expected {
            // A tied model may carry its head all the same; an untied one must.
            let spared = name == "lm_head.weight" && self.config.tie_word_embeddings;
            if !spared && !found.contains_key(&name) {
                problems.push(Problem::Missing { name, shape });
            }
        }
        if problems.is_empty() { Ok(self) } else { Err(Error::BadCheckpoint(problems)) }
    }
}

/// Every tensor of a model, by short name, with its shape.
fn expected(config: &Config) -> Vec<(String, Vec<usize>)> {
    if config.family.is_gpt2() {
        return expected_of_gpt2(config);
    }
    let (h, m) = (config.hidden_size, config.intermediate_size);
    let (q, kv) = (config.q_size(), config.kv_size());
    let mut tensors = vec![("embed_tokens.weight".to_string(), vec![config.vocab_size, h])];
    for layer in 0..config.num_hidden_layers {
        let parts = [
            ("input_layernorm", vec![h]),
            ("q_proj", vec![q, h]),
            ("k_proj", vec![kv, h]),
            ("v_proj", vec![kv, h]),
            ("o_proj", vec![h, q]),
            ("post_attention_layernorm", vec![h]),
            ("gate_proj", vec![m, h]),
            ("up_proj", vec![m, h]),
            ("down_proj", vec![h, m]),
        ];
        tensors.extend(parts.map(|(part, shape)| (format!("layers.{layer}.{part}.weight"), shape)));
        let mut add = |part: &str, size| tensors.push((format!("layers.{layer}.{part}"), vec![size]));
        if config.family.has_qkv_bias() {
            add("q_proj.bias", q);
            add("k_proj.bias", kv);
            add("v_proj.bias", kv);
        }
        if config.family.has_qk_norm() {
            add("q_norm.weight", config.head_dim);
            add("k_norm.weight", config.head_dim);
        }
        if config.family.has_outer_norms() {
            add("pre_feedforward_layernorm.weight", h);
            add("post_feedforward_layernorm.weight", h);
        }
    }
    tensors.push(("norm.weight".into(), vec![h]));
    tensors.push(("lm_head.weight".into(), vec![config.vocab_size, h]));
    tensors
}

/// As [`expected`]: weights inputs by outputs, Q, K and V in one.
fn expected_of_gpt2(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (h, m) = (config.hidden_size, config.intermediate_size);
    let mut tensors = vec![
        ("embed_tokens.weight".to_string(), vec![config.vocab_size, h]),
        ("embed_positions.weight".to_string(), vec![config.max_position_embeddings, h]),
    ];
    for layer in 0..config.num_hidden_layers {
        let norms = ["input_layernorm", "post_attention_layernorm"].map(|part| (part, vec![h], h));
        let linears = [
            ("qkv_proj", vec![h, 3 * h], 3 * h),
            ("o_proj", vec![h, h], h),
            ("up_proj", vec![h, m], m),
            ("down_proj", vec![m, h], h),
        ];
        for (part, shape, bias) in norms.into_iter().chain(linears) {
            tensors.push((format!("layers.{layer}.{part}.weight"), shape));
            tensors.push((format!("layers.{layer}.{part}.bias"), vec![bias]));
        }
    }
    tensors.extend(["norm.weight", "norm.bias"].map(|name| (name.to_string(), vec![h])));
    tensors.push(("lm_head.weight".into(), vec![config.vocab_size, h]));
    tensors
}

/// `transformer.h.3.attn.c_attn.weight` → `layers.3.qkv_proj.weight`; the rest of this crate has one name for
/// one thing.
fn gpt2_name(name: &str) -> String {
    let name = name.strip_prefix("transformer.").unwrap_or(name);
    let parts = [
        (".attn.c_attn.", ".qkv_proj."),
        (".attn.c_proj.", ".o_proj."),
        (".mlp.c_fc.", ".up_proj."),
        (".mlp.c_proj.", ".down_proj."),
        (".ln_1.", ".input_layernorm."),
        (".ln_2.", ".post_attention_layernorm."),
    ];
    let whole =
        [("wte.", "embed_tokens."), ("wpe.", "embed_positions."), ("ln_f.", "norm."), ("h.", "layers.")];
    let begun = whole.iter().find_map(|(old, new)| Some(format!("{new}{}", name.strip_prefix(old)?)));
    parts.iter().fold(begun.unwrap_or_else(|| name.to_owned()), |name, (old, new)| name.replace(old, new))
}

/// `model.layers.3.self_attn.q_proj.weight` → `layers.3.q_proj.weight`.
pub(crate) fn short_name(name: &str) -> String {
    name.strip_prefix("model.").unwrap_or(name).replace(".self_attn.", ".").replace(".mlp.", ".")
}

/// The known name that differs least, if it differs little.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    known
        .map(|k| (strsim::levenshtein(name, k), k))
        .filter(|&(d, k)| d <= 2 + k.len() / 8)
        .min_by_key(|&(d, _)| d)
        .map(|(_, k)| k.to_string())
}

/// Configuration and tensor files of what the user named.
fn locate(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let bad = |reason: String| Error::BadFile { file: path.display().to_string(), reason };
    if path.is_dir() {
        let config = path.join("config.json");
        if !config.exists() {
            return Err(bad("no config.json in this folder".into()));
        }
        return Ok((config, vec![path.to_owned()]));
    }
    let known = |ending: &std::ffi::OsStr| ending == "safetensors" || ending == "json";
    if path.is_file() && !path.extension().is_some_and(known) {
        return Err(bad("tensors without a configuration are no model; one is a folder with config.json, \
                        a GGUF file, or a safetensors file with its configuration beside it"
            .into()));
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let stem = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let stem = stem.trim_end_matches(".safetensors").trim_end_matches(".json").to_string();
    let stem = shard_stem(&stem).unwrap_or(&stem).to_string();
    if stem.is_empty() {
        return Err(bad("names no model".into()));
    }
    let tensors = safetensors_in(folder, |name| name == stem || shard_stem(name) == Some(stem.as_str()))?;
    if tensors.is_empty() {
        return Err(bad(format!(
            "no {stem}.safetensors and no {stem}-1-of-N.safetensors in {}",
            if folder.as_os_str().is_empty() { ".".into() } else { folder.display().to_string() }
        )));
    }
    let own = folder.join(format!("{stem}.json"));
    let config = if own.exists() { own } else { folder.join("config.json") };
    if !config.exists() {
        return Err(bad(format!("no configuration: neither {stem}.json nor config.json is beside it")));
    }
    Ok((config, tensors))
}

fn begins_with(path: &Path, start: &[u8; 4]) -> bool {
    let mut magic = [0; 4];
    path.is_file()
        && std::fs::File::open(path)
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
            .is_ok()
        && magic == *start
}

/// `small-1-of-2` → `small`.
fn shard_stem(name: &str) -> Option<&str> {
    shard_of(name).map(|(stem, ..)| stem)
}

/// Safetensors files of a folder whose stem passes, sorted.
fn safetensors_in(folder: &Path, passes: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, Error> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let bad =
        |e: std::io::Error| Error::BadFile { file: folder.display().to_string(), reason: e.to_string() };
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder).map_err(bad)? {
        let path = item.map_err(bad)?.path();
        let is_tensors = path.extension().is_some_and(|e| e == "safetensors");
        if is_tensors && path.file_stem().is_some_and(|s| passes(&s.to_string_lossy())) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugging_face_names_become_short_ones() {
        assert_eq!(short_name("model.layers.3.self_attn.q_proj.weight"), "layers.3.q_proj.weight");
        assert_eq!(short_name("model.layers.0.mlp.up_proj.weight"), "layers.0.up_proj.weight");
        assert_eq!(short_name("lm_head.weight"), "lm_head.weight");
        assert_eq!(gpt2_name("transformer.h.3.attn.c_attn.bias"), "layers.3.qkv_proj.bias");
        assert_eq!(gpt2_name("h.0.mlp.c_proj.weight"), "layers.0.down_proj.weight");
        assert_eq!(gpt2_name("transformer.ln_f.weight"), "norm.weight");
        assert_eq!(gpt2_name("wpe.weight"), "embed_positions.weight");
    }

    #[test]
    fn a_shard_stands_for_its_set() {
        assert_eq!(shard_stem("small-1-of-2"), Some("small"));
        assert_eq!(shard_stem("model-00001-of-00030"), Some("model"));
        assert_eq!(shard_stem("two-of-a-kind"), None);
    }

    #[test]
    fn misspelt_names_find_their_neighbour() {
        let known = ["layers.0.q_proj.weight", "norm.weight"];
        assert_eq!(nearest("layers.0.q_porj.weight", known.into_iter()).as_deref(), Some(known[0]));
        assert_eq!(nearest("something.else.entirely", known.into_iter()), None);
    }
}
