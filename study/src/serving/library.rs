//! The built-in engines, GPUs and models, by name.
//!
//! Knows no service and no load.

use crate::Error;
use crate::config::{AcceleratorFile, EngineFile, LaunchesFile, TransformerFile};
use std::collections::BTreeMap;
use trinity_config::Document;
use trinity_sim::serving::replica::Accelerator;

/// Engines, GPUs and models that are built in.
#[derive(Clone, Debug)]
pub struct Library {
    pub(super) engines: BTreeMap<String, EngineFile>,
    pub(super) launches: BTreeMap<String, LaunchesFile>,
    pub(super) accelerators: BTreeMap<String, Accelerator>,
    pub(super) models: Vec<TransformerFile>,
}

impl Library {
    /// Reads what is built in. Fails when a built-in file is damaged.
    pub fn load() -> Result<Self, Error> {
        let mut library = Self {
            engines: BTreeMap::new(),
            launches: BTreeMap::new(),
            accelerators: BTreeMap::new(),
            models: Vec::new(),
        };
        for name in trinity_config::builtin::names() {
            let Some((folder, short)) = name.split_once('/') else { continue };
            match folder {
                "engines" => {
                    library.engines.insert(short.to_owned(), Document::load(name)?.read()?);
                }
                "launches" => {
                    library.launches.insert(short.to_owned(), Document::load(name)?.read()?);
                }
                "accelerators" => {
                    let file: AcceleratorFile = Document::load(name)?.read()?;
                    if let Some(gpu) = file.resolve()? {
                        library.accelerators.insert(short.to_owned(), gpu);
                    }
                }
                "transformers" => library.models.push(Document::load(name)?.read()?),
                _ => {}
            }
        }
        Ok(library)
    }

    /// Engines by name.
    pub fn engines(&self) -> &BTreeMap<String, EngineFile> {
        &self.engines
    }

    /// This library with other constants of an engine.
    #[must_use]
    pub fn with_engine(mut self, name: &str, file: EngineFile) -> Self {
        self.engines.insert(name.to_owned(), file);
        self
    }

    /// The engine of that name; a sentence where there is none.
    pub(super) fn engine(&self, name: &str) -> Result<&EngineFile, String> {
        self.engines.get(name).ok_or_else(|| unknown("engine", name, self.engines.keys().map(String::as_str)))
    }

    pub(super) fn accelerator(&self, name: &str) -> Result<&Accelerator, String> {
        let known = || unknown("GPU", name, self.accelerators.keys().map(String::as_str));
        self.accelerators.get(&name.replace('_', "-")).ok_or_else(known)
    }

    pub(super) fn model(&self, name: &str) -> Result<&TransformerFile, String> {
        let names = || self.models.iter().filter_map(|m| m.names.first()).map(String::as_str);
        let found = self.models.iter().find(|m| m.names.iter().any(|own| own == name));
        found.ok_or_else(|| unknown("model", name, names()))
    }
}

pub(super) fn unknown<'a>(kind: &str, name: &str, names: impl Iterator<Item = &'a str>) -> String {
    format!("{kind} `{name}` is not known; known: {}", names.collect::<Vec<_>>().join(", "))
}
