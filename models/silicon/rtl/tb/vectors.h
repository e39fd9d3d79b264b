// Streams and their tiles as `cargo run -p trinity-codec --example rtl` writes
// them, whose comment says what is in them: for the benches of both ends.
#pragma once
#include "bench.h"

struct Tile {
    uint32_t rows, cols;
    bool refused, encoded;
    std::vector<uint32_t> classes, above, means, words, values[5], input;
    // Of the encoder's bench: `input` as the stream's format has it, and the scales
    // of 32 columns each.
    std::vector<uint32_t> codes, scales;
};

struct Stream {
    uint32_t log2_lanes, states, transform, has_rows, scale, inverse, rounding;
    bool predicts = false;
    uint32_t format = 0;
    std::vector<uint32_t> firsts, starts, costs;
    std::vector<Tile> tiles;

    // The pairs' first classes as a port has them.
    uint64_t packed_firsts() const {
        uint64_t packed = 0;
        for (int p = 0; p < 7; p++) packed |= (uint64_t)firsts[p] << (6 * p);
        return packed;
    }
};

static Stream read_stream(Reader& in) {
    Stream stream;
    stream.log2_lanes = in.one();
    stream.states = in.one();
    stream.transform = in.one();
    stream.has_rows = in.one();
    stream.scale = in.one();
    stream.inverse = in.one();
    stream.rounding = in.one();
    in.one();  // pairs
    stream.firsts = in.many(7);
    stream.starts = in.many(17 * 15);
    stream.costs = in.many(16 * 16);
    uint32_t tiles = in.one();
    for (uint32_t i = 0; i < tiles; i++) {
        Tile tile;
        tile.rows = in.one();
        tile.cols = in.one();
        uint32_t words = in.one();
        tile.refused = in.one();
        tile.encoded = in.one();
        tile.classes = in.many(tile.cols);
        tile.above = in.many(tile.cols);
        tile.means = in.many(tile.cols);
        tile.words = in.many(words);
        if (!tile.refused)
            for (auto& list : tile.values) list = in.many(tile.rows * tile.cols);
        if (tile.encoded) tile.input = in.many(tile.rows * tile.cols);
        for (uint32_t above : tile.above) stream.predicts |= above != 0;
        stream.tiles.push_back(tile);
    }
    return stream;
}
