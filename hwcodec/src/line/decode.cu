
// Decoding: words to levels to values.

struct Words {
    const u16* words;
    u32 length, at;
    u32 last;  // of the whole stream, counted from here
    // Some lanes take the next words, in order. A tile that takes more
    // than it has finds something else there, and its length wrong at the end.
    __device__ __forceinline__ u32 take(bool takes, u32 lane) {
        u32 mask = __ballot_sync(ALL, takes);
        u32 word = 0;
        if (takes) word = __ldg(words + min(at + lanes_below(mask, lane), last));
        at += __popc(mask);
        return word;
    }
    // Asks for words that will be taken some steps later: they come from far, and every lane waits for them.
    __device__ __forceinline__ void fetch_ahead(u32 lane) const {
        if (lane < 4) asm volatile("prefetch.global.L1 [%0];" ::"l"(words + min(at + 128 + 16 * lane, last)));
    }
};

__device__ __forceinline__ void refill(u32& state, bool active, Words& words, u32 lane) {
    bool low = active && state < LEAST_STATE;
    u32 word = words.take(low, lane);
    if (low) state = state << 16 | word;
}

// A slot as the warps of a block share it: the frequency, and in one word the
// bias above all, the symbol, in a byte of its own the point on the line of its
// quantizer, whether it is an escape, and what an odd level does to the trellis.
constexpr u32 BIAS_SHIFT = 22;
constexpr u32 SYMBOL_SHIFT = 17;
constexpr u32 POINT_SHIFT = 8;
constexpr u32 ESCAPED = 1u << 2;
// As the middle byte of a float's three highest, the byte is 192 more than the point.
constexpr float POINT_ZERO = 192.0f;

// A state of the trellis, going forwards. Of eight states, the two lower bits change places, and all
// is said twice in a byte and that byte again: one selection of bytes gives the next, and the quantizer
// is bit 13 too, where it counts bytes of a table.
constexpr bool TWICE = LOG2_STATES == 3;
__device__ constexpr u32 label_of(u32 state) { return TWICE ? (state & 4 | state >> 1 & 1 | (state & 1) << 1) * 0x11 : state; }
constexpr u32 ODD = label_of(H1);
__device__ constexpr u32 label_after(u32 label) {
    const u32 state = TWICE ? label & 4 | label >> 1 & 1 | (label & 1) << 1 : label;
    return label_of(state >> 1 ^ (state & 1 ? H0 : 0));
}
constexpr u32 LABELS_LOW = LOG2_STATES == 0 ? 0 : label_after(0) | label_after(1) << 8 | label_after(2) << 16 | label_after(3) << 24;
constexpr u32 LABELS_HIGH = TWICE ? label_after(4) | label_after(5) << 8 | label_after(6) << 16 | label_after(7) << 24 : 0;
constexpr u32 TABLE_BYTES = SLOTS * sizeof(uint2);
static_assert(!TWICE || TABLE_BYTES == 1 << 13, "a label says twice which table");

__device__ __forceinline__ u32 quantizer_of(u32 label) { return TWICE ? label >> 1 & 1 : LOG2_STATES != 0 ? label & 1 : 0; }

// The label after a level; `odd` is ODD or 0.
__device__ __forceinline__ u32 next_label(u32 label, u32 odd) {
    if (LOG2_STATES == 0) return 0;
    u32 next;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(next) : "n"(LABELS_LOW), "n"(LABELS_HIGH), "r"(label));
    return next ^ odd;
}

// Where the table of the quantizer at hand lies. A pair lies on a multiple of two tables, give or take what a
// block's shared memory begins with, which is less than one.
__device__ __forceinline__ u32 table_of(u32 pair, u32 label) {
    if (LOG2_STATES == 0) return pair;
    return TWICE ? pair | label & TABLE_BYTES : pair + (label & 1) * TABLE_BYTES;
}

