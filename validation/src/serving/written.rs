//! Fitted constants as the files of `configs/engines` have them.

use super::fit::Fitted;
use std::fmt::Write;
use trinity_study::config::{ClassName, GenerationName, PolicyName};

/// The file of an engine, its constants and the rows that identify them.
pub fn written(fitted: &Fitted) -> String {
    let (file, rows) = (&fitted.file, fitted.points.len());
    let split = fitted.split_rows();
    let c = &file.constants;
    let title = match fitted.engine.as_str() {
        "vllm" => "vLLM",
        "trtllm" => "TensorRT-LLM",
        "sglang" => "SGLang",
        other => other,
    };
    let mut text = format!(
        "# {title} as it was measured: what it adds to its kernels\n\
         # Written by `trinity validate --serving --fit-engines`, which fits it on {rows} rows of measured services (CREDITS.md).\n\
         # Factors are over measured kernels (calibrations/kernels) and expected to be 1; no constant belongs to one row.\n\n\
         source = \"fitted on rows of measured services, as the first lines here say\"\n\n[constants]\n\
         source = \"fitted on {rows} rows, those of split workers on {split}; policy, budget, batch and memory are the engine's defaults\"\n",
    );
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("policy", format!("\"{}\"", policy(c.policy)));
    line("token-budget", c.token_budget.to_string());
    line("max-batch", c.max_batch.to_string());
    for (key, value) in [
        ("reserved-answer", c.reserved_answer),
        ("memory-share", c.memory_share),
        ("workspace-gb", c.workspace_gb),
        ("kv-bytes-hopper", c.kv_bytes_hopper),
        ("kv-bytes-blackwell", c.kv_bytes_blackwell),
        ("decode", c.decode),
        ("prefill", c.prefill),
        ("experts-decode", c.experts_decode),
        ("experts-prefill", c.experts_prefill),
        ("dealt-experts", c.dealt_experts),
        ("collective", c.collective),
        ("attention-decode", c.attention_decode),
        ("attention-prefill", c.attention_prefill),
        ("small-kernel-us", c.small_kernel_us),
        ("step-ms", c.step_ms),
        ("sequence-us", c.sequence_us),
        ("prompt-step-ms", c.prompt_step_ms),
        ("prompt-layer-us", c.prompt_layer_us),
        ("first-token-ms", c.first_token_ms),
        ("first-token-steps", c.first_token_steps),
        ("stream-us", c.stream_us),
        ("draft-acceptance", c.draft_acceptance),
        ("handoff-ms", c.handoff_ms),
        ("split-prefill", c.split_prefill),
        ("split-decode", c.split_decode),
    ] {
        line(key, number(value));
    }
    if c.split_batch_power_of_two {
        line("split-batch-power-of-two", "true".into());
    }
    let _ = write!(
        text,
        "\n# Mean absolute errors on models that the fit was made without\n[unseen]\nttft = {}\ntpot = {}\n",
        number(file.unseen.ttft),
        number(file.unseen.tpot)
    );
    families(&mut text, fitted);
    text
}

fn families(text: &mut String, fitted: &Fitted) {
    for family in &fitted.file.families {
        let versions: Vec<String> = family.versions.iter().map(|own| format!("\"{own}\"")).collect();
        let _ = write!(
            text,
            "\n[[families]]\nversions = [{}]\nrows = {}\ndecode = {}\nprefill = {}\n",
            versions.join(", "),
            family.rows,
            number(family.decode),
            number(family.prefill)
        );
        if let Some(own) = family.policy {
            let _ = writeln!(text, "policy = \"{}\"", policy(own));
        }
        if let Some(budget) = family.token_budget {
            let _ = writeln!(text, "token-budget = {budget}");
        }
        if family.first_token.is_empty() {
            continue;
        }
        *text += "first-token = [\n";
        for first in &family.first_token {
            let _ = writeln!(
                text,
                "    {{ generation = \"{}\", class = \"{}\", ms = {}, steps = {}, rows = {} }},",
                generation(first.generation),
                class(first.class),
                number(first.ms),
                number(first.steps),
                first.rows
            );
        }
        *text += "]\n";
    }
}

/// Three digits behind the point are more than rows can tell.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".into() } else { text.to_owned() }
}

fn policy(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Mixed => "mixed",
        PolicyName::PromptsFirst => "prompts-first",
    }
}

fn generation(generation: GenerationName) -> &'static str {
    match generation {
        GenerationName::Hopper => "hopper",
        GenerationName::Blackwell => "blackwell",
    }
}

fn class(class: ClassName) -> &'static str {
    match class {
        ClassName::Dense => "dense",
        ClassName::Experts => "experts",
        ClassName::Latent => "latent",
    }
}
