// Number format of the output: fp32, bf16, fp16 or samples, to nearest even.
//
// Equals `Number` of models/codec/src/stage/line/reconstruct.rs: `rounded` for values, where
// finite stays finite, and `kept` for exceptions, where infinity and NaN stay
// what they are. fp16 follows the same rules. With LINE_PICTURE also samples of 8
// or 10 bits (`Sample` there): to the nearest integer, clipped; NaN becomes 0.
// Latency: 2 cycles. Throughput: 8 values/cycle.
`ifndef LINE_PICTURE
`define LINE_PICTURE 0
`endif
module line_format #(
    parameter PICTURE = `LINE_PICTURE
) (
    input  wire         clk,
    input  wire         rst,
    input  wire [2:0]   format,       // 0 fp32, 1 bf16, 2 fp16, 3 samples of 8 bits, 4 of 10
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [255:0] in_values,
    input  wire [7:0]   in_kept,
    output reg          out_valid,
    input  wire         out_ready,
    output reg          out_last,
    output reg          out_error,
    output reg  [7:0]   out_mask,
    output reg  [255:0] out_values    // 16-bit formats in the lower half of each
);
    wire en = !out_valid || out_ready;
    assign in_ready = en;
    wire sample = PICTURE != 0 && format >= 3'd3;
    wire [10:0] most = format == 3'd3 ? 11'd255 : 11'd1023;
    reg v1;
    reg [31:0] side1;
    always @(posedge clk) begin
        if (rst) begin
            v1 <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            v1 <= in_valid;
            out_valid <= v1;
        end
        if (en) begin
            side1     <= in_side;
            out_last  <= side1[28];
            out_error <= side1[29];
            out_mask  <= side1[7:0];
        end
    end
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [31:0] v = in_values[32*l +: 32];
            wire        special = &v[30:23];
            wire        nan = special && |v[22:0];
            // bf16 before rounding, and whether it goes up.
            wire        up_b = v[15] && (|v[14:0] || v[16]);
            // fp16: exponent 113 is the least normal one. Subnormals are shifted down.
            wire [7:0]  e = v[30:23];
            wire [7:0]  least = sample ? 8'd137 : 8'd113;       // a sample's exponent, were it 1024 or more
            wire        low = e < least;
            wire [7:0]  down = low ? least - e : 8'd0;
            wire [3:0]  down_by = down > 8'd12 ? 4'd12 : down[3:0];
            wire [23:0] whole = {|e, v[22:0]};
            wire [35:0] moved = {whole, 12'd0} >> down_by;   // ones that leave are sticky in 12 more bits
            wire [10:0] mantissa = moved[35:25];
            wire        up_h = moved[24] && (|moved[23:0] || mantissa[0]);
            wire        over_h = e > (sample ? 8'd136 : 8'd142);
            reg  [31:0] v1_value;
            reg         v1_kept, v1_special, v1_nan, v1_up_b, v1_up_h, v1_low, v1_over_h;
            reg  [10:0] v1_mantissa;
            // Second half.
            wire [15:0] b_plain = v1_value[31:16] + {15'd0, v1_up_b};
            wire        b_over  = b_plain[14:0] == 15'h7f80;
            wire [15:0] b_finite = b_over ? {b_plain[15], 15'h7f7f} : b_plain;
            wire [15:0] b_nan   = v1_value[22:16] == 7'd0 ? v1_value[31:16] | 16'h0040 : v1_value[31:16];
            wire [15:0] b = v1_kept && v1_nan ? b_nan : v1_kept && v1_special ? v1_value[31:16] : b_finite;
            wire [4:0]  h_exponent = v1_value[27:23] - 5'd16;   // e - 112 in five bits
            wire [14:0] h_plain = (v1_low ? {5'd0, v1_mantissa[9:0]} : {h_exponent, v1_mantissa[9:0]}) + {14'd0, v1_up_h};
            wire        h_over  = v1_over_h || h_plain >= 15'h7c00;
            wire [14:0] h_finite = h_over ? 15'h7bff : h_plain;
            wire [14:0] h_nan   = {5'h1f, v1_value[22:13] == 10'd0 ? 10'h200 : v1_value[22:13]};
            wire [15:0] h = {v1_value[31], v1_kept && v1_nan ? h_nan : v1_kept && v1_special ? 15'h7c00 : h_finite};
            wire [10:0] s_plain = v1_mantissa + {10'd0, v1_up_h};
            wire [10:0] s_clipped = v1_value[31] || v1_nan ? 11'd0 : v1_over_h || s_plain > most ? most : s_plain;
            always @(posedge clk) begin
                if (en) begin
                    v1_value    <= v;
                    v1_kept     <= in_kept[l];
                    v1_special  <= special;
                    v1_nan      <= nan;
                    v1_up_b     <= up_b;
                    v1_up_h     <= up_h;
                    v1_low      <= low;
                    v1_over_h   <= over_h;
                    v1_mantissa <= mantissa;
                    out_values[32*l +: 32] <= format == 3'd0 ? v1_value : format == 3'd1 ? {16'd0, b}
                        : sample ? {21'd0, s_clipped} : {16'd0, h};
                end
            end
        end
    endgenerate
endmodule
