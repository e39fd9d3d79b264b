// What a search looks up instead of computing it, and survivors that keep their decisions below their costs.

// Tiles whose values depend on nothing but themselves, in rows that are coded together.
constexpr bool QUICK_SEARCH = LOG2_STATES != 0 && ROW_STEPS != 0 && SIZE == 0 && !PREDICTS && !MEANS && LOG2_LANES == 5;

// Steps whose decisions lie below costs, a bit each, the first the lowest: of equal costs the even level is less,
// whatever was decided before.
constexpr u32 NOTED = 4;
constexpr u32 NEAR = 512;
// Added to a magnitude below 2^22, this leaves the nearest integer in the low bits.
constexpr float MAGIC = 12582912.0f;
constexpr u32 MAGIC_BITS = 0x4b400000;
// Magnitudes below this are those of values that need not be kept exactly.
constexpr u32 SAFE_BITS = MAGIC_BITS + (1u << 19);

// Candidates of a value: by quantizer and parity, what they cost and which levels they are.
struct Candidates {
    int cost[2][2], level[2][2];
    u32 zeros;  // by quantizer, a bit each: zero costs less than the nearest even level

    __device__ __forceinline__ Candidates(const Goal& goal, const int* costs) {
        const int zero = square(goal.magnitude);
        zeros = 0;
        #pragma unroll
        for (int z = 0; z < 2; z++) {
            const int* table = costs + 16 * z;
            const int even = goal.magnitude + 16 * z + 32, half = even >> 6;
            const int some = goal.cost(table, (even & 63) - (z && half == 0 ? 48 : 32), 2 * half);
            const int none = zero + table[0];
            cost[z][0] = min(none, some);
            level[z][0] = none < some ? 0 : 2 * half;
            zeros |= (u32)(none < some) << z;
            const int odd = goal.magnitude + 16 * z;
            level[z][1] = 2 * (odd >> 6) + 1;
            cost[z][1] = goal.cost(table, (odd & 63) - 32, level[z][1]);
        }
    }
};

// Survivors whose costs are multiplied by 2^NOTED.
struct NotedPath {
    int cost[STATES];

    __device__ __forceinline__ void start() {
        #pragma unroll
        for (int s = 0; s < STATES; s++) cost[s] = s == 0 ? 0 : NEVER;
    }

    // Costs of candidates by quantizer and parity, of the step of that number.
    __device__ __forceinline__ void step(int even0, int odd0, int even1, int odd1, int number) {
        const int even[2] = {even0, even1}, odd[2] = {odd0 + (1 << number), odd1 + (1 << number)};
        int next[STATES];
        #pragma unroll
        for (int t = 0; t < STATES; t++) {
            const int quantizer = t < STATES / 2 ? 0 : 1, base = quantizer ? t ^ H0 : t;
            next[t] = min(cost[2 * base + quantizer] + even[quantizer], cost[2 * (base ^ H1) + quantizer] + odd[quantizer]);
        }
        #pragma unroll
        for (int t = 0; t < STATES; t++) cost[t] = next[t];
    }

    // What the last steps decided, so many bits a state.
    __device__ __forceinline__ u32 note() {
        u32 word = 0;
        #pragma unroll
        for (int t = 0; t < STATES; t++) {
            word = __funnelshift_r(word, cost[t], NOTED);
            cost[t] &= ~((1 << NOTED) - 1);
        }
        return word >> (32 - STATES * NOTED);
    }

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

// States before those that an even level led to, a byte each.
__device__ constexpr u32 before_even(u32 state) {
    const u32 quantizer = LOG2_STATES == 0 ? 0 : state >> (LOG2_STATES - 1) & 1;
    return 2 * (state ^ (quantizer ? H0 : 0)) + quantizer & (STATES - 1);
}
constexpr u32 BEFORE_LOW = before_even(0) | before_even(1) << 8 | before_even(2) << 16 | before_even(3) << 24;
constexpr u32 BEFORE_HIGH = LOG2_STATES == 3 ? before_even(4) | before_even(5) << 8 | before_even(6) << 16 | before_even(7) << 24 : 0;
__device__ __forceinline__ u32 state_before(u32 state, u32 odd) {
    u32 before;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(before) : "n"(BEFORE_LOW), "n"(BEFORE_HIGH), "r"(state));
    return before ^ odd * (2 * H1);
}

// Whether a value is not looked up: too large, or with raw bits.
__device__ __forceinline__ bool is_far(u32 bits, u32 of) { return bits >= MAGIC_BITS + NEAR || of >> 16 != 0; }

// What is looked up: four costs and four levels, by quantizer and parity, for every pair of tables and magnitude.
struct Near {
    u32 costs_at, levels_at;  // in shared memory

    __device__ __forceinline__ void fill(int4* costs, u32* levels, const int* table_costs, u32 pairs) {
        costs_at = (u32)__cvta_generic_to_shared(costs);
        levels_at = (u32)__cvta_generic_to_shared(levels);
        for (u32 i = threadIdx.x; i < pairs * NEAR; i += blockDim.x) {
            const Candidates c(Goal(i % NEAR, 0), table_costs + i / NEAR * 32);
            costs[i] = make_int4(c.cost[0][0] << NOTED, c.cost[0][1] << NOTED, c.cost[1][0] << NOTED, c.cost[1][1] << NOTED);
            levels[i] = c.level[0][0] | c.level[0][1] << 8 | c.level[1][0] << 16 | c.level[1][1] << 24;
        }
    }

    // `first` counts symbols from the first pair's, 64 a pair; `bits` are a magnitude's with MAGIC.
    __device__ __forceinline__ int4 costs(u32 first, u32 bits) const {
        int4 found;
        asm("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
            : "r"(bits * 16 + (first * (NEAR * 16 / 64) + (costs_at - MAGIC_BITS * 16u))));
        return found;
    }

    __device__ __forceinline__ u32 levels(u32 first, u32 bits) const {
        u32 found;
        asm("ld.shared.u32 %0, [%1];" : "=r"(found) : "r"(bits * 4 + (first * (NEAR * 4 / 64) + (levels_at - MAGIC_BITS * 4u))));
        return found;
    }
};

