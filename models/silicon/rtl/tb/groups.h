// Test bench of the transforms: groups of 32 targets against what the Rust codec
// makes of them.
//
//   line_hadamard|line_dct VECTORS SEED PRESSURE [TRACE.vcd]
//
// VECTORS come from `cargo run -p trinity-codec --example rtl -- --groups`; PRESSURE
// is how many cycles of a hundred are without a beat, and how many are held.
#pragma once
#include <deque>

#include "bench.h"

template <class Dut>
struct Groups : Clocked<Dut> {
    using Clocked<Dut>::dut;

    void reset() {
        dut->rst = 1;
        dut->en = 1;
        dut->in_valid = 0;
        for (int i = 0; i < 4; i++) this->tick();
        dut->rst = 0;
    }

    static int32_t number(const Dut* dut, int lane) {
        uint64_t low = dut->out_targets[21 * lane / 32], high = 21 * lane / 32 + 1 < 6 ? dut->out_targets[21 * lane / 32 + 1] : 0;
        uint32_t word = (low | high << 32) >> (21 * lane % 32) & 0x1fffff;
        return (int32_t)(word << 11) >> 11;
    }

    void run(Reader& in) {
        std::deque<uint32_t> expected;
        std::vector<uint32_t> group;
        uint32_t beat = 0;
        while (in.more() || !group.empty() || !expected.empty()) {
            if (group.empty() && in.more()) {
                group = in.many(66);
                beat = 0;
            }
            // The plan changes while no group is under way.
            bool waits = !group.empty() && beat == 0 && dut->transformed != group[0] && !expected.empty();
            dut->in_valid = !group.empty() && !waits && !this->held_back();
            dut->en = !this->held_back();
            if (dut->in_valid) {
                dut->transformed = group[0];
                dut->in_full = group[1];
                for (int l = 0; l < 8; l++) bits(dut->in_targets, 21 * l, 21, group[2 + 8 * beat + l]);
            }
            dut->clk = 0;
            dut->eval();
            if (dut->en && dut->out_valid) {
                for (int l = 0; l < 8; l++) {
                    if (expected.empty()) this->fail("a beat that nobody sent", 0, this->values, 1, 0);
                    if (number(dut.get(), l) != (int32_t)expected.front())
                        this->fail("coefficient", this->values / 32, this->values % 32, number(dut.get(), l), expected.front());
                    expected.pop_front();
                    this->values++;
                }
            }
            bool put = dut->en && dut->in_valid;
            this->shown = this->traced;
            this->tick();
            if (put && ++beat == 4) {
                expected.insert(expected.end(), group.begin() + 34, group.end());
                group.clear();
            }
        }
        printf("values %llu cycles %llu\n", (unsigned long long)this->values, (unsigned long long)this->cycles);
    }
};

template <class Dut>
int run_groups(int argc, char** argv) {
    return run_bench<Groups<Dut>>(argc, argv);
}