__device__ __forceinline__ uint2 shared_slot(u32 packed, u32 quantizer) {
    const int symbol = (int)packed >> 22;
    const int point = 2 * symbol - (quantizer ? (symbol > 0) - (symbol < 0) : 0);
    const u32 odd = LOG2_STATES != 0 && symbol & 1 ? ODD : 0;
    const u32 bias = packed >> 11 & (SLOTS - 1), escaped = symbol == ESCAPE ? ESCAPED : 0;
    return make_uint2(packed & 0x7ff, bias << BIAS_SHIFT | ((u32)symbol & 31) << SYMBOL_SHIFT | (u32)(64 + point) << POINT_SHIFT | odd | escaped);
}

__device__ __forceinline__ float point_of(uint2 slot) {
    return __uint_as_float(__byte_perm(slot.y, 0x43000000, 0x7144)) - POINT_ZERO;
}

// A symbol has five bits with its sign; the escape is positive.
__device__ __forceinline__ int symbol_of(uint2 slot) { return (int)(slot.y << (32 - SYMBOL_SHIFT - 5)) >> 27; }

// The state without the symbol that it begins with.
__device__ __forceinline__ u32 without(uint2 slot, u32 state) { return slot.x * (state >> SCALE_BITS) + (slot.y >> BIAS_SHIFT); }

// The slot that a state points to, by where the table lies in shared memory.
__device__ __forceinline__ uint2 slot_at(u32 table, u32 state) {
    uint2 slot;
    asm("{\n\t.reg .b32 at;\n\t"
        "and.b32 at, %3, 1023;\n\t"
        "mad.lo.u32 at, at, 8, %2;\n\t"
        "ld.shared.v2.u32 {%0, %1}, [at];\n\t}" : "=r"(slot.x), "=r"(slot.y) : "r"(table), "r"(state));
    return slot;
}

// A value to its place.
__device__ __forceinline__ void put(float value, Stored* to) {
#if FORMAT == 1
    asm volatile("{\n\t.reg .b16 y;\n\tcvt.rn.bf16.f32 y, %0;\n\tst.global.b16 [%1], y;\n\t}" ::"f"(value), "l"(to) : "memory");
#else
    *to = save_finite(value);
#endif
}

// Tables of a row's columns by their classes: where a pair lies in shared memory; and of the raw bits a
// mask, and their number with half a symbol's levels above it.
struct RowTables {
    const u32* pairs;
    const uint2* raws;
    int from;

    // `of_class` is followed by what it says of raw bits.
    __device__ __forceinline__ RowTables(const u32* of_class, int of_row) {
        from = of_row;
        pairs = ::of_row(of_class, from);
        raws = (const uint2*)(of_class + SPAN) + (pairs - of_class);
    }

    // Where a pair lies | raw bits << 20.
    __device__ __forceinline__ u32 of(int column) const { return pairs[column] | (raws[column].y & 31) << 20; }
};

