
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
// bias, what an odd level does to the trellis, whether it is an escape, and the
// point on the line of its quantizer as a float, whose low bits are all zero.
constexpr u32 BIAS_MASK = SLOTS - 1;
constexpr u32 PARITY_SHIFT = SCALE_BITS;
constexpr u32 ESCAPED = 1u << 12;
constexpr u32 POINT_MASK = ~0u << 19;

__device__ __forceinline__ uint2 shared_slot(u32 packed, u32 quantizer) {
    const int symbol = (int)packed >> 22;
    const int point = 2 * symbol - (quantizer ? (symbol > 0) - (symbol < 0) : 0);
    const u32 odd = LOG2_STATES != 0 && symbol & 1 ? (u32)H1 << PARITY_SHIFT : 0;
    return make_uint2(packed & 0x7ff, packed >> 11 & BIAS_MASK | odd | (symbol == ESCAPE ? ESCAPED : 0) | __float_as_uint((float)point));
}

__device__ __forceinline__ float point_of(uint2 slot) { return __uint_as_float(slot.y & POINT_MASK); }

__device__ __forceinline__ int symbol_of(uint2 slot, u32 quantizer) {
    const int point = (int)point_of(slot);
    return (point + (quantizer ? (point > 0) - (point < 0) : 0)) / 2;
}

// The slot that a state points to: `table` counts bytes from the first table.
__device__ __forceinline__ uint2 slot_at(const uint2* slots, u32 table, u32 trellis, u32 state) {
    if (LOG2_STATES != 0) table += (trellis & 1) * (SLOTS * sizeof(uint2));
    return *(const uint2*)((const u8*)slots + table + (state & (SLOTS - 1)) * sizeof(uint2));
}

// One value's symbol. In the tail the sign is not known yet: the level is that
// of a positive symbol, and `negative` the other, or 0x7fff where there is none.
__device__ __forceinline__ int parse_level(const uint2* slots, u32 of, u32 trellis, bool active, bool in_tail, u32& state,
                                           Words& words, u32 lane, int& negative) {
    int level = 0;
    bool escape = false;
    negative = 0x7fff;
    if (active) {
        const u32 raw = of >> 20;
        const uint2 slot = slot_at(slots, of & 0xfffff, trellis, state);
        u32 frequency = slot.x, bias = slot.y & BIAS_MASK;
        int symbol = symbol_of(slot, LOG2_STATES != 0 ? trellis & 1 : 0);
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
    float scale;      // what a unit is worth
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
    const u32 head = __ldg(words.words);
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

__device__ __forceinline__ void parse_row_classes(const uint2* row_slots, const Tile& t, u32 lane, u32& state, Words& words, short* of_row) {
    for (u32 first = 0; first < t.rows; first += LANES) {
        bool active = lane < LANES && first + lane < t.rows;
        int value = 0;
        if (active) {
            const uint2 slot = row_slots[state & (SLOTS - 1)];
            value = symbol_of(slot, 0);
            state = slot.x * (state >> SCALE_BITS) + (slot.y & BIAS_MASK);
        }
        bool escape = active && value == ESCAPE;
        u32 word = words.take(escape, lane);
        if (escape) value = (short)word;
        refill(state, active, words, lane);
        if (active) of_row[first + lane] = (short)value;
    }
    __syncwarp();
}

// Whole steps of a row where no word that may be taken lies beyond the stream, and
// a value depends on its level alone. The same as `parse_level` and
// `Reconstruction::step`, with what is known taken out, and what is rare apart.
constexpr bool PLAIN = SIZE == 0 && !PREDICTS && !MEANS && LANES == 32;

// Rows of a tile whose columns have the same tables in each, none of them with raw bits.
constexpr bool MAY_BE_FLAT = PLAIN && ROW_STEPS != 0;

// One step of such a row; `of` is a table's place and its raw bits. FLAT: there are none, and it counts slots.
template <bool FLAT>
__device__ __forceinline__ void plain_step(const Plan& p, const uint2* slots, u32 of, float worth, float scale, u32& state, u32& trellis,
                                           Words& words, u32 lane, Stored* at) {
    uint2 slot;
    if (FLAT) {
        u32 table = of + (state & (SLOTS - 1));
        if (LOG2_STATES != 0) table += (trellis & 1) * SLOTS;
        slot = slots[table];
    } else {
        slot = slot_at(slots, of & 0xfffff, trellis, state);
    }
    state = slot.x * (state >> SCALE_BITS) + (slot.y & BIAS_MASK);
    float coefficient = point_of(slot) * worth;
    u32 odd = slot.y >> PARITY_SHIFT & H1;
    if (__any_sync(ALL, FLAT ? slot.y & ESCAPED : (slot.y & ESCAPED) | of >> 20)) {
        const bool escape = slot.y & ESCAPED;
        const u32 raw = FLAT ? 0 : of >> 20, quantizer = LOG2_STATES != 0 ? trellis & 1 : 0;
        const int low = (int)(state & ((1u << raw) - 1)) - (int)((1u << raw) >> 1);
        int level = (short)((symbol_of(slot, quantizer) << raw) + low);
        state >>= raw;
        const u32 word = words.take(escape, lane);
        if (escape) level = (short)word;
        const int whole = units(level, quantizer, (int)worth);
        coefficient = (float)min(max(whole, -p.limit), p.limit);
        odd = level & 1 ? H1 : 0;
    }
    if (LOG2_STATES != 0) trellis = after_even(trellis) ^ odd;
    *at = save_finite(coefficient * scale);
    const bool low = state < LEAST_STATE;
    const u32 mask = __ballot_sync(ALL, low);
    if (low) state = state << 16 | __ldg(words.words + (words.at + lanes_below(mask, lane)));
    words.at += __popc(mask);
}

__device__ __forceinline__ void plain_row(const Plan& p, const uint2* slots, const u32* of_column, const signed char* classes, u32 steps,
                                          float worth, float scale, u32& state, u32& trellis, Words& words, u32 lane, Stored* at) {
    constexpr u32 AHEAD = 8;
    const u64 along = col_stride(p) * LANES;
    for (; steps >= AHEAD; steps -= AHEAD, classes += AHEAD * LANES, at += AHEAD * along) {
        u32 tables[AHEAD];
        words.fetch_ahead(lane);
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) tables[j] = of_column[classes[j * LANES]];
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) plain_step<false>(p, slots, tables[j], worth, scale, state, trellis, words, lane, at + j * along);
    }
    #pragma unroll 1
    for (; steps > 0; steps--, classes += LANES, at += along)
        plain_step<false>(p, slots, of_column[*classes], worth, scale, state, trellis, words, lane, at);
}

