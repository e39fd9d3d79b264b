// Prediction from the row above, closed-loop: targets to residuals.
//
// Equals `Residuals` and `Advance` of models/codec/src/stage/line/quantize.rs for one state:
// with a uniform quantizer a residual's level, and so the decoder's deviation and
// what it says of the row below, is known at once. What is predicted of up to 512
// columns is in memory; a column comes again after four beats at the earliest.
// Latency: 2 cycles. Throughput: 8 values/cycle.
module line_predict (
    input  wire         clk,
    input  wire         rst,
    input  wire         en,
    input  wire         predicts,
    input  wire         transformed,  // the smaller limit
    input  wire [5:0]   rounding,
    // Sixteenths of eight columns, 5 bits each; two banks.
    input  wire         col_we,
    input  wire [6:0]   col_waddr,
    input  wire [39:0]  col_wdata,
    input  wire         in_valid,
    input  wire         in_bank,
    input  wire [5:0]   in_beat,      // of the row
    input  wire         in_first,     // the tile's first row
    input  wire [7:0]   in_mask,
    input  wire [167:0] in_targets,   // 21 bits, signed
    input  wire [135:0] in_means,     // 17 bits, signed
    output reg  [167:0] out_residuals
);
    wire signed [22:0] limit = transformed ? 23'sd131008 : 23'sd1048512;
    reg  [5:0]   beat1, beat2, beat3;
    reg          v1, v2, v3, first1;
    reg  [7:0]   mask1;
    wire [39:0]  sixteenths;
    wire [167:0] predicted, predicts_below;
    line_ram #(.WIDTH(40), .DEPTH(128), .ADDR(7)) attributes (
        .clk(clk), .we(col_we), .waddr(col_waddr), .wdata(col_wdata),
        .re(en && predicts), .raddr({in_bank, beat2}), .rdata(sixteenths)
    );
    line_ram #(.WIDTH(168), .DEPTH(64), .ADDR(6)) from_above (
        .clk(clk), .we(en && v3), .waddr(beat3), .wdata(predicts_below),
        .re(en && predicts), .raddr(in_beat), .rdata(predicted)
    );
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            // 1: what the mean leaves.
            wire signed [20:0] target = in_targets[21*l +: 21];
            wire signed [16:0] mean = in_means[17*l +: 17];
            reg  signed [22:0] base1;
            // 2: what the row above leaves.
            wire signed [20:0] above = predicts && !first1 ? predicted[21*l +: 21] : 21'd0;
            wire signed [22:0] raw = base1 - {{2{above[20]}}, above};
            wire signed [22:0] clamped = raw > limit ? limit : raw < -limit ? -limit : raw;
            reg  signed [20:0] above2;
            // 3: the level, and where the decoder is with it.
            wire [20:0] residual = out_residuals[21*l +: 21];
            wire [19:0] magnitude = residual[20] ? -residual[19:0] : residual[19:0];
            wire [20:0] raised = {1'b0, magnitude} + {15'd0, rounding};
            wire signed [22:0] units = {2'd0, raised[20:5], 5'd0};
            wire signed [22:0] back = {{2{above2[20]}}, above2} + (residual[20] ? -units : units);
            wire signed [22:0] kept = back > limit ? limit : back < -limit ? -limit : back;
            reg  signed [20:0] deviation3;
            // 4: what that says of the row below.
            wire signed [26:0] product = $signed({1'b0, sixteenths[5*l +: 5]}) * deviation3 + 27'sd8;
            assign predicts_below[21*l +: 21] = product[24:4];
            always @(posedge clk) begin
                if (en) begin
                    base1  <= {{2{target[20]}}, target} - {{2{mean[16]}}, mean, 4'd0};
                    above2 <= above;
                    out_residuals[21*l +: 21] <= mask1[l] ? clamped[20:0] : 21'd0;
                    deviation3 <= kept[20:0];
                end
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (rst) {v1, v2, v3} <= 3'd0;
        else if (en) {v1, v2, v3} <= {in_valid && predicts, v1, v2};
        if (en) begin
            first1 <= in_first;
            mask1  <= in_mask;
            {beat1, beat2, beat3} <= {in_beat, beat1, beat2};
        end
    end
endmodule
