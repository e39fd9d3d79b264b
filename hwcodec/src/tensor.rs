//! Decoded pictures as tensors, without leaving the GPU.

use crate::Error;
use crate::error::During;
use crate::gpu::Gpu;
use crate::kernels;
use crate::nvdec::Surface;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

/// Turns luma samples into f32 values with one scale a row.
#[derive(Debug, Clone)]
pub struct Dequantizer {
    kernel: CudaFunction,
}

impl Dequantizer {
    /// Compiles the kernel for a GPU.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { kernel: gpu.compile(kernels::DEQUANTIZE, "dequantize")? })
    }

    /// Queues `out[y][x] = (sample - zero) * row_scale[y]` over the surface's
    /// visible window. Call it from a decode sink, with the sink's stream.
    pub fn apply(
        &self,
        surface: &Surface,
        stream: &CudaStream,
        row_scale: &CudaSlice<f32>,
        zero: f32,
        out: &mut CudaSlice<f32>,
    ) -> Result<(), Error> {
        let (left, top, width, height) = surface.window;
        if row_scale.len() < height || out.len() < width * height {
            return Err(Error::Cuda {
                call: "dequantize",
                code: 1,
                meaning: format!(
                    "a {width}×{height} picture needs {height} scales and {} values of room",
                    width * height
                ),
            });
        }
        let deep_shift: i32 = if surface.depth > 8 { 16 - surface.depth as i32 } else { -1 };
        let (pitch, [left, top, w, h]) = (surface.pitch as u64, [left, top, width, height].map(|v| v as i32));
        let mut launch = stream.launch_builder(&self.kernel);
        launch.arg(&surface.address).arg(&pitch).arg(&deep_shift).arg(&left).arg(&top).arg(&w).arg(&h);
        launch.arg(row_scale).arg(&zero).arg(out);
        let config = LaunchConfig {
            grid_dim: ((width as u32).div_ceil(32), (height as u32).div_ceil(8), 1),
            block_dim: (32, 8, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the surface is mapped while the sink runs and unmapping waits
        // for this stream; sizes were checked above; the argument list is the kernel's.
        unsafe { launch.launch(config) }.during("dequantize")?;
        Ok(())
    }
}
