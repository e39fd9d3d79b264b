//! Number formats, and their conversion to and from f32.

use serde::{Deserialize, Serialize};

/// A number format a tensor file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    /// OCP FP8 E4M3 (finite and NaN only).
    F8e4m3,
    /// OCP FP8 E5M2.
    F8e5m2,
    I8,
    U8,
    I16,
    I32,
}

impl Dtype {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::F8e4m3,
        Self::F8e5m2,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::I32,
    ];

    /// Bytes a value takes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::F8e4m3 | Self::F8e5m2 | Self::I8 | Self::U8 => 1,
        }
    }

    /// The name used in tables and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8e4m3 => "f8e4m3",
            Self::F8e5m2 => "f8e5m2",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::I32 => "i32",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
