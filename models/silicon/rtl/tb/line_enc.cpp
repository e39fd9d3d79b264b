// Test bench of the encoder: every word against what the Rust codec wrote.
//
//   line_enc VECTORS SEED PRESSURE [TRACE.vcd]
//
// VECTORS, PRESSURE and what is printed are those of line_dec.cpp. Streams that
// the encoder's profile leaves out, with the options it is built with, must be
// refused, tile by tile.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "vectors.h"

#include "Vline_enc.h"

// fp32 to MXFP4; samples where they are built in.
static const uint32_t FORMATS = LINE_PICTURE ? 9 : 8;

// Mantissa bits, exponent bias and largest code of fp16 and of the formats that
// share a scale, from format 2 on.
struct Short {
    int bits, mantissa, bias;
    uint32_t largest;
    bool scaled;
};
static const Short SHORT[6] = {
    {16, 10, 15, 0x7bff, false}, {8, 3, 7, 0x7e, true}, {8, 2, 15, 0x7b, true},
    {6, 2, 3, 0x1f, true},       {6, 3, 1, 0x1f, true}, {4, 1, 1, 0x7, true},
};

// The code of a number over 2^scale; -1 where the format has none.
static int64_t code_of(const Short& format, float number, int scale) {
    double magnitude = std::ldexp(std::fabs((double)number), -scale);
    uint32_t sign = std::signbit(number) ? 1u << (format.bits - 1) : 0;
    if (magnitude == 0) return sign;
    int exponent = std::max((int)std::floor(std::log2(magnitude)), 1 - format.bias);
    double steps = std::ldexp(magnitude, format.mantissa - exponent);
    if (steps != std::floor(steps) || steps >= std::ldexp(1.0, format.mantissa + 1)) return -1;
    int64_t code = ((int64_t)(exponent + format.bias - 1) << format.mantissa) + (int64_t)steps;
    return code > format.largest ? -1 : (code | sign);
}

// A tile's codes in a format; false where it does not have them all.
static bool convert(Tile& tile, uint32_t format) {
    tile.codes.clear();
    tile.scales.clear();
    for (uint32_t row = 0; row < tile.rows; row++)
        for (uint32_t first = 0; first < tile.cols; first += 32) {
            const uint32_t* block = &tile.input[row * tile.cols + first];
            uint32_t count = std::min(32u, tile.cols - first);
            if (format < 2) {
                for (uint32_t i = 0; i < count; i++) {
                    if (format == 1 && (block[i] & 0xffff)) return false;
                    tile.codes.push_back(format == 1 ? block[i] >> 16 : block[i]);
                }
                continue;
            }
            float numbers[32], most = 0;
            memcpy(numbers, block, 4 * count);
            if (format == 8) {
                for (uint32_t i = 0; i < count; i++) {
                    if (!(numbers[i] >= 0 && numbers[i] < 1024) || numbers[i] != std::floor(numbers[i])) return false;
                    tile.codes.push_back((uint32_t)numbers[i]);
                }
                continue;
            }
            const Short& own = SHORT[format - 2];
            for (uint32_t i = 0; i < count; i++) {
                if (!std::isfinite(numbers[i])) return false;
                most = std::max(most, std::fabs(numbers[i]));
            }
            int top = (int)(own.largest >> own.mantissa) - own.bias;
            int scale = own.scaled && most > 0 ? std::max(std::ilogb(most) - top, -127) : 0;
            if (own.scaled) tile.scales.push_back(scale + 127);
            for (uint32_t i = 0; i < count; i++) {
                int64_t code = code_of(own, numbers[i], scale);
                if (code < 0) return false;
                tile.codes.push_back(code);
            }
        }
    return true;
}

// The shortest format that has every value, or with some streams a longer one.
static void choose_format(Stream& stream, uint32_t number) {
    std::vector<uint32_t> fits;
    for (uint32_t format = 0; format < FORMATS; format++) {
        bool all = true;
        for (auto& tile : stream.tiles) all = all && convert(tile, format);
        if (all) fits.push_back(format);
    }
    stream.format = fits[fits.size() - 1 - number % 2 * (fits.size() > 1)];
    for (auto& tile : stream.tiles) convert(tile, stream.format);
}

struct Bench : Clocked<Vline_enc> {
    uint64_t words = 0;

    void reset() {
        dut->rst = 1;
        dut->cmd_valid = dut->in_valid = dut->out_ready = dut->cost_we = dut->table_we = dut->coded_we = dut->col_we = 0;
        for (int i = 0; i < 4; i++) tick();
        dut->rst = 0;
    }