// One value's symbol. In the tail the sign is not known yet: the level is that
// of a positive symbol, and `negative` the other, or 0x7fff where there is none.
__device__ __forceinline__ int parse_level(u32 of, u32 label, bool active, bool in_tail, u32& state,
                                           Words& words, u32 lane, int& negative) {
    int level = 0;
    bool escape = false;
    negative = 0x7fff;
    if (active) {
        const u32 raw = of >> 20;
        const uint2 slot = slot_at(table_of(of & 0xfffff, label), state);
        u32 frequency = slot.x, bias = slot.y >> BIAS_SHIFT;
        int symbol = symbol_of(slot);
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
    u32 label;
    int worth;
    float scale;      // what a unit is worth
    int* deviations;  // of the tile's columns, where there is prediction
    int* group;       // coefficients that wait for the rest of theirs

    // `at` is the place of this lane's value.
    __device__ __forceinline__ void step(const Plan& p, const Tile& t, u32 row, u32 first, u32 lane, bool active, int level,
                                         Stored* at, Stored* out) {
        u32 col = first + lane;
        int coefficient = 0;
        if (active) {
            int deviation = units(level, quantizer_of(label), worth);
            if (PREDICTS) deviation += predict(p.above[t.col + col], deviations[col]);
            deviation = min(max(deviation, -p.limit), p.limit);
            if (PREDICTS) deviations[col] = deviation;
            coefficient = deviation;
            if (MEANS) coefficient += p.means[t.col + col] * UNITS;
            label = next_label(label, level & 1 ? ODD : 0);
        }
        if (SIZE == 0) {
            if (active) *at = save_finite((float)coefficient * scale);
            return;
        }
        u32 number = (t.col + first) / GROUP;
        if (number >= p.groups) {
            if (active) *at = save_finite((float)(coefficient * ONE) * scale);
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
            out[place(p, t.row + row, number * GROUP + i)] = save_finite((float)(int)sum * scale);
        }
        __syncwarp();
    }
};

// Gain and exceptions; what is wrong with them.
__device__ __forceinline__ u32 parse_head(const Tile& t, Words& words, u32 lane, u32& gain, u32& exceptions) {
    const u32 head = __shfl_sync(ALL, (u32)__ldg(words.words), 0);
    gain = head & 63;
    exceptions = 0;
    if (gain > MAX_GAIN || head >> 7) return HEAD;
    if (!(head & EXCEPTIONS)) return FINE;
    exceptions = words.length > 1 ? __shfl_sync(ALL, (u32)words.words[1], 0) + 1 : 0;
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

__device__ __forceinline__ void parse_row_classes(const uint2* row_slots, const Tile& t, u32 lane, u32& state, Words& words, short* of_row) {
    for (u32 first = 0; first < t.rows; first += LANES) {
        bool active = lane < LANES && first + lane < t.rows;
        int value = 0;
        if (active) {
            const uint2 slot = row_slots[state & (SLOTS - 1)];
            value = symbol_of(slot);
            state = without(slot, state);
        }
        bool escape = active && value == ESCAPE;
        u32 word = words.take(escape, lane);
        if (escape) value = (short)word;
        refill(state, active, words, lane);
        if (active) of_row[first + lane] = (short)value;
    }
    __syncwarp();
}

// Conditions and loops hang on what the compiler knows to be the same in all lanes: what is read from memory is told
// by one lane to the others where they do, or every vote is guarded against lanes that are elsewhere.

// Whole steps of a row where no word that may be taken lies beyond the stream, and
// a value depends on its level alone. The same as `parse_level` and
// `Reconstruction::step`, with what is known taken out, and what is rare apart.
constexpr bool PLAIN = SIZE == 0 && !PREDICTS && !MEANS && LANES == 32;

// One step of such a row; `of` is a table's place and its raw bits.
__device__ __forceinline__ void plain_step(const Plan& p, u32 of, float worth, float scale, u32& state, u32& label,
                                           Words& words, u32 lane, Stored* at) {
    const uint2 slot = slot_at(table_of(of & 0xfffff, label), state);
    state = without(slot, state);
    float coefficient = point_of(slot) * worth;
    u32 odd = slot.y & ODD;
    if (__any_sync(ALL, (slot.y & ESCAPED) | of >> 20)) {
        const bool escape = slot.y & ESCAPED;
        const u32 raw = of >> 20, quantizer = quantizer_of(label);
        const int low = (int)(state & ((1u << raw) - 1)) - (int)((1u << raw) >> 1);
        int level = (short)((symbol_of(slot) << raw) + low);
        state >>= raw;
        const u32 word = words.take(escape, lane);
        if (escape) level = (short)word;
        const int whole = units(level, quantizer, (int)worth);
        coefficient = (float)min(max(whole, -p.limit), p.limit);
        odd = level & 1 ? ODD : 0;
    }
    label = next_label(label, odd);
    *at = save_finite(coefficient * scale);
    const bool low = state < LEAST_STATE;
    const u32 mask = __ballot_sync(ALL, low);
    if (low) state = state << 16 | __ldg(words.words + (words.at + lanes_below(mask, lane)));
    words.at += __popc(mask);
}

// Some steps of a row, whatever they hold.
__device__ __forceinline__ void plain_steps(const Plan& p, const RowTables& tables, const signed char* classes, u32 steps,
                                            float worth, float scale, u32& state, u32& label, Words& words, u32 lane, Stored* at) {
    const u64 along = col_stride(p) * LANES;
    #pragma unroll 1
    for (; steps > 0; steps--, classes += LANES, at += along)
        plain_step(p, tables.of(*classes), worth, scale, state, label, words, lane, at);
}

// Steps of a row that are decoded as if none had an escape; where one has, they are decoded again.
constexpr u32 AHEAD = 8;

// Zero, which the compiler does not know: a constant made of it stays in a register.
__device__ __forceinline__ u32 no_bits() {
    u32 none;
    asm volatile("{\n\t.reg .b32 lane;\n\tmov.u32 lane, %%lanemask_lt;\n\tshr.u32 %0, lane, 31;\n\t}" : "=r"(none));
    return none;
}

// Registers of such steps. One constant serves both selections of bytes.
struct Quick {
    u32 state, label, at, any;
    const u16* words;
    u32 constant, below;

    __device__ __forceinline__ void refill() {
        const u32 mask = __ballot_sync(ALL, state < LEAST_STATE);
        const u16* const from = words + (at + __popc(mask & below));
        asm volatile("{\n\t.reg .pred low;\n\t.reg .b16 word;\n\t.reg .b32 wide;\n\t"
            "setp.lt.u32 low, %0, 65536;\n\t"
            "@low ld.global.nc.u16 word, [%1];\n\t"
            "cvt.u32.u16 wide, word;\n\t"
            "@low prmt.b32 %0, wide, %0, 0x5410;\n\t}" : "+r"(state) : "l"(from));
        at += __popc(mask);
    }

    // `pair` is where the tables of a column lie, `raws` where its raw bits are told of if any lane `has_raw`;
    // `unit` a quarter of what a point is worth.
    __device__ __forceinline__ void step(u32 pair, u32 raws, bool has_raw, float unit, Stored* to) {
        const uint2 found = slot_at(table_of(pair, label), state);
        state = without(found, state);
        any |= found.y;
        // 512 and four times 64 more than the point.
        u32 bits, odd = found.y;
        asm("prmt.b32 %0, %1, %2, 0x7144;" : "=r"(bits) : "r"(found.y), "r"(constant));
        float point = __uint_as_float(bits) - 768.0f;
        if (__any_sync(ALL, has_raw)) {
            uint2 raw;
            asm("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(raw.x), "=r"(raw.y) : "r"(raws));
            const int symbol = symbol_of(found);
            const int level = symbol * (int)raw.x + symbol + (int)(state & raw.x) - (int)(raw.y >> 8);
            state = __funnelshift_r(state, 0, raw.y);
            const float whole = (float)level;
            const float less = quantizer_of(label) != 0 && level != 0 ? copysignf(4.0f, whole) : 0.0f;
            point = 8.0f * whole - less;
            odd = (level & 1) * ODD;
        }
        if (TWICE) {
            asm("prmt.b32 %0, %1, %2, %0;" : "+r"(label) : "r"(constant), "n"(LABELS_HIGH));
            label ^= odd & ODD;
        } else {
            label = next_label(label, odd & ODD);
        }
        refill();
        put(point * unit, to);
    }
};

constexpr u32 QUICK_CONSTANT = TWICE ? LABELS_LOW : 0x44000000;
static_assert((QUICK_CONSTANT & 0xff0000ff) == 0x44000000, "a byte of zero and one of the exponent");

// Steps of a row. `unit` is a quarter of what a point is worth, in which one product rounds as two do.
__device__ __forceinline__ void quick_row(const Plan& p, const RowTables& tables, const signed char* classes, u32 steps,
                                          float worth, float scale, float unit, u32 constant, u32& state, u32& label,
                                          Words& words, u32 lane, Stored* at) {
    const u64 along = col_stride(p) * LANES;
    const u32 below = (1u << lane) - 1;
    const u32 pairs_at = (u32)__cvta_generic_to_shared(tables.pairs), raws_at = (u32)__cvta_generic_to_shared(tables.raws);
    const int least_raw = BASE_CLASSES - tables.from;
    #pragma unroll 1
    for (; steps >= AHEAD; steps -= AHEAD, classes += AHEAD * LANES, at += AHEAD * along) {
        Quick quick = {state, label, words.at, 0, words.words, constant, below};
        u32 pairs[AHEAD];
        int column[AHEAD];
        words.fetch_ahead(lane);
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) {
            column[j] = classes[j * LANES];
            asm("{\n\t.reg .b32 at;\n\tmad.lo.u32 at, %1, 4, %2;\n\tld.shared.u32 %0, [at];\n\t}"
                : "=r"(pairs[j]) : "r"(column[j]), "r"(pairs_at));
        }
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) quick.step(pairs[j], raws_at + 8 * column[j], column[j] >= least_raw, unit, at + j * along);
        if (__any_sync(ALL, quick.any & ESCAPED)) {
            plain_steps(p, tables, classes, AHEAD, worth, scale, state, label, words, lane, at);
        } else {
            state = quick.state;
            label = quick.label;
            words.at = quick.at;
        }
    }
    plain_steps(p, tables, classes, steps, worth, scale, state, label, words, lane, at);
}

// The last TAIL steps of a tile where they lie in one row: what is wrong with the tile's end, or ESCAPES
// where one of them is an escape; then nothing was done. `unit` is what a point is worth.
constexpr u32 ESCAPES = ~0u;
__device__ __forceinline__ u32 quick_tail(const RowTables& tables, const signed char* classes, float unit, u32* tail, u32 state, u32 label,
                                          const Words& words, u32 lane, u64 along, Stored* at) {
    const u32 below = (1u << lane) - 1;
    u32 any = 0, place = words.at, signed_steps = 0;
    #pragma unroll 2
    for (u32 step = 0; step < TAIL; step++) {
        const u32 of = tables.of(classes[step * LANES]), raw = of >> 20;
        const uint2 slot = slot_at(table_of(of & 0xfffff, label), state);
        const int symbol = symbol_of(slot);
        any |= slot.y;
        // Both signs of a magnitude are one symbol, the positive one first.
        state = (slot.x << (symbol != 0)) * (state >> SCALE_BITS) + (slot.y >> BIAS_SHIFT) + (symbol < 0 ? slot.x : 0);
        signed_steps = signed_steps << 1 | (symbol != 0);
        const int low = (int)(state & ((1u << raw) - 1)) - (int)((1u << raw) >> 1);
        state >>= raw;
        const int level = (abs(symbol) << raw) + low;
        // The negative one's point is as much less than that of the positive one's opposite.
        tail[step * 32 + lane] = (u32)(u16)units(level, quantizer_of(label), 1) | (u32)(4 * low) << 16;
        label = next_label(label, level & 1 ? ODD : 0);
        const bool low_state = state < LEAST_STATE;
        const u32 mask = __ballot_sync(ALL, low_state);
        if (low_state) state = state << 16 | __ldg(words.words + (place + __popc(mask & below)));
        place += __popc(mask);
    }
    if (__any_sync(ALL, any & ESCAPED)) return ESCAPES;
    // The final state holds the signs, the first step's the highest.
    const u32 signs = state ^ LEAST_STATE;
    u32 left = (signs & signed_steps) << (32 - TAIL);
    #pragma unroll 4
    for (u32 step = 0; step < TAIL; step++, left <<= 1, at += along) {
        const int both = (int)tail[step * 32 + lane], point = (short)both;
        put((float)((int)left < 0 ? (both >> 16) - point : point) * unit, at);
    }
    if (place != words.length) return LENGTH;
    return __any_sync(ALL, (signs & ~signed_steps) != 0) ? END : FINE;
}

// A tile after its head. FULL: every lane has a value in every step.
template <bool FULL>
__device__ __forceinline__ u32 decode_tile(const Plan& p, const Tile& t, const u32* of_class, u32* tail, u32 constant,
                                           Reconstruction& rebuild, Words words, u32 state, u32 gain,
                                           const short* of_row_class, Stored* out, u32 lane) {
    const u32 per_row = (t.cols + LANES - 1) / LANES, total = per_row * t.rows;
    const u32 tail_start = total > TAIL ? total - TAIL : 0;
    const signed char* classes = p.classes + t.col + lane;
    const u64 over = row_stride(p), along = col_stride(p) * LANES;
    Stored* row_at = out + place(p, t.row, t.col + lane);
    const float worth = (float)rebuild.worth;
    rebuild.label = 0;
    // A power of two times a number is that number's digits.
    const float unit = worth * rebuild.scale;
    // Whatever a level with raw bits is worth stays within the limit then.
    const bool quick = PLAIN && FULL && gain % 4 == 0 && gain <= 16 && unit <= 3.40282347e38f && unit >= 1e-30f;
    u32 row = 0, first = 0;
    for (u32 step = 0; step < tail_start; row++) {
        const int from = UNIT_CLASS + (ROW_CLASSES ? __shfl_sync(ALL, (int)of_row_class[row], 0) : 0) - (int)gain;
        const RowTables tables(of_class, from);
        const u32 end = min(tail_start - step, per_row);
        const bool plain = PLAIN && FULL && words.at + 2 * LANES * end <= words.last;
        if (plain && quick) {
            quick_row(p, tables, classes, end, worth, rebuild.scale, unit * 0.25f, constant, state, rebuild.label, words, lane,
                      row_at);
            first = end * LANES;
        } else if (plain) {
            plain_steps(p, tables, classes, end, worth, rebuild.scale, state, rebuild.label, words, lane, row_at);
            first = end * LANES;
        } else {
            Stored* at = row_at;
            first = 0;
            for (u32 s = 0; s < end; s++, first += LANES, at += along) {
                const bool active = FULL || (lane < LANES && first + lane < t.cols);
                const u32 of = active ? tables.of(classes[first]) : 0;
                int ignored;
                int level = parse_level(of, rebuild.label, active, false, state, words, lane, ignored);
                rebuild.step(p, t, row, first, lane, active, level, at, out);
            }
        }
        step += end;
        if (end < per_row) break;
        row_at += over;
        first = 0;
    }
    const u32 tail_row = row, tail_first = first;
    u32 label = rebuild.label;
    int from = UNIT_CLASS + (ROW_CLASSES && total > 0 ? __shfl_sync(ALL, (int)of_row_class[row], 0) : 0) - (int)gain;
    RowTables tables(of_class, from);
    if (quick && total - tail_start == TAIL && first + TAIL * LANES <= t.cols && words.at + 2 * LANES * TAIL <= words.last) {
        Stored* const at = row_at + first / LANES * along;
        const u32 fault = quick_tail(tables, classes + first, unit, tail, state, label, words, lane, along, at);
        if (fault != ESCAPES) return fault;
    }
    #pragma unroll 1
    for (u32 step = tail_start; step < total; step++) {
        const bool active = FULL || (lane < LANES && first + lane < t.cols);
        const u32 of = active ? tables.of(classes[first]) : 0;
        int negative;
        int level = parse_level(of, label, active, true, state, words, lane, negative);
        if (active) label = next_label(label, level & 1 ? ODD : 0);
        tail[(step - tail_start) * 32 + lane] = (u32)(u16)level | (u32)(u16)negative << 16;
        first += LANES;
        if (first >= t.cols) {
            first = 0;
            row++;
            if (ROW_CLASSES && row < t.rows) tables = RowTables(of_class, UNIT_CLASS + __shfl_sync(ALL, (int)of_row_class[row], 0) - (int)gain);
        }
    }
    // The final state holds the signs of the tail.
    u32 signs = lane < LANES ? state ^ LEAST_STATE : 0;
    row = tail_row;
    first = tail_first;
    Stored* at = out + place(p, t.row + row, t.col + first + lane);
    #pragma unroll 1
    for (u32 step = tail_start; step < total; step++) {
        const bool active = FULL || (lane < LANES && first + lane < t.cols);
        u32 both = tail[(step - tail_start) * 32 + lane];
        u32 bit = 1u << (total - 1 - step);
        int level = (short)(both & 0xffff);
        if (active && both >> 16 != 0x7fff && signs & bit) {
            level = (short)(both >> 16);
            signs ^= bit;
        }
        rebuild.step(p, t, row, first, lane, active, level, at, out);
        first += LANES;
        at += along;
        if (first >= t.cols) {
            first = 0;
            row++;
            at = out + place(p, t.row + row, t.col + lane);
        }
    }
    if (words.at != words.length) return LENGTH;
    return __any_sync(ALL, signs != 0) ? END : FINE;
}

// An address in device memory. Of a list's it is not said that it is there: NVRTC 13.0 does not come back then.
__device__ __forceinline__ void* global(u64 at) { return LISTED ? (void*)at : __cvta_global_to_generic(at); }

// The step that a stream's header states, its first byte the highest.
__device__ __forceinline__ float step_of(const u8* at) {
    return __uint_as_float((u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3]);
}

// Bytes of a header's word that are of its step, or only pad it.
__device__ __forceinline__ u32 ignored_bytes(u32 word, u32 step_at, u32 length) {
    const int before = (int)(step_at - 4 * word), kept = (int)(length - 4 * word);
    const u32 step = before <= -4 || before >= 4 ? 0 : before >= 0 ? ~0u << 8 * before : ~0u >> -8 * before;
    return step | (kept < 4 ? ~0u << 8 * kept : 0);
}

// Whether a stream has the plan's header, whatever its step, by a warp.
__device__ __forceinline__ bool has_header(const Plan& p, const u8* stream, u32 lane) {
    bool same = true;
    #pragma unroll 4
    for (u32 i = lane; i < p.header_bytes / 4; i += 32) {
        const u32 other = __ldg((const u32*)stream + i) ^ __ldg((const u32*)p.header + i);
        same = same && (other & ~ignored_bytes(i, p.step_at, p.header_length)) == 0;
    }
    return __all_sync(ALL, same);
}

// A tile of a tensor that arrived as no stream: not a number anywhere.
__device__ __forceinline__ void spoil(const Plan& p, const Tile& t, Stored* out, u32 lane) {
    for (u32 row = 0; row < t.rows; row++)
        for (u32 col = lane; col < t.cols; col += 32) out[place(p, t.row + row, t.col + col)] = save(__uint_as_float(0x7fc00000));
}

// Words and directory may say anything: every index is checked or follows
// from the plan, which the host checked. Where tensors have a `head`, it lies before
// their streams and says how many bytes count.
extern "C" __global__ void __launch_bounds__(THREADS)
line_decode(const Plan p, const __grid_constant__ Places sources, const __grid_constant__ Counts counts, u32 head,
            const __grid_constant__ Places outs, u32 count, short* row_classes, int* scratch, u32* faults) {
    extern __shared__ u32 shared[];
    const u32 lane = threadIdx.x % 32, warp = __shfl_sync(ALL, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    uint2* slots = (uint2*)shared;
    const u32 slot_count = (p.tables + ROW_CLASSES) * SLOTS;
    // Tables of both quantizers take turns; that of row classes, after them, is like one of the first.
    for (u32 i = threadIdx.x; i < slot_count; i += blockDim.x) slots[i] = shared_slot(p.slots[i], LOG2_STATES != 0 ? i / SLOTS & 1 : 0);
    // Where a pair of tables lies, then what there is of raw bits.
    const u32 slots_at = (u32)__cvta_generic_to_shared(slots);
    u32* of_class = (u32*)(slots + slot_count);
    uint2* raws = (uint2*)(of_class + SPAN);
    for (u32 i = threadIdx.x; i < SPAN; i += blockDim.x) {
        const u32 of = p.of_class[class_at(i)], raw = of >> 8;
        of_class[i] = slots_at + (of & 255) * TABLE_BYTES;
        raws[i] = make_uint2((1u << raw) - 1, raw | (1u << raw >> 1) << 8);
    }
    u32* tail = (u32*)(raws + SPAN) + warp * (TAIL * 32 + GROUP);
    Reconstruction rebuild;
    rebuild.group = (int*)(tail + TAIL * 32);
    __syncthreads();
    const u32 constant = QUICK_CONSTANT | no_bits();
    // Neighbouring tiles on different multiprocessors: few tiles fill them all.
    const u32 global_warp = warp * gridDim.x + blockIdx.x;
    rebuild.deviations = scratch + (u64)global_warp * (PREDICTS ? p.tile_cols : 0);
    for (u32 index = global_warp; index < p.tiles * count; index += gridDim.x * warps) {
        const u32 item = index / p.tiles, tile = index - item * p.tiles;
        const Tile t = tile_at(p, tile);
        const u8* const source = (const u8*)global(sources.of(item)) + head;
        Stored* const out = (Stored*)global(outs.of(item));
        if (head != 0 && __any_sync(ALL, *(const u64*)(source - head) == NO_STREAM)) {
            spoil(p, t, out, lane);
            if (lane == 0) faults[index] = FINE;
            continue;
        }
        const float step = __shfl_sync(ALL, step_of(source + p.step_at), 0);
        if (!is_step(step) || (tile == 0 && !has_header(p, source, lane))) {
            if (lane == 0) faults[index] = HEADER;
            continue;
        }
        rebuild.scale = step / p.step_units;
        const u32* const ends = (const u32*)(source + p.header_bytes);
        const u16* const stream = (const u16*)(ends + p.tiles);
        const u32 word_count = __shfl_sync(ALL, counts.of(item), 0);
        const u32 begin = __shfl_sync(ALL, tile == 0 ? 0 : ends[tile - 1], 0), end = __shfl_sync(ALL, ends[tile], 0);
        if (begin >= end || end > word_count) {
            if (lane == 0) faults[index] = DIRECTORY;
            continue;
        }
        Words words = {stream + begin, end - begin, 1, word_count - 1 - begin};
        u32 gain, exceptions;
        u32 fault = parse_head(t, words, lane, gain, exceptions);
        if (fault != FINE) {
            if (lane == 0) faults[index] = fault;
            continue;
        }
        u32 state = LEAST_STATE;
        if (lane < LANES) {
            u32 at = words.at + 2 * lane;
            state = __ldg(words.words + min(at, words.last)) | (u32)__ldg(words.words + min(at + 1, words.last)) << 16;
        }
        words.at += 2 * LANES;
        short* of_row = row_classes + (u64)index * (ROW_CLASSES ? p.tile_rows : 0);
        if (ROW_CLASSES) parse_row_classes(slots + p.tables * SLOTS, t, lane, state, words, of_row);
        if (PREDICTS) {
            for (u32 i = lane; i < t.cols; i += 32) rebuild.deviations[i] = 0;
            __syncwarp();
        }
        rebuild.worth = gain_units(gain);
        fault = WHOLE_STEPS || (LANES == 32 && t.cols % 32 == 0)
            ? decode_tile<true>(p, t, of_class, tail, constant, rebuild, words, state, gain, of_row, out, lane)
            : decode_tile<false>(p, t, of_class, tail, constant, rebuild, words, state, gain, of_row, out, lane);
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
