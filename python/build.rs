//! Names the commit, as the command's `--version` does.

#[path = "../build/commit.rs"]
mod commit;
#[path = "../build/own.rs"]
mod own;

fn main() {
    commit::state(&own::folder());
}
