//! What coding a KV cache costs answers, in files: recorded runs of
//! `trinity eval --kv`, with the model and the command of each.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Complaint, Diagnostic};

/// Recorded losses.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossesFile {
    pub measured: Vec<LossFile>,
}

/// One model's answers with its cache coded at several rates.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossFile {
    /// Codecs that write what was measured.
    pub codecs: Vec<String>,
    pub model: String,
    pub million_parameters: f64,
    pub uncoded_bits_per_byte: f64,
    /// Ascending.
    pub rates: Vec<LossRateFile>,
}

/// Answers at one rate.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossRateFile {
    /// Bits of a cached value.
    pub bits: f64,
    /// Bits per byte of text that the coded cache costs, and half of the 95 % interval.
    pub lost: f64,
    pub lost_half_width: f64,
    /// Divergence from the uncoded model.
    pub kl_nats: f64,
    pub kl_half_width: f64,
    /// Share of tokens whose likeliest successor stays.
    pub same_token: f64,
}

impl Checked for LossesFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        for (number, own) in self.measured.iter().enumerate() {
            let ascends = own.rates.windows(2).all(|pair| pair[0].bits < pair[1].bits);
            if own.rates.is_empty() || !ascends {
                let what = Complaint::new("a model needs rates, in ascending order");
                return Err(at.complain(format_args!("measured[{number}].rates"), &what));
            }
        }
        Ok(())
    }
}
