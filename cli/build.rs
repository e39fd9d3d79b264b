//! Embeds the explorer's page as one file where `cargo xtask web` has built it,
//! and names the commit.
//!
//! A plain build needs neither Node nor the wasm32 target: the command serves
//! the page itself, and says, when asked for the file, how to get it.

#[path = "../build/commit.rs"]
mod commit;
#[path = "../build/own.rs"]
mod own;
#[path = "../build/page.rs"]
mod page;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let own = own::folder();
    page::state(&own);
    commit::state(&own);
    // A folder that is always there: cargo would run this again at every build
    // for a file that is not.
    let folder = Path::new(&own).join("../web/dist");
    println!("cargo::rerun-if-changed={}", folder.display());
    let page = folder.join("trinity.html");
    let value = if page.is_file() { format!("Some(include_bytes!({page:?}))") } else { "None".into() };
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("no OUT_DIR"))?;
    std::fs::write(Path::new(&out).join("page.rs"), value)
}
