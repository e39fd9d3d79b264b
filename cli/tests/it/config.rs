//! Configuration through the command: what is shown, and how mistakes read.

use crate::support::{Desk, trinity};

/// `config check` of a file named `mine.toml` with this text, run in its folder.
fn check(text: &str, kind: &str) -> String {
    let desk = Desk::new();
    desk.write("mine.toml", text);
    desk.refused(format!("config check mine.toml --kind {kind}"))
}

#[test]
fn a_misspelt_key_gets_its_line_a_caret_and_the_nearest_spelling() {
    let text = "# mine\nextends = \"nics/cx5\"\nbandwith = \"200 Gbit/s\"\n";
    assert_eq!(
        check(text, "nics"),
        "\
error: unknown key `bandwith`
 --> mine.toml:3:1
  |
3 | bandwith = \"200 Gbit/s\"
  | ^^^^^^^^ expected one of: bandwidth, latency, area, idle-power, active-power, energy
  |
help: did you mean `bandwidth`?
"
    );
}

#[test]
fn a_wrong_unit_says_what_it_is() {
    let text = "extends = \"nics/cx5\"\narea = { value = \"12 mm\", source = \"a ruler\" }\n";
    assert_eq!(
        check(text, "nics"),
        "\
error: `12 mm` is a length, not an area
 --> mine.toml:2:18
  |
2 | area = { value = \"12 mm\", source = \"a ruler\" }
  |                  ^^^^^^^ expected an area such as \"0.97 mm2\"
"
    );
}

#[test]
fn a_misspelt_unit_gets_the_nearest_one() {
    let text = "extends = \"nics/cx5\"\nbandwidth = \"200 Gbti/s\"\n";
    assert_eq!(
        check(text, "nics"),
        "\
error: `Gbti` is no unit
 --> mine.toml:2:13
  |
2 | bandwidth = \"200 Gbti/s\"
  |             ^^^^^^^^^^^^ expected a data rate such as \"100 Gbit/s\"
  |
help: did you mean `Gbit`?
"
    );
}

#[test]
fn a_negative_area_is_nonsense() {
    let text = "extends = \"nics/cx5\"\narea = \"-5 mm2\"\n";
    let stderr = check(text, "nics");
    assert!(
        stderr.starts_with("error: `-5 mm2` must be finite and not negative\n --> mine.toml:2:8"),
        "{stderr}"
    );
}

#[test]
fn a_text_that_is_not_toml_is_shown_where_it_stops_being() {
    let stderr = check("bandwidth = = 3\n", "nics");
    assert!(stderr.starts_with("error: this is not TOML\n --> mine.toml:1:13\n"), "{stderr}");
}

#[test]
fn a_mistake_in_an_override_is_shown_in_the_override() {
    assert_eq!(
        trinity(["config", "check", "nics/cx5", "--set", "bandwidth=fast"]).refused(),
        "\
error: `fast` does not start with a number
 --> --set:1:11
  |
1 | bandwidth=fast
  |           ^^^^ expected a data rate such as \"100 Gbit/s\"
"
    );
}

#[test]
fn a_configuration_that_is_not_there_is_bad_input() {
    let stderr = trinity(["config", "show", "gpus/h10"]).refused();
    assert!(stderr.contains("help: did you mean `gpus/h100`?"), "{stderr}");
    let stderr = trinity(["config", "show", "no-such-file.toml"]).refused();
    assert!(stderr.starts_with("error: cannot read `no-such-file.toml`: "), "{stderr}");
    trinity(["config", "list", "gpu"]).refused();
}

#[test]
fn show_tells_where_each_value_came_from() {
    let desk = Desk::new();
    desk.write("mine.toml", "extends = \"nics/cx5\"\narea = \"100 mm2\"\n");
    let rows = desk.json("--json config show mine.toml --set 'latency=2 us'");
    let row = |path: &str| rows.as_array().unwrap().iter().find(|row| row["path"] == path).unwrap().clone();
    assert_eq!((row("area")["file"].as_str(), row("area")["line"].as_u64()), (Some("mine.toml"), Some(2)));
    assert_eq!(row("latency")["file"], "--set");
    assert_eq!(row("bandwidth")["file"], "configs/nics/cx5.toml");
    assert!(row("bandwidth")["source"].as_str().is_some_and(|source| !source.is_empty()));
}

#[test]
fn everything_built_in_checks_and_cites_its_numbers() {
    let listed = trinity(["--json", "config", "list"]).json();
    let listed = listed.as_array().unwrap();
    assert!(listed.len() > 20, "{listed:?}");
    trinity(["config", "check"]).ok();
    // Facts about things that exist; clusters, sweeps and profiles are choices.
    let facts = |row: &&serde_json::Value| {
        ["gpus", "nics", "codecs", "llms"].into_iter().any(|kind| row["kind"] == kind)
    };
    for name in listed.iter().filter(facts).map(|row| row["name"].as_str().unwrap()) {
        let rows = trinity(["--json", "config", "show", name]).json();
        for row in rows.as_array().unwrap() {
            let starts_with_digit = row["value"]
                .as_str()
                .unwrap()
                .trim_start_matches('"')
                .starts_with(|c: char| c.is_ascii_digit());
            assert!(!starts_with_digit || row["source"].is_string(), "{name}: {} has no source", row["path"]);
        }
    }
}

#[test]
fn a_schema_describes_each_kind() {
    let schema = trinity(["config", "schema", "nics"]).json();
    assert!(schema["properties"]["bandwidth"]["description"].as_str().unwrap().contains("100 Gbit/s"));
    let all = trinity(["config", "schema"]).json();
    assert_eq!(all["nics"], schema);
}

#[test]
fn a_file_is_known_by_its_keys_where_nothing_else_tells() {
    let desk = Desk::new();
    desk.write("card.toml", "bandwith = \"1 Gbit/s\"\nlatency = \"1 us\"\nidle-power = \"9 W\"\n");
    let stderr = desk.refused("config check card.toml");
    assert!(stderr.contains("card.toml:1:1") && stderr.contains("did you mean `bandwidth`?"), "{stderr}");
    desk.write("card.toml", "colour = \"green\"\n");
    assert!(desk.refused("config check card.toml").contains("--kind"));
}
