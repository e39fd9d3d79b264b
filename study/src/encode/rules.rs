//! What a user says of single tensors: which stay exact, which get bits or a
//! codec of their own.
//!
//! Patterns are over whole names, `*` for any run of characters and `?` for one;
//! a pattern with neither matches every name that contains it.

use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;
use trinity_config::{Complaint, Document, nearest};

/// Rules for single tensors; of several that match one, the last holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// These stay exact.
    pub exclude: Vec<String>,
    /// These get so many bits per value, beside the budget of the others.
    pub bits_for: Vec<(String, f64)>,
    /// These go through another codec.
    pub codec_for: Vec<(String, String)>,
}

/// Rules as a file has them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RulesFile {
    exclude: Vec<String>,
    bits_for: BTreeMap<String, f64>,
    codec_for: BTreeMap<String, String>,
}

/// Whether a name matches a pattern.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return name.contains(pattern);
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // Where to go on when a star has to take one character more.
    let (mut at, mut from, mut retry) = (0, 0, None);
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, from));
                at += 1;
            }
            Some(&own) if own == '?' || own == name[from] => (at, from) = (at + 1, from + 1),
            _ => match retry {
                Some((after, taken)) => {
                    (at, from) = (after, taken + 1);
                    retry = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&own| own == '*')
}

impl Rules {
    /// Rules out of a TOML file. Fails where it cannot be read, or a value in
    /// it makes no sense.
    pub fn read(path: &str) -> Result<Self, Error> {
        let document = Document::load(path)?;
        let file: RulesFile = document.read()?;
        if let Some(bits) = file.bits_for.values().find(|bits| !is_rate(**bits)) {
            let complaint = Complaint::new(format_args!("{bits} is no number of bits per value"))
                .expected("a number above zero, up to 32");
            return Err(document.complain("bits-for", &complaint).into());
        }
        Ok(Self {
            exclude: file.exclude,
            bits_for: file.bits_for.into_iter().collect(),
            codec_for: file.codec_for.into_iter().collect(),
        })
    }

    /// These rules, and others that hold where both match.
    #[must_use]
    pub fn and(mut self, over: Self) -> Self {
        self.exclude.extend(over.exclude);
        self.bits_for.extend(over.bits_for);
        self.codec_for.extend(over.codec_for);
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The pattern that keeps a tensor exact.
    pub fn excluding(&self, name: &str) -> Option<&str> {
        self.exclude.iter().rev().find(|pattern| matches(pattern, name)).map(String::as_str)
    }

    /// The bits that a tensor has of its own.
    pub fn bits(&self, name: &str) -> Option<f64> {
        self.bits_for.iter().rev().find(|(pattern, _)| matches(pattern, name)).map(|&(_, bits)| bits)
    }

    /// The codec that a tensor has of its own.
    pub fn codec(&self, name: &str) -> Option<&str> {
        self.codec_for.iter().rev().find(|(pattern, _)| matches(pattern, name)).map(|(_, own)| own.as_str())
    }

    /// Every pattern matches something, and every rate is one. Fails with the
    /// first that does not, and the name that is nearest.
    pub fn check(&self, names: &[&str]) -> Result<(), Error> {
        if let Some((pattern, bits)) = self.bits_for.iter().find(|(_, bits)| !is_rate(*bits)) {
            let message = format!("{pattern}={bits}: {bits} is no number of bits per value");
            return Err(Error::input(message, "expected a number above zero, up to 32"));
        }
        let patterns = self
            .exclude
            .iter()
            .map(|pattern| ("exclude", pattern))
            .chain(self.bits_for.iter().map(|(pattern, _)| ("bits-for", pattern)))
            .chain(self.codec_for.iter().map(|(pattern, _)| ("codec-for", pattern)));
        for (rule, pattern) in patterns {
            if names.iter().all(|name| !matches(pattern, name)) {
                let near = nearest(pattern, names).or_else(|| names.first().map(|&name| name.to_owned()));
                let help = near.map_or(String::new(), |name| format!("names are such as `{name}`"));
                return Err(Error::input(format_args!("{rule} `{pattern}` matches no tensor"), help));
            }
        }
        Ok(())
    }
}

fn is_rate(bits: f64) -> bool {
    bits > 0.0 && bits <= 32.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_would_and_bare_words_anywhere() {
        for (pattern, name, expected) in [
            ("lm_head", "lm_head.weight", true),
            ("*.mlp.*", "layers.0.mlp.up.weight", true),
            ("*.mlp", "layers.0.mlp.up.weight", false),
            ("layers.?.q*weight", "layers.3.q_proj.weight", true),
            ("layers.?.q*weight", "layers.13.q_proj.weight", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_named_with_the_nearest_name() {
        let rules = Rules { exclude: vec!["lm_haed.weight".into()], ..Rules::default() };
        let error = rules.check(&["lm_head.weight", "norm.weight"]).unwrap_err();
        assert_eq!(error.to_string(), "exclude `lm_haed.weight` matches no tensor");
        assert_eq!(error.help(), Some("names are such as `lm_head.weight`"));
        let rules = Rules { bits_for: vec![("norm".into(), -1.0)], ..Rules::default() };
        assert!(rules.check(&["norm.weight"]).is_err());
    }

    #[test]
    fn the_last_rule_that_matches_holds() {
        let bits_for = vec![("*".into(), 2.0), ("q_proj".into(), 4.0)];
        let rules = Rules { bits_for, ..Rules::default() };
        assert_eq!((rules.bits("q_proj.weight"), rules.bits("k_proj.weight")), (Some(4.0), Some(2.0)));
    }
}
