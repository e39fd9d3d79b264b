// The line-rate codec on a GPU: a warp codes a tile, a thread is a lane.
//
// Compiled by NVRTC for one kind of plan; these are defined then:
//   LOG2_LANES, LOG2_STATES (0, 2, 3), SIZE of the transform (0, 32, 64),
//   PREDICTS, MEANS, ROW_CLASSES, TRANSPOSED (0 or 1), FORMAT of values
//   (0 f32, 1 bf16, 2 f16, 3 fp8 e4m3, 4 fp8 e5m2).
// Functions carry the names of their equals in `trinity-line`. All arithmetic
// is that crate's: integers, and single precision without contraction.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 LANES = 1u << LOG2_LANES;
constexpr u32 ALL = ~0u;
constexpr u32 SCALE_BITS = 10;
constexpr u32 SLOTS = 1u << SCALE_BITS;
constexpr int ESCAPE = 15;
constexpr int UNIT_CLASS = 24;
constexpr int CLASSES = 56;
constexpr int UNITS = 16;
constexpr int ONE = 127;
constexpr u32 LEAST_STATE = 1u << 16;
constexpr int TAIL = 16;
constexpr u32 MAX_GAIN = 40;
constexpr u32 EXCEPTIONS = 1u << 6;
constexpr int FAR = 1 << 12;
constexpr int NEVER = 1 << 29;
constexpr int STATES = 1 << LOG2_STATES;
constexpr int H0 = LOG2_STATES == 2 ? 2 : 5;
constexpr int H1 = LOG2_STATES == 2 ? 1 : 2;
// Coefficients of one group, and of a row's remainder beside it.
constexpr u32 GROUP = SIZE == 0 ? 1 : SIZE;

// What went wrong with a tile; 0 is nothing.
enum Fault : u32 { FINE = 0, DIRECTORY = 1, HEAD = 2, EXCEPTION_LIST = 3, LENGTH = 4, END = 5, OVERFLOW = 6, BUDGET = 7 };

struct Plan {
    u64 pitch;                 // values between rows of the matrix as it is given
    u32 rows, cols;            // coded
    u32 tile_rows, tile_cols, panels, tiles;
    u32 tables;                // without the table of row classes
    u32 groups;                // whole groups of the transform
    u32 one_matrix;            // the same for all groups
    int limit;
    float scale;               // what a unit is worth
    float inverse, safe;       // of the encoder
    int rounding;
    u32 budget;                // bytes of a tile; 0: no limit
    u32 capacity;              // words of a tile's room
    const signed char* classes;
    const u8* above;
    const int* means;
    const u32* slots;
    const u16* of_class;       // table | raw bits << 8
    const signed char* syntheses;
    const float* analyses;
    const u32* weights;        // of columns, for row classes
    const uint2* symbols;      // start | frequency << 16, 2^32 / frequency
    const int* costs;
};

struct Tile {
    u32 row, col, rows, cols;
};

__device__ __forceinline__ Tile tile_at(const Plan& p, u32 index) {
    Tile t;
    t.row = index / p.panels * p.tile_rows;
    t.col = index % p.panels * p.tile_cols;
    t.rows = min(p.tile_rows, p.rows - t.row);
    t.cols = min(p.tile_cols, p.cols - t.col);
    return t;
}

// ---- number formats -------------------------------------------------------

