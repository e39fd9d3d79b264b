//! Names the commit, as the command's `--version` does.

#[path = "../build/commit.rs"]
mod commit;

fn main() {
    commit::state(env!("CARGO_MANIFEST_DIR"));
}
