// Traceback: the best path of every lane from its end, eight values per cycle.
//
// Equals `Path::finish` of models/codec/src/stage/line/quantize.rs. A value's entry has 27
// bits: 26:19 decisions of the states, 18:17 zero taken for the even levels of
// quantizers 1 and 0, 16 sign, 15:2 and 1:0 what levels follow from (see
// line_candidates); with a uniform quantizer 15:0 is the level's magnitude.
// Latency: 1 cycle. Throughput: 8 values/cycle; a lane comes again after four.
module line_traceback (
    input  wire         clk,
    input  wire [1:0]   states_code,
    input  wire         load,
    input  wire [95:0]  load_states,
    input  wire         in_valid,
    input  wire [1:0]   in_group,
    input  wire [7:0]   in_mask,
    input  wire [215:0] in_entries,
    output reg  [127:0] out_levels,
    output reg  [7:0]   out_quantizers
);
    reg  [95:0] states;
    wire [23:0] now = states[24*in_group +: 24];
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [26:0] entry = in_entries[27*l +: 27];
            wire [2:0]  state = now[3*l +: 3];
            wire        eight = states_code == 2'd2;
            wire        uniform = states_code == 2'd0;
            wire        odd = entry[19 + state];
            wire        quantizer = eight ? state[2] : state[1];
            wire [1:0]  base = eight ? (quantizer ? state[1:0] ^ 2'd1 : state[1:0]) : {1'b0, state[0]};
            wire [1:0]  from = odd ? base ^ (eight ? 2'd2 : 2'd1) : base;
            wire [1:0]  q = entry[1:0];
            wire        up = quantizer ? (odd ? q == 2'd3 : q != 2'd0) : (odd ? 1'b0 : q[1]);
            wire        zero = !odd && (quantizer ? entry[18] : entry[17]);
            wire [14:0] n = {1'b0, entry[15:2]} + {14'd0, up};
            wire [15:0] magnitude = uniform ? entry[15:0] : zero ? 16'd0 : {n, odd};
            always @(posedge clk) begin
                out_levels[16*l +: 16] <= entry[16] ? -magnitude : magnitude;
                out_quantizers[l] <= quantizer && !uniform;
                if (load) states[24*0+3*l +: 3] <= load_states[3*l +: 3];
                else if (in_valid && in_mask[l] && in_group == 2'd0) states[3*l +: 3] <= {from, quantizer};
                if (load) states[24+3*l +: 3] <= load_states[24+3*l +: 3];
                else if (in_valid && in_mask[l] && in_group == 2'd1) states[24+3*l +: 3] <= {from, quantizer};
                if (load) states[48+3*l +: 3] <= load_states[48+3*l +: 3];
                else if (in_valid && in_mask[l] && in_group == 2'd2) states[48+3*l +: 3] <= {from, quantizer};
                if (load) states[72+3*l +: 3] <= load_states[72+3*l +: 3];
                else if (in_valid && in_mask[l] && in_group == 2'd3) states[72+3*l +: 3] <= {from, quantizer};
            end
        end
    endgenerate
endmodule
