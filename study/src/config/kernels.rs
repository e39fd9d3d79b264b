//! Measured kernels in files: curves that `cargo xtask kernels` distilled.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Complaint, DataRate, Diagnostic, FlopRate};
use trinity_sim::kernels::{Device, Kernels, Kind, Measured, Steps};

/// What kernels take on one GPU type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KernelsFile {
    /// The GPU type.
    pub gpu: String,
    /// Datasheet figures that rooflines are drawn with.
    pub device: DeviceFile,
    pub curves: Vec<CurveFile>,
}

/// Datasheet figures of the measured GPU.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeviceFile {
    pub bf16: FlopRate,
    /// The BF16 rate where there is no FP8.
    pub fp8: FlopRate,
    /// The FP8 rate where there is no FP4.
    pub fp4: FlopRate,
    pub memory_bandwidth: DataRate,
    /// Links to other GPUs of a node, one direction.
    pub link_bandwidth: DataRate,
    pub sms: u32,
}

/// One curve: corrections of a roofline at the knots of its family.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CurveFile {
    /// `matmul`, `context-attention`, `moe` and so on.
    pub family: String,
    /// A number format, or several by operator, or a collective's name.
    pub variant: String,
    /// Framework and version that ran the kernels.
    pub from: String,
    /// Kernels that the curve was fitted on.
    pub fitted: usize,
    /// Mean relative error on kernels that it was not fitted on.
    pub unseen: UnseenFile,
    /// Least and greatest measured value of each coordinate.
    pub ranges: Vec<(f64, f64)>,
    /// Natural logarithm that digit 0 stands for.
    pub low: f64,
    pub step: f64,
    /// One byte for each knot, in base64.
    pub values: String,
}

/// Errors on the fifth of the kernels that was kept back.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UnseenFile {
    /// Kernels above 50 µs.
    pub long: usize,
    pub long_mape: f64,
    /// Kernels up to 50 µs.
    pub short: usize,
    pub short_mape: f64,
}

impl CurveFile {
    /// What the curve is of, where its name is known.
    pub fn kind(&self) -> Option<Kind> {
        Kind::named(&self.family, &self.variant)
    }
}

impl KernelsFile {
    /// The simulator's form of it. Fails at the first curve that is none.
    pub fn resolve(&self, at: &At<'_>) -> Result<Kernels, Diagnostic> {
        let mut measured = Vec::with_capacity(self.curves.len());
        for (k, curve) in self.curves.iter().enumerate() {
            let Some(kind) = curve.kind() else {
                let CurveFile { variant, family, .. } = curve;
                let complaint = format!("there are no kernels `{variant}` of family `{family}`");
                return Err(at.complain(format_args!("curves.{k}.variant"), &Complaint::new(complaint)));
            };
            measured.push(Measured {
                kind,
                ranges: curve.ranges.clone(),
                steps: Steps { low: curve.low, step: curve.step },
                digits: &curve.values,
            });
        }
        Kernels::new(&self.gpu, self.device.resolve(), &measured)
            .map_err(|error| at.complain("curves", &Complaint::new(error)))
    }
}

impl DeviceFile {
    fn resolve(&self) -> Device {
        Device {
            bf16_flops: self.bf16.flop_per_s(),
            fp8_flops: self.fp8.flop_per_s(),
            fp4_flops: self.fp4.flop_per_s(),
            memory_bytes_per_s: self.memory_bandwidth.byte_per_s(),
            link_bytes_per_s: self.link_bandwidth.byte_per_s(),
            sms: f64::from(self.sms),
        }
    }
}

impl Checked for KernelsFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let device = self.device.resolve();
        at.table("device").positive(&[
            ("bf16", device.bf16_flops),
            ("fp8", device.fp8_flops),
            ("fp4", device.fp4_flops),
            ("memory-bandwidth", device.memory_bytes_per_s),
            ("link-bandwidth", device.link_bytes_per_s),
            ("sms", device.sms),
        ])?;
        self.resolve(at).map(drop)
    }
}
