// FULL: rows of whole steps on 32 lanes. GAIN: coarser steps than the plan's.
template <bool FULL, bool GAIN>
struct Coding {
    const Plan& p;
    const Tile& t;
    const uint2* symbols;
    const int* costs;
    const u32* of_class;
    Scratch scratch;
    float* group;
    u32* tail;
    u32 lane, per_row, total, gain;
    bool kept;  // this lane saw a value that must be kept exactly
    float inverse;  // STEPS: of the tensor's own step
    Near near;      // QUICK_SEARCH: what is looked up

    __device__ __forceinline__ float units_per_value() const { return STEPS ? inverse : p.inverse; }

    // The tensor's first value; its address waits in shared memory, since it is wanted once a row.
    __device__ __forceinline__ const Stored* values() const { return *(const Stored* const*)(tail + TAIL * 32 + OWN_GROUP); }

    // Whether this lane has a column in a step.
    __device__ __forceinline__ bool active(u32 first) const {
        return FULL ? first < t.cols : lane < LANES && first + lane < t.cols;
    }

    __device__ __forceinline__ const Stored* place_of(u32 row, u32 first) const {
        return values() + place(p, t.row + row, t.col + first + lane);
    }

    // The transform of the whole tile, as targets.
    __device__ void transform() {
        for (u32 row = 0; row < t.rows; row++) {
            for (u32 first = 0; first < t.cols; first += GROUP) {
                const u32 number = (t.col + first) / GROUP;
                const bool whole = number < p.groups;
                for (u32 i = lane; i < GROUP && first + i < t.cols; i += 32) group[i] = scaled(__ldg(values() + place(p, t.row + row, t.col + first + i)));
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
        float value = __fmul_rn(load(stored), units_per_value());
        if (fabsf(value) <= p.safe) return value;
        kept = true;
        return 0.0f;
    }

    // What a target is made of: a value, or under a transform the target itself.
    __device__ __forceinline__ int fetch(u32 row, u32 col, const Stored* at) const {
        return SIZE != 0 ? scratch.targets[row * t.cols + col] : FORMAT == 0 ? __float_as_int(load(__ldg(at))) : (int)__ldg(at);
    }

    __device__ __forceinline__ int residual(u32 col, int fetched) {
        int target = SIZE != 0 ? fetched : to_target(p, scaled(FORMAT == 0 ? (Stored)__int_as_float(fetched) : (Stored)fetched));
        if (!MEANS && !PREDICTS) return target;
        int predicted = MEANS ? p.means[t.col + col] * UNITS : 0;
        if (PREDICTS) predicted += predict(p.above[t.col + col], scratch.deviations[col]);
        return min(max(target - predicted, -p.limit), p.limit);
    }

    __device__ __forceinline__ int goal(u32 col, int fetched) {
        int target = residual(col, fetched);
        return GAIN ? reduced(target, gain) : target;
    }

    __device__ __forceinline__ int find_row_class(u32 row) {
        constexpr u32 AHEAD = 4;
        u64 sum = 0;
        const Stored* at = place_of(row, 0);
        const u64 along = col_stride(p) * 32;
        const u32* weights = p.weights + t.col + lane;
        u32 col = lane;
        // Loads of some steps before anything waits for one.
        for (; col + (AHEAD - 1) * 32 < t.cols; col += AHEAD * 32, at += AHEAD * along, weights += AHEAD * 32) {
            int fetched[AHEAD];
            u32 weight[AHEAD];
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) {
                fetched[j] = fetch(row, col + j * 32, at + j * along);
                weight[j] = weights[j * 32];
            }
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) sum += (u64)(u32)abs(residual(col + j * 32, fetched[j])) * weight[j];
        }
        for (; col < t.cols; col += 32, at += along, weights += 32)
            sum += (u64)(u32)abs(residual(col, fetch(row, col, at))) * *weights;
        return class_of_sum(sum);
    }

    // The class of a row by its weighed residuals, of which each lane has a part.
    __device__ __forceinline__ int class_of_sum(u64 sum) const {
        sum = sum_of_lanes(sum);
        // Tiles are nearly always a power of two wide.
        u64 mean = (t.cols & (t.cols - 1)) == 0 ? sum >> (31 - __clz(t.cols)) : sum / t.cols;
        return quarter_log2(mean > 1 ? mean : 1) - 4 * 19;
    }

