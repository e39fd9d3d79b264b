//! Every codec by name.

use super::align::IntGroups;
use super::cache::{CACHES, Cache};
use super::entropy::{SYMBOL_CODERS, SymbolCoder};
use super::ffmpeg::Ffmpeg;
use super::grouped::{Calibrated, Method, bits_per_value, width_within};
use super::k_quants::{Blocks, KQuant};
use super::layer::Layer;
use super::line::Line;
use super::lossless::Lossless;
use super::mx::{Element, Mx};
use super::precondition::PCA;
use super::residual::Residual;
use super::rungs::Rungs;
use super::scalar::{Nf4, Quantizer, Scalar};
use super::trinity::Trinity;
use super::uniform::Uniform;
use super::video::{self, Video};
use super::{Basis, Lossy, Precondition, Preconditioned, TensorCodec};
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

/// Codecs that [`codec`] knows and [`names`] leaves out: they code a layer's weights for what the layer reads, and
/// nothing else.
pub const CALIBRATED: [&str; 4] = ["gptq-128g", "awq-128g", "qtip", "watersic"];

/// The rate that a codec of [`CALIBRATED`] uses where so many bits per value are there; nothing where they are too few.
pub fn calibrated_rate(name: &str, bits: f64) -> Option<f64> {
    match Layer::named(name) {
        Some(layer) => layer.rate_within(bits),
        None => width_within(bits).map(bits_per_value),
    }
}

/// The codec of that name, or of the profile in a TOML file of that name.
///
/// Names of codecs made of others keep to the same rule: `hadamard/my.toml`.
pub fn codec(name: &str) -> Result<Box<dyn TensorCodec>, Error> {
    designed_or_built_in(name).map(no_worse)
}

fn designed_or_built_in(name: &str) -> Result<Box<dyn TensorCodec>, Error> {
    find(name, &|path| Trinity::designed(path), None)?.ok_or_else(|| unknown(name))
}

/// The codec, with no more error at any rate than at those below it. Made of codecs without
/// that promise, so that it is kept once.
fn no_worse(codec: Box<dyn TensorCodec>) -> Box<dyn TensorCodec> {
    Box::new(Rungs(codec))
}

/// What decodes data stored under that name, with the basis that was given.
/// Never opens a file: the name comes out of one.
pub(crate) fn decoder(name: &str, basis: Option<&Basis>) -> Result<Box<dyn TensorCodec>, Error> {
    find(name, &|path| Err(unknown(path)), basis)?.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::UnknownCodec { name: name.to_owned(), known: file_names().join(", ") }
}

/// Every name that an encoded file may ask for: [`names`], block formats of GGUF ([`KQuant`]), [`CALIBRATED`], [`CACHES`].
pub fn file_names() -> Vec<String> {
    let formats = KQuant::ALL.map(|format| format.name().to_owned()).to_vec();
    let [calibrated, caches] =
        [&CALIBRATED[..], &CACHES[..]].map(|own| own.iter().map(|&name| name.into()).collect());
    [names(), vec!["line".into()], formats, calibrated, caches].concat()
}

/// Whether another program codes, which may be missing and starts slowly.
pub fn is_external(name: &str) -> bool {
    Ffmpeg::named(name).is_some()
}

/// Every name that [`codec`] knows on this machine and comparisons take, but for block formats of GGUF ([`KQuant`]),
/// [`CALIBRATED`] and [`CACHES`].
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Trinity::names().chain(Line::names()).map(String::from).collect();
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

impl Basis {
    pub fn codec(&self, name: &str) -> Result<Box<dyn TensorCodec>, Error> {
        match self {
            Self::Pca(basis) => {
                let precondition = Precondition::Pca(basis.clone());
                let inner = designed_or_built_in(name)?;
                Ok(no_worse(Box::new(Preconditioned { precondition, inner })))
            }
            Self::Trinity(basis) => match Trinity::find(name)? {
                Some(trinity) => Ok(no_worse(Box::new(trinity.with_basis(basis.clone())))),
                None => {
                    let why = "is another; make one with a rank";
                    Err(Error::Basis {
                        problem: format!("it is one for the Trinity codec, and `{name}` {why}"),
                    })
                }
            },
        }
    }
}

