// Trellis: add, compare, select for 32 lanes, eight of them per cycle.
//
// Equals `Path::step` of models/codec/src/stage/line/quantize.rs. Costs of paths stay within
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
    output wire [63:0]  out_decisions,// one cycle after: odd was taken, for each lane and state
    output wire [95:0]  best          // the state of least cost for each lane
);
    reg          v1, v2;
    reg  [1:0]   group1, group2;
    reg  [7:0]   mask1, mask2;
    genvar l, g;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [11:0] least;
            line_trellis_lane lane (
                .clk(clk), .en(en), .eight_asked(eight), .in_first(in_first), .in_group(in_group),
                .in_costs(in_costs[56*l +: 56]), .write(v2 && mask2[l]), .write_group(group2),
                .out_decisions(out_decisions[8*l +: 8]), .best(least)
            );
            for (g = 0; g < 4; g = g + 1) begin : g_best
                assign best[24*g+3*l +: 3] = least[3*g +: 3];
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (en) begin
            v1 <= in_valid;
            v2 <= v1;
            {group1, mask1} <= {in_group, in_mask};
            {group2, mask2} <= {group1, mask1};
        end
    end
endmodule
