//! What the command says about itself.

use crate::support::{Desk, trinity};

/// Every command and its subcommands, as words after `trinity`, found by asking for help.
pub fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        for name in listed_commands(&help_of(&path)) {
            todo.push([path.clone(), vec![name]].concat());
        }
        found.push(path);
    }
    found
}

pub fn help_of(path: &[String]) -> String {
    trinity(path.iter().map(String::as_str).chain(["--help"])).ok()
}

fn listed_commands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Deeper-indented lines continue a description.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_string))
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_command_teaches_with_an_example() {
    let commands = commands();
    assert!(commands.len() > 2, "found {commands:?}");
    for path in commands.iter().filter(|path| !path.is_empty()) {
        let help = help_of(path);
        let is_group = !listed_commands(&help).is_empty();
        let example = format!("  trinity {}", path[0]);
        assert!(is_group || help.contains(&example), "no example in `trinity {} --help`", path.join(" "));
    }
}

#[test]
fn exit_codes_are_documented_and_kept() {
    assert!(trinity(["--help"]).ok().contains("2  the input is wrong"));
    trinity(["no-such-command"]).refused();
    trinity(["completions", "no-such-shell"]).refused();
    trinity(["--threads", "0", "man"]).refused();
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(trinity(["completions", shell]).ok().contains("trinity"), "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let desk = Desk::new();
    let out = desk.path().to_str().unwrap();
    trinity(["man", "--out", out]).ok();
    let mut names: Vec<String> = commands()
        .iter()
        .map(|path| ["trinity".to_string()].iter().chain(path).cloned().collect::<Vec<_>>().join("-") + ".1")
        .collect();
    names.sort();
    let mut pages: Vec<String> = std::fs::read_dir(desk.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    assert_eq!(pages, names);
    assert!(trinity(["man"]).ok().contains(".TH trinity 1"));
}

#[test]
fn output_in_a_pipe_has_no_colour() {
    for args in [&["--help"][..], &["no-such-command"], &["man"]] {
        let run = trinity(args.iter().copied());
        assert!(!(run.stdout() + &run.stderr()).contains('\u{1b}'), "{args:?}");
    }
}

/// What a command says on a terminal, made by util-linux's `script`; `None` without it.
fn on_a_terminal(command: &str) -> Option<String> {
    let line = format!("{command} {} config show nics/none", env!("CARGO_BIN_EXE_trinity"));
    match std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env_remove("NO_COLOR")
        .output()
    {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            eprintln!("SKIPPED: no terminal to write to: {error}");
            None
        }
    }
}

#[test]
fn a_terminal_gets_colour_unless_no_color_is_set() {
    let Some(plain) = on_a_terminal("env TERM=xterm NO_COLOR=1") else { return };
    assert!(plain.contains("error: ") && !plain.contains('\u{1b}'), "{plain:?}");
    let coloured = on_a_terminal("env TERM=xterm").unwrap_or_default();
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
}
