// Each tile into its own room: the head at its start, the rest at its end.
// STEPS: a tensor whose step is zero is left as it was.
extern "C" __global__ void __launch_bounds__(THREADS)
line_encode(const Plan p, const __grid_constant__ Places from, u32 count, const float* steps, u16* rooms, uint2* lengths,
            short* row_classes, u8* scratch, u64 scratch_bytes, u32* faults) {
    extern __shared__ u32 shared[];
    const u32 lane = threadIdx.x % 32, warp = __shfl_sync(ALL, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    if (STEPS) {
        bool any = false;
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) any = any || steps[i] != 0.0f;
        if (!__syncthreads_or(any)) return;
    }
    uint2* symbols = (uint2*)shared;
    const u32 symbol_count = (p.tables + ROW_CLASSES) * SYMBOLS;
    for (u32 i = threadIdx.x; i < symbol_count; i += blockDim.x)
        symbols[i] = signed_symbol(p.symbols + i / SYMBOLS * 16, (int)(i % SYMBOLS) - (int)SYMBOLS / 2);
    int* costs = (int*)(symbols + symbol_count);
    const u32 cost_count = (p.tables + 1) * 16;
    for (u32 i = threadIdx.x; i < cost_count; i += blockDim.x) costs[i] = i < p.tables * 16 ? p.costs[i] : 0;
    // First symbol | raw bits << 16.
    u32* of_class = (u32*)(costs + cost_count);
    for (u32 i = threadIdx.x; i < SPAN; i += blockDim.x) {
        u32 of = p.of_class[class_at(i)];
        of_class[i] = (of & 255) * SYMBOLS | of >> 8 << 16;
    }
    __syncthreads();
    Near near = {};
    u32 near_words = 0;
    if (QUICK_SEARCH) {
        // On a multiple of sixteen bytes.
        u32* const near_at = shared + (of_class + SPAN - shared + 3) / 4 * 4;
        const u32 pairs = p.tables / 2;
        near.fill((int4*)near_at, near_at + pairs * NEAR * 4, costs, pairs);
        near_words = (u32)(near_at - (of_class + SPAN)) + pairs * NEAR * 5;
    }
    u32* own = of_class + SPAN + near_words + warp * OWN;
    __syncthreads();
    const u32 global_warp = warp * gridDim.x + blockIdx.x;
    u8* mine = scratch + (u64)global_warp * scratch_bytes;
    for (u32 index = global_warp; index < p.tiles * count; index += gridDim.x * warps) {
        const u32 item = index / p.tiles;
        const Tile t = tile_at(p, index - item * p.tiles);
        const float step = STEPS ? steps[item] : 0.0f;
        if (STEPS && !is_step(step)) {
            if (lane == 0 && step != 0.0f) {
                lengths[index] = make_uint2(0, 0);
                faults[index] = STEP;
            }
            continue;
        }
        if (lane == 0) *(u64*)(own + TAIL * 32 + OWN_GROUP) = from.of(item);
        __syncwarp();
        const float inverse = (float)UNITS / step;
        const u32 per_row = (t.cols + LANES - 1) / LANES;
        Scratch s;
        s.targets = (int*)mine;
        s.deviations = s.targets + (SIZE != 0 || PREDICTS ? p.tile_rows * p.tile_cols : 0);
        s.decisions = (u32*)(s.deviations + (PREDICTS ? p.tile_cols : 0));
        s.row_classes = row_classes + (u64)index * (ROW_CLASSES ? p.tile_rows : 0);
        u16* room = rooms + (u64)index * p.capacity;
        u32 front = 0, words = 0, fault;
        float* group = (float*)(own + TAIL * 32);
        if (WHOLE_STEPS || (LANES == 32 && t.cols % 32 == 0)) {
            Coding<true, false> coding = {p,    t,       symbols,          costs, of_class, s,       group, own,
                                          lane, per_row, per_row * t.rows, 0,     false,    inverse, near};
            fault = code(coding, room, front, words);
        } else {
            Coding<false, false> coding = {p,    t,       symbols,          costs, of_class, s,       group, own,
                                           lane, per_row, per_row * t.rows, 0,     false,    inverse, near};
            fault = code(coding, room, front, words);
        }
        if (lane == 0) {
            lengths[index] = fault == FINE ? make_uint2(front, words - front) : make_uint2(0, 0);
            faults[index] = fault;
        }
        __syncwarp();
    }
}

