//! Every mistake is reported where it was made, with what was expected.

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{Area, At, Checked, DataRate, Diagnostic, Document, Fraction, Kind};

#[allow(dead_code)] // Only whether it reads matters here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Study {
    #[serde(default)]
    nics_per_gpu: u32,
    #[serde(default)]
    nic: Option<Nic>,
    #[serde(default)]
    overlap: Fraction,
    #[serde(default)]
    topology: Topology,
    #[serde(default)]
    heads: u32,
    #[serde(default)]
    tp: u32,
}

#[allow(dead_code)] // Only whether it reads matters here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nic {
    bandwidth: DataRate,
    area: Area,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Topology {
    #[default]
    Ring,
    Switch,
    FullyConnected,
}

impl Checked for Study {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        if self.tp == 0 || self.heads.is_multiple_of(self.tp) {
            return Ok(());
        }
        let what = format_args!("{} heads do not divide by {}", self.heads, self.tp);
        at.refuse("tp", what, "a divisor of `heads`")
    }
}

const STUDY: Kind = Kind::of::<Study>("studies", "a study");

/// The one-line form of what is wrong with `text`.
fn complaint(text: &str) -> String {
    match Document::parse("study.toml", text).and_then(|document| STUDY.check(&document)) {
        Ok(()) => "nothing is wrong".into(),
        Err(diagnostic) => diagnostic.to_string(),
    }
}

#[test]
fn mistakes_are_reported_where_they_were_made() {
    for (text, expected) in [
        (
            "heads = 1\nnic_per_gpu = 2\n",
            "study.toml:2:1: unknown key `nic_per_gpu`: expected one of: nics-per-gpu, nic, overlap, topology, heads, tp; did you mean `nics-per-gpu`?",
        ),
        (
            "nic = { bandwidth = \"100 Gbit/s\", area = \"5 mm\" }",
            "study.toml:1:42: `5 mm` is a length, not an area: expected an area such as \"0.97 mm2\"",
        ),
        (
            "[nic]\nbandwidth = \"100 Gbti/s\"\narea = \"5 mm2\"",
            "study.toml:2:13: `Gbti` is no unit: expected a data rate such as \"100 Gbit/s\"; did you mean `Gbit`?",
        ),
        (
            "[nic]\nbandwidth = 100\narea = \"5 mm2\"",
            "study.toml:2:13: integer `100` is of the wrong type: expected a data rate such as \"100 Gbit/s\"",
        ),
        (
            "[nic]\nbandwidth = \"1 bit/s\"\narea = \"-5 mm2\"",
            "study.toml:3:8: `-5 mm2` must be finite and not negative: expected an area such as \"0.97 mm2\"",
        ),
        (
            "heads = 2\n[nic]\nbandwidth = \"1 bit/s\"",
            "study.toml:2:1: the key `area` is missing: expected `area` in this table",
        ),
        (
            "nics-per-gpu = -1",
            "study.toml:1:16: integer `-1` cannot stand here: expected a whole number from 0 to 4294967295",
        ),
        (
            "overlap = \"120 %\"",
            "study.toml:1:11: `120 %` is out of range: expected a fraction from 0 to 1 such as 0.8 or \"80 %\"",
        ),
        (
            "topology = \"rings\"",
            "study.toml:1:12: unknown value `rings`: expected one of: ring, switch, fully-connected; did you mean `ring`?",
        ),
        (
            "[nic]\nbandwidth = \"1 bit/s\"\narea = { value = \"5 mm2\", sorce = \"paper\" }",
            "study.toml:3:27: unknown key `sorce`: expected one of: value, source, note; did you mean `source`?",
        ),
        ("heads = 32\ntp = 5", "study.toml:2:6: 32 heads do not divide by 5: expected a divisor of `heads`"),
        (
            "extends = \"gpus/none-such\"",
            "study.toml:1:11: there is no built-in configuration `gpus/none-such`: expected a name from `trinity config list`, or a path that ends in .toml",
        ),
        (
            "heads = 99999999999999999999",
            "study.toml:1:9: 99999999999999999999 does not fit 64 bits: expected a smaller integer",
        ),
        ("heads = 8\ntp = { value = 2, source = \"a guess\" }", "nothing is wrong"),
    ] {
        assert_eq!(complaint(text), expected, "for\n{text}");
    }
}

