//! Our own CUDA kernels, compiled with NVRTC when a GPU is there.

use cudarc::driver::LaunchConfig;

pub(crate) fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// Adds sparse values into a dense tensor. Indices within a chunk are
/// distinct (a delta names each element once), so no atomics are needed.
pub const SCATTER_ADD: &str = r#"
extern "C" __global__ void scatter_add(float* tensor, const unsigned int* index, const float* value, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tensor[index[i]] += value[i];
}
"#;

/// One block a chunk: the running sum of gaps gives the indices, to which the
/// values are added. Chunks hold `stride` words each; blocks have 1024 threads.
/// `add_whole_gaps` takes gaps as whole numbers in single precision, `centre` less than they are.
pub const ADD_GAPS: &str = r#"
template <class Gap>
__device__ void add(float* tensor, const Gap* gaps, const float* values, const unsigned int* bases,
                    const unsigned int* counts, unsigned int stride, Gap centre) {
    __shared__ unsigned int of_warp[32];
    const unsigned int chunk = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned int n = counts[chunk];
    gaps += (unsigned long long)chunk * stride;
    values += (unsigned long long)chunk * stride;
    unsigned int before = bases[chunk];
    for (unsigned int first = 0; first < n; first += 1024) {
        const unsigned int i = first + threadIdx.x;
        unsigned int sum = i < n ? (unsigned int)(gaps[i] + centre) : 0;
        for (int step = 1; step < 32; step *= 2) {
            unsigned int other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) of_warp[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            unsigned int total = of_warp[lane];
            for (int step = 1; step < 32; step *= 2) {
                unsigned int other = __shfl_up_sync(~0u, total, step);
                if (lane >= step) total += other;
            }
            of_warp[lane] = total;
        }
        __syncthreads();
        const unsigned int index = before + sum + (warp > 0 ? of_warp[warp - 1] : 0);
        if (i < n) tensor[index] += values[i];
        before += of_warp[31];
        __syncthreads();
    }
}
extern "C" __global__ void add_gaps(float* tensor, const unsigned int* gaps, const float* values,
                                    const unsigned int* bases, const unsigned int* counts, unsigned int stride) {
    add<unsigned int>(tensor, gaps, values, bases, counts, stride, 0);
}
extern "C" __global__ void add_whole_gaps(float* tensor, const float* gaps, const float* values,
                                          const unsigned int* bases, const unsigned int* counts, unsigned int stride,
                                          float centre) {
    add<float>(tensor, gaps, values, bases, counts, stride, centre);
}
"#;

/// Adds a difference to every value.
pub const ADD_DENSE: &str = r#"
extern "C" __global__ void add_dense(float* tensor, const float* difference, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tensor[i] += difference[i];
}
"#;

/// Streams for the compute measurements: 16-byte words, one a thread. `triad`
/// reads two and writes one, and done twice gives back what it began with; `tiny` does next to nothing.
pub const STREAMS: &str = r#"
extern "C" __global__ void copy(const uint4* in, uint4* out, const uint4* unused, unsigned long long words) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) out[i] = in[i];
}
extern "C" __global__ void triad(const uint4* in, uint4* out, const uint4* other, unsigned long long words) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) {
        uint4 a = in[i], b = other[i];
        const unsigned int low = 0x000f000f;
        out[i] = make_uint4(a.x ^ (b.x & low), a.y ^ (b.y & low), a.z ^ (b.z & low), a.w ^ (b.w & low));
    }
}
extern "C" __global__ void tiny(const uint4* in, uint4* out, const uint4* other, unsigned long long words) {
    if (threadIdx.x == 0 && words == 0) out[0] = in[0];
}
"#;
