// Plain tiles: their targets are looked up where they are near zero.

__device__ __forceinline__ u32 magnitude_bits(float value) { return __float_as_uint(__fadd_rn(fabsf(value), MAGIC)); }

// The class of a row, which is noted.
template <bool FULL, bool GAIN>
__device__ __forceinline__ int Coding<FULL, GAIN>::quick_row_class(u32 row) {
    if (!ROW_CLASSES) return 0;
    const Stored* at = place_of(row, 0);
    const u64 along = col_stride(p) * 32;
    const u32* weights = p.weights + t.col + lane;
    u64 sum = 0;
    u32 highest = 0;
    #pragma unroll 8
    for (u32 j = 0; j < ROW_STEPS; j++) {
        const u32 bits = magnitude_bits(in_units(__ldg(at + j * along)));
        highest = max(highest, bits);
        sum += (u64)(bits - MAGIC_BITS) * weights[j * 32];
    }
    // Values that are kept exactly count as zero.
    if (__any_sync(ALL, highest >= SAFE_BITS)) return note_row_class(row);
    return noted(row, class_of_sum(sum));
}

// Survivors of a quick tile. After the words of a row's decisions comes one that says of each step and
// quantizer whether zero costs less than the nearest even level, where that was not looked up.
template <bool FULL, bool GAIN>
__device__ __forceinline__ u32 Coding<FULL, GAIN>::forward_quick() {
    NotedPath path;
    path.start();
    u32* decisions = scratch.decisions + lane;
    const u64 along = col_stride(p) * 32;
    #pragma unroll 1
    for (u32 row = 0; row < t.rows; row++) {
        const u32* of_column = of_row(quick_row_class(row));
        const Stored* at = place_of(row, 0);
        const signed char* classes = p.classes + t.col + lane;
        u32 zeros = 0;
        #pragma unroll 1
        for (u32 begin = 0; begin < ROW_STEPS; begin += NOTED, at += NOTED * along, classes += NOTED * 32, decisions += 32) {
            Stored stored[NOTED];
            u32 of[NOTED];
            #pragma unroll
            for (u32 j = 0; j < NOTED; j++) {
                stored[j] = __ldg(at + j * along);
                of[j] = of_column[classes[j * 32]];
            }
            #pragma unroll
            for (u32 j = 0; j < NOTED; j++) {
                const float value = in_units(stored[j]);
                const u32 bits = magnitude_bits(value);
                int4 c;
                if (__any_sync(ALL, is_far(bits, of[j]))) {
                    const Candidates slow(Goal(to_target(p, scaled(stored[j])), of[j] >> 16), costs_of(of[j]));
                    c = make_int4(slow.cost[0][0] << NOTED, slow.cost[0][1] << NOTED, slow.cost[1][0] << NOTED, slow.cost[1][1] << NOTED);
                    zeros |= slow.zeros << (2 * (begin + j));
                } else {
                    c = near.costs(of[j], bits);
                }
                path.step(c.x, c.y, c.z, c.w, j);
            }
            *decisions = path.note();
        }
        *decisions = zeros;
        decisions += 32;
        path.settle();
    }
    __syncwarp();
    return path.best();
}

// The word of decisions of so many steps.
template <bool FULL, bool GAIN>
__device__ __forceinline__ u32 Coding<FULL, GAIN>::noted_at(u32 row, u32 step) const {
    return scratch.decisions[(row * (ROW_STEPS / NOTED + 1) + step / NOTED) * 32 + lane];
}

// The level that a path took, by arithmetic: `zeros` as they were found.
template <bool FULL, bool GAIN>
__device__ __forceinline__ int Coding<FULL, GAIN>::noted_level(int target, u32 of, u32 odd, u32 quantizer) const {
    const Candidates c(Goal(target, of >> 16), costs_of(of));
    const int even_level = quantizer ? c.level[1][0] : c.level[0][0], odd_level = quantizer ? c.level[1][1] : c.level[0][1];
    const int level = odd ? odd_level : even_level;
    return target < 0 ? -level : level;
}

// Some steps of a quick tile, the last first.
template <bool FULL, bool GAIN>
__device__ __forceinline__ void Coding<FULL, GAIN>::push_noted(u32 row, u32 begin, u32 zeros, const u32* of_column, u32& walk, u32& state,
                                                               Backwards& out) {
    const Stored* at = place_of(row, begin * 32);
    const u64 along = col_stride(p) * 32;
    const signed char* classes = p.classes + t.col + begin * 32 + lane;
    const u32 word = noted_at(row, begin) >> (NOTED * walk);
    Stored stored[NOTED];
    u32 of[NOTED], quantizers = 0;
    int levels[NOTED];
    #pragma unroll
    for (u32 j = 0; j < NOTED; j++) {
        stored[j] = __ldg(at + j * along);
        of[j] = of_column[classes[j * 32]];
    }
    #pragma unroll
    for (u32 j = NOTED; j-- > 0;) {
        const float value = in_units(stored[j]);
        const u32 bits = magnitude_bits(value), odd = word >> j & 1, quantizer = walk >> (LOG2_STATES - 1);
        int level;
        // What rounds to zero is not negative.
        bool negative = value < -0.5f;
        if (__any_sync(ALL, is_far(bits, of[j]))) {
            const int target = to_target(p, scaled(stored[j]));
            negative = target < 0;
            const bool none = !odd && zeros >> (2 * (begin + j) + quantizer) & 1;
            level = none ? 0 : 2 * ((int)(abs(target) - 32 * odd + 16 * quantizer + 32) >> 6) + (int)odd;
        } else {
            level = near.levels(of[j], bits) >> (16 * quantizer + 8 * odd) & 255;
        }
        levels[j] = negative ? -level : level;
        quantizers |= quantizer << j;
        walk = state_before(walk, odd);
    }
    push_levels<NOTED>(levels, quantizers, of, state, out);
}

