//! A GPU's parts in files, and what follows from them.
//!
//! A GPU file may state totals, as datasheets do, or parts, or both; where it
//! states both, totals decide unless `model = "parts"`, and `trinity validate`
//! holds what the parts give against what the datasheet says.

use super::names::names;
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Complaint, DataRate, DataSize, Diagnostic, Frequency};
use trinity_silicon::die::{Constants, Error, Sm, Wafer};
use trinity_sim::die::{Die, MatrixRates, Roofline};

settable! {
    PartsFile { process, dies, sms, spare_sms, clock, matrix_clock, nominal_clock, sm, l2, memory, links, pcie_lanes, engines, wafer }
    WaferFile { usd, defects_per_cm2 }
    SmFile { fp32_lanes, fp64_lanes, matrix_fma, matrix_fp32, matrix_fp16, matrix_fp8, special, registers, shared, sharing_loads, graphics }
    L2File { size, spare, bytes_per_clock }
    MemoryFile { kind, count, spare, rate, capacity }
    LinksFile { kind, count, bandwidth }
}

names! {
    /// What a GPU is modelled by.
    GpuModelName {
        /// Stated rates and efficiency curves.
        Totals,
        /// Its parts: rates, area and power follow, kernels see every cache level.
        Parts,
    }
}

/// A GPU by its parts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PartsFile {
    /// Process, such as `7nm` or `4n`.
    pub process: String,
    /// Dies in the package, which share all parts out evenly; one where it is not said.
    #[serde(default = "one")]
    pub dies: u32,
    /// SMs or CUs that work.
    pub sms: u32,
    /// Built, and fused off.
    #[serde(default)]
    pub spare_sms: u32,
    /// Boost clock, which vector rates are stated at.
    pub clock: Frequency,
    /// Clock that matrix rates are stated at, if another.
    pub matrix_clock: Option<Frequency>,
    /// Clock that the circuits reach at nominal supply; the boost clock where it is
    /// not said. What is clocked higher takes more supply, and so more energy.
    pub nominal_clock: Option<Frequency>,
    pub sm: SmFile,
    pub l2: L2File,
    pub memory: MemoryFile,
    pub links: Option<LinksFile>,
    #[serde(default = "sixteen")]
    pub pcie_lanes: u32,
    /// NVDEC and NVENC engines.
    #[serde(default)]
    pub engines: u32,
    /// What wafers cost: yield and the cost of a good die and of a package are then told.
    pub wafer: Option<WaferFile>,
}

/// A wafer of the process.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WaferFile {
    /// Its price.
    pub usd: f64,
    pub defects_per_cm2: f64,
}

fn sixteen() -> u32 {
    16
}

/// One SM or CU.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SmFile {
    pub fp32_lanes: u32,
    pub fp64_lanes: u32,
    /// FP16 multiply-adds of the matrix units in a clock, as built.
    pub matrix_fma: u32,
    /// FLOPs of the matrix units in a clock, FP32 or TF32.
    pub matrix_fp32: u32,
    /// FP16 with FP32 accumulation.
    pub matrix_fp16: u32,
    /// FP8, where the matrix units have it.
    #[serde(default)]
    pub matrix_fp8: u32,
    /// Exponentials in a clock.
    #[serde(default = "sixteen")]
    pub special: u32,
    /// Register file.
    pub registers: DataSize,
    /// Shared memory and L1.
    pub shared: DataSize,
    /// SMs that share what one of them loads.
    #[serde(default = "one")]
    pub sharing_loads: u32,
    /// Ray tracing, rasterizers and ROPs come with it.
    #[serde(default)]
    pub graphics: bool,
}

fn one() -> u32 {
    1
}

/// The L2.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct L2File {
    pub size: DataSize,
    #[serde(default)]
    pub spare: DataSize,
    /// All slices together.
    pub bytes_per_clock: u32,
}

/// Stacks or channels of memory.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MemoryFile {
    /// Such as `hbm3` or `gddr6`.
    pub kind: String,
    /// HBM stacks, or 32-bit channels.
    pub count: u32,
    #[serde(default)]
    pub spare: u32,
    /// Of one pin.
    pub rate: DataRate,
    /// Of one stack or channel.
    pub capacity: DataSize,
}

