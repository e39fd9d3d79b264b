//! Area, power and throughput, and the choices a comparison must state.

/// What some silicon costs and delivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub area_mm2: f64,
    /// Power at full throughput.
    pub power_w: f64,
    /// Input of an encoder, output of a decoder.
    pub throughput_gbps: f64,
}

impl Cost {
    /// `count` copies side by side.
    pub fn instances(self, count: f64) -> Self {
        Self {
            area_mm2: self.area_mm2 * count,
            power_w: self.power_w * count,
            throughput_gbps: self.throughput_gbps * count,
        }
    }

    /// Energy of one bit at full throughput.
    pub fn energy_pj_per_bit(&self) -> f64 {
        self.power_w / self.throughput_gbps * 1e3
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    /// Blocks in series: areas and powers add, the slower sets the pace.
    fn add(self, other: Self) -> Self {
        Self {
            area_mm2: self.area_mm2 + other.area_mm2,
            power_w: self.power_w + other.power_w,
            throughput_gbps: self.throughput_gbps.min(other.throughput_gbps),
        }
    }
}

/// Which of Table 3's two contradicting columns energy is taken from.
///
/// Its printed energy is 11–15 times its power divided by 100 Gb/s, except
/// that nothing in the text says why; both readings are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyColumn {
    /// The column as printed; the headlines 31.7× and 4.32× use it.
    Printed,
    /// Power over throughput; the headlines become 376× and 4.93×.
    PowerOverThroughput,
}

impl EnergyColumn {
    /// The name used in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Printed => "printed",
            Self::PowerOverThroughput => "power-over-throughput",
        }
    }
}

/// What one codec instance delivers: a choice that moves area up to sixfold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InstanceRate {
    /// 3840×2160 at 60 frames/s with 4:2:0 chroma (LLM.265 §6.2), 5.97 Gb/s.
    Paper4k60,
    /// 4K60 of which only luma carries tensor values (LLM.265 §3.2), 3.98 Gb/s.
    Luma4k60,
    /// xk264's own page: 1920×1080 at 60 frames/s, 4:2:0, 1.49 Gb/s.
    Xk2641080p60,
    /// xk265's own page: 4K at 30 frames/s at 400 MHz, 4:2:0, 2.99 Gb/s.
    Xk2654k30,
    /// Luma of 1920×1080 at 60 frames/s, 0.995 Gb/s.
    Luma1080p60,
    /// Anything else.
    Gbps(f64),
}

impl InstanceRate {
    /// 8-bit samples of this format, in Gb/s.
    pub fn gbps(self) -> f64 {
        let video =
            |width: f64, height: f64, fps: f64, samples: f64| width * height * fps * samples * 8.0 / 1e9;
        match self {
            Self::Paper4k60 => video(3840.0, 2160.0, 60.0, 1.5),
            Self::Luma4k60 => video(3840.0, 2160.0, 60.0, 1.0),
            Self::Xk2641080p60 => video(1920.0, 1080.0, 60.0, 1.5),
            Self::Xk2654k30 => video(3840.0, 2160.0, 30.0, 1.5),
            Self::Luma1080p60 => video(1920.0, 1080.0, 60.0, 1.0),
            Self::Gbps(gbps) => gbps,
        }
    }

    /// Instances that together deliver `target_gbps`, not rounded: the paper
    /// normalizes areas the same way.
    pub fn instances_for(self, target_gbps: f64) -> f64 {
        target_gbps / self.gbps()
    }
}

/// What cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what} must be positive, not {value}")]
    NotPositive { what: &'static str, value: f64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_worth_what_the_anchors_say() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.005, "{a} {b}");
        near(InstanceRate::Luma4k60.gbps(), 3.98);
        near(InstanceRate::Paper4k60.gbps(), 5.97);
        near(InstanceRate::Luma4k60.instances_for(100.0), 25.1);
        near(InstanceRate::Paper4k60.instances_for(100.0), 16.75);
        near(InstanceRate::Paper4k60.gbps() / InstanceRate::Luma1080p60.gbps(), 6.0);
    }

    #[test]
    fn the_slower_block_sets_the_pace() {
        let fast = Cost { area_mm2: 1.0, power_w: 2.0, throughput_gbps: 100.0 };
        let slow = Cost { area_mm2: 0.5, power_w: 1.0, throughput_gbps: 40.0 };
        assert_eq!(fast + slow, Cost { area_mm2: 1.5, power_w: 3.0, throughput_gbps: 40.0 });
    }
}