#[test]
fn every_mistake_of_a_file_is_reported_at_once() {
    let text = "\
nics-per-gpu = -1
colour = \"red\"
overlap = \"80 degrees\"
topology = \"rings\"
[nic]
bandwidht = \"1 bit/s\"
";
    let found = complaint(text);
    let lines: Vec<&str> = found.lines().collect();
    for expected in [
        "study.toml:1:16: integer `-1` cannot stand here",
        "study.toml:2:1: unknown key `colour`",
        "study.toml:3:11: `degrees` is no unit",
        "study.toml:4:12: unknown value `rings`",
        "study.toml:6:1: unknown key `bandwidht`",
        "study.toml:5:1: the key `bandwidth` is missing",
        "study.toml:5:1: the key `area` is missing",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected} is missing:\n{found}");
    }
    assert_eq!(lines.len(), 7, "{found}");
}

#[test]
fn a_mistake_is_not_reported_as_a_missing_key_too() {
    // Its value is wrong, which does not make the key missing.
    let found = complaint("[nic]\nbandwidth = 100\narea = \"5 mm2\"\n");
    assert_eq!(found.lines().count(), 1, "{found}");
    let found = complaint("[nic]\nbandwidth = 100\n");
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(found.contains("`area` is missing") && !found.contains("`bandwidth` is missing"), "{found}");
}

#[test]
fn every_mistake_of_the_syntax_is_reported_too() {
    let found = complaint("heads = = 2\ntp = 4\ntopology = ring\n");
    assert!(found.contains("study.toml:1:") && found.contains("study.toml:3:"), "{found}");
}

#[test]
fn a_name_without_its_folder_is_found() {
    for (name, meant) in [
        ("llama-7b", "did you mean `sweeps/llama-7b`?"),
        ("lama-7b", "did you mean `sweeps/llama-7b`?"),
        ("sweeps/lama-7b", "did you mean `sweeps/llama-7b`?"),
        ("h100", "did you mean `calibrations/kernels/h100` or `gpus/h100`?"),
    ] {
        let diagnostic = Document::load(name).unwrap_err();
        assert_eq!(diagnostic.help.as_deref(), Some(meant), "{name}");
    }
}

#[test]
fn a_text_that_is_not_toml_is_reported_at_the_first_mistake() {
    assert!(
        complaint("heads = = 2").starts_with("study.toml:1:9: this is not TOML"),
        "{}",
        complaint("heads = = 2")
    );
}

#[test]
fn a_chain_that_leads_back_to_itself_ends_in_a_diagnostic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loop.toml");
    std::fs::write(&path, "extends = \"loop.toml\"\n").unwrap();
    let diagnostic = Document::load(path.to_str().unwrap()).unwrap_err();
    assert_eq!(diagnostic.message, "this `extends` leads back to itself");
}

#[test]
fn a_bad_assignment_is_reported_in_the_assignment() {
    let mut document = Document::parse("study.toml", "heads = 1").unwrap();
    assert_eq!(
        document.set("heads").unwrap_err().to_string(),
        "--set:1:1: an assignment needs a `=`: expected path.to.key=value"
    );
    document.set("nic.bandwidth=5 parsecs").unwrap();
    document.set("nic.area=1 mm2").unwrap();
    let diagnostic = STUDY.check(&document).unwrap_err();
    assert!(diagnostic.to_string().starts_with("--set:1:15: `parsecs` is no unit"), "{diagnostic}");
}

#[test]
fn the_schema_allows_what_the_reader_allows() {
    let schema = STUDY.schema();
    let members = &schema["properties"];
    assert!(members["extends"].is_object() && members["nics-per-gpu"].is_object());
    assert!(schema.get("required").is_none());
    assert_eq!(schema["additionalProperties"], false);
    // Whatever is a value may have its source beside it, and no table may.
    let cited = |member: &str| members[member]["anyOf"][1]["properties"].get("source").is_some();
    assert_eq!(["heads", "topology", "overlap", "nic"].map(cited), [true, true, true, false], "{members}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = complaint(&text);
    }

    #[test]
    fn no_assignment_panics(text in "[a-z.=\\[\\]{}\"0-9 ]{0,40}") {
        if let Ok(mut document) = Document::parse("study.toml", "heads = 1\n[nic]\nbandwidth = \"1 bit/s\"") {
            let _ = document.set(&text);
            let _ = STUDY.check(&document);
        }
    }
}
