// Test bench of the conversion to fp32: every code of every short format under
// every scale against what the Rust library makes of it.
//
//   line_widen VECTORS SEED PRESSURE
//
// VECTORS, from `cargo run -p trinity-tensor --example rtl_numbers`: records of
// format, scale, eight codes, eight numbers as fp32 bits.
#include "bench.h"

#include "Vline_widen.h"

struct Bench : Clocked<Vline_widen> {
    void reset() {
        dut->rst = 1;
        dut->in_valid = dut->out_ready = 0;
        for (int i = 0; i < 4; i++) tick();
        dut->rst = 0;
    }

    void run(Reader& in) {
        struct Beat {
            std::vector<uint32_t> expected;
        };
        std::vector<Beat> waiting;
        size_t first = 0, beats = 0;
        std::vector<uint32_t> record;
        uint32_t format = ~0u;
        while (in.more() || !record.empty() || first < waiting.size()) {
            if (record.empty() && in.more()) record = in.many(18);
            // A format is changed while nothing is under way.
            bool changes = !record.empty() && record[0] != format;
            if (changes && first == waiting.size()) {
                dut->format = format = record[0];
                changes = false;
            }
            bool offered = dut->in_valid;
            dut->in_valid = !record.empty() && !changes && (offered || !held_back());
            if (dut->in_valid) {
                dut->in_scale = record[1];
                for (int i = 0; i < 8; i++) dut->in_values[i] = record[2 + i];
            }
            dut->out_ready = !held_back();
            dut->clk = 0;
            dut->eval();
            bool put = dut->in_valid && dut->in_ready;
            if (dut->out_valid && dut->out_ready) {
                if (first == waiting.size()) fail("a beat that nobody sent", 0, beats, 1, 0);
                auto& expected = waiting[first++].expected;
                for (int i = 0; i < 8; i++)
                    if (dut->out_values[i] != expected[10 + i]) fail("number", expected[0], expected[2 + i], dut->out_values[i], expected[10 + i]);
                values += 8;
            }
            if (put) {
                waiting.push_back({record});
                record.clear();
                beats++;
            }
            tick();
            if (put) dut->in_valid = 0;
        }
        printf("numbers %llu cycles %llu\n", (unsigned long long)values, (unsigned long long)cycles);
    }
};

int main(int argc, char** argv) { return run_bench<Bench>(argc, argv); }
