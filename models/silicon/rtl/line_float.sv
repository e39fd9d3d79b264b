// Integer to single precision, times the scale: the decoder's only floating point.
//
// Equals `coefficient as f32 * coder.scale` (models/codec/src/stage/line/reconstruct.rs):
// both operations round to nearest even. The scale is a normal positive number,
// so that no product but zero is subnormal; one beyond the largest is infinity.
// Latency: 6 cycles. Throughput: 8 values/cycle.
module line_float (
    input  wire         clk,
    input  wire         rst,
    input  wire [31:0]  scale,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [255:0] in_x,
    output reg          out_valid,
    input  wire         out_ready,
    output reg  [31:0]  out_side,
    output wire [255:0] out_values
);
    wire en = !out_valid || out_ready;
    assign in_ready = en;
    reg v1, v2, v3, v4, v5;
    reg [31:0] side1, side2, side3, side4, side5;
    always @(posedge clk) begin
        if (rst) begin
            v1 <= 1'b0;
            v2 <= 1'b0;
            v3 <= 1'b0;
            v4 <= 1'b0;
            v5 <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            v1 <= in_valid;
            v2 <= v1;
            v3 <= v2;
            v4 <= v3;
            v5 <= v4;
            out_valid <= v5;
        end
        if (en) begin
            side1 <= in_side;
            side2 <= side1;
            side3 <= side2;
            side4 <= side3;
            side5 <= side4;
            out_side <= side5;
        end
    end

    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            line_float_lane lane (
                .clk(clk), .en(en), .scale(scale), .in_x(in_x[32*l +: 32]), .out_value(out_values[32*l +: 32])
            );
        end
    endgenerate
endmodule
