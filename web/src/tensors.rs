//! A file of tensors that was dropped on the page: what it holds, and codecs
//! on a piece of each. Nothing leaves the page.

use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use trinity_study::rates::{Block, PieceRate, Way, block, rates, way};
use trinity_study::tensors::Line;
use trinity_tensor::codec::Rate;
use trinity_tensor::codec::table::listed;
use trinity_tensor::{Entry, TensorFile};

/// Values beyond which a sample would keep the page busy for long.
const MOST_VALUES: usize = 1 << 20;

/// A file that was read.
#[derive(Debug)]
pub struct Opened {
    name: String,
    file: TensorFile,
}

/// One codec on one tensor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateOf {
    tensor: String,
    codec: String,
    /// Bits per value.
    bits: Vec<f64>,
    /// Values of the piece.
    sample: usize,
}

impl Opened {
    pub fn read(name: &str, bytes: Vec<u8>) -> Result<Self, Refusal> {
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let unread = |error| {
            Refusal::new(
                format!("{name}: {}", trinity_study::tensors::sentence(&error)),
                "the page reads .safetensors, .npy, .npz, .gguf, .pt and .tri, config.json and points.csv",
            )
        };
        let file = TensorFile::from_bytes(bytes, stem).map_err(unread)?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// The tensors, without looking at their values, and the codecs to try on them.
    pub fn list(&self) -> Value {
        let line = |entry: &Entry| {
            json!({
                "tensor": entry.name(),
                "dtype": entry.dtype().name(),
                "shape": entry.shape(),
                "class": entry.class(),
                "values": entry.len(),
                "carried": entry.carried().is_some(),
            })
        };
        let lines: Vec<Value> = self.file.entries().iter().map(line).collect();
        let codecs = listed(|listing| listing.on_page);
        json!({ "file": self.name, "format": self.file.format(), "tensors": lines, "codecs": codecs })
    }

    pub fn statistics(&self, tensor: &str) -> Result<Value, Refusal> {
        let line = Line::measure(&self.name, self.entry(tensor)?)?;
        let pictures = json!({ "histogram": line.profile.pictures.histogram });
        let mut value =
            serde_json::to_value(&line).map_err(|error| Refusal::new(format!("{tensor}: {error}"), ""))?;
        value["pictures"] = pictures;
        Ok(value)
    }

    pub fn rates(&self, asked: &RateOf) -> Result<Vec<PieceRate>, Refusal> {
        let targets: Vec<Rate> = asked.bits.iter().map(|&bits| Rate::Bits(bits)).collect();
        Ok(rates(self.entry(&asked.tensor)?, &asked.codec, &targets, asked.sample.min(MOST_VALUES))?)
    }

    pub fn block(&self, asked: &RateOf) -> Result<Block, Refusal> {
        let bits = asked.bits.first().copied().unwrap_or(3.0);
        Ok(block(self.entry(&asked.tensor)?, &asked.codec, Rate::Bits(bits), asked.sample.min(MOST_VALUES))?)
    }

    pub fn way(&self, tensor: &str, nmse: f64, sample: usize) -> Result<Option<Way>, Refusal> {
        Ok(way(self.entry(tensor)?, nmse, sample.min(MOST_VALUES))?)
    }

    fn entry(&self, name: &str) -> Result<&Entry, Refusal> {
        self.file.entry(name).map_err(|error| Refusal::new(error, ""))
    }
}
