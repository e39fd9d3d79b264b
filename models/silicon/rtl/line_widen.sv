// Numbers of eight formats to fp32, eight at a time.
//
// Equals `Dtype::to_f32` (models/tensor/src/dtype.rs) and, for the formats that
// share a scale (E8M0) among 32 columns, `MxBlock::decode` (codec/mx.rs): fp32,
// bf16, fp16, MXFP8 (E4M3, E5M2), MXFP6 (E3M2, E2M3), MXFP4 (E2M1). What fp32
// has as a subnormal becomes 0, as line_align takes it; what is beyond its range,
// an infinity; any NaN of a format but fp32 and bf16 the one with an empty payload.
// With LINE_PICTURE also samples, unsigned integers of up to 10 bits: a fraction of
// fp16 without exponent, 2^24 times as large.
// Latency: 1 cycle. Throughput: 8 values/cycle.
`ifndef LINE_PICTURE
`define LINE_PICTURE 0
`endif
module line_widen #(
    parameter PICTURE = `LINE_PICTURE
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [3:0]   format,       // in that order; 8 samples
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [255:0] in_values,    // each in the lower bits of its 32
    input  wire [7:0]   in_scale,     // of the beat's 32 columns; MX alone
    output reg          out_valid,
    input  wire         out_ready,
    output reg  [255:0] out_values
);
    localparam FP32 = 4'd0, BF16 = 4'd1, FP16 = 4'd2, E4M3 = 4'd3, E5M2 = 4'd4, E3M2 = 4'd5, E2M3 = 4'd6;
    assign in_ready = !out_valid || out_ready;
    wire sample = PICTURE != 0 && format[3];
    wire scaled = format >= E4M3 && !sample;
    // 127 less the bias, and 2^-127 times the scale.
    wire signed [10:0] base = sample ? 11'sd136 : format == FP16 ? 11'sd112 : format == E4M3 ? 11'sd120 : format == E5M2 ? 11'sd112
        : format == E3M2 ? 11'sd124 : 11'sd126;
    wire signed [10:0] offset = scaled ? base + {3'd0, in_scale} - 11'sd127 : base;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [31:0] v = in_values[32*l +: 32];
            wire        sign = sample ? 1'b0 : format == FP16 ? v[15] : format == E4M3 || format == E5M2 ? v[7]
                : format == E3M2 || format == E2M3 ? v[5] : v[3];
            wire [4:0]  e = sample ? 5'd0 : format == FP16 ? v[14:10] : format == E4M3 ? {1'b0, v[6:3]} : format == E5M2 ? v[6:2]
                : format == E3M2 ? {2'd0, v[4:2]} : format == E2M3 ? {3'd0, v[4:3]} : {3'd0, v[2:1]};
            wire [9:0]  fraction = sample || format == FP16 ? v[9:0] : format == E4M3 || format == E2M3 ? {v[2:0], 7'd0}
                : format == E5M2 || format == E3M2 ? {v[1:0], 8'd0} : {v[0], 9'd0};
            wire        ieee = format == FP16 || format == E5M2;
            wire        nan = (scaled && &in_scale) || (ieee && &e && |fraction) || (format == E4M3 && &v[6:0]);
            wire        infinite = ieee && &e && !(|fraction);
            // One in front, where the exponent is not least; else as far up as it goes.
            wire [10:0] m = {e != 5'd0, fraction};
            wire [3:0]  zeros = m[10] ? 4'd0 : m[9] ? 4'd1 : m[8] ? 4'd2 : m[7] ? 4'd3 : m[6] ? 4'd4 : m[5] ? 4'd5
                : m[4] ? 4'd6 : m[3] ? 4'd7 : m[2] ? 4'd8 : m[1] ? 4'd9 : 4'd10;
            wire [10:0] up = m << zeros;
            wire signed [10:0] exponent = offset + {6'd0, e | {4'd0, e == 5'd0}} - {7'd0, zeros};
            wire [7:0]  kept = exponent[7:0];
            wire        zero = m == 11'd0 || exponent <= 11'sd0;
            wire        beyond = infinite || (exponent >= 11'sd255 && m != 11'd0);
            wire [31:0] small_one = nan ? {sign, 8'hff, 23'h400000} : beyond ? {sign, 8'hff, 23'd0}
                : zero ? {sign, 31'd0} : {sign, kept, up[9:0], 13'd0};
            wire [31:0] wide = format == FP32 ? v : format == BF16 ? {v[15:0], 16'd0} : small_one;
            always @(posedge clk) if (in_ready) out_values[32*l +: 32] <= wide;
        end
    endgenerate
    always @(posedge clk) begin
        if (rst) out_valid <= 1'b0;
        else if (in_ready) out_valid <= in_valid;
    end
endmodule
