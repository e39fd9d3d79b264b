// What both test benches share: vectors, clock and trace, back-pressure.
//
// Knows no port but clk; the benches know the rest.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "verilated.h"

// Options that the RTL is built with, as tools are given them.
#ifndef LINE_STATES
#define LINE_STATES 8
#endif
#ifndef LINE_TRANSFORMS
#define LINE_TRANSFORMS 0
#endif
#ifndef LINE_PICTURE
#define LINE_PICTURE 0
#endif
#ifdef TRACED
#include "verilated_vcd_c.h"
#endif

// Little-endian words of 32 bits, as `cargo run -p trinity-codec --example rtl` writes them.
struct Reader {
    std::vector<uint32_t> all;
    size_t at = 0;

    explicit Reader(const char* path) {
        FILE* file = fopen(path, "rb");
        if (!file) {
            perror(path);
            exit(2);
        }
        uint8_t bytes[4];
        while (fread(bytes, 1, 4, file) == 4)
            all.push_back(bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24);
        fclose(file);
    }

    bool more() const { return at < all.size(); }

    uint32_t one() {
        if (!more()) {
            fprintf(stderr, "the vectors end early\n");
            exit(2);
        }
        return all[at++];
    }

    std::vector<uint32_t> many(size_t count) {
        std::vector<uint32_t> out(count);
        for (auto& number : out) number = one();
        return out;
    }
};

// Sets `width` bits of a wide port.
template <class Port>
static void bits(Port& port, int at, int width, uint32_t value) {
    for (int i = 0; i < width; i++) {
        uint32_t bit = 1u << ((at + i) % 32);
        if (value >> i & 1) port[(at + i) / 32] |= bit;
        else port[(at + i) / 32] &= ~bit;
    }
}

template <class Dut>
struct Clocked {
    VerilatedContext context;
    std::unique_ptr<Dut> dut{new Dut{&context}};
#ifdef TRACED
    std::unique_ptr<VerilatedVcdC> trace;
#endif
    std::mt19937 random;
    int pressure = 0;
    bool traced = false;
    // A trace holds the second of three rounds of a stream's tiles: every stage is
    // at work in it, and none waits for a stream to begin or to end.
    static constexpr size_t ROUNDS = 3;
    bool shown = false;
    uint64_t cycles = 0, values = 0, tiles = 0, refused = 0;

    // VECTORS SEED PRESSURE [TRACE.vcd]
    void start(int argc, char** argv) {
        random.seed(atoi(argv[2]));
        pressure = atoi(argv[3]);
#ifdef TRACED
        if (argc > 4) {
            traced = true;
            context.traceEverOn(true);
            trace.reset(new VerilatedVcdC);
            dut->trace(trace.get(), 99);
            trace->open(argv[4]);
        }
#else
        (void)argc;
#endif
    }

    void close() {
#ifdef TRACED
        if (trace) trace->close();
#endif
    }

    // A traced stream's tiles, as many times as there are rounds.
    template <class Tile>
    void repeat(std::vector<Tile>& tiles) {
        if (!traced) return;
        std::vector<Tile> once = tiles;
        for (size_t round = 1; round < ROUNDS; round++) tiles.insert(tiles.end(), once.begin(), once.end());
    }

    // So many of all tiles are done.
    void progress(size_t done, size_t all) { shown = traced && done >= all / ROUNDS && done < 2 * all / ROUNDS; }

    // Whether what is done now is counted.
    bool counts() const { return !traced || shown; }

    bool held_back() { return (int)(random() % 100) < pressure; }

    void tick() {
        dut->clk = 0;
        dut->eval();
#ifdef TRACED
        if (shown) trace->dump(2 * cycles);
#endif
        dut->clk = 1;
        dut->eval();
#ifdef TRACED
        if (shown) trace->dump(2 * cycles + 1);
#endif
        cycles++;
    }

    void fail(const char* what, size_t tile, size_t at, uint32_t found, uint32_t wanted) {
        fprintf(stderr, "tile %zu, at %zu: %s is %08x, not %08x (cycle %llu)\n", tile, at, what, found, wanted,
                (unsigned long long)cycles);
        close();
        exit(1);
    }
};

// Runs a bench on the vectors that the arguments name: VECTORS SEED PRESSURE [TRACE.vcd].
template <class Bench>
int run_bench(int argc, char** argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s VECTORS SEED PRESSURE [TRACE.vcd]\n", argv[0]);
        return 2;
    }
    Reader in(argv[1]);
    Bench bench;
    bench.start(argc, argv);
    bench.reset();
    bench.run(in);
    bench.close();
    return 0;
}
