//! Our own CUDA kernels, compiled with NVRTC when a GPU is there.

/// Takes the window of a decoded luma plane and writes it as a tensor:
/// `out = (sample - zero) * scale` with one scale a row. 16-bit samples sit in
/// the high bits of their words, as NVDEC leaves them.
pub const DEQUANTIZE: &str = r#"
extern "C" __global__ void dequantize(const unsigned char* plane, unsigned long long pitch, int deep_shift,
                                      int left, int top, int width, int height,
                                      const float* row_scale, float zero, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const unsigned char* row = plane + (unsigned long long)(top + y) * pitch;
    float sample = deep_shift < 0 ? (float)row[left + x]
                                  : (float)(((const unsigned short*)row)[left + x] >> deep_shift);
    out[(unsigned long long)y * width + x] = (sample - zero) * row_scale[y];
}
"#;

/// Adds sparse values into a dense tensor. Indices within a chunk are
/// distinct (a delta names each element once), so no atomics are needed.
pub const SCATTER_ADD: &str = r#"
extern "C" __global__ void scatter_add(float* tensor, const unsigned int* index, const float* value, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tensor[index[i]] += value[i];
}
"#;
