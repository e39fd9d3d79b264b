//! NAL unit types (H.265 Table 7-1) and the two-byte NAL unit header.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NalType(pub u8);

impl NalType {
    pub const TRAIL_R: Self = Self(1);
    pub const RASL_N: Self = Self(8);
    pub const RASL_R: Self = Self(9);
    pub const BLA_W_LP: Self = Self(16);
    pub const IDR_W_RADL: Self = Self(19);
    pub const IDR_N_LP: Self = Self(20);
    pub const CRA: Self = Self(21);
    pub const VPS: Self = Self(32);
    pub const SPS: Self = Self(33);
    pub const PPS: Self = Self(34);
    pub const AUD: Self = Self(35);
    pub const EOS: Self = Self(36);
    pub const EOB: Self = Self(37);
    pub const PREFIX_SEI: Self = Self(39);
    pub const SUFFIX_SEI: Self = Self(40);

    /// A slice segment of a type this version of the standard defines.
    pub fn is_slice(self) -> bool {
        self.0 <= 9 || (16..=21).contains(&self.0)
    }

    /// Random access: BLA, IDR, CRA and the reserved ones beside them.
    pub fn is_irap(self) -> bool {
        (16..=23).contains(&self.0)
    }

    pub fn is_idr(self) -> bool {
        self == Self::IDR_W_RADL || self == Self::IDR_N_LP
    }

    pub fn is_bla(self) -> bool {
        (16..=18).contains(&self.0)
    }

    pub fn is_rasl(self) -> bool {
        self == Self::RASL_N || self == Self::RASL_R
    }

    /// Random access decodable leading pictures.
    pub fn is_radl(self) -> bool {
        matches!(self.0, 6 | 7)
    }

    /// Sub-layer non-reference pictures, which no later POC is counted from.
    pub fn is_sub_layer_non_reference(self) -> bool {
        self.0 <= 14 && self.0.is_multiple_of(2)
    }

    /// The name of Table 7-1.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "TRAIL_N",
            1 => "TRAIL_R",
            2 => "TSA_N",
            3 => "TSA_R",
            4 => "STSA_N",
            5 => "STSA_R",
            6 => "RADL_N",
            7 => "RADL_R",
            8 => "RASL_N",
            9 => "RASL_R",
            16 => "BLA_W_LP",
            17 => "BLA_W_RADL",
            18 => "BLA_N_LP",
            19 => "IDR_W_RADL",
            20 => "IDR_N_LP",
            21 => "CRA",
            32 => "VPS",
            33 => "SPS",
            34 => "PPS",
            35 => "AUD",
            36 => "EOS",
            37 => "EOB",
            38 => "FD",
            39 => "PREFIX_SEI",
            40 => "SUFFIX_SEI",
            41..=47 => "reserved",
            48..=63 => "unspecified",
            _ => "reserved VCL",
        }
    }

    /// nal_unit_header() of layer 0, temporal sub-layer 0.
    pub fn header(self) -> [u8; 2] {
        [self.0 << 1, 1]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NalHeader {
    pub nal_type: NalType,
    pub layer_id: u8,
    pub temporal_id: u8,
}

impl NalHeader {
    /// From the first two bytes; `None` where they are missing or forbidden.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[first, second] = bytes.first_chunk()?;
        if first & 0x80 != 0 || second & 7 == 0 {
            return None;
        }
        Some(Self {
            nal_type: NalType((first >> 1) & 63),
            layer_id: ((first & 1) << 5) | (second >> 3),
            temporal_id: (second & 7) - 1,
        })
    }
}
