//! `trinity web`: the explorer, answered by this very command, or as one file.
//!
//! Asked for nothing else, it serves the page on this machine alone and answers
//! its questions with the crates it is made of, so a plain build needs neither
//! Node nor a compiler for browsers. The one file that answers by itself is
//! built by `cargo xtask web` and embedded by the build script; it is handed
//! out here, and not one that was made of other sources.

mod http;
mod lanes;
mod page;

use crate::json_path::JsonPath;
use crate::output::{self, Named};
use crate::{context::Context, failure::Failure, interrupt};
use serde_json::json;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page as one file, where this build has it.
const FILE: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/page.rs"));
/// Where the page is found unless something else is there: links to studies stay good.
const PORT: u16 = 8265;

/// Open the explorer: sweeps and codecs in a page that answers while you drag
///
/// The page is served to this machine alone and answered by this command, with
/// the digits it prints, until Ctrl-C. Its address holds the whole study. As one
/// file (-o) it needs no command either: mail it, or host it anywhere.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity web                     opens the browser, and prints the address
  trinity web --no-open           prints the address alone
  trinity web -o /tmp/what-if.html")]
pub struct Args {
    /// Write the page as one file that answers by itself, and end
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["port", "no_open"])]
    output: Option<PathBuf>,
    /// The port to answer at [default: 8265, or any that is free]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Print the address alone, and open no browser
    #[arg(long)]
    no_open: bool,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.output {
        Some(output) => write(output, ctx),
        None => serve(args, ctx),
    }
}

fn serve(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let listener = listen(args.port)?;
    let unknown = |error| Failure::run(format_args!("cannot tell the port of the explorer: {error}"));
    let port = listener.local_addr().map_err(unknown)?.port();
    let address = format!("http://127.0.0.1:{port}/");
    ctx.show(&json!({ "address": address }), || format!("{address}\n"))?;
    interrupt::hint("the page answers no more; its address brings the study back");
    let opened = !args.no_open && !ctx.json && open(&address);
    let where_to = if opened { "a browser opens it" } else { "open it in a browser on this machine" };
    ctx.remark(format!("the explorer answers at this address until Ctrl-C; {where_to}"));
    http::serve(&listener, port)
}

/// The port that was asked for, or the usual one, or any.
fn listen(asked: Option<u16>) -> Result<TcpListener, Failure> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let bound = match asked {
        Some(port) => bind(port),
        None => bind(PORT).or_else(|_| bind(0)),
    };
    bound.map_err(|error| {
        let failure = Failure::run(format_args!(
            "cannot answer at port {} of this machine: {error}",
            asked.unwrap_or(PORT)
        ));
        match error.kind() {
            ErrorKind::AddrInUse => failure.help("leave `--port` out, and any port that is free is taken"),
            ErrorKind::PermissionDenied => failure.help("ports below 1024 are root's"),
            _ => failure,
        }
    })
}

/// Opens the address in the user's browser; `false` where there is none to be seen.
fn open(address: &str) -> bool {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let named = std::env::var("BROWSER").ok().filter(|browser| !browser.is_empty());
    let browser = match named {
        Some(browser) => browser,
        None if cfg!(target_os = "macos") => "open".into(),
        None if has("DISPLAY") || has("WAYLAND_DISPLAY") => "xdg-open".into(),
        None => return false,
    };
    let mut command = Command::new(browser);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut started) = command.spawn() else { return false };
    // Some stay as long as their window does; none may be left a zombie.
    std::thread::spawn(move || drop(started.wait()));
    true
}

/// Hands out the page that answers by itself.
fn write(output: &Path, ctx: &Context) -> Result<(), Failure> {
    output.named_as(&["HTML"])?;
    let help = "`trinity web` without -o answers in a browser as it is; for the file, run `cargo xtask web` in the \
                repository: it writes target/web/trinity.html, and the next build of the command carries it";
    let file = FILE.ok_or_else(|| {
        Failure::run("this build of trinity was made without the explorer as one file").help(help)
    })?;
    let current = format!("name=\"trinity-sources\" content=\"{}\"", page::SOURCES);
    // The head of the page says it; the rest is the model.
    let head = String::from_utf8_lossy(&file[..file.len().min(4096)]);
    if !head.contains(&current) {
        return Err(Failure::run("the page in this build of trinity was made from other sources").help(help));
    }
    ctx.may_write(output)?;
    output::write(output, file)?;
    if ctx.json {
        return ctx.print_json(&json!({ "output": JsonPath::from(output), "bytes": file.len() }));
    }
    ctx.remark(format!("wrote {}", output.display()));
    Ok(())
}
