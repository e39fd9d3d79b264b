//! `trinity web`: the explorer's page, as the command carries it.
//!
//! The page is built by `cargo xtask web` and embedded by the build script; this
//! module only hands it out, and not one that was made of other sources.

use crate::output::{self, Named};
use crate::{context::Context, failure::Failure};
use serde_json::json;
use std::path::PathBuf;

/// The page, where this build has it.
const PAGE: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/page.rs"));
/// What the page would be made of today.
const SOURCES: &str = env!("TRINITY_PAGE_SOURCES");

/// Write the explorer: sweeps and codecs in one page that answers while you drag
///
/// The page needs no server, no network and no installation: open it from the
/// file, mail it, or host it anywhere. It computes with the crates of this
/// command and gives the same digits; its address holds the whole study.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity web                     then open trinity.html in a browser
  trinity web -o /tmp/what-if.html")]
pub struct Args {
    /// The page to write
    #[arg(short, long, value_name = "FILE", default_value = "trinity.html")]
    output: PathBuf,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    args.output.named_as(&["HTML"])?;
    let help = "run `cargo xtask web` in the repository, then build the command again";
    let page = PAGE.ok_or_else(|| {
        Failure::run("this build of trinity was made without the explorer's page").help(help)
    })?;
    let current = format!("name=\"trinity-sources\" content=\"{SOURCES}\"");
    // The head of the page says it; the rest is the model.
    let head = String::from_utf8_lossy(&page[..page.len().min(4096)]);
    if !head.contains(&current) {
        return Err(Failure::run("the page in this build of trinity was made from other sources").help(help));
    }
    ctx.may_write(&args.output)?;
    output::write(&args.output, page)?;
    if ctx.json {
        return ctx.print_json(&json!({ "output": args.output, "bytes": page.len() }));
    }
    ctx.remark(format!("wrote {}", args.output.display()));
    Ok(())
}