type Found = Result<Option<Box<dyn TensorCodec>>, Error>;

fn find(name: &str, designed: &dyn Fn(&str) -> Result<Trinity, Error>, basis: Option<&Basis>) -> Found {
    let after = |precondition, inner| -> Found {
        let inner = find(inner, designed, basis)?;
        Ok(inner.map(|inner| boxed(Preconditioned { precondition, inner })))
    };
    // Any codec after a randomized Hadamard transform.
    if let Some(inner) = name.strip_prefix("hadamard/") {
        return after(Precondition::Hadamard, inner);
    }
    // Any codec in a basis that is named by the hash of its file.
    if let Some((hash, inner)) = name.strip_prefix(PCA).and_then(|rest| rest.split_once('/')) {
        let Ok(needed) = u64::from_str_radix(hash, 16) else { return Ok(None) };
        let precondition = match basis {
            Some(Basis::Pca(pca)) if basis.map(Basis::hash) == Some(needed) => Precondition::Pca(pca.clone()),
            Some(other) => {
                return Err(Error::OtherBasis { needed, given: format!("{:016x} is given", other.hash()) });
            }
            None => return Err(Error::OtherBasis { needed, given: "none is given".into() }),
        };
        return after(precondition, inner);
    }
    // Two codecs in a row, the second on what the first one lost.
    if let Some((first, second)) = name.strip_prefix("residual/").and_then(|rest| rest.rsplit_once('/')) {
        let (first, second) = (find(first, designed, basis)?, find(second, designed, basis)?);
        return Ok(first.zip(second).map(|(first, second)| boxed(Residual { first, second })));
    }
    if name.ends_with(".toml") {
        return Ok(Some(Box::new(designed(name)?)));
    }
    if let Some(Basis::Trinity(basis)) = basis {
        let trinity = Trinity::named(name).or_else(|| Trinity::stored(name));
        let with_basis = trinity.map(|trinity| boxed(trinity.with_basis(basis.clone())));
        let line = || Some(boxed(Line::named(name)?.with_basis(basis.clone())));
        return Ok(with_basis.or_else(line).or_else(|| built_in(name)));
    }
    Ok(built_in(name))
}

fn boxed(codec: impl TensorCodec + 'static) -> Box<dyn TensorCodec> {
    Box::new(codec)
}

/// A codec that is not made of others.
fn built_in(name: &str) -> Option<Box<dyn TensorCodec>> {
    let packed_int = |group| IntGroups { group, whole_bits: true };
    match name {
        "uniform+ac" => return Some(boxed(Lossy(Uniform))),
        "zstd" => return Some(boxed(Lossless)),
        "rtn" => return Some(scalar(name, packed_int(None), SymbolCoder::Packed)),
        "rtn-128g" => return Some(scalar(name, packed_int(Some(128)), SymbolCoder::Packed)),
        "nf4" => return Some(scalar(name, Nf4, SymbolCoder::Packed)),
        _ => {}
    }
    let element = || Element::ALL.into_iter().find(|&(_, own)| own == name);
    let named = KQuant::named(name).map(|format| boxed(Lossy(Blocks(format))));
    let named = named
        .or_else(|| Method::named(name).map(|method| boxed(Calibrated(method))))
        .or_else(|| Layer::named(name).map(boxed))
        .or_else(|| Cache::named(name).map(boxed))
        .or_else(|| Line::named(name).map(boxed))
        .or_else(|| Trinity::named(name).or_else(|| Trinity::stored(name)).map(boxed))
        .or_else(|| element().map(|(own, _)| scalar(name, Mx { element: Some(own) }, SymbolCoder::Packed)))
        .or_else(|| video::find(name).map(|frames| boxed(Lossy(Video(frames)))));
    if named.is_some() {
        return named;
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
