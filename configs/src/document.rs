//! A configuration after `extends` and `--set`: what it says, and who said it.

use crate::{
    assignment::Assignment,
    builtin, de,
    diagnostic::{Complaint, Diagnostic, Place, Source},
    node::{Entry, Node, Value, nested},
};
use serde::de::DeserializeOwned;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A merged configuration; every value knows the place it was written at.
#[derive(Debug, Clone)]
pub struct Document {
    name: String,
    root: Node,
    extends: Vec<String>,
}

/// One value of a [`Document`], for `config show`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Dotted path, such as `gpu.memory.bandwidth`.
    pub path: String,
    /// The value as TOML writes it.
    pub value: String,
    /// Where it was written.
    pub place: Place,
    /// The paper, table or datasheet it was taken from.
    pub source: Option<String>,
}

/// A chain of `extends` longer than this is a mistake.
const MAX_DEPTH: usize = 16;

impl Document {
    /// Loads a built-in configuration by name (`gpus/h100`) or a file by its
    /// path, which must end in `.toml`; follows `extends`.
    pub fn load(name: &str) -> Result<Self, Diagnostic> {
        let origin = Origin::of(name, None);
        let source = origin.source()?;
        Self::from_source(name, &origin, &source)
    }

    /// Reads a text that is no file, such as a test's or stdin's.
    pub fn parse(name: &str, text: &str) -> Result<Self, Diagnostic> {
        let source = Arc::new(Source { name: name.into(), text: text.into() });
        Self::from_source(name, &Origin::of(name, None), &source)
    }

    fn from_source(name: &str, origin: &Origin, source: &Arc<Source>) -> Result<Self, Diagnostic> {
        let mut root = Node::parse(source)?;
        let extends = match root.entry("extends") {
            Some(extends) => named(extends)?.into_iter().map(|(name, _)| name).collect(),
            None => Vec::new(),
        };
        resolve(&mut root, origin, MAX_DEPTH)?;
        Ok(Self { name: name.to_string(), root, extends })
    }

    /// One document out of several, each the table of its key.
    pub fn compose(name: &str, parts: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        let source = Arc::new(Source { name: name.into(), text: String::new() });
        let place = Place { source, span: 0..0 };
        let entries = parts.into_iter().map(|(key, part)| Entry {
            key: key.into(),
            key_place: part.root.place.clone(),
            node: part.root,
        });
        let root = Node { value: Value::Table(entries.collect()), place, citation: None };
        Self { name: name.into(), root, extends: Vec::new() }
    }

    /// The table that a dotted path leads to, as a document of its own.
    pub fn table(&self, path: &str) -> Option<Self> {
        let mut node = &self.root;
        for key in path.split('.') {
            node = &node.entry(key)?.node;
        }
        matches!(node.value, Value::Table(_)).then(|| Self {
            name: self.name.clone(),
            root: node.clone(),
            extends: Vec::new(),
        })
    }

    /// The name it was loaded by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the file itself extends, as it names it.
    pub fn extends(&self) -> &[String] {
        &self.extends
    }

