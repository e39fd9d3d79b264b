// Rooms into a stream: header, directory, words. Knows nothing of what words mean.

// Of 1024 tiles, where each ends, counted from `before`; `sums` is for the block. Returns the end of all.
__device__ __forceinline__ u32 scan(u32 words, u32 before, u32* sums, u32& end) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = words;
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
    end = before + sum + (warp ? sums[warp - 1] : 0);
    const u32 after = before + sums[31];
    __syncthreads();
    return after;
}

// What every stream of a launch begins with, and where each is told how long it became.
struct Front {
    const u8* header;
    u32 header_bytes, step_at;
    const float* steps;  // of each tensor; null: the header's own
    u64* lengths;

    __device__ __forceinline__ u32* ends(u64 out) const { return (u32*)(out + header_bytes); }

    // By some threads, of which this is one.
    __device__ __forceinline__ void write(u64 out, u32 item, u32 thread, u32 threads) const {
        u8* const to = (u8*)out;
        const u32 step = steps == nullptr ? 0 : __float_as_uint(steps[item]);
        for (u32 i = thread; i < header_bytes; i += threads) {
            const u32 byte = i - step_at;
            to[i] = steps != nullptr && byte < 4 ? (u8)(step >> (24 - 8 * byte)) : header[i];
        }
    }

    __device__ __forceinline__ u64 bytes(u32 tiles, u32 words) const { return header_bytes + 4ull * tiles + 2ull * words; }
};

// Words from one place to another by a warp, two at a time where the target's address allows it. May read the
// word before and the one after, which lie in the same room or behind the last.
__device__ __forceinline__ void copy_words(const u16* from, u32 count, u16* to) {
    constexpr u32 AHEAD = 8;
    const u32 lane = threadIdx.x % 32;
    if (count == 0) return;
    if ((u64)to & 2) {
        if (lane == 0) *to = *from;
        from++, to++, count--;
    }
    const u32 pairs = count / 2, odd = (u64)from >> 1 & 1;
    // Halves of a pair may lie in different words of four bytes.
    const u32* source = (const u32*)(from - odd);
    const u32 selector = odd ? 0x5432 : 0x3210;
    u32* target = (u32*)to;
    u32 i = lane;
    for (; i + (AHEAD - 1) * 32 < pairs; i += AHEAD * 32) {
        u32 pair[AHEAD];
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) pair[j] = __byte_perm(source[i + j * 32], source[i + j * 32 + odd], selector);
        #pragma unroll
        for (u32 j = 0; j < AHEAD; j++) target[i + j * 32] = pair[j];
    }
    for (; i < pairs; i += 32) target[i] = __byte_perm(source[i], source[i + odd], selector);
    if (count % 2 != 0 && lane == 0) to[count - 1] = from[count - 1];
}

// The words of one tile from its room to their place, by a warp.
__device__ __forceinline__ void gather(const u16* room, uint2 length, u32 capacity, u16* out) {
    copy_words(room, length.x, out);
    copy_words(room + capacity - length.y, length.y, out + length.x);
}

// Header, directory and length of every stream, a block each.
extern "C" __global__ void __launch_bounds__(1024)
line_directory(const uint2* lengths, u32 tiles, const Front front, const __grid_constant__ Places outs) {
    __shared__ u32 sums[32];
    const u32 item = blockIdx.x;
    const u64 out = outs.of(item);
    lengths += (u64)item * tiles;
    u32 before = 0;
    for (u32 first = 0; first < tiles; first += 1024) {
        const u32 index = first + threadIdx.x;
        u32 end;
        before = scan(index < tiles ? lengths[index].x + lengths[index].y : 0, before, sums, end);
        if (index < tiles) front.ends(out)[index] = end;
    }
    front.write(out, item, threadIdx.x, blockDim.x);
    if (threadIdx.x == 0) front.lengths[item] = front.bytes(tiles, before);
}

// How tensors are kept within rooms of one size.
struct Pace {
    u64 room_bytes;
    float* steps;         // set to zero where a tensor fits
    float* gains;         // of the next tensor of this place
    float coarser;        // what the next attempt's step is multiplied by at least; 0: there is none
    float fuller;         // share of the room below which the next tensor is coded finer
    float finer;          // what gains are multiplied by then
    float values;         // of a tensor
};

// What a step is multiplied by so that so many bits per value are saved: an octave and a half for each, and a little.
__device__ __forceinline__ float saving(float bits) { return exp2f(1.5f * bits + 0.04f); }

