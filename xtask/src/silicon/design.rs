//! What is built, where, and how it may fail.

use crate::workspace::root;
use std::path::PathBuf;

/// What is synthesized: a top of the RTL, and the options it is built with.
#[derive(Debug, Clone, Copy)]
pub struct Design {
    pub name: &'static str,
    /// The module, and the bench that drives it.
    pub top: &'static str,
    pub what: &'static str,
    pub built: Built,
    pub vectors: Vectors,
}

/// Options of the RTL: macros, each with a value where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// States of the trellis, at most.
    pub states: u32,
    /// Transforms: in an encoder Hadamard-32 and DCT-32, in a decoder DCT-32 beside Hadamard-32.
    pub transforms: bool,
    /// Samples of pictures, in an encoder prediction from the row above.
    pub picture: bool,
}

/// What a bench is driven with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vectors {
    /// Whole streams.
    Streams,
    /// Groups of 32 targets under that transform.
    Groups(&'static str),
    /// Numbers of every format.
    Numbers,
}

/// The RTL where nothing is said.
const PLAIN: Built = Built { states: 8, transforms: false, picture: false };
const TRANSFORMS: Built = Built { transforms: true, ..PLAIN };
const PICTURE: Built = Built { picture: true, ..TRANSFORMS };

pub const DESIGNS: &[Design] = &[
    codec("line_dec", "line_dec", "decoder", PLAIN),
    codec("line_enc", "line_enc", "encoder", PLAIN),
    codec("line_enc_4", "line_enc", "encoder, trellis of 4 states", Built { states: 4, ..PLAIN }),
    codec("line_enc_1", "line_enc", "encoder without trellis", Built { states: 1, ..PLAIN }),
    codec("line_dec_transforms", "line_dec", "decoder, DCT-32 beside Hadamard-32", TRANSFORMS),
    codec("line_enc_transforms", "line_enc", "encoder, Hadamard-32 and DCT-32", TRANSFORMS),
    codec("line_dec_picture", "line_dec", "decoder, transforms and picture mode", PICTURE),
    codec("line_enc_picture", "line_enc", "encoder, transforms and picture mode", PICTURE),
    stage("line_hadamard", "Hadamard-32 of an encoder, apart", Vectors::Groups("hadamard")),
    stage("line_dct", "DCT-32 of an encoder, apart", Vectors::Groups("dct")),
];

const fn codec(name: &'static str, top: &'static str, what: &'static str, built: Built) -> Design {
    Design { name, top, what, built, vectors: Vectors::Streams }
}

const fn stage(name: &'static str, what: &'static str, vectors: Vectors) -> Design {
    Design { name, top: name, what, built: PLAIN, vectors }
}

/// Modules of a design that have a bench of their own.
pub const BENCHES: &[Design] =
    &[Design { built: PICTURE, ..stage("line_widen", "numbers to fp32", Vectors::Numbers) }];

impl Design {
    /// Whether no other design of its top has more built in.
    pub fn is_widest(&self) -> bool {
        self.vectors != Vectors::Streams || self.built == PICTURE
    }

    /// Each option: its macro, its value here and where nothing is said, and what marks it in a name.
    fn options(&self) -> [(&'static str, u32, u32, String); 3] {
        let Built { states, transforms, picture } = self.built;
        [
            ("LINE_STATES", states, PLAIN.states, states.to_string()),
            ("LINE_TRANSFORMS", transforms.into(), PLAIN.transforms.into(), "transforms".into()),
            ("LINE_PICTURE", picture.into(), PLAIN.picture.into(), "picture".into()),
        ]
    }

    /// The macros that tools are given.
    pub fn defines(&self) -> Vec<String> {
        self.options().map(|(name, value, ..)| format!("-D{name}={value}")).to_vec()
    }

    /// What marks the netlist of a module with that source, beside its name: the
    /// options that it knows and that are not what they are where nothing is said.
    pub fn suffix(&self, source: &str) -> String {
        let options = self.options().into_iter();
        let marks = options.filter(|(name, value, plain, _)| value != plain && source.contains(name));
        marks.map(|(.., mark)| format!(".{mark}")).collect()
    }
}

/// What the software calls the stage that a module is.
const PARTS: [(&str, &str); 6] = [
    (
        "alignment",
        "line_widen line_align line_align_lane line_float line_float_lane line_format \
         line_exceptions",
    ),
    ("prediction", "line_enc_front line_row_class line_predict"),
    ("transform", "line_analysis line_hadamard_inv line_hadamard line_dct line_dct_inv line_group line_turn"),
    (
        "quantization",
        "line_candidates line_enc_forward line_trellis line_trellis_lane line_survivors \
         line_traceback line_dequant",
    ),
    (
        "entropy",
        "line_classes line_enc_backward line_symbols line_rans_enc line_rans_push line_stack \
         line_tables line_rans_dec line_search line_tail",
    ),
    ("framing", "line_enc line_enc_out line_dec line_dec_ctl line_feed line_skid"),
];

/// The part that a module is; an error where a new module has none.
pub fn part_of(module: &str) -> Result<&'static str, String> {
    let found = PARTS.iter().find(|(_, modules)| modules.split_whitespace().any(|own| own == module));
    found.map(|(part, _)| *part).ok_or_else(|| format!("{module} is part of no stage: see design.rs"))
}

/// Where everything that is built goes.
pub fn folder() -> PathBuf {
    root().join("target/silicon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netlist_is_named_by_the_options_that_its_source_knows() {
        let (plain, whole) = (DESIGNS[1], DESIGNS[7]);
        let source = "`ifndef LINE_STATES\n`ifndef LINE_PICTURE\n`ifndef LINE_TRANSFORMS";
        assert_eq!(plain.suffix(source), "");
        assert_eq!(whole.suffix(source), ".transforms.picture");
        assert_eq!(whole.suffix("module line_rans_enc"), "");
        assert_eq!(DESIGNS[2].suffix(source), ".4");
        assert!(whole.defines().contains(&"-DLINE_PICTURE=1".to_string()));
    }
}