#if FORMAT == 0
typedef float Stored;
__device__ __forceinline__ float load(Stored x) { return x; }
__device__ __forceinline__ Stored save(float x) { return x; }
#elif FORMAT == 1
typedef u16 Stored;
__device__ __forceinline__ float load(Stored x) { return __uint_as_float((u32)x << 16); }
__device__ __forceinline__ Stored save(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
__device__ __forceinline__ Stored save_finite(float x) {
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#elif FORMAT == 2
typedef u16 Stored;
__device__ __forceinline__ float load(Stored x) {
    u32 bits = x;
    if ((bits & 0x7c00) == 0x7c00) return __uint_as_float((bits & 0x8000) << 16 | 0x7f800000 | (bits & 0x3ff) << 13);
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
__device__ __forceinline__ Stored save(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 & 0x8000 | 0x7e00 | bits >> 13 & 0x3ff);
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#else
typedef u8 Stored;
constexpr int MANTISSA = FORMAT == 3 ? 3 : 2;
constexpr int BIAS = FORMAT == 3 ? 7 : 15;
constexpr u32 LARGEST = FORMAT == 3 ? 0x7e : 0x7b;
__device__ __forceinline__ float load(Stored x) {
    u32 code = x & 0x7f, sign = (u32)(x & 0x80) << 24;
    if (code > LARGEST) return __uint_as_float(sign | (FORMAT == 4 && code == 0x7c ? 0x7f800000 : 0x7fc00000));
    u32 exponent = code >> MANTISSA, mantissa = code & ((1u << MANTISSA) - 1);
    // In units of the smallest subnormal, then scaled by a power of two.
    float steps = exponent ? (float)((1u << MANTISSA) + mantissa) : (float)mantissa;
    int power = (exponent ? (int)exponent : 1) - BIAS - MANTISSA;
    return __uint_as_float(__float_as_uint(steps * __uint_as_float((u32)(power + 127) << 23)) | sign);
}
// To the nearest, ties to even; beyond the largest: the largest.
__device__ __forceinline__ Stored save(float x) {
    u32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    if (magnitude > 0x7f800000) return (u8)(sign | (FORMAT == 3 ? 0x7f : 0x7e));
    if (FORMAT == 4 && magnitude == 0x7f800000) return (u8)(sign | 0x7c);
    if (magnitude == 0x7f800000) return (u8)(sign | LARGEST);
    int exponent = max((int)(magnitude >> 23) - 127, 1 - BIAS);
    float steps = rintf(__uint_as_float(magnitude) * __uint_as_float((u32)(MANTISSA - exponent + 127) << 23));
    u32 code = (u32)steps + ((u32)(exponent - (1 - BIAS)) << MANTISSA);
    return (u8)(sign | min(code, LARGEST));
}
#endif

#if FORMAT != 1
__device__ __forceinline__ Stored save_finite(float x) { return save(x); }
#endif

// Values between neighbouring rows and columns of the coded matrix.
__device__ __forceinline__ u64 row_stride(const Plan& p) { return TRANSPOSED ? 1 : p.pitch; }
__device__ __forceinline__ u64 col_stride(const Plan& p) { return TRANSPOSED ? p.pitch : 1; }

__device__ __forceinline__ u64 place(const Plan& p, u64 row, u64 col) {
    return TRANSPOSED ? col * p.pitch + row : row * p.pitch + col;
}

// ---- what both sides know -------------------------------------------------

__device__ __forceinline__ u32 class_of(int column, int row, u32 gain) {
    return (u32)min(max(UNIT_CLASS + column + row - (int)gain, 0), CLASSES - 1);
}

__device__ __forceinline__ u32 next_state(u32 state, int level) {
    if (LOG2_STATES == 0) return 0;
    return state >> 1 ^ (state & 1 ? H0 : 0) ^ (level & 1 ? H1 : 0);
}

// What a step is worth under a gain; `units` multiplies it.
__device__ __forceinline__ int gain_units(u32 gain) { return (int)(4 * (4 + (gain & 3)) << (gain >> 2)); }

__device__ __forceinline__ int units(int level, u32 quantizer, int worth) {
    int point = 2 * level;
    if (LOG2_STATES != 0) point -= quantizer ? (level > 0) - (level < 0) : 0;
    return point * worth;
}

__device__ __forceinline__ int predict(u32 above, int deviation) { return ((int)above * deviation + 8) >> 4; }

__device__ __forceinline__ u32 lanes_below(u32 mask, u32 lane) { return __popc(mask & ((1u << lane) - 1)); }

// ---- decoding -------------------------------------------------------------

struct Words {
    const u16* words;
    u32 length, at;
    u32 last;  // of the whole stream, counted from here
    // Some lanes take the next words, in order. A tile that takes more
    // than it has finds something else there, and its length wrong at the end.
    __device__ __forceinline__ u32 take(bool takes, u32 lane) {
        u32 mask = __ballot_sync(ALL, takes);
        u32 word = 0;
        if (takes) word = words[min(at + lanes_below(mask, lane), last)];
        at += __popc(mask);
        return word;
    }
};

__device__ __forceinline__ void refill(u32& state, bool active, Words& words, u32 lane) {
    bool low = active && state < LEAST_STATE;
    u32 word = words.take(low, lane);
    if (low) state = state << 16 | word;
}

// One value's symbol. In the tail the sign is not known yet: the level is that
// of a positive symbol, and `negative` the other, or 0x7fff where there is none.
__device__ __forceinline__ int parse_level(const u32* slots, const u32* of_class, u32 cls, u32 trellis, bool active,
                                           bool in_tail, u32& state, Words& words, u32 lane, int& negative) {
    int level = 0;
    bool escape = false;
    negative = 0x7fff;
    if (active) {
        u32 entry = of_class[cls];
        u32 raw = entry >> 20;
        u32 slot = slots[(entry & 0xfffff) + ((trellis & 1) << SCALE_BITS) + (state & (SLOTS - 1))];
        u32 frequency = slot & 0x7ff, bias = slot >> 11 & 0x7ff;
        int symbol = (int)slot >> 22;
        bool sign_later = in_tail && symbol != 0 && symbol != ESCAPE;
        if (sign_later) {
            bias += symbol < 0 ? frequency : 0;
            frequency *= 2;
            symbol = abs(symbol);
        }
        u32 raised = frequency * (state >> SCALE_BITS) + bias;
        int low = (int)(raised & ((1u << raw) - 1)) - (int)((1u << raw) >> 1);
        state = raised >> raw;
        escape = symbol == ESCAPE;
        level = (short)((symbol << raw) + low);
        if (sign_later) negative = (short)(-(symbol << raw) + low);
    }
    if (__any_sync(ALL, escape)) {
        u32 word = words.take(escape, lane);
        if (escape) level = (short)word;
    }
    refill(state, active, words, lane);
    return level;
}

// Turns levels into values, step by step in order.
struct Reconstruction {
    u32 trellis;
    int worth;
    int* deviations;  // of the tile's columns, where there is prediction
    int* group;       // coefficients that wait for the rest of theirs

    // `at` is the place of this lane's value.
    __device__ __forceinline__ void step(const Plan& p, const Tile& t, u32 row, u32 first, u32 lane, bool active, int level,
                                         Stored* at, Stored* out) {
        u32 col = first + lane;
        int coefficient = 0;
        if (active) {
            int deviation = units(level, trellis & 1, worth);
            if (PREDICTS) deviation += predict(p.above[t.col + col], deviations[col]);
            deviation = min(max(deviation, -p.limit), p.limit);
            if (PREDICTS) deviations[col] = deviation;
            coefficient = deviation;
            if (MEANS) coefficient += p.means[t.col + col] * UNITS;
            trellis = next_state(trellis, level);
        }
        if (SIZE == 0) {
            if (active) *at = save_finite((float)coefficient * p.scale);
            return;
        }
        u32 number = (t.col + first) / GROUP;
        if (number >= p.groups) {
            if (active) *at = save_finite((float)(coefficient * ONE) * p.scale);
            return;
        }
        if (active) group[col % GROUP] = coefficient;
        if ((first + LANES) % GROUP != 0) return;
        __syncwarp();
        const signed char* matrix = p.syntheses + (p.one_matrix ? 0 : (u64)number * GROUP * GROUP);
        for (u32 i = threadIdx.x % 32; i < GROUP; i += 32) {
            const int4* weights = (const int4*)(matrix + i * GROUP);
            u32 sum = 0;
            #pragma unroll 1
            for (u32 j = 0; j < GROUP; j += 16) {
                int4 w = weights[j / 16];
                const int part[4] = {w.x, w.y, w.z, w.w};
                #pragma unroll
                for (u32 k = 0; k < 16; k++) sum += (u32)((part[k / 4] << (24 - k % 4 * 8) >> 24) * group[j + k]);
            }
            out[place(p, t.row + row, number * GROUP + i)] = save_finite((float)(int)sum * p.scale);
        }
        __syncwarp();
    }
};

// Gain and exceptions; what is wrong with them.
__device__ __forceinline__ u32 parse_head(const Tile& t, Words& words, u32 lane, u32& gain, u32& exceptions) {
    const u32 head = words.words[0];
    gain = head & 63;
    exceptions = 0;
    if (gain > MAX_GAIN || head >> 7) return HEAD;
    if (!(head & EXCEPTIONS)) return FINE;
    exceptions = words.length > 1 ? words.words[1] + 1 : 0;
    if (exceptions == 0 || 2 + 3 * exceptions > words.length) return EXCEPTION_LIST;
    bool ordered = true;
    for (u32 i = lane; i < exceptions; i += 32) {
        u32 here = words.words[2 + 3 * i];
        u32 next = i + 1 < exceptions ? words.words[5 + 3 * i] : t.rows * t.cols;
        ordered = ordered && here < next;
    }
    words.at = 2 + 3 * exceptions;
    return __all_sync(ALL, ordered) ? FINE : EXCEPTION_LIST;
}

__device__ __forceinline__ void parse_row_classes(const u32* row_slots, const Tile& t, u32 lane, u32& state, Words& words, short* of_row) {
    for (u32 first = 0; first < t.rows; first += LANES) {
        bool active = lane < LANES && first + lane < t.rows;
        int value = 0;
        if (active) {
            u32 slot = row_slots[state & (SLOTS - 1)];
            value = (int)slot >> 22;
            state = (slot & 0x7ff) * (state >> SCALE_BITS) + (slot >> 11 & 0x7ff);
        }
        bool escape = active && value == ESCAPE;
        u32 word = words.take(escape, lane);
        if (escape) value = (short)word;
        refill(state, active, words, lane);
        if (active) of_row[first + lane] = (short)value;
    }
    __syncwarp();
}

// A tile after its head. FULL: every lane has a value in every step.
template <bool FULL>
__device__ __forceinline__ u32 decode_tile(const Plan& p, const Tile& t, const u32* slots, const u32* of_class, u32* tail,
                                           Reconstruction& rebuild, Words words, u32 state, u32 gain, const short* of_row,
                                           Stored* out, u32 lane) {
    const u32 per_row = (t.cols + LANES - 1) / LANES, total = per_row * t.rows;
    const u32 tail_start = total > TAIL ? total - TAIL : 0;
    const signed char* classes = p.classes + t.col + lane;
    const u64 over = row_stride(p), along = col_stride(p) * LANES;
    Stored* row_at = out + place(p, t.row, t.col + lane);
    rebuild.trellis = 0;
    u32 row = 0, first = 0;
    for (u32 step = 0; step < tail_start; row++) {
        const int row_class = (ROW_CLASSES ? of_row[row] : 0) + UNIT_CLASS - (int)gain;
        const u32 end = min(tail_start - step, per_row);
        Stored* at = row_at;
        first = 0;
        for (u32 s = 0; s < end; s++, first += LANES, at += along) {
            const bool active = FULL || (lane < LANES && first + lane < t.cols);
            const u32 cls = active ? (u32)min(max(classes[first] + row_class, 0), CLASSES - 1) : 0;
            int ignored;
            int level = parse_level(slots, of_class, cls, rebuild.trellis, active, false, state, words, lane, ignored);
            rebuild.step(p, t, row, first, lane, active, level, at, out);
        }
        step += end;
        if (end < per_row) break;
        row_at += over;
        first = 0;
    }
    const u32 tail_row = row, tail_first = first;
    u32 trellis = rebuild.trellis;
    for (u32 step = tail_start; step < total; step++) {
        const bool active = FULL || (lane < LANES && first + lane < t.cols);
        const u32 cls = active ? class_of(classes[first], ROW_CLASSES ? of_row[row] : 0, gain) : 0;
        int negative;
        int level = parse_level(slots, of_class, cls, trellis, active, true, state, words, lane, negative);
        if (active) trellis = next_state(trellis, level);
        tail[(step - tail_start) * 32 + lane] = (u32)(u16)level | (u32)(u16)negative << 16;
        first += LANES;
        if (first >= t.cols) {
            first = 0;
            row++;
        }
    }
    // The final state holds the signs of the tail.
    u32 signs = lane < LANES ? state ^ LEAST_STATE : 0;
    row = tail_row;
    first = tail_first;
    for (u32 step = tail_start; step < total; step++) {
        const bool active = FULL || (lane < LANES && first + lane < t.cols);
        u32 both = tail[(step - tail_start) * 32 + lane];
        u32 bit = 1u << (total - 1 - step);
        int level = (short)(both & 0xffff);
        if (active && both >> 16 != 0x7fff && signs & bit) {
            level = (short)(both >> 16);
            signs ^= bit;
        }
        Stored* at = out + place(p, t.row + row, t.col + first + lane);
        rebuild.step(p, t, row, first, lane, active, level, at, out);
        first += LANES;
        if (first >= t.cols) {
            first = 0;
            row++;
        }
    }
    if (words.at != words.length) return LENGTH;
    return __any_sync(ALL, signs != 0) ? END : FINE;
}

// Words and directory may say anything: every index is checked or follows
// from the plan, which the host checked.
extern "C" __global__ void __launch_bounds__(THREADS)
line_decode(const Plan p, const u32* __restrict__ ends, const u16* __restrict__ stream, u64 word_count,
            Stored* __restrict__ out, short* row_classes, int* scratch, u32* faults) {
    extern __shared__ u32 shared[];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u32* slots = shared;
    const u32 slot_count = (p.tables + ROW_CLASSES) * SLOTS;
    for (u32 i = threadIdx.x; i < slot_count / 4; i += blockDim.x) ((uint4*)slots)[i] = ((const uint4*)p.slots)[i];
    // First slot | raw bits << 20.
    u32* of_class = slots + slot_count;
    for (u32 i = threadIdx.x; i < CLASSES; i += blockDim.x) of_class[i] = (p.of_class[i] & 255u) * SLOTS | (u32)(p.of_class[i] >> 8) << 20;
    u32* tail = slots + slot_count + CLASSES + warp * (TAIL * 32 + GROUP);
    Reconstruction rebuild;
    rebuild.group = (int*)(tail + TAIL * 32);
    __syncthreads();
    // Neighbouring tiles on different multiprocessors: few tiles fill them all.
    const u32 global_warp = warp * gridDim.x + blockIdx.x;
    rebuild.deviations = scratch + (u64)global_warp * (PREDICTS ? p.tile_cols : 0);
    for (u32 index = global_warp; index < p.tiles; index += gridDim.x * warps) {
        const Tile t = tile_at(p, index);
        const u32 begin = index == 0 ? 0 : ends[index - 1], end = ends[index];
        if (begin >= end || end > word_count) {
            if (lane == 0) faults[index] = DIRECTORY;
            continue;
        }
        Words words = {stream + begin, end - begin, 1, (u32)(word_count - 1) - begin};
        u32 gain, exceptions;
        u32 fault = parse_head(t, words, lane, gain, exceptions);
        if (fault != FINE) {
            if (lane == 0) faults[index] = fault;
            continue;
        }
        u32 state = LEAST_STATE;
        if (lane < LANES) {
            u32 at = words.at + 2 * lane;
            state = words.words[min(at, words.last)] | (u32)words.words[min(at + 1, words.last)] << 16;
        }
        words.at += 2 * LANES;
        short* of_row = row_classes + (u64)index * (ROW_CLASSES ? p.tile_rows : 0);
        if (ROW_CLASSES) parse_row_classes(slots + p.tables * SLOTS, t, lane, state, words, of_row);
        if (PREDICTS) {
            for (u32 i = lane; i < t.cols; i += 32) rebuild.deviations[i] = 0;
            __syncwarp();
        }
        rebuild.worth = gain_units(gain);
        fault = LANES == 32 && t.cols % 32 == 0
            ? decode_tile<true>(p, t, slots, of_class, tail, rebuild, words, state, gain, of_row, out, lane)
            : decode_tile<false>(p, t, slots, of_class, tail, rebuild, words, state, gain, of_row, out, lane);
        __syncwarp();
        for (u32 i = lane; i < exceptions; i += 32) {
            const u16* entry = words.words + 2 + 3 * i;
            u32 row = entry[0] / t.cols, col = entry[0] % t.cols;
            out[place(p, t.row + row, t.col + col)] = save(__uint_as_float(entry[1] | (u32)entry[2] << 16));
        }
        if (lane == 0) faults[index] = fault;
        __syncwarp();
    }
}

// ---- encoding -------------------------------------------------------------

// Nothing is clamped without a transform: what is kept is far below the limit.
__device__ __forceinline__ int to_target(const Plan& p, float scaled) {
    int target = __float2int_rn(scaled);
    return SIZE == 0 ? target : min(max(target, -p.limit), p.limit);
}

__device__ __forceinline__ int quarter_log2(u64 value) {
    int octave = 63 - __clzll((long long)value);
    u64 mantissa = octave > 16 ? value >> (octave - 16) : value << (16 - octave);
    return 4 * octave + (mantissa >= 71468) + (mantissa >= 84990) + (mantissa >= 101070) + (mantissa >= 120194);
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
    bool negative;

    __device__ __forceinline__ Goal(int target, u32 raw_bits) {
        magnitude = abs(target);
        negative = target < 0;
        raw = raw_bits;
        int half = (1 << raw) >> 1;
        offset = negative ? max(half - 1, 0) : half;
    }

    // The nearest level of a quantizer and parity, or zero where that costs less.
    __device__ __forceinline__ int candidate(const int* costs, int quantizer, int parity, int& cost) const {
        int level = 2 * ((magnitude - 32 * parity + 16 * quantizer + 32) >> 6) + parity;
        int distance = magnitude - 32 * level;
        if (quantizer) distance += parity || level ? 16 : 0;
        const int* of = costs + 16 * quantizer;
        // The nearest is at most 48 units away.
        cost = distance * distance + of[min((level + offset) >> raw, ESCAPE)];
        if (parity == 0) {
            int zero = square(magnitude) + of[0];
            if (zero < cost) {
                cost = zero;
                level = 0;
            }
        }
        return negative ? -level : level;
    }
};

// Survivors of a lane.
struct Path {
    int cost[STATES];

    __device__ __forceinline__ void start(u32 state) {
        #pragma unroll
        for (int s = 0; s < STATES; s++) cost[s] = s == (int)state ? 0 : NEVER;
    }

    // Extends all survivors by a value; one bit a state: reached by an odd level.
    __device__ __forceinline__ u32 step(const Goal& goal, const int* costs) {
        int of[2][2];
        #pragma unroll
        for (int q = 0; q < 2; q++) {
            #pragma unroll
            for (int b = 0; b < 2; b++) goal.candidate(costs, q, b, of[q][b]);
        }
        int next[STATES];
        u32 decisions = 0;
        #pragma unroll
        for (int t = 0; t < STATES; t++) {
            const int quantizer = t < STATES / 2 ? 0 : 1, base = quantizer ? t ^ H0 : t;
            int even = cost[2 * base + quantizer] + of[quantizer][0];
            int odd = cost[2 * (base ^ H1) + quantizer] + of[quantizer][1];
            if (odd < even) decisions |= 1u << t;
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
__device__ __forceinline__ int back(u32& state, u32 decisions, const Goal& goal, const int* costs) {
    u32 odd = decisions >> state & 1;
    u32 quantizer = state < STATES / 2 ? 0 : 1, base = quantizer ? state ^ H0 : state;
    int cost;
    int level = goal.candidate(costs, (int)quantizer, (int)odd, cost);
    state = 2 * (base ^ (odd ? H1 : 0)) + quantizer;
    return level;
}

// Words of a tile, from its last to its first.
struct Backwards {
    u16* room;
    u32 at, floor;
    bool full;

    __device__ __forceinline__ void put(u32 mask, u32 lane, u32 word) {
        u32 count = __popc(mask);
        if (at < floor + count) {
            full = true;
            return;
        }
        at -= count;
        if (mask >> lane & 1) room[at + lanes_below(mask, lane)] = (u16)word;
    }
};

// Pushes one symbol per active lane.
__device__ __forceinline__ void push_level(const uint2* symbols, u32 table, u32 raw, int level, bool active, bool unsigned_,
                                           u32& state, Backwards& out, u32 lane) {
    bool escape = false, full = false;
    u32 word = 0;
    if (active) {
        int half = (1 << raw) >> 1;
        int symbol = (level + half) >> raw;
        u32 magnitude = min(abs(symbol), ESCAPE);
        uint2 entry = symbols[table * 16 + magnitude];
        escape = magnitude == ESCAPE || entry.x >> 16 == 0;
        if (escape) entry = symbols[table * 16 + ESCAPE];
        u32 start = entry.x & 0xffff, frequency = entry.x >> 16, reciprocal = entry.y;
        u32 low = escape ? 0 : (u32)(level + half - (symbol << raw));
        if (!escape) {
            if (unsigned_ && magnitude > 0) {
                frequency *= 2;
                reciprocal >>= 1;
            } else if (symbol < 0) {
                start += frequency;
            }
        }
        full = state >= frequency << (32 - SCALE_BITS - raw);
        word = state & 0xffff;
        if (full) state >>= 16;
        u32 raised = state << raw | low;
        // A reciprocal that is rounded down gives the quotient or one less.
        u32 quotient = __umulhi(raised, reciprocal);
        u32 rest = raised - quotient * frequency;
        if (rest >= frequency) {
            quotient++;
            rest -= frequency;
        }
        state = quotient << SCALE_BITS | (rest + start);
    }
    out.put(__ballot_sync(ALL, full), lane, word);
    u32 escapes = __ballot_sync(ALL, escape);
    if (escapes) out.put(escapes, lane, (u32)(u16)level);
}

// Where a warp keeps what it needs twice.
struct Scratch {
    int* targets;        // SIZE or PREDICTS: residuals of the tile; PREDICTS: then level and quantizer
    u8* decisions;       // 32 per step
    int* deviations;     // PREDICTS: of columns
    short* row_classes;
};

template <bool FULL>
struct Coding {
    const Plan& p;
    const Tile& t;
    const Stored* values;
    const uint2* symbols;
    const int* costs;
    const u16* of_class;
    Scratch scratch;
    float* group;
    u32* tail;
    u32 lane, per_row, total;
    bool kept;  // this lane saw a value that must be kept exactly

    __device__ __forceinline__ bool active(u32 first) const { return FULL || (lane < LANES && first + lane < t.cols); }

    __device__ __forceinline__ const Stored* row_at(u32 row) const { return values + place(p, t.row + row, t.col + lane); }

    // The transform of the whole tile, as targets.
    __device__ void transform() {
        for (u32 row = 0; row < t.rows; row++) {
            for (u32 first = 0; first < t.cols; first += GROUP) {
                const u32 number = (t.col + first) / GROUP;
                const bool whole = number < p.groups;
                for (u32 i = lane; i < GROUP && first + i < t.cols; i += 32) group[i] = scaled(values[place(p, t.row + row, t.col + first + i)]);
                __syncwarp();
                const float* matrix = p.analyses + (p.one_matrix ? 0 : (u64)number * GROUP * GROUP);
                for (u32 i = lane; i < GROUP && first + i < t.cols; i += 32) {
                    float sum = group[i];
                    if (whole) {
                        sum = 0.0f;
                        const float4* weights = (const float4*)(matrix + i * GROUP);
                        #pragma unroll 4
                        for (u32 j = 0; j < GROUP; j += 4) {
                            float4 w = weights[j / 4];
                            sum = __fadd_rn(sum, __fmul_rn(w.x, group[j]));
                            sum = __fadd_rn(sum, __fmul_rn(w.y, group[j + 1]));
                            sum = __fadd_rn(sum, __fmul_rn(w.z, group[j + 2]));
                            sum = __fadd_rn(sum, __fmul_rn(w.w, group[j + 3]));
                        }
                    }
                    scratch.targets[row * t.cols + first + i] = to_target(p, sum);
                }
                __syncwarp();
            }
        }
    }

    // A value in units; 0 where it is not finite or too large, which is noted.
    __device__ __forceinline__ float scaled(Stored stored) {
        float value = __fmul_rn(load(stored), p.inverse);
        if (fabsf(value) <= p.safe) return value;
        kept = true;
        return 0.0f;
    }

    // `at` is the place of the value.
    __device__ __forceinline__ int residual(u32 row, u32 col, const Stored* at) {
        int target = SIZE != 0 ? scratch.targets[row * t.cols + col] : to_target(p, scaled(*at));
        if (!MEANS && !PREDICTS) return target;
        int predicted = MEANS ? p.means[t.col + col] * UNITS : 0;
        if (PREDICTS) predicted += predict(p.above[t.col + col], scratch.deviations[col]);
        return min(max(target - predicted, -p.limit), p.limit);
    }

    __device__ __forceinline__ int find_row_class(u32 row) {
        u64 sum = 0;
        const Stored* at = row_at(row);
        const u64 along = col_stride(p) * 32;
        for (u32 col = lane; col < t.cols; col += 32, at += along)
            sum += (u64)(u32)abs(residual(row, col, at)) * p.weights[t.col + col];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
        u64 mean = sum / t.cols;
        return quarter_log2(mean > 1 ? mean : 1) - 4 * 19;
    }

    __device__ __forceinline__ u32 entry(u32 col, int row_class, u32 gain) const {
        return of_class[class_of(p.classes[t.col + col], row_class, gain)];
    }

    // Decisions of four steps lie in one word.
    __device__ __forceinline__ u32* decisions() const { return (u32*)scratch.decisions + lane; }

    __device__ __forceinline__ u32 decided_at(u32 step) const {
        return LOG2_STATES == 0 || PREDICTS ? 0 : decisions()[step / 4 * 32] >> (step % 4 * 8);
    }

    // Row classes and, with a trellis, survivors; the state of the best path.
    __device__ __forceinline__ u32 forward(u32 gain) {
        if (!ROW_CLASSES && LOG2_STATES == 0) return 0;
        Path path;
        path.start(0);
        u32 word = 0, step = 0;
        const u64 along = col_stride(p) * LANES;
        for (u32 row = 0; row < t.rows; row++) {
            int row_class = 0;
            if (ROW_CLASSES) {
                row_class = find_row_class(row);
                if (lane == 0) scratch.row_classes[row] = (short)row_class;
            }
            if (LOG2_STATES == 0) continue;
            const Stored* at = row_at(row);
            for (u32 first = 0; first < t.cols; first += LANES, at += along, step++) {
                if (active(first)) {
                    u32 of = entry(first + lane, row_class, gain);
                    Goal goal(reduced(residual(row, first + lane, at), gain), of >> 8);
                    word |= path.step(goal, costs + (of & 255) * 16) << (step % 4 * 8);
                }
                if (step % 4 == 3) {
                    decisions()[step / 4 * 32] = word;
                    word = 0;
                    if (step % 16 == 15) path.settle();
                }
            }
        }
        if (step % 4 != 0) decisions()[step / 4 * 32] = word;
        __syncwarp();
        return LOG2_STATES == 0 ? 0 : path.best();
    }

    // With prediction each row ends its paths: levels go to scratch.
    __device__ __forceinline__ void forward_predicted(u32 gain) {
        for (u32 i = lane; i < t.cols; i += 32) scratch.deviations[i] = 0;
        __syncwarp();
        u32 state = 0;
        const u64 along = col_stride(p) * LANES;
        const int worth = gain_units(gain);
        for (u32 row = 0; row < t.rows; row++) {
            int row_class = 0;
            if (ROW_CLASSES) {
                row_class = find_row_class(row);
                if (lane == 0) scratch.row_classes[row] = (short)row_class;
            }
            const u32 begin = state;
            const Stored* const start = row_at(row);
            if (LOG2_STATES != 0) {
                Path path;
                path.start(state);
                const Stored* at = start;
                u32 step = 0;
                for (u32 first = 0; first < t.cols; first += LANES, at += along, step++) {
                    if (!active(first)) continue;
                    u32 of = entry(first + lane, row_class, gain);
                    Goal goal(reduced(residual(row, first + lane, at), gain), of >> 8);
                    scratch.decisions[step * 32 + lane] = (u8)path.step(goal, costs + (of & 255) * 16);
                    if (step % 16 == 15) path.settle();
                }
                if (active(0)) state = path.best();
            }
            u32 walk = state;
            for (u32 step = per_row; step-- > 0;) {
                u32 first = step * LANES;
                if (!active(first)) continue;
                u32 of = entry(first + lane, row_class, gain);
                int target = reduced(residual(row, first + lane, start + step * along), gain);
                int level = LOG2_STATES == 0
                    ? uniform(target)
                    : back(walk, scratch.decisions[step * 32 + lane], Goal(target, of >> 8), costs + (of & 255) * 16);
                scratch.targets[row * t.cols + first + lane] = level * 2 + (int)(walk & 1);
            }
            walk = begin;
            for (u32 first = 0; first < t.cols; first += LANES) {
                if (!active(first)) continue;
                u32 col = first + lane;
                int level = scratch.targets[row * t.cols + col] >> 1;
                int deviation = units(level, walk & 1, worth) + predict(p.above[t.col + col], scratch.deviations[col]);
                scratch.deviations[col] = min(max(deviation, -p.limit), p.limit);
                walk = next_state(walk, level);
            }
            __syncwarp();
        }
    }

    __device__ __forceinline__ int uniform(int target) const {
        int magnitude = (abs(target) + p.rounding) >> 5;
        return (short)(target < 0 ? -magnitude : magnitude);
    }

    // The level at a place and the quantizer that takes it, going backwards.
    __device__ __forceinline__ int level_at(u32 row, u32 col, const Stored* at, u32 decided, u32 of, u32 gain, u32& walk, u32& quantizer) {
        if (PREDICTS) {
            int both = scratch.targets[row * t.cols + col];
            quantizer = both & 1;
            return both >> 1;
        }
        int target = reduced(residual(row, col, at), gain);
        if (LOG2_STATES == 0) {
            quantizer = 0;
            return uniform(target);
        }
        int level = back(walk, decided, Goal(target, of >> 8), costs + (of & 255) * 16);
        quantizer = walk & 1;
        return level;
    }

    // Everything after the head, from the last word to the first lane state.
    __device__ __forceinline__ void backward(u32 gain, u32 walk, Backwards& out) {
        const u32 tail_start = total > TAIL ? total - TAIL : 0;
        u32 state = LEAST_STATE;
        u32 row = t.rows - 1, first = (per_row - 1) * LANES;
        // Signs of the tail are the start of the states.
        u32 tail_row = row, tail_first = first;
        for (u32 step = total; step-- > tail_start;) {
            if (active(first)) {
                u32 of = entry(first + lane, ROW_CLASSES ? scratch.row_classes[row] : 0, gain), quantizer;
                const Stored* at = values + place(p, t.row + row, t.col + first + lane);
                int level = level_at(row, first + lane, at, decided_at(step), of, gain, walk, quantizer);
                int raw = of >> 8, symbol = (level + ((1 << raw) >> 1)) >> raw;
                bool escapes = abs(symbol) >= ESCAPE || symbols[((of & 255) + quantizer) * 16 + abs(symbol)].x >> 16 == 0;
                if (symbol < 0 && !escapes) state |= 1u << (total - 1 - step);
                tail[(step - tail_start) * 32 + lane] = (u32)(u16)level | quantizer << 16;
            }
            step_back(row, first);
        }
        for (u32 step = total; step-- > tail_start;) {
            u32 of = 0, both = 0;
            if (active(tail_first)) {
                of = entry(tail_first + lane, ROW_CLASSES ? scratch.row_classes[tail_row] : 0, gain);
                both = tail[(step - tail_start) * 32 + lane];
            }
            push_level(symbols, (of & 255) + (both >> 16), of >> 8, (short)(both & 0xffff), active(tail_first), true, state, out, lane);
            step_back(tail_row, tail_first);
        }
        const u64 along = col_stride(p) * LANES;
        u32 word = 0;
        for (u32 left = tail_start; left > 0; row--) {
            const int row_class = ROW_CLASSES ? scratch.row_classes[row] : 0;
            const Stored* at = values + place(p, t.row + row, t.col + first + lane);
            for (;; first -= LANES, at -= along) {
                left--;
                // Four steps' decisions at a time.
                if (LOG2_STATES != 0 && !PREDICTS && (left % 4 == 3 || left + 1 == tail_start)) word = decisions()[left / 4 * 32];
                u32 of = 0, quantizer = 0;
                int level = 0;
                if (active(first)) {
                    of = entry(first + lane, row_class, gain);
                    level = level_at(row, first + lane, at, word >> (left % 4 * 8), of, gain, walk, quantizer);
                }
                push_level(symbols, (of & 255) + quantizer, of >> 8, level, active(first), false, state, out, lane);
                if (first == 0) break;
            }
            first = (per_row - 1) * LANES;
        }
        if (ROW_CLASSES) {
            for (u32 begin = (t.rows - 1) / LANES * LANES;; begin -= LANES) {
                bool has = lane < LANES && begin + lane < t.rows;
                int value = has ? scratch.row_classes[begin + lane] : 0;
                push_level(symbols, p.tables, 0, value, has, false, state, out, lane);
                if (begin == 0) break;
            }
        }
        // Lane states, lower word first.
        if (out.at < out.floor + 2 * LANES) {
            out.full = true;
            return;
        }
        out.at -= 2 * LANES;
        if (lane < LANES) {
            out.room[out.at + 2 * lane] = (u16)state;
            out.room[out.at + 2 * lane + 1] = (u16)(state >> 16);
        }
    }

    __device__ __forceinline__ void step_back(u32& row, u32& first) const {
        if (first == 0) {
            first = (per_row - 1) * LANES;
            row--;
        } else {
            first -= LANES;
        }
    }

    // Words of the head at the start of the room: gain, and what is kept exactly.
    __device__ u32 head(u32 gain, u16* room, u32 capacity) {
        u32 count = 0;
        for (u32 row = 0; row < t.rows && __any_sync(ALL, kept); row++) {
            for (u32 first = 0; first < t.cols; first += 32) {
                u32 col = first + lane;
                float value = 0.0f;
                if (col < t.cols) value = load(values[place(p, t.row + row, t.col + col)]);
                bool keeps = !(fabsf(__fmul_rn(value, p.inverse)) <= p.safe);
                u32 mask = __ballot_sync(ALL, keeps);
                if (mask == 0) continue;
                u32 mine = 2 + 3 * (count + lanes_below(mask, lane));
                count += __popc(mask);
                if (2 + 3 * count > capacity) return 0;
                if (keeps) {
                    u32 bits = __float_as_uint(value);
                    room[mine] = (u16)(row * t.cols + col);
                    room[mine + 1] = (u16)bits;
                    room[mine + 2] = (u16)(bits >> 16);
                }
            }
        }
        if (lane == 0) {
            room[0] = (u16)(gain | (count ? EXCEPTIONS : 0));
            if (count) room[1] = (u16)(count - 1);
        }
        return count ? 2 + 3 * count : 1;
    }

    // One attempt at a gain; the words it takes, or 0 where the room is too small.
    __device__ __forceinline__ u32 attempt(u32 gain, u16* room, u32& front) {
        u32 walk = 0;
        if (PREDICTS) {
            // Targets are overwritten by levels: they are made again.
            if (SIZE != 0) transform();
            forward_predicted(gain);
        } else {
            walk = forward(gain);
        }
        Backwards out = {room, p.capacity, 1, false};
        backward(gain, walk, out);
        if (out.full) return 0;
        front = head(gain, room, out.at);
        return front == 0 ? 0 : front + (p.capacity - out.at);
    }

    // The words of the tile, within its budget where there is one.
    __device__ __forceinline__ u32 code(u16* room, u32& front, u32& words) {
        if (SIZE != 0 && !PREDICTS) transform();
        words = attempt(0, room, front);
        if (p.budget == 0) return words == 0 ? OVERFLOW : FINE;
        if (words != 0 && 2 * words <= p.budget) return FINE;
        // The least gain that fits, as the host searches for it.
        u32 over = 0, fits = MAX_GAIN, last = MAX_GAIN;
        words = attempt(fits, room, front);
        if (words == 0 || 2 * words > p.budget) return BUDGET;
        while (fits - over > 1) {
            u32 gain = (over + fits) / 2;
            words = attempt(gain, room, front);
            last = gain;
            if (words == 0 || 2 * words > p.budget) over = gain;
            else fits = gain;
        }
        if (last != fits) words = attempt(fits, room, front);
        return FINE;
    }
};

// Each tile into its own room: the head at its start, the rest at its end.
extern "C" __global__ void __launch_bounds__(THREADS)
line_encode(const Plan p, const Stored* __restrict__ values, u16* rooms, uint2* lengths, short* row_classes, u8* scratch,
            u64 scratch_bytes, u32* faults) {
    extern __shared__ u32 shared[];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint2* symbols = (uint2*)shared;
    const u32 symbol_count = (p.tables + ROW_CLASSES) * 16;
    for (u32 i = threadIdx.x; i < symbol_count; i += blockDim.x) symbols[i] = p.symbols[i];
    int* costs = (int*)(symbols + symbol_count);
    const u32 cost_count = (p.tables + 1) * 16;
    for (u32 i = threadIdx.x; i < cost_count; i += blockDim.x) costs[i] = i < p.tables * 16 ? p.costs[i] : 0;
    u16* of_class = (u16*)(costs + cost_count);
    for (u32 i = threadIdx.x; i < CLASSES; i += blockDim.x) of_class[i] = p.of_class[i];
    u32* own = (u32*)(of_class + CLASSES) + warp * (TAIL * 32 + GROUP);
    __syncthreads();
    const u32 global_warp = warp * gridDim.x + blockIdx.x;
    u8* mine = scratch + (u64)global_warp * scratch_bytes;
    for (u32 index = global_warp; index < p.tiles; index += gridDim.x * warps) {
        const Tile t = tile_at(p, index);
        const u32 per_row = (t.cols + LANES - 1) / LANES;
        Scratch s;
        s.targets = (int*)mine;
        s.deviations = s.targets + (SIZE != 0 || PREDICTS ? p.tile_rows * p.tile_cols : 0);
        s.decisions = (u8*)(s.deviations + (PREDICTS ? p.tile_cols : 0));
        s.row_classes = row_classes + (u64)index * (ROW_CLASSES ? p.tile_rows : 0);
        u16* room = rooms + (u64)index * p.capacity;
        u32 front = 0, words = 0, fault;
        float* group = (float*)(own + TAIL * 32);
        if (LANES == 32 && t.cols % 32 == 0) {
            Coding<true> coding = {p, t, values, symbols, costs, of_class, s, group, own, lane, per_row, per_row * t.rows, false};
            fault = coding.code(room, front, words);
        } else {
            Coding<false> coding = {p, t, values, symbols, costs, of_class, s, group, own, lane, per_row, per_row * t.rows, false};
            fault = coding.code(room, front, words);
        }
        if (lane == 0) {
            lengths[index] = fault == FINE ? make_uint2(front, words - front) : make_uint2(0, 0);
            faults[index] = fault;
        }
        __syncwarp();
    }
}

// Directory: where each tile's words end. One block.
extern "C" __global__ void __launch_bounds__(1024) line_directory(const uint2* lengths, u32 tiles, u32* ends, u64* bytes, u64 head_bytes) {
    __shared__ u32 sums[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 before = 0;
    for (u32 first = 0; first < tiles; first += 1024) {
        u32 index = first + threadIdx.x;
        u32 sum = index < tiles ? lengths[index].x + lengths[index].y : 0;
        for (int step = 1; step < 32; step *= 2) {
            u32 other = __shfl_up_sync(ALL, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            u32 all = sums[lane];
            for (int step = 1; step < 32; step *= 2) {
                u32 other = __shfl_up_sync(ALL, all, step);
                if (lane >= step) all += other;
            }
            sums[lane] = all;
        }
        __syncthreads();
        if (index < tiles) ends[index] = before + sum + (warp ? sums[warp - 1] : 0);
        before += sums[31];
        __syncthreads();
    }
    if (threadIdx.x == 0) *bytes = head_bytes + 4ull * tiles + 2ull * before;
}

// Words from their rooms to their places, a warp a tile.
extern "C" __global__ void line_gather(const u16* rooms, const uint2* lengths, const u32* ends, u32 tiles, u32 capacity, u16* out,
                                       u64 room_words) {
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / 32; index < tiles; index += warps) {
        const uint2 length = lengths[index];
        const u64 begin = ends[index] - (length.x + length.y);
        if (begin + length.x + length.y > room_words) continue;
        const u16* room = rooms + (u64)index * capacity;
        for (u32 i = lane; i < length.x; i += 32) out[begin + i] = room[i];
        const u16* rest = room + capacity - length.y;
        u16* to = out + begin + length.x;
        for (u32 i = lane; i < length.y; i += 32) to[i] = rest[i];
    }
}