// Slots before the table of each column of a tile, for this lane's; whether none of its columns has raw bits.
__device__ __forceinline__ bool flatten(const Plan& p, const Tile& t, const u32* of_column, u16* flat, u32 lane) {
    bool raw = false;
    for (u32 col = lane; col < t.cols; col += 32) {
        const u32 of = of_column[p.classes[t.col + col]];
        raw = raw || of >> 20 != 0;
        flat[col] = (u16)(of / (u32)sizeof(uint2));
    }
    return __all_sync(ALL, !raw);
}

// A row of such a tile: its lane's tables are `flat`.
__device__ __forceinline__ void flat_row(const Plan& p, const uint2* slots, const u16* flat, u32 steps, float worth, float scale, u32& state,
                                         u32& trellis, Words& words, u32 lane, Stored* at) {
    constexpr u32 AHEAD = 8;
    const u64 along = col_stride(p) * LANES;
    for (; steps >= AHEAD; steps -= AHEAD, flat += AHEAD * LANES, at += AHEAD * along) {
        u32 tables[AHEAD];
        words.fetch_ahead(lane);
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) tables[j] = flat[j * LANES];
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) plain_step<true>(p, slots, tables[j], worth, scale, state, trellis, words, lane, at + j * along);
    }
    #pragma unroll 1
    for (; steps > 0; steps--, flat += LANES, at += along)
        plain_step<true>(p, slots, *flat, worth, scale, state, trellis, words, lane, at);
}

