//! `cargo xtask numbers`: every number in the documents, with the command that prints it.
//!
//! A paragraph, list item or table that states numbers names a command in it, or its
//! section does. What names none stands in `numbers/allowed.txt` with its reason.
//! `--run` also runs what is cheap and looks for each number in what it prints.
#![allow(clippy::print_stdout)]

use crate::{
    files,
    tools::output,
    workspace::{root, target},
};
use std::{path::PathBuf, process::Command};

/// Paragraphs that name no command, and why: file, a colon, how the paragraph begins, a tab, the reason.
const ALLOWED: &str = include_str!("numbers/allowed.txt");

/// What is run: a document, what the paragraph or table has in it, arguments of the command. Numbers of the paragraph
/// have to be in what it prints, there with as many digits or more.
const CHEAP: [(&str, &str, &str); 11] = [
    ("README.md", "> Within", "explore --out OUT --quiet"),
    ("docs/clusters.md", "Adapters, switches", "config show nics/cx5-llm265"),
    ("docs/other_models.md", "| minilm", "figure 7"),
    ("docs/other_models.md", "| whisper", "figure 7"),
    ("docs/other_models.md", "| mobile-sam", "figure 7"),
    ("docs/other_models.md", "- On Whisper", "figure 7"),
    ("docs/language_models.md", "| `h265` | 2.101", "figure 5"),
    ("docs/language_models.md", "| `h265` | 2.09 ±", "figure 5"),
    ("docs/training.md", "| sent |", "figure 10"),
    ("docs/training.md", "| bits per value |", "figure 10"),
    ("docs/training.md", "- **Pipeline, 4 stages**", "figure 9"),
];

/// A piece of a document that states numbers.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    file: String,
    line: usize,
    text: String,
    numbers: Vec<String>,
    /// Commands named in it, or else in its section.
    commands: Vec<String>,
}

pub fn run(options: &[&str]) -> Result<(), String> {
    let runs = match options {
        [] => false,
        ["--run"] => true,
        _ => return Err("cargo xtask numbers [--run]".into()),
    };
    for piece in pieces()? {
        let command = piece.commands.first().map_or("-", String::as_str);
        println!("{}:{}\t{}\t{}", piece.file, piece.line, piece.numbers.join(" "), command);
    }
    hold(runs)
}

/// That each number has a command or a reason; what is cheap is run where `runs` says so.
pub fn hold(runs: bool) -> Result<(), String> {
    let pieces = pieces()?;
    check(&pieces)?;
    if runs { printed(&pieces) } else { Ok(()) }
}

fn documents() -> Result<Vec<String>, String> {
    let found = files::within(&root().join("docs"))?;
    let names = found.iter().filter_map(|path| path.file_name()?.to_str());
    // This one is printed by a command as a whole, and a test holds it.
    let own = names.filter(|name| name.ends_with(".md") && *name != "figures.md");
    let own = own.map(|name| format!("docs/{name}"));
    Ok(std::iter::once("README.md".into()).chain(own).chain(["GLOSSARY.md".into()]).collect())
}

fn pieces() -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    for file in documents()? {
        found.extend(of_document(&file, &files::text(&root().join(&file))?));
    }
    Ok(found)
}

fn of_document(file: &str, text: &str) -> Vec<Piece> {
    let (mut found, mut section): (Vec<Piece>, usize) = (Vec::new(), 0);
    let mut in_section: Vec<String> = Vec::new();
    let mut paragraph: Vec<(usize, &str)> = Vec::new();
    let mut fenced = false;
    let finish =
        |paragraph: &mut Vec<(usize, &str)>, in_section: &mut Vec<String>, found: &mut Vec<Piece>| {
            let Some(&(line, _)) = paragraph.first() else { return };
            let text = paragraph.iter().map(|(_, text)| *text).collect::<Vec<_>>().join(" ");
            paragraph.clear();
            let commands = named(&text);
            in_section.extend(commands.iter().cloned());
            let numbers = numbers(&text);
            if !numbers.is_empty() {
                found.push(Piece { file: file.into(), line, text, numbers, commands });
            }
        };
    let close = |found: &mut Vec<Piece>, section: usize, in_section: &[String]| {
        for piece in &mut found[section..] {
            if piece.commands.is_empty() {
                piece.commands = in_section.to_vec();
            }
        }
    };
    for (at, line) in text.lines().enumerate() {
        let plain = line.trim();
        if plain.starts_with("```") {
            finish(&mut paragraph, &mut in_section, &mut found);
            fenced = !fenced;
        } else if fenced {
            in_section.extend(command(plain));
        } else if plain.is_empty() {
            finish(&mut paragraph, &mut in_section, &mut found);
        } else if plain.starts_with('#') {
            finish(&mut paragraph, &mut in_section, &mut found);
            close(&mut found, section, &in_section);
            (section, in_section) = (found.len(), Vec::new());
        } else {
            if plain.starts_with("- ") {
                finish(&mut paragraph, &mut in_section, &mut found);
            }
            paragraph.push((at + 1, plain));
        }
    }
    finish(&mut paragraph, &mut in_section, &mut found);
    close(&mut found, section, &in_section);
    found
}

/// The commands in backticks.
fn named(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).filter_map(command).collect()
}

