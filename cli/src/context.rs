//! What every command shares: the global flags, stdout, and progress bars.

use crate::failure::{Failure, Form};
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Flags that every command takes, before or after its name.
#[derive(Debug, clap::Args)]
pub struct GlobalArgs {
    /// Worker threads (default: one a core); results are the same for any number
    #[arg(long, global = true, value_name = "N", help_heading = "Everywhere",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// No progress bars and no remarks: results and errors alone
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    quiet: bool,
    /// Print the result as JSON instead of a table, and an error as one object on stderr
    #[arg(long, global = true, help_heading = "Everywhere")]
    json: bool,
    /// Replace files that exist already; never one that the command reads
    #[arg(long, global = true, help_heading = "Everywhere")]
    force: bool,
}

/// What every command shares.
#[derive(Debug)]
pub struct Context {
    /// Worker threads; rayon's global pool has as many.
    pub threads: usize,
    /// Whether remarks and progress are unwanted.
    pub quiet: bool,
    /// Whether stdout carries JSON.
    pub json: bool,
    /// Whether tables on stdout may use colour.
    pub colour: bool,
    /// Whether diagnostics on stderr may use colour.
    pub(crate) colour_stderr: bool,
}

impl Context {
    pub(crate) fn new(global: &GlobalArgs) -> Result<Self, Failure> {
        output::set_force(global.force);
        output::set_json(global.json);
        let mut pool = rayon::ThreadPoolBuilder::new();
        if let Some(threads) = global.threads {
            pool = pool.num_threads(threads.into());
        }
        pool.build_global()
            .map_err(|error| Failure::run(format_args!("cannot start worker threads: {error}")))?;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        // Whoever reads a pipe or a file wants whole rows.
        if let Some((_, width)) =
            console::Term::stdout().size_checked().filter(|_| std::io::stdout().is_terminal())
        {
            crate::table::fit(width.into());
        }
        Ok(Self {
            threads: rayon::current_num_threads(),
            quiet: global.quiet,
            json: global.json,
            colour: !no_colour && std::io::stdout().is_terminal(),
            colour_stderr: !no_colour && std::io::stderr().is_terminal(),
        })
    }

    /// How failures are printed.
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text { colour: self.colour_stderr } }
    }

    /// Writes a result to stdout as it is, without adding a line end.
    pub fn print(&self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(Failure::stdout)
    }

    /// Writes one JSON document to stdout.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::run(format_args!("cannot write the result as JSON: {error}")))?;
        text.push('\n');
        self.print(text)
    }

    /// Shows a result: as JSON where that is asked for, else in words and tables.
    pub fn show(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { self.print_json(value) } else { self.print(text()) }
    }

    /// Tells a script what became of files; people were told by a remark.
    pub fn tell(&self, value: &impl Serialize) -> Result<(), Failure> {
        if self.json { self.print_json(value) } else { Ok(()) }
    }

    /// Refuses, before any work is done, what would put a result and JSON about
    /// it on one stdout.
    pub fn may_write(&self, output: &Path) -> Result<(), Failure> {
        if output::is_stdout(output) { output::may_use_stdout() } else { Ok(()) }
    }

    /// Shows what became of a file: on stdout, unless the file itself went there.
    pub fn outcome(&self, output: &Path, value: &impl Serialize, text: String) -> Result<(), Failure> {
        if !self.json && output::is_stdout(output) {
            self.remark(text.trim_end());
            return Ok(());
        }
        self.show(value, || text)
    }

    /// A remark on stderr (“wrote out/report.html”), silent with `--quiet`.
    pub fn remark(&self, text: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("{}", text.as_ref());
        }
    }

    /// A progress bar over `steps`, with time left; drawn on stderr, on a terminal only.
    pub fn progress(&self, steps: u64, what: &str) -> ProgressBar {
        self.bar(ProgressBar::with_draw_target(Some(steps), self.draw_target()), "{pos}/{len}", what)
    }

    pub fn progress_bytes(&self, bytes: u64, what: &str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(bytes), self.draw_target());
        self.bar(bar, "{decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}", what)
    }

    fn bar(&self, bar: ProgressBar, counts: &str, what: &str) -> ProgressBar {
        let template = format!("{{msg}} {{wide_bar}} {counts} {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.with_message(what.to_string())
    }

    fn draw_target(&self) -> ProgressDrawTarget {
        // indicatif hides the bar itself when stderr is not a terminal.
        if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
    }
}