// A tile after its head. FULL: every lane has a value in every step.
template <bool FULL>
__device__ __forceinline__ u32 decode_tile(const Plan& p, const Tile& t, const uint2* slots, const u32* of_class, u32* tail,
                                           u16* flat, Reconstruction& rebuild, Words words, u32 state, u32 gain,
                                           const short* of_row_class, Stored* out, u32 lane) {
    const u32 per_row = (t.cols + LANES - 1) / LANES, total = per_row * t.rows;
    const u32 tail_start = total > TAIL ? total - TAIL : 0;
    const signed char* classes = p.classes + t.col + lane;
    const u64 over = row_stride(p), along = col_stride(p) * LANES;
    Stored* row_at = out + place(p, t.row, t.col + lane);
    const float worth = (float)rebuild.worth;
    rebuild.trellis = 0;
    const bool is_flat = MAY_BE_FLAT && flatten(p, t, of_row(of_class, UNIT_CLASS - (int)gain), flat, lane);
    u32 row = 0, first = 0;
    for (u32 step = 0; step < tail_start; row++) {
        const int from = UNIT_CLASS + (ROW_CLASSES ? of_row_class[row] : 0) - (int)gain;
        const u32* of_column = of_row(of_class, from);
        const u32 end = min(tail_start - step, per_row);
        if (is_flat && words.at + 2 * LANES * end <= words.last) {
            flat_row(p, slots, flat + lane, end, worth, rebuild.scale, state, rebuild.trellis, words, lane, row_at);
            first = end * LANES;
        } else if (PLAIN && FULL && words.at + 2 * LANES * end <= words.last) {
            plain_row(p, slots, of_column, classes, end, worth, rebuild.scale, state, rebuild.trellis, words, lane, row_at);
            first = end * LANES;
        } else {
            Stored* at = row_at;
            first = 0;
            for (u32 s = 0; s < end; s++, first += LANES, at += along) {
                const bool active = FULL || (lane < LANES && first + lane < t.cols);
                const u32 of = active ? of_column[classes[first]] : 0;
                int ignored;
                int level = parse_level(slots, of, rebuild.trellis, active, false, state, words, lane, ignored);
                rebuild.step(p, t, row, first, lane, active, level, at, out);
            }
        }
        step += end;
        if (end < per_row) break;
        row_at += over;
        first = 0;
    }
    const u32 tail_row = row, tail_first = first;
    u32 trellis = rebuild.trellis;
    const u32* of_column = of_row(of_class, UNIT_CLASS + (ROW_CLASSES && total > 0 ? of_row_class[row] : 0) - (int)gain);
    #pragma unroll 1
    for (u32 step = tail_start; step < total; step++) {
        const bool active = FULL || (lane < LANES && first + lane < t.cols);
        const u32 of = active ? of_column[classes[first]] : 0;
        int negative;
        int level = parse_level(slots, of, trellis, active, true, state, words, lane, negative);
        if (active) trellis = next_state(trellis, level);
        tail[(step - tail_start) * 32 + lane] = (u32)(u16)level | (u32)(u16)negative << 16;
        first += LANES;
        if (first >= t.cols) {
            first = 0;
            row++;
            if (ROW_CLASSES && row < t.rows) of_column = of_row(of_class, UNIT_CLASS + of_row_class[row] - (int)gain);
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
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint2* slots = (uint2*)shared;
    const u32 slot_count = (p.tables + ROW_CLASSES) * SLOTS;
    // Tables of both quantizers take turns; that of row classes, after them, is like one of the first.
    for (u32 i = threadIdx.x; i < slot_count; i += blockDim.x) slots[i] = shared_slot(p.slots[i], LOG2_STATES != 0 ? i / SLOTS & 1 : 0);
    // Bytes before a table | raw bits << 20.
    u32* of_class = (u32*)(slots + slot_count);
    for (u32 i = threadIdx.x; i < SPAN; i += blockDim.x) {
        const u32 of = p.of_class[class_at(i)];
        of_class[i] = (of & 255) * (SLOTS * (u32)sizeof(uint2)) | of >> 8 << 20;
    }
    u32* tail = of_class + SPAN + warp * (TAIL * 32 + GROUP);
    u16* flat = (u16*)(of_class + SPAN + warps * (TAIL * 32 + GROUP)) + warp * (ROW_STEPS * 32);
    Reconstruction rebuild;
    rebuild.group = (int*)(tail + TAIL * 32);
    __syncthreads();
    // Neighbouring tiles on different multiprocessors: few tiles fill them all.
    const u32 global_warp = warp * gridDim.x + blockIdx.x;
    rebuild.deviations = scratch + (u64)global_warp * (PREDICTS ? p.tile_cols : 0);
    for (u32 index = global_warp; index < p.tiles * count; index += gridDim.x * warps) {
        const u32 item = index / p.tiles, tile = index - item * p.tiles;
        const Tile t = tile_at(p, tile);
        const u8* const source = (const u8*)sources.of(item) + head;
        Stored* const out = (Stored*)outs.of(item);
        if (head != 0 && *(const u64*)(source - head) == NO_STREAM) {
            spoil(p, t, out, lane);
            if (lane == 0) faults[index] = FINE;
            continue;
        }
        const float step = step_of(source + p.step_at);
        if (!is_step(step) || (tile == 0 && !has_header(p, source, lane))) {
            if (lane == 0) faults[index] = HEADER;
            continue;
        }
        rebuild.scale = step / p.step_units;
        const u32* const ends = (const u32*)(source + p.header_bytes);
        const u16* const stream = (const u16*)(ends + p.tiles);
        const u32 word_count = counts.of(item);
        const u32 begin = tile == 0 ? 0 : ends[tile - 1], end = ends[tile];
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
            ? decode_tile<true>(p, t, slots, of_class, tail, flat, rebuild, words, state, gain, of_row, out, lane)
            : decode_tile<false>(p, t, slots, of_class, tail, flat, rebuild, words, state, gain, of_row, out, lane);
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