    /// The keys of the outermost table.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let entries: &[Entry] = match &self.root.value {
            Value::Table(entries) => entries,
            _ => &[],
        };
        entries.iter().map(|entry| entry.key.as_str())
    }

    /// Applies one `--set path.to.key=value`. The value is TOML where it reads
    /// as TOML, otherwise text: `--set "nic.bandwidth=200 Gbit/s"` needs no
    /// second pair of quotes. `--set gpu.extends=gpus/h200` lays that file over.
    pub fn set(&mut self, assignment: &str) -> Result<(), Diagnostic> {
        let Assignment { keys, over } = self.assignment(assignment)?;
        assign(&mut self.root, &keys, over)
    }

    /// The document after [`Document::set`] of each assignment in turn.
    pub fn with(mut self, assignments: &[impl AsRef<str>]) -> Result<Self, Diagnostic> {
        assignments.iter().try_for_each(|assignment| self.set(assignment.as_ref()))?;
        Ok(self)
    }

    /// What [`Document::set`] would lay over this document and where, for who
    /// holds the values in a type and has a place to put one.
    pub fn assignment(&self, assignment: &str) -> Result<Assignment, Diagnostic> {
        let source = Arc::new(Source { name: "--set".into(), text: assignment.into() });
        let whole = Place { source: source.clone(), span: 0..assignment.len() };
        let Some((path, value)) = assignment.split_once('=') else {
            return Err(Diagnostic::new("an assignment needs a `=`")
                .at(&whole)
                .label("expected path.to.key=value"));
        };
        let value_start = path.len() + 1 + (value.len() - value.trim_start().len());
        let mut over = Node::parse_value(value.trim(), &source, value_start)?;
        let mut keys = keys(path, &source)?;
        if let Some(last) = keys.pop_if(|(key, _)| *key == "extends") {
            over = nested(&[last], over);
        }
        resolve(&mut over, &Origin::of(&self.name, None), MAX_DEPTH)?;
        Ok(Assignment { keys, over })
    }

    /// The configuration as a type of the caller's, which should carry
    /// `#[serde(deny_unknown_fields, rename_all = "kebab-case")]`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        de::read(&self.root)
    }

    /// Every value with its provenance, in the order of the files.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        collect(&self.root, String::new(), &mut settings);
        settings
    }

    /// The value under `path` with its provenance.
    pub fn setting(&self, path: &str) -> Option<Setting> {
        self.settings().into_iter().find(|setting| setting.path == path)
    }

    /// Whether the value under `path` is written in the document itself, and not
    /// in one that it extends.
    pub fn says(&self, path: &str) -> bool {
        self.find(path).is_some_and(|node| node.place.source == self.root.place.source)
    }

    /// Where the value under `path` is written.
    pub fn place(&self, path: &str) -> Option<&Place> {
        self.find(path).map(|node| &node.place)
    }

    fn find(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(&self.root, Node::member)
    }

    /// A diagnostic that points at the value under `path`, for what only the
    /// consumer can judge (heads that tensor parallelism does not divide).
    /// Where the path names nothing, it points at the nearest table above it.
    pub fn complain(&self, path: &str, complaint: &Complaint) -> Diagnostic {
        let mut node = &self.root;
        for key in path.split('.') {
            let Some(next) = node.member(key) else { break };
            node = next;
        }
        Complaint::split(&complaint.to_string()).at(&node.place)
    }
}

/// The keys of a dotted path, each with its place.
fn keys(path: &str, source: &Arc<Source>) -> Result<Vec<(String, Place)>, Diagnostic> {
    let mut start = 0;
    path.split('.')
        .map(|padded| {
            let key = padded.trim();
            let lead = start + (padded.len() - padded.trim_start().len());
            let place = Place { source: source.clone(), span: lead..lead + key.len() };
            start += padded.len() + 1;
            if key.is_empty() {
                return Err(Diagnostic::new("a key is empty").at(&place).label("expected path.to.key=value"));
            }
            Ok((key.to_string(), place))
        })
        .collect()
}

/// Lays `over` on the value that `keys` lead to; items of arrays go by number.
fn assign(target: &mut Node, keys: &[(String, Place)], over: Node) -> Result<(), Diagnostic> {
    let [(key, place), deeper @ ..] = keys else {
        target.merge(over);
        return Ok(());
    };
    if let Value::Array(items) = &mut target.value {
        let count = items.len();
        return match key.parse().ok().and_then(|index: usize| items.get_mut(index)) {
            Some(item) => assign(item, deeper, over),
            None => Err(Diagnostic::no_item(key, place, count)),
        };
    }
    if let Value::Table(entries) = &mut target.value
        && let Some(known) = entries.iter_mut().find(|entry| entry.key == *key)
    {
        return assign(&mut known.node, deeper, over);
    }
    target.merge(nested(keys, over));
    Ok(())
}

