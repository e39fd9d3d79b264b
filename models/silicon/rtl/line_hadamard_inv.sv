// Inverse Hadamard-32, or none: four beats of eight coefficients to four of x.
//
// Equals `synthesize` of models/codec/src/stage/line/reconstruct.rs for the Hadamard matrix
// (22 times the sum with signs), for columns of no whole group (127 times) and,
// without transform, passes on. Eight-point butterflies as beats come, the four
// beats of a step summed as they leave.
// Latency: 3 cycles after a step's last beat. Throughput: 8 values/cycle.
module line_hadamard_inv (
    input  wire         clk,
    input  wire         rst,
    input  wire         transformed,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [175:0] in_coefficients,
    output reg          out_valid,
    input  wire         out_ready,
    output reg  [31:0]  out_side,
    output reg  [255:0] out_x
);
    // Butterflies within a beat.
    wire         full = in_side[22];
    wire         turn = transformed && full;
    wire [199:0] level_0, level_1, level_2, level_3;
    genvar l, g;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_butterfly
            wire signed [24:0] c = {{3{in_coefficients[22*l+21]}}, in_coefficients[22*l +: 22]};
            assign level_0[25*l +: 25] = c;
            wire signed [24:0] a1 = level_0[25*(l & ~1) +: 25];
            wire signed [24:0] b1 = level_0[25*(l | 1) +: 25];
            assign level_1[25*l +: 25] = (l & 1) ? a1 - b1 : a1 + b1;
            wire signed [24:0] a2 = level_1[25*(l & ~2) +: 25];
            wire signed [24:0] b2 = level_1[25*(l | 2) +: 25];
            assign level_2[25*l +: 25] = (l & 2) ? a2 - b2 : a2 + b2;
            wire signed [24:0] a3 = level_2[25*(l & ~4) +: 25];
            wire signed [24:0] b3 = level_2[25*(l | 4) +: 25];
            assign level_3[25*l +: 25] = (l & 4) ? a3 - b3 : a3 + b3;
        end
    endgenerate

    wire         en = !out_valid || out_ready;
    assign       in_ready = en;
    reg  [599:0] waiting;             // the first three beats
    reg  [95:0]  sides_waiting;
    reg  [799:0] group;
    reg  [127:0] sides;
    wire         last, step_there;
    wire [1:0]   at, put_at;
    line_group control (
        .clk(clk), .rst(rst), .en(en), .in_valid(in_valid), .put_at(put_at), .last(last), .full(step_there), .at(at)
    );
    reg          v1;
    reg  [215:0] sums;                // 27 bits each
    reg  [31:0]  side1;
    reg          turn1;
    wire [199:0] beat = turn ? level_3 : level_0;
    wire [199:0] beat_0 = group[199:0];
    wire [199:0] beat_1 = group[399:200];
    wire [199:0] beat_2 = group[599:400];
    wire [199:0] beat_3 = group[799:600];
    wire [31:0]  side   = sides[32*at +: 32];
    wire         turned = transformed && side[22];
    // Signs of the beats in output beat `at`.
    wire minus_1 = at[0];
    wire minus_2 = at[1];
    wire minus_3 = at[0] ^ at[1];
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_sum
            wire signed [26:0] b0 = {{2{beat_0[25*l+24]}}, beat_0[25*l +: 25]};
            wire signed [26:0] b1 = {{2{beat_1[25*l+24]}}, beat_1[25*l +: 25]};
            wire signed [26:0] b2 = {{2{beat_2[25*l+24]}}, beat_2[25*l +: 25]};
            wire signed [26:0] b3 = {{2{beat_3[25*l+24]}}, beat_3[25*l +: 25]};
            wire signed [26:0] lower = minus_1 ? b0 - b1 : b0 + b1;
            wire signed [26:0] upper = minus_1 ? b2 - b3 : b2 + b3;
            wire signed [26:0] sum   = minus_2 ? lower - upper : lower + upper;
            wire signed [26:0] alone = at == 2'd0 ? b0 : at == 2'd1 ? b1 : at == 2'd2 ? b2 : b3;
            wire signed [31:0] s = {{5{sums[27*l+26]}}, sums[27*l +: 27]};
            always @(posedge clk) begin
                if (en) begin
                    sums[27*l +: 27]  <= turned ? sum : alone;
                    out_x[32*l +: 32] <= turn1 ? (s <<< 4) + (s <<< 2) + (s <<< 1) : transformed ? (s <<< 7) - s : s;
                end
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            v1        <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            v1        <= step_there;
            out_valid <= v1;
        end
        if (en) begin
            if (in_valid) {waiting, sides_waiting} <= {beat, waiting[599:200], in_side, sides_waiting[95:32]};
            if (last) {group, sides} <= {beat, waiting, in_side, sides_waiting};
            side1    <= side;
            turn1    <= turned;
            out_side <= side1;
        end
    end
endmodule
