// ---- the step that a tensor asks for --------------------------------------

// Threads of a block that measures, and parts that a tensor is measured in: sums are always taken in the same order.
constexpr u32 MEASURE_THREADS = 512;
constexpr u32 PARTS = 64;

// The sum over a block of so many threads.
__device__ __forceinline__ float sum_of_block(float sum) {
    __shared__ float sums[MEASURE_THREADS / 32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < MEASURE_THREADS / 32 ? sums[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    __syncthreads();
    return sum;
}

// Mean squares of parts of every tensor, one after the other.
extern "C" __global__ void __launch_bounds__(MEASURE_THREADS)
line_measure(const __grid_constant__ Places from, u32 count, u64 values, float* parts) {
    constexpr u32 AHEAD = 8;
    const u64 per_part = (values + PARTS - 1) / PARTS;
    for (u32 index = blockIdx.x; index < count * PARTS; index += gridDim.x) {
        const Stored* const tensor = (const Stored*)from.of(index / PARTS);
        const u64 begin = index % PARTS * per_part, end = min(begin + per_part, values);
        float sum = 0.0f;
        u64 i = begin + threadIdx.x;
        for (; i + (AHEAD - 1) * MEASURE_THREADS < end; i += AHEAD * MEASURE_THREADS) {
            float value[AHEAD];
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) value[j] = load(__ldg(tensor + i + j * MEASURE_THREADS));
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) sum += value[j] * value[j];
        }
        for (; i < end; i += MEASURE_THREADS) {
            const float value = load(__ldg(tensor + i));
            sum += value * value;
        }
        sum = sum_of_block(sum);
        if (threadIdx.x == 0) parts[index] = sum / (float)values;
    }
}

// Steps from mean squares, a warp a tensor: so many of the plan's for a root of one, times a gain of the tensor's own.
// A tensor of zeros takes the plan's; one that is not finite has none.
extern "C" __global__ void line_steps(const float* parts, const float* gains, u32 count, float relative, float* steps) {
    const u32 lane = threadIdx.x % 32, item = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (item >= count) return;
    float sum = 0.0f;
    for (u32 i = lane; i < PARTS; i += 32) sum += parts[item * PARTS + i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    if (lane != 0) return;
    const float gain = gains == nullptr ? 1.0f : gains[item];
    const float step = sum == 0.0f ? relative : relative * gain * sqrtf(sum);
    steps[item] = is_step(step) ? step : __uint_as_float(0x7fc00000);
}