fn collect(node: &Node, path: String, settings: &mut Vec<Setting>) {
    match &node.value {
        Value::Table(entries) => {
            for entry in entries {
                let deeper =
                    if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                collect(&entry.node, deeper, settings);
            }
        }
        Value::Array(items) if items.iter().any(|item| matches!(item.value, Value::Table(_))) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{path}.{index}"), settings);
            }
        }
        value => settings.push(Setting {
            path,
            value: written(value),
            place: node.place.clone(),
            source: node.citation.clone(),
        }),
    }
}

/// A value as TOML writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Text(text) => toml::Value::String(text.clone()).to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Float(float) => toml::Value::Float(*float).to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| written(&item.value)).collect::<Vec<_>>().join(", "))
        }
        // No document that is shown has one.
        Value::StandIn => String::new(),
        Value::Table(entries) => {
            let members =
                entries.iter().map(|entry| format!("{} = {}", entry.key, written(&entry.node.value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Where a text comes from, which decides what its `extends` may name.
#[derive(Debug, Clone, PartialEq)]
enum Origin {
    Builtin(String),
    File(PathBuf),
}

impl Origin {
    /// A name that ends in `.toml` is a path, relative to the file that says it.
    fn of(name: &str, beside: Option<&Path>) -> Self {
        if !name.ends_with(".toml") {
            return Self::Builtin(name.to_string());
        }
        match beside.and_then(Path::parent) {
            Some(folder) => Self::File(folder.join(name)),
            None => Self::File(PathBuf::from(name)),
        }
    }

    fn load(&self, depth: usize) -> Result<Node, Diagnostic> {
        let mut node = Node::parse(&self.source()?)?;
        resolve(&mut node, self, depth)?;
        Ok(node)
    }

    fn source(&self) -> Result<Arc<Source>, Diagnostic> {
        match self {
            Self::Builtin(name) => builtin::source(name),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Arc::new(Source { name: path.display().to_string(), text })),
                Err(error) => Err(Diagnostic::new(format!("cannot read `{}`: {error}", path.display()))),
            },
        }
    }
}

/// Replaces every `extends` in `node` by what it names, laid beneath.
fn resolve(node: &mut Node, origin: &Origin, depth: usize) -> Result<(), Diagnostic> {
    match &mut node.value {
        Value::Table(entries) => {
            Diagnostic::gather(entries.iter_mut().map(|entry| resolve(&mut entry.node, origin, depth)))?;
        }
        Value::Array(items) => {
            Diagnostic::gather(items.iter_mut().map(|item| resolve(item, origin, depth)))?;
        }
        _ => return Ok(()),
    }
    // `extends` speaks of the table it stands in; elsewhere it is a value like any other.
    let Some(extends) = node.take("extends") else { return Ok(()) };
    let mut merged = Node { value: Value::Table(Vec::new()), place: node.place.clone(), citation: None };
    for (name, place) in named(&extends)? {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Diagnostic::new("this `extends` leads back to itself")
                .at(&place)
                .label(format!("the chain is longer than {MAX_DEPTH}")));
        };
        let beside = match origin {
            Origin::File(path) => Some(path.as_path()),
            Origin::Builtin(_) => None,
        };
        let base = Origin::of(&name, beside).load(depth).map_err(|diagnostic| match diagnostic.place {
            // A file that is not there is the fault of the line that names it.
            None => diagnostic.at(&place),
            Some(_) => diagnostic,
        })?;
        merged.merge(base);
    }
    let own = std::mem::replace(node, merged);
    node.merge(own);
    Ok(())
}

/// What an `extends` names: one text, or a list that is laid in its order.
fn named(extends: &Entry) -> Result<Vec<(String, Place)>, Diagnostic> {
    let name = |node: &Node| match &node.value {
        Value::Text(name) => Ok((name.clone(), node.place.clone())),
        _ => Err(Diagnostic::new("`extends` must name configurations")
            .at(&node.place)
            .label("expected a string such as \"gpus/h100\" or \"mine.toml\"")),
    };
    match &extends.node.value {
        Value::Array(items) => items.iter().map(name).collect(),
        _ => Ok(vec![name(&extends.node)?]),
    }
}
