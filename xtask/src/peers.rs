//! `cargo xtask peers`: our codecs beside other implementations, in one run on
//! one machine, as ratios.
//!
//! Each comparison is a module of its own and a line in [`COMPARISONS`]; it
//! installs the peers it needs through [`crate::tools`].

/// Name, what is compared, and how to run it.
type Comparison = (&'static str, &'static str, fn() -> Result<(), String>);

const COMPARISONS: &[Comparison] = &[];

pub fn run(args: &[&str]) -> Result<(), String> {
    match args {
        [] => COMPARISONS.iter().try_for_each(|(.., compare)| compare()),
        [name] => match COMPARISONS.iter().find(|(known, ..)| known == name) {
            Some((.., compare)) => compare(),
            None => Err(format!("there is no comparison `{name}`; expected one of:\n{}", list())),
        },
        _ => Err(format!("expected: cargo xtask peers [NAME], with one of:\n{}", list())),
    }
}

fn list() -> String {
    COMPARISONS.iter().map(|(name, what, _)| format!("  {name:<8} {what}\n")).collect()
}
