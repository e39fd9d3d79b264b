//! PyTorch, asked through the interpreter at hand: what its operations cost
//! host and device. A machine without it is told so and keeps the rest.

use super::points::{AttentionPoint, DispatchPoint, Framework, OperationPoint};
use crate::Error;
use serde::Deserialize;
use std::io::Write;
use std::process::{Command, Stdio};

const PROBE: &str = include_str!("probe.py");

/// What the probe prints.
#[derive(Deserialize)]
struct Printed {
    version: String,
    dispatch: Vec<DispatchPoint>,
    floors: Vec<OperationPoint>,
    operations: Vec<OperationPoint>,
    attention: Vec<AttentionPoint>,
}

/// The framework, and its fused attention.
type Probe = (Framework, Vec<AttentionPoint>);

pub(super) fn run(python: &str, quick: bool) -> Result<Probe, Error> {
    let failed = |reason: String| Error::Framework { python: python.into(), reason };
    let mut child = Command::new(python)
        .args(["-"].iter().chain(quick.then_some(&"--quick")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its input fails below, with its own words.
        let _ = input.write_all(PROBE.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        return Err(failed(last.trim().to_owned()));
    }
    parse(&String::from_utf8_lossy(&output.stdout)).map_err(failed)
}

fn parse(text: &str) -> Result<Probe, String> {
    let printed: Printed = serde_json::from_str(text).map_err(|e| format!("unexpected answer: {e}"))?;
    let framework = Framework {
        name: "PyTorch".into(),
        version: printed.version,
        dispatch: printed.dispatch,
        floors: printed.floors,
        operations: printed.operations,
    };
    Ok((framework, printed.attention))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ANSWER: &str = r#"{"version": "2.11.0", "dispatch": [{"operation": "add", "pass": "forward", "seconds": 5e-6}],
        "operations": [], "floors": [], "skipped": [], "attention_skipped_late": false,
        "attention": [{"kernel": "framework", "batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128,
                       "queries": 1, "keys": 512, "forward_s": 1e-5, "backward_s": null}]}"#;

    #[test]
    fn an_answer_of_the_probe_is_read() {
        let (framework, attention) = parse(ANSWER).unwrap();
        assert_eq!(framework.dispatch[0].seconds, 5e-6);
        assert_eq!(attention[0].kv_bytes(), 4.0 * 8.0 * 512.0 * 128.0);
    }

    #[test]
    fn a_program_that_is_no_interpreter_is_a_sentence() {
        let error = run("/nonexistent/python", true).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/python"), "{error}");
        // It answers with the probe itself.
        let error = run("cat", false).unwrap_err().to_string();
        assert!(error.contains("unexpected answer"), "{error}");
    }
}