/// What can be run and prints, or a table that is kept and says how it was made.
fn command(text: &str) -> Option<String> {
    let starts = [
        "trinity ", "cargo ", "python ", "sweep ", "compare ", "eval ", "encode ", "measure ", "validate",
        "figure",
    ];
    let kept = [".csv", ".json", ".ipynb", ".toml"];
    let is_command = starts.iter().any(|start| text.starts_with(start)) || text.starts_with("--");
    (is_command || kept.iter().any(|end| text.ends_with(end))).then(|| text.to_owned())
}

/// Numbers with a fraction or a thousands separator, outside code and links: what a measurement looks like.
fn numbers(text: &str) -> Vec<String> {
    let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    // What follows `](` up to the bracket is an address.
    let addressed = |(at, part): (usize, &str)| match part.split_once(')') {
        Some((_, rest)) if at > 0 => rest.to_owned(),
        _ => part.to_owned(),
    };
    let outside = outside.split("](").enumerate().map(addressed).collect::<Vec<_>>().join(" ");
    let words = outside.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    words
        .map(|word| word.trim_matches(['.', ',']))
        .filter(|word| {
            let fraction = word.split_once('.').is_some_and(|(whole, part)| {
                !whole.is_empty()
                    && !part.is_empty()
                    && !part.contains('.')
                    && whole.chars().all(|c| c.is_ascii_digit())
            });
            let thousands =
                word.split_once(',').is_some_and(|(whole, part)| !whole.is_empty() && part.len() == 3);
            fraction || thousands
        })
        .map(str::to_owned)
        .collect()
}

fn check(pieces: &[Piece]) -> Result<(), String> {
    let allowed = |piece: &Piece| {
        ALLOWED.lines().filter(|line| !line.starts_with('#')).any(|line| {
            line.split_once('\t')
                .and_then(|(place, _)| place.split_once(": "))
                .is_some_and(|(file, begins)| piece.file == file && piece.text.starts_with(begins))
        })
    };
    let without: Vec<String> = pieces
        .iter()
        .filter(|piece| piece.commands.is_empty() && !allowed(piece))
        .map(|piece| {
            let begins: String = piece.text.chars().take(60).collect();
            format!("{}:{}: {} ({begins}…)", piece.file, piece.line, piece.numbers.join(" "))
        })
        .collect();
    if without.is_empty() {
        return Ok(());
    }
    Err(format!(
        "numbers without a command that prints them:\n{}\nname the command beside them, or the reason in \
         xtask/src/numbers/allowed.txt",
        without.join("\n")
    ))
}

/// Runs what is cheap and looks for the numbers.
fn printed(pieces: &[Piece]) -> Result<(), String> {
    for (file, key, arguments) in CHEAP {
        let piece = pieces.iter().find(|piece| piece.file == file && piece.text.contains(key));
        let piece = piece.ok_or_else(|| format!("{file} has no paragraph with “{key}”"))?;
        let out = target().join("xtask/numbers");
        let out_text = out.display().to_string();
        let program = program().ok_or("no command `trinity` is built (`cargo build --release`)")?;
        let words: Vec<&str> =
            arguments.split(' ').map(|word| if word == "OUT" { out_text.as_str() } else { word }).collect();
        let done = output(Command::new(&program).args(words).arg("--force"))?;
        let said = String::from_utf8_lossy(&done.stdout);
        let missing: Vec<&String> = piece.numbers.iter().filter(|number| !is_in(number, &said)).collect();
        if !missing.is_empty() {
            return Err(format!("{file}:{}: `trinity {arguments}` does not print {missing:?}", piece.line));
        }
    }
    Ok(())
}

/// Whether a number is printed, as it stands or with more digits that round to it.
fn is_in(number: &str, said: &str) -> bool {
    let plain = number.replace(',', "");
    let digits = plain.split_once('.').map_or(0, |(_, part)| part.len());
    let words = said.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    let mut values =
        words.filter_map(|word| word.trim_matches(['.', ',']).replace(',', "").parse::<f64>().ok());
    values.any(|value| format!("{value:.digits$}") == plain)
}

fn program() -> Option<PathBuf> {
    let built = ["release", "once", "debug"].map(|profile| target().join(profile).join("trinity"));
    built.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_measurements_and_not_code_or_links() {
        assert_eq!(
            numbers(
                "takes (all told) 1.34 times, 61,700 tokens; `--bits 2.5`, [x](v1.2.md) in 2026, 1.2.3 and 4"
            ),
            ["1.34", "61,700"]
        );
    }

    #[test]
    fn a_number_is_printed_as_it_stands_or_with_more_digits() {
        let said = "loses +8.73 ± 0.40 % of 61700, in 0.507 pJ";
        for number in ["8.7", "8.73", "61,700", "0.40", "0.4", "0.51"] {
            assert!(is_in(number, said), "{number}");
        }
        for number in ["8.8", "8.74", "6,170", "0.52", "1.0"] {
            assert!(!is_in(number, said), "{number}");
        }
    }

    #[test]
    fn a_number_goes_with_the_command_of_its_paragraph_or_its_section() {
        let text = "# A\n\nFirst 1.5.\n\n```\ntrinity compare x\n```\n\nThen 2.5 (`trinity eval`).\n\n# B\n\nLast 3.5.\n";
        let found = of_document("x.md", text);
        let commands: Vec<Option<&str>> =
            found.iter().map(|piece| piece.commands.first().map(String::as_str)).collect();
        assert_eq!(commands, [Some("trinity compare x"), Some("trinity eval"), None]);
        assert!(check(&found).is_err() && check(&found[..2]).is_ok());
    }
}