    // What a row's class picks of `of_class`, to be indexed by columns' classes.
    __device__ __forceinline__ const u32* of_row(int row_class) const {
        return ::of_row(of_class, UNIT_CLASS + row_class - (GAIN ? (int)gain : 0));
    }

    __device__ __forceinline__ int row_class_at(u32 row) const { return ROW_CLASSES ? scratch.row_classes[row] : 0; }

    // Symbols of a class's table, of the first or the second quantizer.
    __device__ __forceinline__ const uint2* symbols_of(u32 of, u32 quantizer) const {
        return symbols + SYMBOLS / 2 + (of & 0xffff) + quantizer * SYMBOLS;
    }

    // The first of them.
    __device__ __forceinline__ const uint2* first_of(u32 of, u32 quantizer) const {
        return symbols + (of & 0xffff) + quantizer * SYMBOLS;
    }

    __device__ __forceinline__ const int* costs_of(u32 of) const { return costs + (of & 0xffff) / 2; }

    __device__ __forceinline__ u32 words_per_row() const { return (per_row + TOGETHER - 1) / TOGETHER; }

    __device__ __forceinline__ u32 decided_at(u32 row, u32 step) const {
        if (LOG2_STATES == 0 || PREDICTS) return 0;
        return scratch.decisions[(row * words_per_row() + step / TOGETHER) * 32 + lane] >> (step % TOGETHER * STEP_BITS);
    }

    __device__ __forceinline__ int note_row_class(u32 row) {
        if (!ROW_CLASSES) return 0;
        return noted(row, find_row_class(row));
    }

    __device__ __forceinline__ int noted(u32 row, int row_class) {
        if (lane == 0) scratch.row_classes[row] = (short)row_class;
        return row_class;
    }

    // Whether rows of this tile are kept in registers while they are coded.
    __device__ __forceinline__ bool keeps_rows() const { return ROW_STEPS != 0 && FULL && t.cols == ROW_STEPS * 32; }

    // Targets of a row, read once, and the row's class, which is noted.
    __device__ __forceinline__ int take_row(u32 row, int* targets) {
        const Stored* at = place_of(row, 0);
        const u64 along = col_stride(p) * 32;
        const u32* weights = p.weights + t.col + lane;
        u64 sum = 0;
        #pragma unroll
        for (u32 j = 0; j < ROW_STEPS; j++) targets[j] = fetch(row, j * 32 + lane, at + j * along);
        #pragma unroll
        for (u32 j = 0; j < ROW_STEPS; j++) {
            targets[j] = residual(j * 32 + lane, targets[j]);
            if (ROW_CLASSES) sum += (u64)(u32)abs(targets[j]) * weights[j * 32];
            if (GAIN) targets[j] = reduced(targets[j], gain);
        }
        return ROW_CLASSES ? noted(row, class_of_sum(sum)) : 0;
    }

    // Targets of a kept row to its end, by as many as were coded: registers cannot be indexed.
    __device__ __forceinline__ static void retreat(int* targets) {
        #pragma unroll
        for (u32 j = ROW_STEPS; j-- > TOGETHER;) targets[j] = targets[j - TOGETHER];
    }

    // Codes a row that is kept, without a search: its last step first.
    __device__ __forceinline__ void push_row(u32 row, u32& state, Backwards& out) {
        int targets[ROW_STEPS + TOGETHER];
        const u32* of_column = of_row(take_row(row, targets));
        const signed char* classes = p.classes + t.col + lane + ROW_STEPS * 32;
        #pragma unroll 1
        for (u32 left = ROW_STEPS; left > 0; left -= TOGETHER) {
            classes -= TOGETHER * 32;
            int levels[TOGETHER];
            u32 of[TOGETHER];
            #pragma unroll
            for (u32 j = 0; j < TOGETHER; j++) {
                of[j] = of_column[classes[j * 32]];
                levels[j] = uniform(targets[KEPT_LAST + j]);
            }
            push_levels<TOGETHER>(levels, 0, of, state, out);
            retreat(targets);
        }
    }

