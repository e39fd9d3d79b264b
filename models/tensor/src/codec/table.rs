//! The codecs that people choose among: what each is, its colour on every chart, and where it stands when none is named.
//!
//! The one place for what front ends say of a codec. How it is found by its name is the registry's.

/// What is said of a codec.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    pub name: &'static str,
    /// Its names in help and what they are; one line for codecs of a kind.
    pub help: Option<(&'static str, &'static str)>,
    /// None: one that is free.
    pub colour: Option<&'static str>,
    /// Compared where no codec is named.
    pub usual: bool,
    /// Tried by the explorer's page, one after the other.
    pub on_page: bool,
}

impl Listing {
    const fn new(name: &'static str, colour: &'static str) -> Self {
        Self { name, help: None, colour: Some(colour), usual: false, on_page: false }
    }

    /// One without a colour of its own.
    const fn plain(name: &'static str) -> Self {
        Self { colour: None, ..Self::new(name, "") }
    }

    const fn help(self, names: &'static str, what: &'static str) -> Self {
        Self { help: Some((names, what)), ..self }
    }

    const fn usual(self) -> Self {
        Self { usual: true, ..self }
    }

    const fn on_page(self) -> Self {
        Self { on_page: true, ..self }
    }
}

/// Every codec of which something is said, in the order in which lists show them.
pub const TABLE: &[Listing] = &[
    Listing::new("trinity", "#9d5fc9")
        .help("trinity", "the Trinity codec; trinity-max searches longer, trinity-static learns nothing")
        .usual()
        .on_page(),
    Listing::new("trinity-max", "#6f4fb0"),
    Listing::new("trinity-static", "#a8577a"),
    Listing::new("trinity-lite", "#d67195")
        .help("trinity-lite", "the line-rate codec; line-fast and line-uniform choose less and run faster")
        .on_page(),
    Listing::new("line", "#54a24b"),
    Listing::new("line-fast", "#7fb93c"),
    Listing::new("line-uniform", "#c6d84a"),
    Listing::new("h265", "#e45756")
        .help(
            "h265, h264",
            "this project's video codecs; -fast, -medium, -slow, -best choose a preset,
                   -420 neutral chroma, -444 three planes of values (h265-444, h264-fast-420)",
        )
        .usual()
        .on_page(),
    Listing::new("h264", "#f58518").usual().on_page(),
    Listing::new("x264", "#f7a35c").help(
        "x264, x265, svtav1, aom",
        "external encoders, through ffmpeg; x264-slow, x265-slow and
                   svtav1-slow with equal effort, for squared error",
    ),
    Listing::new("x265", "#ee8e8d"),
    Listing::new("svtav1", "#2f8f9d"),
    Listing::new("aom", "#1f6f8b"),
    Listing::new("uniform+ac", "#b8860b")
        .help("uniform+ac", "uniform quantizer and adaptive arithmetic coder")
        .usual()
        .on_page(),
    Listing::new("rtn", "#9d755d")
        .help("rtn, rtn-128g", "integer round-to-nearest, a scale per row or per 128 values")
        .usual()
        .on_page(),
    Listing::new("rtn-128g", "#c49a6c").usual().on_page(),
    Listing::new("nf4", "#e0a800")
        .help("nf4, mxfp4, mxfp6, mxfp6-e3m2, mxfp8, mxfp8-e5m2, mxint8", "number formats (fixed)")
        .usual()
        .on_page(),
    Listing::new("mxfp4", "#c9b037").usual().on_page(),
    Listing::plain("int+huffman")
        .help("int+X, mxfp+X", "a number format and a coder X: huffman, deflate, lz4, cabac, zstd")
        .usual(),
    Listing::plain("int+deflate").usual().on_page(),
    Listing::plain("int+lz4").usual(),
    Listing::new("int+cabac", "#5d8aa8").usual().on_page(),
    Listing::plain("mxfp+huffman").usual(),
    Listing::plain("mxfp+deflate").usual(),
    Listing::plain("mxfp+lz4").usual(),
    Listing::new("mxfp+cabac", "#7d9ec0").usual().on_page(),
    Listing::plain("zstd").help("zstd", "lossless (fixed)"),
];

/// The names of what is listed and passes.
pub fn listed(passes: impl Fn(&Listing) -> bool) -> Vec<String> {
    TABLE.iter().filter(|listing| passes(listing)).map(|listing| listing.name.to_owned()).collect()
}

/// Lines of help: names, and what they are.
pub fn help() -> String {
    let lines = TABLE.iter().filter_map(|listing| listing.help);
    lines
        .map(|(names, what)| match names.len() {
            ..=16 => format!("  {names:<16} {what}\n"),
            _ => format!("  {names}     {what}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{PAPER_BASELINES, file_names, is_external};

    #[test]
    fn every_codec_that_is_listed_is_one_and_stands_there_once() {
        let known = file_names();
        for (at, listing) in TABLE.iter().enumerate() {
            let name = listing.name;
            assert!(known.iter().any(|own| own == name) || is_external(name), "{name}");
            assert!(TABLE[..at].iter().all(|other| other.name != name), "{name} twice");
            let same = |other: &&Listing| listing.colour.is_some() && other.colour == listing.colour;
            assert!(TABLE[..at].iter().find(same).is_none(), "{name} has another's colour");
        }
        let usual = listed(|listing| listing.usual);
        assert!(PAPER_BASELINES.iter().all(|name| usual.iter().any(|own| own == name)));
    }

    /// What a user may name is said somewhere, be it as one of a kind.
    #[test]
    fn help_names_every_codec_or_its_kind() {
        let help = help();
        for name in file_names() {
            let kind = name.split_once('+').map_or(name.clone(), |(format, _)| format!("{format}+X"));
            let is_said = [&name, &kind].iter().any(|own| help.contains(own.as_str()));
            let mut elsewhere = "q iq tq gptq awq kivi kvquant turboquant kvtc watersic paper".split(' ');
            assert!(is_said || elsewhere.any(|own| name.starts_with(own)), "{name}: {help}");
        }
    }
}
