//! How hard the encoder tries: presets as plain settings.

/// From quick to thorough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Preset {
    Fast,
    #[default]
    Medium,
    Slow,
    Best,
}

impl Preset {
    /// Every preset, from quick to thorough.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Medium, Self::Slow, Self::Best];

    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Medium => "medium",
            Self::Slow => "slow",
            Self::Best => "best",
        }
    }
}

impl std::str::FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| format!("unknown preset `{name}`: expected fast, medium, slow or best"))
    }
}

/// What a preset switches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Price of a bit in squared quantization steps.
    pub lambda: f32,
    /// Coding-block sizes tried.
    pub max_cu_log2: u32,
    pub min_cu_log2: u32,
    /// Whether 8×8 units are tried as four 4×4.
    pub nxn: bool,
    /// Modes coded for real, by block size 4 to 32.
    pub rd_modes: [usize; 4],
    /// Distance of the angles looked at first; a power of two.
    pub angle_step: usize,
    /// Whether the most probable modes are always coded for real.
    pub try_probable: bool,
    /// Whether chroma tries other modes than luma's.
    pub chroma_modes: bool,
    /// Whether every block is also tried without its transform.
    pub transform_skip: bool,
}

impl Effort {
    /// The settings of a preset.
    pub fn of(preset: Preset) -> Self {
        let best = Self {
            lambda: 0.10,
            max_cu_log2: 5,
            min_cu_log2: 3,
            nxn: true,
            rd_modes: [3, 3, 2, 2],
            angle_step: 1,
            try_probable: true,
            chroma_modes: true,
            transform_skip: true,
        };
        match preset {
            Preset::Best => best,
            Preset::Slow => Self { rd_modes: [2, 2, 1, 1], angle_step: 2, try_probable: false, ..best },
            Preset::Medium => Self {
                rd_modes: [1; 4],
                angle_step: 4,
                nxn: false,
                try_probable: false,
                chroma_modes: false,
                ..best
            },
            Preset::Fast => Self {
                rd_modes: [1; 4],
                angle_step: 8,
                nxn: false,
                min_cu_log2: 4,
                try_probable: false,
                chroma_modes: false,
                transform_skip: false,
                ..best
            },
        }
    }
}
