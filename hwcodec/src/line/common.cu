// The line-rate codec on a GPU: a warp codes a tile, a thread is a lane.
//
// Compiled by NVRTC for one kind of plan; these are defined then:
//   LOG2_LANES, LOG2_STATES (0, 2, 3), SIZE of the transform (0, 32, 64),
//   ROW_STEPS (steps of a row that an encoder codes together; 0: none),
//   PREDICTS, MEANS, ROW_CLASSES, TRANSPOSED (0 or 1), WHOLE_STEPS (1: every
//   step of every tile has a column for each of 32 lanes), WITHIN_BUDGETS (1:
//   tiles have budgets of bytes), FORMAT of values (0 f32, 1 bf16, 2 f16, 3 fp8 e4m3, 4 fp8 e5m2),
//   LISTED (1: tensors lie each at its own address), STEPS (1: an encoder reads each tensor's step on the device).
// Before this file stand the numbers that `prelude` of mod.rs writes: the format's, and those of this side.
// Functions carry the names of their equals in `trinity-codec`. All arithmetic
// is that crate's: integers, and single precision without contraction.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 LANES = 1u << LOG2_LANES;
constexpr u32 ALL = ~0u;
constexpr u32 SLOTS = 1u << SCALE_BITS;
constexpr int STATES = 1 << LOG2_STATES;
constexpr int H0 = LOG2_STATES == 2 ? 2 : 5;
constexpr int H1 = LOG2_STATES == 2 ? 1 : 2;
// Coefficients of one group, and of a row's remainder beside it.
constexpr u32 GROUP = SIZE == 0 ? 1 : SIZE;

// What went wrong with a tile; 0 is nothing.
enum Fault : u32 {
    FINE = 0, DIRECTORY = 1, HEAD = 2, EXCEPTION_LIST = 3, LENGTH = 4, END = 5, OVERFLOW = 6, BUDGET = 7, HEADER = 8, STEP = 9
};

// What stands for the length of a tensor that has none: a value was not finite, or it did not fit its room.
constexpr u64 NO_STREAM = ~0ull;

// Where the tensors of a launch lie, or streams of them: all of one plan.
struct Places {
#if LISTED
    u64 at[MOST_LISTED];
    __device__ __forceinline__ u64 of(u32 item) const { return at[item]; }
#else
    u64 first, stride;
    __device__ __forceinline__ u64 of(u32 item) const { return first + item * stride; }
#endif
};

// Words of each of them.
struct Counts {
#if LISTED
    u32 words[MOST_LISTED];
    __device__ __forceinline__ u32 of(u32 item) const { return words[item]; }
#else
    u32 words;
    __device__ __forceinline__ u32 of(u32) const { return words; }
#endif
};

struct Plan {
    u64 pitch;                 // values between rows of the matrix as it is given
    u32 rows, cols;            // coded
    u32 tile_rows, tile_cols, panels, tiles;
    u32 tables;                // without the table of row classes
    u32 groups;                // whole groups of the transform
    u32 one_matrix;            // the same for all groups
    int limit;
    float step_units;          // what a step has of units, synthesis included
    float inverse, safe;       // of the encoder
    int rounding;
    u32 budget;                // bytes of a tile; 0: no limit
    u32 capacity;              // words of a tile's room
    u32 header_bytes;          // of a stream, to its directory
    u32 header_length;         // without what pads it
    u32 step_at;               // the header's byte at which the step begins
    const u8* header;
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

// Whether a step is a number that a plan may have.
__device__ __forceinline__ bool is_step(float step) { return step >= 1.17549435e-38f && step <= 3.40282347e38f; }

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

// The state after an even level, by the state before, a byte each: one selection of a byte.
constexpr u32 EVEN_LOW = LOG2_STATES == 3 ? 0x04010500 : LOG2_STATES == 2 ? 0x03010200 : 0;
constexpr u32 EVEN_HIGH = LOG2_STATES == 3 ? 0x06030702 : 0;
__device__ __forceinline__ u32 after_even(u32 state) {
    u32 next;
    // `__byte_perm` would mask the state, which is below eight.
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(next) : "n"(EVEN_LOW), "n"(EVEN_HIGH), "r"(state));
    return next;
}

__device__ __forceinline__ u32 next_state(u32 state, int level) {
    if (LOG2_STATES == 0) return 0;
    return after_even(state) ^ (level & 1 ? H1 : 0);
}

// What a step is worth under a gain; `units` multiplies it.
__device__ __forceinline__ int gain_units(u32 gain) { return (int)(4 * (4 + (gain & 3)) << (gain >> 2)); }

__device__ __forceinline__ int units(int level, u32 quantizer, int worth) {
    int point = 2 * level;
    if (LOG2_STATES != 0) point -= quantizer ? (level > 0) - (level < 0) : 0;
    return point * worth;
}

__device__ __forceinline__ int predict(u32 above, int deviation) { return ((int)above * deviation + 8) >> 4; }

// The class that an entry of such a table stands for.
__device__ __forceinline__ u32 class_at(u32 entry) { return (u32)min(max((int)entry + LEAST_FROM - MOST_COLUMN, 0), CLASSES - 1); }

// What a row picks of such a table, to be indexed by columns' classes.
__device__ __forceinline__ const u32* of_row(const u32* of_class, int from) {
    return of_class + (min(max(from, LEAST_FROM), MOST_FROM) - LEAST_FROM + MOST_COLUMN);
}

__device__ __forceinline__ u32 lanes_below(u32 mask, u32 lane) { return __popc(mask & ((1u << lane) - 1)); }
