// Words of a tile, from its last to its first. Below the floor nothing is
// written; where it was passed, the room was too small.
struct Backwards {
    u16* room;
    int at, floor;

    __device__ __forceinline__ void put(bool puts, u32 lane, u32 word) {
        const u32 mask = __ballot_sync(ALL, puts);
        at -= __popc(mask);
        if (puts && at >= floor) room[at + lanes_below(mask, lane)] = (u16)word;
    }
};

// Symbols of a table by their sign, from -16, which there is not, to 15: start,
// frequency << 16, and whether it stands for an escape; 2^32 / frequency.
constexpr u32 SYMBOLS = 32;
constexpr u32 ESCAPES = 1u << 15;

__device__ __forceinline__ uint2 signed_symbol(const uint2* magnitudes, int symbol) {
    uint2 entry = magnitudes[min(abs(symbol), ESCAPE)];
    if (abs(symbol) >= ESCAPE || entry.x >> 16 == 0) {
        entry = magnitudes[ESCAPE];
        entry.x |= ESCAPES;
    } else if (symbol < 0) {
        entry.x += entry.x >> 16;
    }
    return entry;
}

// Pushes one symbol per active lane; `table` points to the symbol of zero.
__device__ __forceinline__ void push_level(const uint2* table, u32 raw, int level, bool active, bool unsigned_, u32& state,
                                           Backwards& out, u32 lane) {
    bool escape = false, full = false;
    const u32 word = state;
    if (active) {
        const int raised_level = level + ((1 << raw) >> 1);
        int symbol = raised_level >> raw;
        if (unsigned_) symbol = abs(symbol);
        const uint2 entry = table[min(max(symbol, -ESCAPE), ESCAPE)];
        escape = entry.x & ESCAPES;
        u32 frequency = entry.x >> 16, reciprocal = entry.y;
        if (unsigned_ && !escape && symbol != 0) {
            frequency *= 2;
            reciprocal >>= 1;
        }
        const u32 low = escape ? 0 : raised_level & ((1u << raw) - 1);
        full = state >> (32 - SCALE_BITS - raw) >= frequency;
        if (full) state >>= 16;
        const u32 raised = state << raw | low;
        // A reciprocal that is rounded down gives the quotient or one less.
        u32 quotient = __umulhi(raised, reciprocal);
        if (raised - quotient * frequency >= frequency) quotient++;
        state = raised + quotient * (SLOTS - frequency) + (entry.x & (SLOTS - 1));
    }
    out.put(full, lane, word);
    if (__any_sync(ALL, escape)) out.put(escape, lane, (u32)(u16)level);
}

// A level ready to be pushed: raised by half a symbol's levels and by as many as
// lie below zero, so that its symbol counts from 0; the symbol, and its entry.
struct Ready {
    u32 raised, symbol, raw;
    uint2 entry;

    // `table` points to the first symbol of a table.
    __device__ __forceinline__ void set(const uint2* table, u32 raw_bits, int level) {
        raw = raw_bits;
        raised = (u32)level + ((SYMBOLS + 1) << raw >> 1);
        // Below the first symbol and above the last all are escapes.
        symbol = min(raised >> raw, SYMBOLS - 1);
        entry = table[symbol];
    }

    // Pushes a level that is no escape in every lane, where there is room for a word of each.
    __device__ __forceinline__ void push(u32& state, Backwards& out, u32 lane) const {
        const u32 frequency = entry.x >> 16, word = state;
        const bool full = state >> (32 - SCALE_BITS - raw) >= frequency;
        if (full) state >>= 16;
        const u32 from = ((state - symbol) << raw) + raised;
        const u32 quotient = __umulhi(from, entry.y), more = SLOTS - frequency;
        state = from + (entry.x & (SLOTS - 1)) + quotient * more;
        // As in `push_level`: the quotient, or one less.
        if (from - quotient * frequency >= frequency) state += more;
        const u32 mask = __ballot_sync(ALL, full);
        out.at -= __popc(mask);
        if (full) out.room[out.at + lanes_below(mask, lane)] = (u16)word;
    }
};

// Pushes a symbol without raw bits that is no escape, in every lane, where there is room for a word of each.
__device__ __forceinline__ void push_entry(uint2 entry, u32& state, Backwards& out, u32 lane) {
    const u32 frequency = entry.x >> 16, word = state, more = SLOTS - frequency;
    const bool full = state >> (32 - SCALE_BITS) >= frequency;
    if (full) state >>= 16;
    const u32 quotient = __umulhi(state, entry.y), rest = state - quotient * frequency;
    state += (entry.x & (SLOTS - 1)) + quotient * more;
    // As in `push_level`: the quotient, or one less.
    if (rest >= frequency) state += more;
    const u32 mask = __ballot_sync(ALL, full);
    out.at -= __popc(mask);
    if (full) out.room[out.at + lanes_below(mask, lane)] = (u16)word;
}

// Words of shared memory that a warp has for itself: the tail, a group of the transform, the address of values.
constexpr u32 OWN_GROUP = (GROUP + 1) / 2 * 2;
constexpr u32 OWN = TAIL * 32 + OWN_GROUP + 2;

// Where a warp keeps what it needs twice.
struct Scratch {
    int* targets;        // SIZE or PREDICTS: residuals of the tile; PREDICTS: then level and quantizer
    u32* decisions;      // of steps together, 32 lanes; PREDICTS: of one row, a word a step
    int* deviations;     // PREDICTS: of columns
    short* row_classes;
};

