// Integer to single precision, times the scale, of one value: see line_float.
//
// Latency: 6 cycles. Throughput: a value per cycle.
module line_float_lane (
    input  wire        clk,
    input  wire        en,
    input  wire [31:0] scale,
    input  wire [31:0] in_x,
    output reg  [31:0] out_value
);
    wire [23:0] factor = {1'b1, scale[22:0]};
    // 1: sign and magnitude.
    wire        negative = in_x[31];
    reg  [30:0] m1;
    reg         n1, n2, n3, n4, n5;
    // 2: the leading one to the top.
    wire [30:0] m16 = |m1[30:15] ? m1 : m1 << 16;
    wire [30:0] m8  = |m16[30:23] ? m16 : m16 << 8;
    wire [30:0] m4  = |m8[30:27] ? m8 : m8 << 4;
    wire [30:0] m2  = |m4[30:29] ? m4 : m4 << 2;
    wire [30:0] mt  = m2[30] ? m2 : m2 << 1;
    wire [4:0]  shift = {!(|m1[30:15]), !(|m16[30:23]), !(|m8[30:27]), !(|m4[30:29]), !m2[30]};
    reg  [30:0] t2;
    reg  [4:0]  shift2;
    // 3: to 24 bits, nearest even.
    wire        up = t2[6] && (|t2[5:0] || t2[7]);
    wire [24:0] rounded = {1'b0, t2[30:7]} + {24'd0, up};
    reg  [23:0] w3;
    reg  [5:0]  e3;            // the exponent of the leading one
    reg         zero3, zero4, zero5;
    // 4, 5: the product in two halves.
    reg  [35:0] high4, low4;
    reg  [5:0]  e4;
    reg  [47:0] p5;
    reg  [5:0]  e5;
    // 6: to 24 bits again.
    wire        wide = p5[47];
    wire [23:0] kept = wide ? p5[47:24] : p5[46:23];
    wire        half = wide ? p5[23] : p5[22];
    wire        rest = wide ? |p5[22:0] : |p5[21:0];
    wire [24:0] last = {1'b0, kept} + {24'd0, half && (rest || kept[0])};
    wire [9:0]  exponent = {2'd0, scale[30:23]} + {4'd0, e5} + {9'd0, wide} + {9'd0, last[24]};
    wire        infinite = exponent >= 10'd255;
    always @(posedge clk) begin
        if (en) begin
            m1 <= negative ? -in_x[30:0] : in_x[30:0];
            n1 <= negative;
            t2 <= mt;
            shift2 <= shift;
            n2 <= n1;
            w3 <= rounded[24] ? 24'h800000 : rounded[23:0];
            e3 <= 6'd30 - {1'b0, shift2} + {5'd0, rounded[24]};
            zero3 <= !t2[30];
            n3 <= n2;
            high4 <= w3 * factor[23:12];
            low4  <= w3 * factor[11:0];
            e4 <= e3;
            zero4 <= zero3;
            n4 <= n3;
            p5 <= {high4, 12'd0} + {12'd0, low4};
            e5 <= e4;
            zero5 <= zero4;
            n5 <= n4;
            out_value <= zero5 ? 32'd0 : infinite ? {n5, 8'hff, 23'd0} : {n5, exponent[7:0], last[22:0]};
        end
    end
endmodule
