//! The configurations that come with the command, embedded when it is built.

use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::node::did_you_mean;
use std::sync::Arc;

/// Name without `.toml` (`gpus/h100`) and text, sorted by name.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// The names of all embedded configurations, such as `gpus/h100`, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of an embedded configuration.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.binary_search_by_key(&name, |(known, _)| known).ok().map(|at| FILES[at].1)
}

pub(crate) fn source(name: &str) -> Result<Arc<Source>, Diagnostic> {
    match text(name) {
        Some(text) => Ok(Arc::new(Source { name: format!("configs/{name}.toml"), text: text.into() })),
        None => Err(Diagnostic::new(format!("there is no built-in configuration `{name}`"))
            .label("expected a name from `trinity config list`, or a path that ends in .toml")
            .help(meant(name))),
    }
}

/// What an unknown name may stand for: the file of that name in some folder, a
/// misspelt name, or a misspelt name without its folder.
fn meant(name: &str) -> Option<String> {
    let plain = |known: &'static str| known.rsplit('/').next().unwrap_or(known);
    let in_folders: Vec<&str> = names().filter(|known| plain(known) == name).collect();
    if !in_folders.is_empty() {
        return Some(format!("did you mean `{}`?", in_folders.join("` or `")));
    }
    if let Some(help) = did_you_mean(name, &names().collect::<Vec<_>>()) {
        return Some(help);
    }
    let near = nearest(name, &names().map(plain).collect::<Vec<_>>())?;
    names().find(|known| plain(known) == near).map(|known| format!("did you mean `{known}`?"))
}
