
// Encoding: values to levels to words, tiles into their rooms, rooms into a stream.

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