/// Links to other GPUs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinksFile {
    /// Such as `nvlink4`.
    pub kind: String,
    pub count: u32,
    /// One link, one direction.
    pub bandwidth: DataRate,
}

impl PartsFile {
    /// The model's view, under a power limit. Fails where there are no data for
    /// the process, the memory or the links.
    pub fn resolve(&self, power_limit_w: f64) -> Result<Die, Error> {
        let constants = Constants::committed()?;
        let link = self.links.as_ref();
        let mib = |size: DataSize| size.bytes() / 1_048_576.0;
        let mut die = Die {
            constants,
            process: constants.process(&self.process)?,
            sms: f64::from(self.sms),
            spare_sms: f64::from(self.spare_sms),
            sm: Sm {
                fp32_lanes: f64::from(self.sm.fp32_lanes),
                fp64_lanes: f64::from(self.sm.fp64_lanes),
                matrix_fma: f64::from(self.sm.matrix_fma),
                register_kib: self.sm.registers.bytes() / 1024.0,
                shared_kib: self.sm.shared.bytes() / 1024.0,
                graphics: self.sm.graphics,
            },
            matrix_flop_per_clock: MatrixRates {
                fp32: f64::from(self.sm.matrix_fp32),
                fp16: f64::from(self.sm.matrix_fp16),
                fp8: f64::from(self.sm.matrix_fp8),
            },
            special_per_clock: f64::from(self.sm.special),
            sms_sharing_loads: f64::from(self.sm.sharing_loads),
            clock_hz: self.clock.hz(),
            matrix_clock_hz: self.matrix_clock.unwrap_or(self.clock).hz(),
            nominal_hz: self.nominal_clock.map_or(0.0, |clock| clock.hz()),
            l2_mib: mib(self.l2.size),
            spare_l2_mib: mib(self.l2.spare),
            l2_bytes_per_clock: f64::from(self.l2.bytes_per_clock),
            memory: constants.memory(&self.memory.kind)?,
            memory_units: f64::from(self.memory.count),
            spare_memory_units: f64::from(self.memory.spare),
            memory_bits_per_s_per_pin: self.memory.rate.bit_per_s(),
            memory_bytes_per_unit: self.memory.capacity.bytes(),
            link: constants.link(link.map_or("none", |link| link.kind.as_str()))?,
            links: link.map_or(0.0, |link| f64::from(link.count)),
            link_bytes_per_s: link.map_or(0.0, |link| link.bandwidth.byte_per_s()),
            pcie_lanes: f64::from(self.pcie_lanes),
            engines: f64::from(self.engines),
            dies: f64::from(self.dies.max(1)),
            wafer: self.wafer.as_ref().map_or(Wafer::default(), |wafer| Wafer {
                usd: wafer.usd,
                defects_per_cm2: wafer.defects_per_cm2,
            }),
            power_limit_w,
            roofline: Roofline::default(),
        };
        die.settle();
        Ok(die)
    }

    /// Complains about parts that no die can be made of. Fails where a count or
    /// size is none, or there are no data for it.
    pub fn check_at(&self, at: &At<'_>, power_w: f64) -> Result<Die, Diagnostic> {
        at.positive(&[
            ("dies", f64::from(self.dies)),
            ("wafer.usd", self.wafer.as_ref().map_or(1.0, |wafer| wafer.usd)),
            ("wafer.defects-per-cm2", self.wafer.as_ref().map_or(1.0, |wafer| wafer.defects_per_cm2)),
            ("sms", f64::from(self.sms)),
            ("clock", self.clock.hz()),
            ("nominal-clock", self.nominal_clock.unwrap_or(self.clock).hz()),
            ("sm.fp32-lanes", f64::from(self.sm.fp32_lanes)),
            ("sm.matrix-fp16", f64::from(self.sm.matrix_fp16)),
            ("sm.registers", self.sm.registers.bytes()),
            ("sm.shared", self.sm.shared.bytes()),
            ("sm.special", f64::from(self.sm.special)),
            ("l2.size", self.l2.size.bytes()),
            ("l2.bytes-per-clock", f64::from(self.l2.bytes_per_clock)),
            ("memory.count", f64::from(self.memory.count)),
            ("memory.rate", self.memory.rate.bit_per_s()),
            ("memory.capacity", self.memory.capacity.bytes()),
        ])?;
        self.resolve(power_w).map_err(|error| {
            let key = match error {
                Error::Process { .. } => "process",
                Error::Memory { .. } => "memory.kind",
                Error::Link { .. } => "links.kind",
                _ => "sms",
            };
            at.complain(key, &Complaint::new(error))
        })
    }

