// Test bench of the decoder: every value against what the Rust codec gave.
//
//   line_dec VECTORS SEED PRESSURE [TRACE.vcd]
//
// VECTORS is written by `cargo run -p trinity-codec --example rtl`; its comment
// says what is in it. PRESSURE (0 to 99) is how often, in per cent, words, tiles
// and the taker of values hold back. Prints values, tiles, refused tiles and
// cycles; exits 1 at the first difference.
#include "vectors.h"

#include "Vline_dec.h"

struct Bench : Clocked<Vline_dec> {
    void reset() {
        dut->rst = 1;
        dut->cmd_valid = dut->in_valid = dut->out_ready = dut->table_we = dut->col_we = 0;
        for (int i = 0; i < 4; i++) tick();
        dut->rst = 0;
    }

    void configure(const Stream& stream, int format) {
        dut->cfg_log2_lanes = stream.log2_lanes;
        dut->cfg_states = stream.states;
        dut->cfg_transform = stream.transform;
        dut->cfg_has_rows = stream.has_rows;
        dut->cfg_scale = stream.scale;
        dut->cfg_format = format;
        dut->cfg_firsts = stream.packed_firsts();
        for (int table = 0; table < 17; table++) {
            dut->table_we = 1;
            dut->table_addr = table;
            for (int m = 0; m < 15; m++) bits(dut->table_data, 10 * m, 10, stream.starts[15 * table + m]);
            tick();
        }
        dut->table_we = 0;
    }

    void load_columns(const Tile& tile, int bank, uint32_t beat) {
        dut->col_we = 1;
        dut->col_addr = bank << 6 | beat;
        dut->col_classes = 0;
        for (int l = 0; l < 8; l++) {
            size_t column = 8 * beat + l;
            bool there = column < tile.cols;
            dut->col_classes |= (uint64_t)(there ? tile.classes[column] & 0xff : 0) << (8 * l);
            bits(dut->col_attributes, 22 * l, 5, there ? tile.above[column] : 0);
            bits(dut->col_attributes, 22 * l + 5, 17, there ? tile.means[column] : 0);
        }
    }

    void run(const Stream& stream, int format) {
        // Words of all tiles without a gap, padded to whole beats at the end.
        std::vector<uint32_t> words;
        for (auto& tile : stream.tiles) words.insert(words.end(), tile.words.begin(), tile.words.end());
        while (words.size() % 8) words.push_back(0xdead);
        size_t sent = 0, given = 0, taken = 0, at = 0;
        // A bank is loaded while the tile before it is decoded; it is free once
        // the tile that used it has come out.
        size_t loaded = 0;
        uint32_t beat = 0;
        uint64_t last_progress = cycles;
        while (taken < stream.tiles.size()) {
            bool offer_words = sent < words.size() && !(dut->in_valid ? false : held_back());
            dut->in_valid = offer_words;
            if (offer_words)
                for (int i = 0; i < 8; i++) bits(dut->in_words, 16 * i, 16, words[sent + i]);
            dut->col_we = 0;
            if (loaded < stream.tiles.size() && loaded < taken + 2) {
                load_columns(stream.tiles[loaded], loaded & 1, beat);
                if (8 * ++beat >= stream.tiles[loaded].cols || beat == 64) {
                    beat = 0;
                    loaded++;
                }
            }
            dut->cmd_valid = given < loaded && (dut->cmd_valid || !held_back());
            if (dut->cmd_valid) {
                auto& tile = stream.tiles[given];
                dut->cmd_rows = tile.rows;
                dut->cmd_cols = tile.cols;
                dut->cmd_bank = given & 1;
                dut->cmd_words = tile.words.size();
            }
            dut->out_ready = !held_back();
            dut->clk = 0;
            dut->eval();
            bool word_beat = dut->in_valid && dut->in_ready;
            bool command = dut->cmd_valid && dut->cmd_ready;
            if (dut->out_valid && dut->out_ready) {
                auto& tile = stream.tiles[taken];
                for (int l = 0; l < 8; l++) {
                    if (!(dut->out_mask >> l & 1)) continue;
                    if (!tile.refused) {
                        if (at >= tile.values[format].size()) fail("number of values", taken, at, at, at - 1);
                        if (dut->out_values[l] != tile.values[format][at])
                            fail("value", taken, at, dut->out_values[l], tile.values[format][at]);
                        values += counts();
                    }
                    at++;
                }
                if (dut->out_last) {
                    if (dut->out_error != tile.refused) fail("error", taken, at, dut->out_error, tile.refused);
                    if (!tile.refused && at != tile.values[format].size())
                        fail("number of values", taken, at, at, tile.values[format].size());
                    refused += tile.refused && counts();
                    tiles += counts();
                    progress(++taken, stream.tiles.size());
                    at = 0;
                    last_progress = cycles;
                }
            }
            tick();
            if (word_beat) {
                sent += 8;
                dut->in_valid = 0;
            }
            if (command) {
                given++;
                dut->cmd_valid = 0;
            }
            if (cycles > last_progress + 2000000) fail("progress", taken, at, 0, 1);
        }
        // What is left of the last beat belongs to no tile.
        reset();
    }

    void run(Reader& in) {
        uint32_t streams = 0;
        for (; in.more(); streams++) {
            Stream stream = read_stream(in);
            // DCT-32 where it is not built in.
            for (auto& tile : stream.tiles) tile.refused |= stream.transform == 2 && !LINE_TRANSFORMS;
            // bf16 for traces; else every format in turn.
            int format = traced ? 1 : streams % (LINE_PICTURE ? 5 : 3);
            configure(stream, format);
            repeat(stream.tiles);
            run(stream, format);
        }
        printf("streams %u tiles %llu refused %llu values %llu cycles %llu\n", streams, (unsigned long long)tiles,
               (unsigned long long)refused, (unsigned long long)values, (unsigned long long)cycles);
    }
};

int main(int argc, char** argv) { return run_bench<Bench>(argc, argv); }