    void configure(const Stream& stream) {
        dut->cfg_log2_lanes = stream.log2_lanes;
        dut->cfg_states = stream.states;
        dut->cfg_transform = stream.transform;
        dut->cfg_predicts = stream.predicts;
        dut->cfg_has_rows = stream.has_rows;
        dut->cfg_inverse = stream.inverse;
        dut->cfg_rounding = stream.rounding;
        dut->cfg_format = stream.format;
        dut->cfg_firsts = stream.packed_firsts();
        for (int table = 0; table < 17; table++) {
            uint32_t coded = 0;
            for (int m = 0; m < 16; m++) {
                uint32_t start = m ? stream.starts[15 * table + m - 1] : 0;
                uint32_t end = m < 15 ? stream.starts[15 * table + m] : 1024;
                uint32_t frequency = m == 0 || m == 15 ? end - start : (end - start) / 2;
                uint32_t log2 = 0;
                while ((1u << log2) < frequency) log2++;
                uint64_t power = 1ull << (32 + log2);
                uint64_t reciprocal = frequency ? (power + frequency - 1) / frequency : 0;
                if (frequency) coded |= 1 << m;
                dut->table_we = 1;
                dut->table_addr = table << 4 | m;
                dut->table_data = (uint64_t)frequency << 47 | (uint64_t)start << 37 | (uint64_t)log2 << 33 | reciprocal;
                tick();
            }
            dut->table_we = 0;
            dut->coded_we = 1;
            dut->coded_addr = table;
            dut->coded_data = coded;
            tick();
            dut->coded_we = 0;
            if (table == 16) break;
            dut->cost_we = 1;
            dut->cost_addr = table;
            for (int m = 0; m < 16; m++) {
                uint32_t cost = stream.costs[16 * table + m];
                if (cost >= 1 << 13) fail("cost", table, m, cost, (1 << 13) - 1);
                bits(dut->cost_data, 13 * m, 13, cost);
            }
            tick();
            dut->cost_we = 0;
        }
    }

    // `class_weight` of models/codec: 2^(14 - class / 4), as a number and a shift.
    static void weight(int32_t column_class, uint32_t& number, uint32_t& shift) {
        static const uint32_t quarters[4] = {1 << 16, 55109, 46341, 38968};
        int octave = column_class >= 0 ? column_class / 4 : -((-column_class + 3) / 4);
        int quarter = column_class - 4 * octave, down = octave + 2;
        number = down >= 0 ? quarters[quarter] >> (down < 31 ? down : 31) : quarters[quarter];
        shift = down >= 0 ? 0 : -down < 14 ? -down : 14;
    }

    void load_columns(const Tile& tile, int bank, uint32_t beat) {
        dut->col_we = 1;
        dut->col_addr = bank << 6 | beat;
        dut->col_classes = dut->col_above = 0;
        for (int l = 0; l < 8; l++) {
            size_t column = 8 * beat + l;
            bool there = column < tile.cols;
            uint32_t number = 0, shift = 0;
            if (there) weight((int32_t)tile.classes[column], number, shift);
            dut->col_classes |= (uint64_t)(there ? tile.classes[column] & 0xff : 0) << (8 * l);
            dut->col_above |= (uint64_t)(there ? tile.above[column] : 0) << (5 * l);
            bits(dut->col_attributes, 38 * l, 17, there ? tile.means[column] : 0);
            bits(dut->col_attributes, 38 * l + 17, 17, number);
            bits(dut->col_attributes, 38 * l + 34, 4, shift);
        }
    }

    static bool in_profile(const Stream& stream, const Tile& tile) {
        bool predicted = !stream.predicts || (LINE_PICTURE && stream.states == 0);
        bool trellis = stream.states <= (LINE_STATES == 8 ? 2u : LINE_STATES == 4 ? 1u : 0u);
        bool transform = stream.transform <= (LINE_TRANSFORMS ? 2u : 0u);
        return stream.log2_lanes == 5 && trellis && transform && predicted && tile.rows <= 1024 &&
               tile.cols <= 512 && tile.rows * ((tile.cols + 31) / 32) <= 512;
    }

    // Whether a bank holds these columns already.
    static bool same(const Tile& a, const Tile& b) {
        return a.classes == b.classes && a.means == b.means && a.above == b.above;
    }

    // Whether a tile has more exceptions than the list holds, or more words than the
    // stack: 1024 rows of eight.
    static bool too_long(const Tile& tile) {
        if ((tile.words[0] & 64) && tile.words[1] >= 64) return true;
        size_t head = tile.words[0] & 64 ? 2 + 3 * (tile.words[1] + 1) : 1;
        return (tile.words.size() - head - 64) / 8 > 1024;
    }

