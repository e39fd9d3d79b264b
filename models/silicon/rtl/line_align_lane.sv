// Alignment of one value: see line_align.
//
// Latency: 4 cycles. Throughput: a value per cycle.
module line_align_lane (
    input  wire        clk,
    input  wire        en,
    input  wire [31:0] inverse,
    input  wire        transformed,
    input  wire [31:0] in_value,
    output reg  [20:0] out_target,
    output reg         out_exception,
    output reg  [31:0] out_value
);
    wire [23:0] factor = {1'b1, inverse[22:0]};
    reg  [31:0] value1, value2, value3;
    wire [31:0] v = in_value;
    // 1, 2: the product in two halves.
    wire [23:0] mantissa = {1'b1, v[22:0]};
    reg  [35:0] high1, low1;
    reg  [9:0]  e1, e2;              // biased by 254
    reg         zero1, zero2, zero3, special1, special2, n1, n2, n3;
    reg  [47:0] p2;
    // 3: to 24 bits.
    wire        wide = p2[47];
    wire [23:0] kept = wide ? p2[47:24] : p2[46:23];
    wire        guard = wide ? p2[23] : p2[22];
    wire        rest = wide ? |p2[22:0] : |p2[21:0];
    wire [24:0] rounded = {1'b0, kept} + {24'd0, guard && (rest || kept[0])};
    wire [9:0]  e = e2 + {9'd0, wide} + {9'd0, rounded[24]};   // exponent + 254
    wire [23:0] m = rounded[24] ? 24'h800000 : rounded[23:0];
    wire [9:0]  most = transformed ? 10'd267 : 10'd273;        // 2^13, 2^19
    wire        beyond = e > most || (e == most && |m[22:0]);
    reg  [23:0] m3;
    reg  [4:0]  shift3;
    reg         exception3;
    // 4: to an integer.
    wire [48:0] moved = {m3, 25'd0} >> shift3;
    wire [20:0] whole = moved[45:25] + {20'd0, moved[24] && (|moved[23:0] || moved[25])};
    always @(posedge clk) begin
        if (en) begin
            high1 <= mantissa * factor[23:12];
            low1  <= mantissa * factor[11:0];
            e1 <= {2'd0, v[30:23]} + {2'd0, inverse[30:23]};
            zero1 <= v[30:23] == 8'd0;
            special1 <= &v[30:23];
            n1 <= v[31];
            value1 <= v;
            p2 <= {high1, 12'd0} + {12'd0, low1};
            {e2, zero2, special2, n2} <= {e1, zero1, special1, n1};
            value2 <= value1;
            m3 <= m;
            // 23 less the exponent; beyond a half all is zero.
            shift3 <= e < 10'd253 ? 5'd31 : 10'd277 - e;
            zero3 <= zero2 || e < 10'd253;
            exception3 <= special2 || (!zero2 && beyond);
            n3 <= n2;
            value3 <= value2;
            out_exception <= exception3;
            out_target <= exception3 || zero3 ? 21'd0 : n3 ? -whole : whole;
            out_value <= value3;
        end
    end
endmodule