    // Some steps of a row together, from `begin` in columns, survivors extended by
    // each: what they decide. WHOLE: all lanes have a column in all of them.
    template <bool WHOLE>
    __device__ __forceinline__ u32 search(Path& path, u32 row, u32 begin, const Stored* at, u64 along, const u32* of_column) {
        int fetched[TOGETHER];
        u32 of[TOGETHER];
        #pragma unroll
        for (u32 j = 0; j < TOGETHER; j++) {
            const u32 first = begin + j * LANES;
            if (!WHOLE && !active(first)) continue;
            fetched[j] = fetch(row, first + lane, at + j * along);
            of[j] = of_column[p.classes[t.col + first + lane]];
        }
        u32 word = 0;
        #pragma unroll
        for (u32 j = 0; j < TOGETHER; j++) {
            const u32 first = begin + j * LANES;
            if (!WHOLE && !active(first)) continue;
            Goal to(goal(first + lane, fetched[j]), of[j] >> 16);
            word |= path.step(to, costs_of(of[j])) << (j * STEP_BITS);
        }
        return word;
    }

    // With a trellis: row classes and survivors; the state of the best path.
    __device__ __forceinline__ u32 forward() {
        if (LOG2_STATES == 0) return 0;
        Path path;
        path.start(0);
        u32 since = 0;
        u32* decisions = scratch.decisions + lane;
        const u64 along = col_stride(p) * LANES;
        for (u32 row = 0; row < t.rows; row++) {
            const u32* of_column = of_row(note_row_class(row));
            const Stored* at = place_of(row, 0);
            for (u32 begin = 0; begin < t.cols; begin += TOGETHER * LANES, at += TOGETHER * along, decisions += 32) {
                const bool whole = FULL && begin + TOGETHER * LANES <= t.cols;
                *decisions = whole ? search<true>(path, row, begin, at, along, of_column)
                                   : search<false>(path, row, begin, at, along, of_column);
                if (++since == SETTLE) {
                    since = 0;
                    path.settle();
                }
            }
        }
        __syncwarp();
        return path.best();
    }