    void run(const Stream& stream) {
        size_t given = 0, taken = 0, at = 0, loaded = 0, feeding = 0;
        uint32_t beat = 0, row = 0, column = 0;
        uint64_t last_progress = cycles;
        while (taken < stream.tiles.size()) {
            dut->col_we = 0;
            if (loaded >= 2 && loaded < stream.tiles.size() && beat == 0 && same(stream.tiles[loaded], stream.tiles[loaded - 2])) {
                loaded++;
            } else if (loaded < stream.tiles.size() && loaded < taken + 2) {
                load_columns(stream.tiles[loaded], loaded & 1, beat);
                if (8 * ++beat >= stream.tiles[loaded].cols || beat == 64) {
                    beat = 0;
                    loaded++;
                }
            }
            dut->cmd_valid = given < loaded && (dut->cmd_valid || !held_back());
            if (dut->cmd_valid) {
                dut->cmd_rows = stream.tiles[given].rows;
                dut->cmd_cols = stream.tiles[given].cols;
                dut->cmd_bank = given & 1;
            }
            bool feed = feeding < given && (dut->in_valid || !held_back());
            dut->in_valid = feed;
            if (feed) {
                auto& tile = stream.tiles[feeding];
                dut->in_scale = tile.scales.empty() ? 0 : tile.scales[row * ((tile.cols + 31) / 32) + column / 32];
                for (uint32_t l = 0; l < 8; l++)
                    dut->in_values[l] = column + l < tile.cols ? tile.codes[row * tile.cols + column + l] : 0;
            }
            dut->out_ready = !held_back();
            dut->clk = 0;
            dut->eval();
            bool command = dut->cmd_valid && dut->cmd_ready;
            bool rejected = dut->cmd_refused;
            bool fed = dut->in_valid && dut->in_ready;
            if (command) {
                if (rejected == in_profile(stream, stream.tiles[given])) fail("refusal", given, 0, rejected, !rejected);
            }
            if (dut->out_valid && dut->out_ready) {
                auto& tile = stream.tiles[taken];
                bool overflow = too_long(tile);
                for (int i = 0; i < dut->out_count && !overflow; i++) {
                    uint32_t word = dut->out_words[i / 2] >> (16 * (i % 2)) & 0xffff;
                    if (at >= tile.words.size()) fail("number of words", taken, at, at + 1, tile.words.size());
                    if (word != tile.words[at]) fail("word", taken, at, word, tile.words[at]);
                    at++;
                }
                if (dut->out_last) {
                    if (dut->out_error != overflow) fail("error", taken, at, dut->out_error, overflow);
                    if (!overflow && at != tile.words.size()) fail("number of words", taken, at, at, tile.words.size());
                    if (counts()) {
                        values += tile.input.size();
                        words += at;
                        tiles++;
                    }
                    progress(++taken, stream.tiles.size());
                    at = 0;
                    last_progress = cycles;
                }
            }
            tick();
            if (command) {
                dut->cmd_valid = 0;
                given++;
                if (rejected) {
                    // Nothing of a refused tile goes in or comes out.
                    refused += counts();
                    progress(++taken, stream.tiles.size());
                    feeding++;
                    last_progress = cycles;
                }
            }
            if (fed) {
                dut->in_valid = 0;
                auto& tile = stream.tiles[feeding];
                column += 8;
                if (column >= tile.cols) {
                    column = 0;
                    if (++row == tile.rows) {
                        row = 0;
                        feeding++;
                    }
                }
            }
            if (cycles > last_progress + 200000) fail("progress", taken, at, 0, 1);
        }
        reset();
    }

    void run(Reader& in) {
        uint32_t streams = 0, formats[9] = {};
        for (; in.more(); streams++) {
            Stream stream = read_stream(in);
            auto decoded = [](const Tile& tile) { return !tile.encoded; };
            stream.tiles.erase(std::remove_if(stream.tiles.begin(), stream.tiles.end(), decoded), stream.tiles.end());
            choose_format(stream, traced ? 0 : streams);
            configure(stream);
            repeat(stream.tiles);
            run(stream);
            formats[stream.format]++;
        }
        const char* names[9] = {"fp32", "bf16", "fp16", "mxfp8", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6", "mxfp4", "samples"};
        for (int format = 0; format < 9; format++)
            if (formats[format]) printf("%s %u ", names[format], formats[format]);
        printf("streams %u tiles %llu refused %llu values %llu words %llu cycles %llu\n", streams,
               (unsigned long long)tiles, (unsigned long long)refused, (unsigned long long)values,
               (unsigned long long)words, (unsigned long long)cycles);
    }
};

int main(int argc, char** argv) { return run_bench<Bench>(argc, argv); }
