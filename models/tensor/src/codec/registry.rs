//! Every codec by name.

use super::align::IntGroups;
use super::entropy::{SYMBOL_CODERS, SymbolCoder};
use super::ffmpeg::Ffmpeg;
use super::lossless::Lossless;
use super::mx::{Element, Mx};
use super::residual::Residual;
use super::scalar::{Nf4, Quantizer, Scalar};
use super::trinity::Trinity;
use super::uniform::Uniform;
use super::video::{self, Video};
use super::{Lossy, Precondition, Preconditioned, TensorCodec};
use crate::Error;

/// The paper's eight baselines: {INT, MXFP} × {Huffman, Deflate, LZ4, CABAC}.
pub const PAPER_BASELINES: [&str; 8] = [
    "int+huffman",
    "int+deflate",
    "int+lz4",
    "int+cabac",
    "mxfp+huffman",
    "mxfp+deflate",
    "mxfp+lz4",
    "mxfp+cabac",
];

/// The codec of that name.
pub fn codec(name: &str) -> Result<Box<dyn TensorCodec>, Error> {
    find(name).ok_or_else(|| Error::UnknownCodec { name: name.to_owned(), known: names().join(", ") })
}

/// Every name that [`codec`] knows on this machine.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Trinity::names().map(String::from).collect();
    names.extend(["h265", "h264"].map(String::from));
    if Ffmpeg::installed() {
        names.extend(Ffmpeg::names().map(String::from));
    }
    names.extend(["uniform+ac", "rtn", "rtn-128g", "nf4", "zstd"].map(String::from));
    names.extend(Element::ALL.map(|(_, name)| name.to_owned()));
    for format in ["int", "mxfp"] {
        names.extend(SYMBOL_CODERS.map(|(_, coder)| format!("{format}+{coder}")));
    }
    names
}

fn find(name: &str) -> Option<Box<dyn TensorCodec>> {
    // Any codec after a randomized Hadamard transform.
    if let Some(inner) = name.strip_prefix("hadamard/") {
        return Some(Box::new(Preconditioned { precondition: Precondition::Hadamard, inner: find(inner)? }));
    }
    // Two codecs in a row, the second on what the first one lost.
    if let Some((first, second)) = name.strip_prefix("residual/").and_then(|rest| rest.rsplit_once('/')) {
        return Some(Box::new(Residual { first: find(first)?, second: find(second)? }));
    }
    let packed_int = |group| IntGroups { group, whole_bits: true };
    match name {
        "uniform+ac" => return Some(Box::new(Lossy(Uniform))),
        "zstd" => return Some(Box::new(Lossless)),
        "rtn" => return Some(scalar(name, packed_int(None), SymbolCoder::Packed)),
        "rtn-128g" => return Some(scalar(name, packed_int(Some(128)), SymbolCoder::Packed)),
        "nf4" => return Some(scalar(name, Nf4, SymbolCoder::Packed)),
        _ => {}
    }
    if let Some(name) = Trinity::names().find(|&own| own == name) {
        return Some(Box::new(Trinity { name }));
    }
    if let Some((element, _)) = Element::ALL.into_iter().find(|&(_, own)| own == name) {
        return Some(scalar(name, Mx { element: Some(element) }, SymbolCoder::Packed));
    }
    if let Some(frames) = video::find(name) {
        return Some(Box::new(Lossy(Video(frames))));
    }
    let (format, coder) = name.split_once('+')?;
    let (coder, _) = SYMBOL_CODERS.into_iter().find(|&(_, own)| own == coder)?;
    match format {
        "int" => {
            Some(scalar(name, IntGroups { group: Some(128), whole_bits: coder.wants_whole_bits() }, coder))
        }
        "mxfp" => Some(scalar(name, Mx { element: None }, coder)),
        _ => None,
    }
}

fn scalar(name: &str, quantizer: impl Quantizer + 'static, coder: SymbolCoder) -> Box<dyn TensorCodec> {
    Box::new(Lossy(Scalar { name: name.to_owned(), quantizer, coder }))
}
