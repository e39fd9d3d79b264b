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

// Header, directory and length of the stream; a block of 1024.
struct Front {
    const u8* header;
    u64 header_bytes;
    u8* out;
    u64* length;

    __device__ __forceinline__ u32* ends() const { return (u32*)(out + header_bytes); }

    __device__ __forceinline__ void write(u32 tiles, u32 words) const {
        for (u64 i = threadIdx.x; i < header_bytes; i += blockDim.x) out[i] = header[i];
        if (threadIdx.x == 0) *length = header_bytes + 4ull * tiles + 2ull * words;
    }
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

// Directory: where each tile's words end. One block.
extern "C" __global__ void __launch_bounds__(1024) line_directory(const uint2* lengths, u32 tiles, Front front) {
    __shared__ u32 sums[32];
    u32 before = 0;
    for (u32 first = 0; first < tiles; first += 1024) {
        const u32 index = first + threadIdx.x;
        u32 end;
        before = scan(index < tiles ? lengths[index].x + lengths[index].y : 0, before, sums, end);
        if (index < tiles) front.ends()[index] = end;
    }
    front.write(tiles, before);
}

// Words from their rooms to their places, a warp a tile.
extern "C" __global__ void __launch_bounds__(1024)
line_gather(const u16* rooms, const uint2* lengths, u32 tiles, u32 capacity, u64 room_words, Front front) {
    const u32 warps = gridDim.x * blockDim.x / 32;
    u16* const out = (u16*)(front.ends() + tiles);
    for (u32 index = (blockIdx.x * blockDim.x + threadIdx.x) / 32; index < tiles; index += warps) {
        const uint2 length = lengths[index];
        const u64 begin = front.ends()[index] - (length.x + length.y);
        if (begin + length.x + length.y > room_words) continue;
        gather(rooms + (u64)index * capacity, length, capacity, out + begin);
    }
}

// Both for at most 1024 tiles, in one launch: every block sums up all lengths, the first writes what they say.
extern "C" __global__ void __launch_bounds__(1024)
line_gather_few(const u16* rooms, const uint2* lengths, u32 tiles, u32 capacity, u64 room_words, Front front) {
    __shared__ u32 sums[32];
    __shared__ u32 ends[1024];
    u32 end;
    const u32 all = scan(threadIdx.x < tiles ? lengths[threadIdx.x].x + lengths[threadIdx.x].y : 0, 0, sums, end);
    ends[threadIdx.x] = end;
    __syncthreads();
    if (blockIdx.x == 0) {
        if (threadIdx.x < tiles) front.ends()[threadIdx.x] = end;
        front.write(tiles, all);
    }
    u16* const out = (u16*)(front.ends() + tiles);
    // Neighbours on different multiprocessors.
    for (u32 index = threadIdx.x / 32 * gridDim.x + blockIdx.x; index < tiles; index += gridDim.x * 32) {
        const uint2 length = lengths[index];
        const u64 begin = ends[index] - (length.x + length.y);
        if (begin + length.x + length.y > room_words) continue;
        gather(rooms + (u64)index * capacity, length, capacity, out + begin);
    }
}
