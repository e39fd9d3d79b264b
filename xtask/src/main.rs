//! The project's own chores, one subcommand each.
#![forbid(unsafe_code)]

use std::process::{Command, exit};

fn main() {
    let steps: [&[&str]; 3] = [
        &["fmt", "--all", "--check"],
        &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        &["test", "--workspace"],
    ];
    for step in steps {
        let status = Command::new(env!("CARGO")).args(step).status();
        if !status.is_ok_and(|s| s.success()) {
            exit(1);
        }
    }
}