// The same where streams have a head and keep to a room. An attempt that fits is the last of its tensor: the
// head says how long it is. After the last attempt of all, and where a value is not finite, it says that there is none.
extern "C" __global__ void __launch_bounds__(1024)
line_settle(const uint2* lengths, const u32* faults, u32 tiles, const Front front, const __grid_constant__ Places outs, u32 head,
            const Pace pace) {
    __shared__ u32 sums[32];
    const u32 item = blockIdx.x;
    const float step = pace.steps[item];
    if (step == 0.0f) return;
    u64* const heads = (u64*)outs.of(item);
    const u64 out = outs.of(item) + head;
    lengths += (u64)item * tiles;
    faults += (u64)item * tiles;
    bool faulty = false;
    u32 before = 0;
    for (u32 first = 0; first < tiles; first += 1024) {
        const u32 index = first + threadIdx.x;
        if (index < tiles) faulty = faulty || faults[index] != FINE;
        u32 end;
        before = scan(index < tiles ? lengths[index].x + lengths[index].y : 0, before, sums, end);
    }
    const u64 bytes = front.bytes(tiles, before);
    const bool fits = !__syncthreads_or(faulty) && bytes <= pace.room_bytes;
    if (fits) {
        before = 0;
        for (u32 first = 0; first < tiles; first += 1024) {
            const u32 index = first + threadIdx.x;
            u32 end;
            before = scan(index < tiles ? lengths[index].x + lengths[index].y : 0, before, sums, end);
            if (index < tiles) front.ends(out)[index] = end;
        }
        front.write(out, item, threadIdx.x, blockDim.x);
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    const bool last = fits || pace.coarser == 0.0f || !is_step(step);
    // A tile that overflowed says nothing of how much was too much.
    const float excess = bytes > pace.room_bytes ? 8.0f * (float)(bytes - pace.room_bytes) / pace.values : 0.5f;
    const float factor = saving(min(excess, 8.0f));
    pace.steps[item] = last ? 0.0f : step * max(pace.coarser, factor);
    if (last) heads[0] = front.lengths[item] = fits ? bytes : NO_STREAM;
    if (!is_step(step)) return;
    const bool roomy = (float)bytes < pace.fuller * (float)pace.room_bytes;
    const float gain = pace.gains[item] * (!fits ? min(factor, 2.0f) : roomy ? pace.finer : 1.0f);
    pace.gains[item] = min(max(gain, 0.125f), 8.0f);
}

// Words from their rooms to their places, a warp a tile.
extern "C" __global__ void __launch_bounds__(1024)
line_gather(const u16* rooms, const uint2* lengths, u32 tiles, u32 count, u32 capacity, const Front front,
            const __grid_constant__ Places outs, u32 head) {
    const u32 warps = gridDim.x * blockDim.x / 32;
    for (u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / 32; index < tiles * count; index += warps) {
        const u32 item = index / tiles, tile = index - item * tiles;
        if (front.lengths[item] == NO_STREAM) continue;
        const u32* const ends = front.ends(outs.of(item) + head);
        const uint2 length = lengths[index];
        const u64 begin = ends[tile] - (length.x + length.y);
        if (begin + length.x + length.y > (u64)tiles * capacity) continue;
        gather(rooms + (u64)index * capacity, length, capacity, (u16*)(ends + tiles) + begin);
    }
}

// The sum over a warp.
__device__ __forceinline__ u32 sum_of_warp(u32 sum) {
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    return sum;
}

// Both for at most 1024 tiles of each tensor, in one launch: every warp sums up the lengths before its tile's,
// that of the last tile writes what they say.
extern "C" __global__ void __launch_bounds__(1024)
line_gather_few(const u16* rooms, const uint2* lengths, u32 tiles, u32 count, u32 capacity, const Front front,
                const __grid_constant__ Places outs) {
    const u32 lane = threadIdx.x % 32;
    // Neighbours on different multiprocessors.
    for (u32 index = threadIdx.x / 32 * gridDim.x + blockIdx.x; index < tiles * count; index += gridDim.x * 32) {
        const u32 item = index / tiles, tile = index - item * tiles;
        const u64 out = outs.of(item);
        const uint2 length = lengths[index];
        u32 before = 0;
        for (u32 i = lane; i < tile; i += 32) {
            const uint2 other = lengths[index - tile + i];
            before += other.x + other.y;
        }
        before = sum_of_warp(before);
        const u32 end = before + length.x + length.y;
        u32* const ends = front.ends(out);
        if (lane == 0) ends[tile] = end;
        if (tile == tiles - 1) {
            front.write(out, item, lane, 32);
            if (lane == 0) front.lengths[item] = front.bytes(tiles, end);
        }
        if (end > (u64)tiles * capacity) continue;
        gather(rooms + (u64)index * capacity, length, capacity, (u16*)(ends + tiles) + before);
    }
}
