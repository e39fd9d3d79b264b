// Add, compare, select of one value, and the path costs of four lanes: see
// line_trellis.
//
// Latency: 1 cycle to the decisions, 3 to the costs. Throughput: a value per cycle.
`ifndef LINE_STATES
`define LINE_STATES 8
`endif
module line_trellis_lane #(
    parameter STATES = `LINE_STATES   // of the trellis, at most: 8 or 4
) (
    input  wire        clk,
    input  wire        en,
    input  wire        eight_asked,
    input  wire        in_first,
    input  wire [1:0]  in_group,
    input  wire [55:0] in_costs,
    input  wire        write,         // what came two cycles before
    input  wire [1:0]  write_group,
    output reg  [7:0]  out_decisions,
    output wire [11:0] best           // of each group
);
    localparam [17:0] NEVER = 18'h20000;
    wire eight = STATES == 8 && eight_asked;
    reg  [143:0] costs [0:3];
    reg  [143:0] next1, next2;
    wire [143:0] now = costs[in_group];
    genvar t, g;
    generate
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
                : eight ? now[18*E8 +: 18] : now[18*E4 +: 18];
            wire [17:0] from_odd = in_first ? (eight ? start_o8 : start_o4)
                : eight ? now[18*O8 +: 18] : now[18*O4 +: 18];
            wire [13:0] cost_even = (eight ? Q8 != 0 : Q4 != 0) ? in_costs[41:28] : in_costs[13:0];
            wire [13:0] cost_odd = (eight ? Q8 != 0 : Q4 != 0) ? in_costs[55:42] : in_costs[27:14];
            wire [18:0] even = {1'b0, from_even} + {5'd0, cost_even};
            wire [18:0] odd  = {1'b0, from_odd} + {5'd0, cost_odd};
            wire        take_odd = odd < even;
            wire [18:0] least_of = take_odd ? odd : even;
            wire        unused = t >= 4 && !eight;
            wire [17:0] kept = unused || least_of[18] || (least_of[17] && |least_of[16:0]) ? NEVER : least_of[17:0];
            always @(posedge clk) begin
                if (en) begin
                    out_decisions[t] <= take_odd;
                    next1[18*t +: 18] <= kept;
                end
            end
        end
        // The least of eight.
        wire [143:0] n = next1;
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
                if (en && write)
                    costs[write_group][18*t +: 18] <= next2[18*t+17] ? NEVER : next2[18*t +: 18] - least;
            end
        end
        for (g = 0; g < 4; g = g + 1) begin : g_best
            wire [7:0] zero;
            for (t = 0; t < 8; t = t + 1) begin : g_zero
                assign zero[t] = costs[g][18*t +: 18] == 18'd0;
            end
            assign best[3*g +: 3] = zero[0] ? 3'd0 : zero[1] ? 3'd1 : zero[2] ? 3'd2 : zero[3] ? 3'd3
                : zero[4] ? 3'd4 : zero[5] ? 3'd5 : zero[6] ? 3'd6 : 3'd7;
        end
    endgenerate
    always @(posedge clk) if (en) next2 <= next1;
endmodule
