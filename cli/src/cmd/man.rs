//! `trinity man`: manual pages, written from the same tree as `--help`.

use crate::{context::Context, failure::Failure, json_path::JsonPath, output};
use clap_mangen::Man;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Print the manual page, or write one page a command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity man | man -l -
  trinity man --out ~/.local/share/man/man1")]
pub struct Args {
    /// Write trinity.1 and one page for each command into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the pages of `root` and its commands.
pub fn run(args: &Args, mut root: clap::Command, ctx: &Context) -> Result<(), Failure> {
    root.build();
    let Some(folder) = &args.out else {
        let page = page(&root)?;
        let page = String::from_utf8_lossy(&page);
        return ctx.show(&json!({ "page": page }), || page.to_string());
    };
    let mut written = Vec::new();
    write_pages(&root, "trinity", folder, &mut written)?;
    ctx.tell(&json!({ "written": written }))
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut roff = Vec::new();
    Man::new(command.clone()).render(&mut roff).map_err(Failure::run)?;
    Ok(roff)
}

/// Pages are named as git names its own: `trinity-config-show.1`.
fn write_pages(
    command: &clap::Command,
    name: &str,
    folder: &Path,
    written: &mut Vec<JsonPath>,
) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    output::write(&path, &page(&command.clone().name(name.to_string()))?)?;
    written.push(path.into());
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        write_pages(sub, &format!("{name}-{}", sub.get_name()), folder, written)?;
    }
    Ok(())
}
