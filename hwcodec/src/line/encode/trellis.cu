
// Encoding: values to levels to words, tiles into their rooms.

// Nothing is clamped without a transform: what is kept is far below the limit.
__device__ __forceinline__ int to_target(const Plan& p, float scaled) {
    // Below 2^22 the sum with this has the nearest integer in its low bits.
    if (SIZE == 0) return __float_as_int(__fadd_rn(scaled, 12582912.0f)) - __float_as_int(12582912.0f);
    return min(max(__float2int_rn(scaled), -p.limit), p.limit);
}

__device__ __forceinline__ int quarter_log2(u64 value) {
    int octave = 63 - __clzll((long long)value);
    u64 mantissa = octave > 16 ? value >> (octave - 16) : value << (16 - octave);
    return 4 * octave + (mantissa >= 71468) + (mantissa >= 84990) + (mantissa >= 101070) + (mantissa >= 120194);
}

// The sum over a warp, in parts whose own sums fit a word.
__device__ __forceinline__ u64 sum_of_lanes(u64 sum) {
#if __CUDA_ARCH__ < 800
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    return sum;
#else
    constexpr u32 BITS = 26, MASK = (1u << BITS) - 1;
    const u32 low = __reduce_add_sync(ALL, (u32)sum & MASK);
    const u32 middle = __reduce_add_sync(ALL, (u32)(sum >> BITS) & MASK);
    const u32 high = __reduce_add_sync(ALL, (u32)(sum >> 2 * BITS));
    return low + ((u64)middle << BITS) + ((u64)high << 2 * BITS);
#endif
}

__device__ __forceinline__ int reduced(int residual, u32 gain) {
    if (gain == 0) return residual;
    int divisor = (int)((4 + (gain & 3)) << (gain >> 2));
    int magnitude = (4 * abs(residual) + divisor / 2) / divisor;
    return residual < 0 ? -magnitude : magnitude;
}

__device__ __forceinline__ int square(int distance) {
    int near = min(abs(distance), FAR);
    return near * near;
}

// What a target is to the search: its magnitude, and what turns a level into
// its symbol's magnitude.
struct Goal {
    int magnitude, offset;
    u32 raw;

    __device__ __forceinline__ Goal(int target, u32 raw_bits) {
        magnitude = abs(target);
        raw = raw_bits;
        int half = (1 << raw) >> 1;
        offset = target < 0 ? max(half - 1, 0) : half;
    }

    // A distance of 48 units at most, and the symbol.
    __device__ __forceinline__ int cost(const int* costs, int distance, int level) const {
        return distance * distance + costs[min((level + offset) >> raw, ESCAPE)];
    }
};

// Bits that a step leaves for the way back: one a state, set where it was
// reached by an odd level, and one a quantizer, set where zero costs less than
// the nearest even level. As many steps as a word holds are taken together.
constexpr int STEP_BITS = STATES + 2;
constexpr u32 TOGETHER = LOG2_STATES == 0 ? 4 : 32 / STEP_BITS;
// Costs of so many steps stay far from overflowing.
constexpr u32 SETTLE = 15 / TOGETHER;
// The last steps of a kept row that are taken together.
constexpr u32 KEPT_LAST = ROW_STEPS > TOGETHER ? ROW_STEPS - TOGETHER : 0;

// Survivors of a lane.
struct Path {
    int cost[STATES];

    __device__ __forceinline__ void start(u32 state) {
        #pragma unroll
        for (int s = 0; s < STATES; s++) cost[s] = s == (int)state ? 0 : NEVER;
    }

    // Extends all survivors by a value. For a quantizer z and a parity b the
    // nearest level is 2 ((magnitude - 32 b + 16 z + 32) >> 6) + b. A decision is
    // the sign of a difference, shifted in behind those made before.
    __device__ __forceinline__ u32 step(const Goal& goal, const int* costs) {
        const int zero = square(goal.magnitude);
        int of[2][2];
        u32 decisions = 0;
        #pragma unroll
        for (int z = 1; z >= 0; z--) {
            const int* table = costs + 16 * z;
            const int even = goal.magnitude + 16 * z + 32, half = even >> 6;
            const int cost = goal.cost(table, (even & 63) - (z && half == 0 ? 48 : 32), 2 * half);
            const int none = zero + table[0];
            decisions = __funnelshift_l(none - cost, decisions, 1);
            of[z][0] = min(none, cost);
            const int odd = goal.magnitude + 16 * z;
            of[z][1] = goal.cost(table, (odd & 63) - 32, 2 * (odd >> 6) + 1);
        }
        int next[STATES];
        #pragma unroll
        for (int t = STATES - 1; t >= 0; t--) {
            const int quantizer = t < STATES / 2 ? 0 : 1, base = quantizer ? t ^ H0 : t;
            const int even = cost[2 * base + quantizer] + of[quantizer][0];
            const int odd = cost[2 * (base ^ H1) + quantizer] + of[quantizer][1];
            decisions = __funnelshift_l(odd - even, decisions, 1);
            next[t] = min(even, odd);
        }
        #pragma unroll
        for (int t = 0; t < STATES; t++) cost[t] = next[t];
        return decisions;
    }

    // Takes the least from all, so that sums stay small; decisions do not change.
    __device__ __forceinline__ void settle() {
        int least = cost[0];
        #pragma unroll
        for (int s = 1; s < STATES; s++) least = min(least, cost[s]);
        #pragma unroll
        for (int s = 0; s < STATES; s++) cost[s] = min(cost[s] - least, NEVER);
    }

    __device__ __forceinline__ u32 best() const {
        u32 state = 0;
        int least = cost[0];
        #pragma unroll
        for (int s = 1; s < STATES; s++) {
            if (cost[s] < least) {
                least = cost[s];
                state = s;
            }
        }
        return state;
    }
};

// One step back along the best path: the level there, and the state before.
__device__ __forceinline__ int back(u32& state, u32 decisions, int target) {
    const u32 odd = decisions >> state & 1, quantizer = state >> (LOG2_STATES == 0 ? 0 : LOG2_STATES - 1);
    const bool none = !odd && decisions >> (STATES + quantizer) & 1;
    int level = none ? 0 : 2 * ((int)(abs(target) - 32 * odd + 16 * quantizer + 32) >> 6) + (int)odd;
    state = 2 * (state ^ (quantizer ? H0 : 0) ^ (odd ? H1 : 0)) + quantizer;
    return target < 0 ? -level : level;
}

