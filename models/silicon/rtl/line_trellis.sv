// Trellis: add, compare, select for 32 lanes, eight of them per cycle.
//
// Equals `Path::step` of models/line/src/quantize.rs. Costs of paths stay within
// 2^16 of the least: candidates cost less than 2^14, and any state is reached
// from any other in three values. A path that cannot be costs 2^17 here.
// Latency: 1 cycle to the decisions, 3 to the costs. Throughput: 8 values/cycle;
// a lane may come again after four cycles.
module line_trellis (
    input  wire         clk,
    input  wire         en,
    input  wire         eight,        // states: eight, or four
    input  wire         in_valid,
    input  wire         in_first,     // first step of a tile
    input  wire [1:0]   in_group,
    input  wire [7:0]   in_mask,
    input  wire [447:0] in_costs,     // of eight lanes, as line_candidates gives them
    output reg  [63:0]  out_decisions,// one cycle after: odd was taken, for each lane and state
    output wire [95:0]  best          // the state of least cost for each lane
);
    localparam [17:0] NEVER = 18'h20000;
    reg  [1151:0] costs [0:3];
    reg           v1, v2;
    reg  [1:0]    group1, group2;
    reg  [7:0]    mask1, mask2;
    reg  [1151:0] next1, next2;
    wire [1151:0] now = costs[in_group];
    genvar l, t, g;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            for (t = 0; t < 8; t = t + 1) begin : g_state
                // Where a state is reached from: even states lead to the lower half.
                localparam integer Q8 = t >= 4;
                localparam integer B8 = t >= 4 ? t ^ 5 : t;
                localparam integer Q4 = (t & 2) != 0;
                localparam integer B4 = Q4 ? (t & 3) ^ 2 : (t & 3);
                localparam integer E8 = 2 * B8 + Q8, O8 = 2 * (B8 ^ 2) + Q8;
                localparam integer E4 = 2 * B4 + Q4, O4 = 2 * (B4 ^ 1) + Q4;
                wire [17:0] start_e8 = E8 == 0 ? 18'd0 : NEVER;
                wire [17:0] start_o8 = O8 == 0 ? 18'd0 : NEVER;
                wire [17:0] start_e4 = E4 == 0 ? 18'd0 : NEVER;
                wire [17:0] start_o4 = O4 == 0 ? 18'd0 : NEVER;
                wire [17:0] from_even = in_first ? (eight ? start_e8 : start_e4)
                    : eight ? now[144*l+18*E8 +: 18] : now[144*l+18*E4 +: 18];
                wire [17:0] from_odd = in_first ? (eight ? start_o8 : start_o4)
                    : eight ? now[144*l+18*O8 +: 18] : now[144*l+18*O4 +: 18];
                wire [13:0] cost_even = (eight ? Q8 != 0 : Q4 != 0) ? in_costs[56*l+28 +: 14] : in_costs[56*l +: 14];
                wire [13:0] cost_odd = (eight ? Q8 != 0 : Q4 != 0) ? in_costs[56*l+42 +: 14] : in_costs[56*l+14 +: 14];
                wire [18:0] even = {1'b0, from_even} + {5'd0, cost_even};
                wire [18:0] odd  = {1'b0, from_odd} + {5'd0, cost_odd};
                wire        take_odd = odd < even;
                wire [18:0] least_of = take_odd ? odd : even;
                wire        unused = t >= 4 && !eight;
                wire [17:0] kept = unused || least_of[18] || (least_of[17] && |least_of[16:0]) ? NEVER : least_of[17:0];
                always @(posedge clk) begin
                    if (en) begin
                        out_decisions[8*l+t] <= take_odd;
                        next1[144*l+18*t +: 18] <= kept;
                    end
                end
            end
            // The least of eight.
            wire [143:0] n = next1[144*l +: 144];
            wire [17:0] m01 = n[17:0] < n[35:18] ? n[17:0] : n[35:18];
            wire [17:0] m23 = n[53:36] < n[71:54] ? n[53:36] : n[71:54];
            wire [17:0] m45 = n[89:72] < n[107:90] ? n[89:72] : n[107:90];
            wire [17:0] m67 = n[125:108] < n[143:126] ? n[125:108] : n[143:126];
            wire [17:0] m03 = m01 < m23 ? m01 : m23;
            wire [17:0] m47 = m45 < m67 ? m45 : m67;
            reg  [17:0] least;
            always @(posedge clk) begin
                if (en) least <= m03 < m47 ? m03 : m47;
            end
            for (t = 0; t < 8; t = t + 1) begin : g_down
                always @(posedge clk) begin
                    if (en && v2 && mask2[l])
                        costs[group2][144*l+18*t +: 18] <= next2[144*l+18*t+17] ? NEVER : next2[144*l+18*t +: 18] - least;
                end
            end
        end
        for (g = 0; g < 4; g = g + 1) begin : g_best
            for (l = 0; l < 8; l = l + 1) begin : g_of
                wire [7:0] zero;
                for (t = 0; t < 8; t = t + 1) begin : g_zero
                    assign zero[t] = costs[g][144*l+18*t +: 18] == 18'd0;
                end
                assign best[24*g+3*l +: 3] = zero[0] ? 3'd0 : zero[1] ? 3'd1 : zero[2] ? 3'd2 : zero[3] ? 3'd3
                    : zero[4] ? 3'd4 : zero[5] ? 3'd5 : zero[6] ? 3'd6 : 3'd7;
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (en) begin
            v1 <= in_valid;
            v2 <= v1;
            {group1, mask1} <= {in_group, in_mask};
            {group2, mask2} <= {group1, mask1};
            next2 <= next1;
        end
    end
endmodule
