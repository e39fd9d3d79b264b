//! What `trinity figure` is asked for.

use std::path::PathBuf;

/// Judge every figure and table of the paper and its relatives, from recordings or anew
///
/// Each claim is quoted in its source's own numbers, beside the command that asks
/// the same here, the cells of its output that decide, and the rule. The verdict
/// (reproduced, in part, contradicted, not decided, out of scope) and every number
/// in its sentences are computed from a recording of the command, or with --run
/// from the command itself. A difference within its interval is not decided. A
/// recording whose codecs, cluster model, command or inputs have changed since is
/// called stale.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity figure                        every verdict, from the recordings
  trinity figure 16a                    its claims, the source's numbers beside ours
  trinity figure 16a --run              run its commands again, and judge by that
  trinity figure --run                  the same for all that take seconds, within five minutes
  trinity figure 2b --run --data captured/   on captured tensors of yours
  trinity figure --markdown             the same as a document
  trinity figure --out out/figures      a page with the source's values beside ours")]
pub struct Args {
    /// A figure's or a table's id, such as 16a or table-3
    #[arg(value_name = "ID")]
    pub(super) id: Option<String>,
    /// Run the commands again; without ID, those of all figures that take seconds
    #[arg(long)]
    pub(super) run: bool,
    /// Folders with captured tensors (*.safetensors) and models that commands name
    #[arg(long, value_name = "DIR")]
    pub(super) data: Vec<PathBuf>,
    /// Take the commands' output from this folder, ID.NAME.json for each, where another machine ran them;
    /// its file machine.txt says which
    #[arg(long, value_name = "DIR", requires = "run", requires = "id")]
    pub(super) from: Option<PathBuf>,
    /// Write what was run into this file of recordings, beside those it has
    #[arg(long, value_name = "FILE", requires = "run")]
    pub(super) record: Option<PathBuf>,
    /// Folder for report.html and for what commands write (default with --run: out/figures)
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Print the verdicts as Markdown
    #[arg(long, conflicts_with = "id")]
    pub(super) markdown: bool,
    /// The figures: a name from `trinity config list figures`, or a path that ends in .toml
    #[arg(long, value_name = "FILE", default_value = "figures/llm265")]
    pub(super) figures: String,
}
