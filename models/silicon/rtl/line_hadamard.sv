// Hadamard-32, or none: four beats of eight targets to four of eight coefficients.
//
// Equals `analyse_whole` of models/codec/src/stage/line/matrix.rs for the Hadamard matrix:
// 185/1024 of the sum with signs, to the nearest. Columns of no whole group and
// plans without transform pass. Eight-point butterflies as beats come, the four
// beats of a group summed as they leave.
// Latency: 3 cycles after a group's last beat. Throughput: 8 values/cycle.
module line_hadamard (
    input  wire         clk,
    input  wire         rst,
    input  wire         en,
    input  wire         transformed,
    input  wire         in_valid,     // four beats make a group
    input  wire         in_full,      // all 32 columns are there
    input  wire [167:0] in_targets,   // 21 bits, signed; 15 of them with a transform
    output reg          out_valid,
    output reg  [167:0] out_targets
);
    // Butterflies within a beat.
    wire         turn = transformed && in_full;
    wire [167:0] level_1, level_2, level_3;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_butterfly
            wire signed [20:0] a1 = in_targets[21*(l & ~1) +: 21];
            wire signed [20:0] b1 = in_targets[21*(l | 1) +: 21];
            assign level_1[21*l +: 21] = (l & 1) ? a1 - b1 : a1 + b1;
            wire signed [20:0] a2 = level_1[21*(l & ~2) +: 21];
            wire signed [20:0] b2 = level_1[21*(l | 2) +: 21];
            assign level_2[21*l +: 21] = (l & 2) ? a2 - b2 : a2 + b2;
            wire signed [20:0] a3 = level_2[21*(l & ~4) +: 21];
            wire signed [20:0] b3 = level_2[21*(l | 4) +: 21];
            assign level_3[21*l +: 21] = (l & 4) ? a3 - b3 : a3 + b3;
        end
    endgenerate

    reg  [503:0] waiting;             // the first three beats
    reg  [671:0] group;
    reg          turned;              // of the group
    wire         last, full;
    wire [1:0]   at, put_at;
    line_group control (
        .clk(clk), .rst(rst), .en(en), .in_valid(in_valid), .put_at(put_at), .last(last), .full(full), .at(at)
    );
    reg          v1, turned1;
    reg  [167:0] sums;
    wire [167:0] beat = turn ? level_3 : in_targets;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_sum
            wire signed [20:0] b0 = group[21*l +: 21];
            wire signed [20:0] b1 = group[168+21*l +: 21];
            wire signed [20:0] b2 = group[336+21*l +: 21];
            wire signed [20:0] b3 = group[504+21*l +: 21];
            wire signed [20:0] lower = at[0] ? b0 - b1 : b0 + b1;
            wire signed [20:0] upper = at[0] ? b2 - b3 : b2 + b3;
            wire signed [20:0] sum   = at[1] ? lower - upper : lower + upper;
            wire signed [20:0] alone = at == 2'd0 ? b0 : at == 2'd1 ? b1 : at == 2'd2 ? b2 : b3;
            wire signed [30:0] s = {{10{sums[21*l+20]}}, sums[21*l +: 21]};
            wire signed [30:0] product = 31'sd185 * s + 31'sd512;
            always @(posedge clk) begin
                if (en) begin
                    sums[21*l +: 21] <= turned ? sum : alone;
                    out_targets[21*l +: 21] <= turned1 ? product[30:10] : sums[21*l +: 21];
                end
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            v1        <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            v1        <= full;
            out_valid <= v1;
        end
        if (en) begin
            if (in_valid) waiting <= {beat, waiting[503:168]};
            if (last) group  <= {beat, waiting};
            if (last) turned <= turn;
            turned1 <= turned;
        end
    end
endmodule