    /// Complains about a die that no reticle holds, or with more PHYs than edge; `at` is the GPU's table.
    pub(super) fn check_buildable(&self, at: &At<'_>, die: &Die) -> Result<(), Diagnostic> {
        let Err(error) = die.buildable(0.0) else { return Ok(()) };
        let (key, help) = match error {
            Error::Shoreline { .. } => {
                ("parts.memory.count", "fewer stacks, channels or links, or a larger die")
            }
            Error::Clock { .. } => ("parts.clock", "a lower clock, or a process with faster transistors"),
            Error::Power { .. } => ("power", "a higher limit, or a smaller die, which leaks less"),
            _ => ("parts.sms", "fewer SMs, less L2, fewer stacks, or a denser process"),
        };
        Err(at.complain(key, &Complaint::new(error).help(help)))
    }
}

/// One line of what follows from a GPU's parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub how: String,
}

/// What follows from a die: totals, then area by part, then cost if asked for.
pub fn derived(die: &Die, with_cost: bool) -> Vec<Derived> {
    let peak = die.peak_flops();
    let line = |name: &str, value: f64, unit, how: String| Derived { name: name.into(), value, unit, how };
    let matrix = |rate: f64| format!("{} SMs × {rate} FLOP × {:.3} GHz", die.sms, die.matrix_clock_hz / 1e9);
    let rates = die.matrix_flop_per_clock;
    let roofline = &die.roofline;
    let mut lines = vec![
        line("fp32", peak.fp32 / 1e12, "TFLOP/s", matrix(rates.fp32)),
        line("fp16", peak.fp16 / 1e12, "TFLOP/s", matrix(rates.fp16)),
        line("fp8", peak.fp8 / 1e12, "TFLOP/s", matrix(rates.fp8)),
        line(
            "vector",
            peak.vector / 1e12,
            "TFLOP/s",
            format!("{} SMs × {} lanes × 2 × {:.3} GHz", die.sms, die.sm.fp32_lanes, die.clock_hz / 1e9),
        ),
        line(
            "memory",
            die.memory_bytes() / 1e9,
            "GB",
            format!("{} × {:.1} GB", die.memory_units, die.memory_bytes_per_unit / 1e9),
        ),
        line(
            "memory-bandwidth",
            die.memory_bytes_per_s() / 1e9,
            "GB/s",
            format!("{} × bus × {:.3} Gbit/s a pin", die.memory_units, die.memory_bits_per_s_per_pin / 1e9),
        ),
        line(
            "L2 bandwidth",
            die.l2_bytes_per_s() / 1e9,
            "GB/s",
            format!("{} bytes × {:.3} GHz", die.l2_bytes_per_clock, die.clock_hz / 1e9),
        ),
        line(
            "links",
            die.links_bytes_per_s() / 1e9,
            "GB/s",
            format!("{} × {:.0} GB/s, one direction", die.links, die.link_bytes_per_s / 1e9),
        ),
        line(
            "matrix clock",
            roofline.sustained_clock_hz / 1e9,
            "GHz",
            format!("a large FP16 product under {:.0} W", die.power_limit_w),
        ),
        line("power", roofline.busy_power_w, "W", "a large FP16 product".into()),
        line("idle power", roofline.idle_power_w, "W", "leakage and clock tree at the boost clock".into()),
    ];
    for (name, mm2) in die.area(0.0).named() {
        if mm2 > 0.0 {
            lines.push(line(&format!("area: {name}"), mm2, "mm2", String::new()));
        }
    }
    lines.push(line("area", roofline.area_mm2, "mm2", "sum of the parts, spares included".into()));
    if let Some(cost) = die.cost(0.0).filter(|_| with_cost) {
        let how = format!(
            "assumed: {:.0} dies a wafer, {:.0} % good; {:.0} USD die, {:.0} USD memory, {:.0} USD package",
            cost.dies_per_wafer,
            cost.yield_fraction * 100.0,
            cost.die_usd,
            cost.memory_usd,
            cost.packaging_usd
        );
        lines.push(line("cost", cost.total_usd(), "USD", how));
    }
    lines
}