    // With prediction each row ends its paths: levels go to scratch.
    __device__ __forceinline__ void forward_predicted() {
        for (u32 i = lane; i < t.cols; i += 32) scratch.deviations[i] = 0;
        __syncwarp();
        u32 state = 0;
        const u64 along = col_stride(p) * LANES;
        const int worth = gain_units(gain);
        for (u32 row = 0; row < t.rows; row++) {
            const u32* of_column = of_row(note_row_class(row));
            const u32 begin = state;
            const Stored* const start = place_of(row, 0);
            if (LOG2_STATES != 0) {
                Path path;
                path.start(state);
                const Stored* at = start;
                u32 step = 0;
                for (u32 first = 0; first < t.cols; first += LANES, at += along, step++) {
                    if (!active(first)) continue;
                    u32 of = of_column[p.classes[t.col + first + lane]];
                    Goal to(goal(first + lane, fetch(row, first + lane, at)), of >> 16);
                    scratch.decisions[step * 32 + lane] = path.step(to, costs_of(of));
                    if (step % 16 == 15) path.settle();
                }
                if (active(0)) state = path.best();
            }
            u32 walk = state;
            for (u32 step = per_row; step-- > 0;) {
                u32 first = step * LANES;
                if (!active(first)) continue;
                int target = goal(first + lane, fetch(row, first + lane, start + step * along));
                int level = LOG2_STATES == 0 ? uniform(target) : back(walk, scratch.decisions[step * 32 + lane], target);
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

    // (|target| + rounding) >> 5 with the target's sign: below zero, the floor of what is rounded the other way.
    __device__ __forceinline__ int uniform(int target) const {
        return (target + p.rounding + (target >> 31 & (31 - 2 * p.rounding))) >> 5;
    }

    // The level at a place and the quantizer that takes it, going backwards.
    __device__ __forceinline__ int level_of(u32 col, int fetched, u32 decided, u32& walk, u32& quantizer) {
        if (PREDICTS) {
            quantizer = fetched & 1;
            return fetched >> 1;
        }
        int target = goal(col, fetched);
        if (LOG2_STATES == 0) {
            quantizer = 0;
            return uniform(target);
        }
        int level = back(walk, decided, target);
        quantizer = walk & 1;
        return level;
    }

    // With prediction, what lies in scratch is a level and its quantizer.
    __device__ __forceinline__ int fetch_back(u32 row, u32 col, const Stored* at) const {
        return PREDICTS ? scratch.targets[row * t.cols + col] : fetch(row, col, at);
    }

    // Quick tiles, in quick.cu.
    __device__ __forceinline__ bool quick() const { return QUICK_SEARCH && FULL && !GAIN && t.cols == ROW_STEPS * 32; }
    __device__ __forceinline__ float in_units(Stored stored) const { return __fmul_rn(load(stored), units_per_value()); }
    __device__ __forceinline__ int quick_row_class(u32 row);
    __device__ __forceinline__ u32 forward_quick();
    __device__ __forceinline__ u32 noted_at(u32 row, u32 step) const;
    __device__ __forceinline__ int noted_level(int target, u32 of, u32 odd, u32 quantizer) const;
    __device__ __forceinline__ void push_noted(u32 row, u32 begin, u32 zeros, const u32* of_column, u32& walk, u32& state, Backwards& out);

    // The last steps, whose signs are the start of the states; `walk` is left where the rest goes on.
    __device__ __forceinline__ u32 backward_tail(u32 tail_start, u32& walk, Backwards& out) {
        constexpr u32 AHEAD = 4;
        u32 state = LEAST_STATE, noted_now = 0;
        u32 row = (total - 1) / per_row, step = (total - 1) % per_row;
        for (u32 end = total; end > tail_start; end -= min(AHEAD, end - tail_start)) {
            int fetched[AHEAD];
            u32 of[AHEAD], decided[AHEAD], col[AHEAD];
            const u32 count = min(AHEAD, end - tail_start);
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) {
                if (j >= count) continue;
                col[j] = step * LANES + lane;
                of[j] = 0;
                if (active(step * LANES)) {
                    of[j] = of_row(row_class_at(row))[p.classes[t.col + col[j]]];
                    fetched[j] = fetch_back(row, col[j], place_of(row, step * LANES));
                    decided[j] = QUICK_SEARCH && quick() ? noted_at(row, step) : decided_at(row, step);
                }
                if (step == 0) row--;
                step = step == 0 ? per_row - 1 : step - 1;
            }
            #pragma unroll
            for (u32 j = 0; j < AHEAD; j++) {
                if (j >= count || !active(col[j] - lane)) continue;
                const u32 at = end - 1 - j, raw = of[j] >> 16;
                u32 quantizer;
                int level;
                if (QUICK_SEARCH && quick()) {
                    // Decisions of some steps come together, the last of them first.
                    if (at % NOTED == NOTED - 1) noted_now = decided[j] >> (NOTED * walk);
                    const u32 odd = noted_now >> at % NOTED & 1;
                    quantizer = walk >> (LOG2_STATES - 1);
                    level = noted_level(goal(col[j], fetched[j]), of[j], odd, quantizer);
                    walk = state_before(walk, odd);
                } else {
                    level = level_of(col[j], fetched[j], decided[j], walk, quantizer);
                }
                Ready ready;
                ready.set(first_of(of[j], quantizer), raw, level);
                const bool negative = ready.raised >> raw < SYMBOLS / 2;
                if (negative && !(ready.entry.x & ESCAPES)) state |= 1u << (total - 1 - at);
                tail[(at - tail_start) * 32 + lane] = (u32)(u16)level | quantizer << 16 | (of[j] & 0xffff) << 16 | raw << 28;
            }
        }
        for (u32 at = total; at-- > tail_start;) {
            const bool codes = FULL || active(at % per_row * LANES);
            const u32 all = codes ? tail[(at - tail_start) * 32 + lane] : 0, first = all >> 16 & 0xfff;
            push_level(symbols + SYMBOLS / 2 + first / SYMBOLS * SYMBOLS + first % 2 * SYMBOLS, all >> 28, (short)(all & 0xffff), codes,
                       true, state, out, lane);
        }
        return state;
    }

    // Steps in which all lanes have a column: levels by quantizers, then their symbols.
    __device__ __forceinline__ void push_whole(u32 begin, u32 word, const int* fetched, const u32* of, u32& walk, u32& state,
                                               Backwards& out) {
        int levels[TOGETHER];
        u32 quantizers = 0;
        #pragma unroll
        for (u32 j = TOGETHER; j-- > 0;) {
            u32 quantizer;
            levels[j] = level_of((begin + j) * LANES + lane, fetched[j], word >> (j * STEP_BITS), walk, quantizer);
            quantizers |= quantizer << j;
        }
        push_levels<TOGETHER>(levels, quantizers, of, state, out);
    }

    // What does not depend on a lane's state is made of all levels first; escapes, which
    // are rare, and the end of the room take the long way, no raw bits the short one.
    template <u32 COUNT>
    __device__ __forceinline__ void push_levels(const int* levels, u32 quantizers, const u32* of, u32& state, Backwards& out) {
        u32 raws = 0, any = 0;
        #pragma unroll
        for (u32 j = 0; j < COUNT; j++) raws |= of[j];
        const bool roomy = out.at >= out.floor + (int)(COUNT * LANES);
        if (roomy && !__any_sync(ALL, raws >> 16)) {
            uint2 entries[COUNT];
            #pragma unroll
            for (u32 j = 0; j < COUNT; j++) {
                entries[j] = first_of(of[j], quantizers >> j & 1)[min((u32)levels[j] + SYMBOLS / 2, SYMBOLS - 1)];
                any |= entries[j].x;
            }
            if (!__any_sync(ALL, any & ESCAPES)) {
                #pragma unroll
                for (u32 j = COUNT; j-- > 0;) push_entry(entries[j], state, out, lane);
                return;
            }
        }
        Ready ready[COUNT];
        any = 0;
        #pragma unroll
        for (u32 j = COUNT; j-- > 0;) {
            ready[j].set(first_of(of[j], quantizers >> j & 1), of[j] >> 16, levels[j]);
            any |= ready[j].entry.x;
        }
        if (__any_sync(ALL, any & ESCAPES) || !roomy) {
            #pragma unroll
            for (u32 j = COUNT; j-- > 0;)
                push_level(symbols_of(of[j], quantizers >> j & 1), of[j] >> 16, levels[j], true, false, state, out, lane);
            return;
        }
        #pragma unroll
        for (u32 j = COUNT; j-- > 0;) ready[j].push(state, out, lane);
    }

    // Some steps of a row together, `begin` the first of them: levels and their
    // symbols, the last first. WHOLE: all lanes have a column in all of them.
    template <bool WHOLE>
    __device__ __forceinline__ void push_steps(u32 row, u32 begin, u32 steps, u64 along, const u32* of_column, u32& walk, u32& state,
                                               Backwards& out) {
        const u32 word = decided_at(row, begin);
        const Stored* at = place_of(row, begin * LANES);
        int fetched[TOGETHER];
        u32 of[TOGETHER];
        #pragma unroll
        for (u32 j = 0; j < TOGETHER; j++) {
            const u32 first = (begin + j) * LANES;
            of[j] = 0;
            fetched[j] = 0;
            if (!WHOLE && (j >= steps || !active(first))) continue;
            fetched[j] = fetch_back(row, first + lane, at + j * along);
            of[j] = of_column[p.classes[t.col + first + lane]];
        }
        if constexpr (WHOLE) {
            push_whole(begin, word, fetched, of, walk, state, out);
        } else {
            #pragma unroll
            for (u32 j = TOGETHER; j-- > 0;) {
                if (j >= steps) continue;
                const u32 first = (begin + j) * LANES;
                const bool codes = active(first);
                u32 quantizer = 0;
                int level = 0;
                if (codes) level = level_of(first + lane, fetched[j], word >> (j * STEP_BITS), walk, quantizer);
                push_level(symbols_of(of[j], quantizer), of[j] >> 16, level, codes, false, state, out, lane);
            }
        }
    }

    // Everything after the head, from the last word to the first lane state.
    __device__ __forceinline__ void backward(u32 walk, Backwards& out) {
        const u32 tail_start = total > TAIL ? total - TAIL : 0;
        // Without a search a row is classified when it is coded, from values that are then at hand.
        constexpr bool LATE = LOG2_STATES == 0 && !PREDICTS;
        const u32 tail_row = tail_start / per_row;
        if (LATE) {
            for (u32 row = tail_row; row < t.rows; row++) note_row_class(row);
            __syncwarp();
        }
        u32 state = backward_tail(tail_start, walk, out);
        const u64 along = col_stride(p) * LANES;
        for (u32 row = (tail_start + per_row - 1) / per_row; row-- > 0;) {
            u32 left = min(per_row, tail_start - row * per_row);
            if (QUICK_SEARCH && quick()) {
                const u32* of_column = of_row(row_class_at(row));
                const u32 zeros = noted_at(row, ROW_STEPS);
                #pragma unroll 1
                for (; left > 0; left -= NOTED) push_noted(row, left - NOTED, zeros, of_column, walk, state, out);
                continue;
            }
            if (LATE && keeps_rows() && left == per_row) {
                push_row(row, state, out);
                continue;
            }
            const u32* of_column = of_row(LATE && row < tail_row ? note_row_class(row) : row_class_at(row));
            while (left > 0) {
                const u32 steps = (left - 1) % TOGETHER + 1;
                left -= steps;
                if (FULL && steps == TOGETHER) push_steps<true>(row, left, steps, along, of_column, walk, state, out);
                else push_steps<false>(row, left, steps, along, of_column, walk, state, out);
            }
        }
        __syncwarp();
        if (ROW_CLASSES) {
            for (u32 begin = (t.rows - 1) / LANES * LANES;; begin -= LANES) {
                bool has = lane < LANES && begin + lane < t.rows;
                int value = has ? scratch.row_classes[begin + lane] : 0;
                push_level(symbols_of(p.tables * SYMBOLS, 0), 0, value, has, false, state, out, lane);
                if (begin == 0) break;
            }
        }
        // Lane states, lower word first.
        out.at -= 2 * (int)LANES;
        if (lane < LANES && out.at >= out.floor) {
            out.room[out.at + 2 * lane] = (u16)state;
            out.room[out.at + 2 * lane + 1] = (u16)(state >> 16);
        }
    }

    // Words of the head at the start of the room: gain, and what is kept exactly.
    __device__ u32 head(u16* room, u32 capacity) {
        u32 count = 0;
        for (u32 row = 0; row < t.rows && __any_sync(ALL, kept); row++) {
            for (u32 first = 0; first < t.cols; first += 32) {
                u32 col = first + lane;
                float value = 0.0f;
                if (col < t.cols) value = load(__ldg(values() + place(p, t.row + row, t.col + col)));
                bool keeps = !(fabsf(__fmul_rn(value, units_per_value())) <= p.safe);
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
    __device__ __forceinline__ u32 attempt(u32 at_gain, u16* room, u32& front) {
        gain = at_gain;
        u32 walk = 0;
        if (PREDICTS) {
            // Targets are overwritten by levels: they are made again.
            if (SIZE != 0) transform();
            forward_predicted();
        } else if (QUICK_SEARCH && quick()) {
            walk = forward_quick();
        } else {
            walk = forward();
        }
        Backwards out = {room, (int)p.capacity, 1};
        backward(walk, out);
        if (out.at < out.floor) return 0;
        front = head(room, out.at);
        return front == 0 ? 0 : front + (p.capacity - out.at);
    }
};

// The words of a tile, within its budget where there is one.
template <bool FULL>
__device__ __forceinline__ u32 code(Coding<FULL, false>& coding, u16* room, u32& front, u32& words) {
    const Plan& p = coding.p;
    if (SIZE != 0 && !PREDICTS) coding.transform();
    words = coding.attempt(0, room, front);
    if (!WITHIN_BUDGETS) return words == 0 ? OVERFLOW : FINE;
    if (words != 0 && 2 * words <= p.budget) return FINE;
    Coding<FULL, WITHIN_BUDGETS> coarser = {p, coding.t, coding.symbols, coding.costs, coding.of_class, coding.scratch,
                                  coding.group, coding.tail, coding.lane, coding.per_row, coding.total, 0, coding.kept, coding.inverse, coding.near};
    // The least gain that fits, as the host searches for it; found, it is taken once more.
    u32 over = 0, fits = MAX_GAIN + 1, gain = MAX_GAIN;
    for (;;) {
        words = coarser.attempt(gain, room, front);
        const bool within = words != 0 && 2 * words <= p.budget;
        if (gain == MAX_GAIN && !within) return BUDGET;
        if (within && gain - over == 1) return FINE;
        if (within) fits = gain;
        else over = gain;
        gain = fits - over > 1 ? (over + fits) / 2 : fits;
    }
}

