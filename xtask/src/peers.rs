//! `cargo xtask peers`: our codecs beside other implementations, in one run on
//! one machine, as ratios.
//!
//! Each comparison is a module of its own and a line in [`COMPARISONS`]; it
//! installs the peers it needs through [`crate::tools`].

mod bench;
mod chart;
mod encode;
mod gap;
mod h264;
mod h265;
mod kv;
mod line;
mod lm;
mod matrix;
mod tensor;
mod video;
mod weights;

/// Name, what is compared, and how to run it with the words that follow its name.
type Comparison = (&'static str, &'static str, fn(&[&str]) -> Result<(), String>);

const COMPARISONS: &[Comparison] = &[
    (
        "encode",
        "`trinity encode` and `decode`, file to file: speed against x264 and zstd [--quick]",
        encode::run,
    ),
    ("h264", "H.264: bits at equal error and speed against x264 and ffmpeg [--quick]", h264::run),
    (
        "h265",
        "H.265: bits at equal error and speed against x265, kvazaar, ffmpeg, libde265 [--quick]",
        h265::run,
    ),
    (
        "kv",
        "KV caches: what models lose by rate, against KIVI, KVQuant, TurboQuant and KVTC [--quick] [--only MODEL] [--windows N] [--context TOKENS] [--rates BITS,…]",
        kv::run,
    ),
    (
        "line",
        "the line-rate codec: bits at equal error against trinity, H.265 and uniform+ac; speed against zstd and x264 [--quick]",
        line::run,
    ),
    ("lm", "the language model's forward pass: time against NumPy on the same text and cores", lm::run),
    (
        "tensor",
        "the Trinity codec: bits at equal error against H.265, x265, nncodec and entropy; speed [--quick]",
        tensor::run,
    ),
    (
        "weights",
        "linear weights coded for a text: what models lose by rate, against WaterSIC, QTIP, llama.cpp, EXL3, AutoRound, GPTQModel, GPTQ, AWQ and the bound [--only MODEL] [--windows N] [--codec NAME] [--rates RATE,…] [--chart FILE.svg] [--kept]",
        weights::run,
    ),
];

pub fn run(args: &[&str]) -> Result<(), String> {
    match args {
        [] => COMPARISONS.iter().try_for_each(|(.., compare)| compare(&[])),
        ["help" | "--help" | "-h"] => {
            eprint!("{}", list());
            Ok(())
        }
        [name, rest @ ..] => match COMPARISONS.iter().find(|(known, ..)| known == name) {
            Some((name, what, _)) if rest.iter().any(|word| ["--help", "-h"].contains(word)) => {
                eprintln!("cargo xtask peers {name}: {what}");
                Ok(())
            }
            Some((.., compare)) => compare(rest),
            None => Err(format!("there is no comparison `{name}`; expected one of:\n{}", list())),
        },
    }
}

fn list() -> String {
    COMPARISONS.iter().map(|(name, what, _)| format!("  {name:<8} {what}\n")).collect()
}
