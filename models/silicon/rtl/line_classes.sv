// Classes of eight values: which pair of tables and how many raw bits each has.
//
// Equals `Coder::class` and `Plan::pair_of` (models/codec/src). The class is
// clamp(24 + column class + row class - gain, 0, 55); row classes come
// saturated to nine bits, which the clamp cannot tell from the whole number.
// Latency: 2 cycles. Throughput: 8 values/cycle.
module line_classes (
    input  wire        clk,
    input  wire        en,
    input  wire [63:0] columns,    // eight signed classes of columns
    input  wire [8:0]  row,        // signed, saturated class of the row
    input  wire [5:0]  gain,
    input  wire [41:0] firsts,     // of pairs 1 to 7, six bits each; 32: no such pair
    output reg  [23:0] pairs,
    output reg  [23:0] raw_bits
);
    wire signed [11:0] base = 12'sd24 + {{3{row[8]}}, row} - {6'd0, gain};
    reg [95:0] sums;                  // 12 bits, signed

    genvar l, p;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire signed [11:0] sum = base + {{4{columns[8*l+7]}}, columns[8*l +: 8]};
            wire signed [11:0] of = sums[12*l +: 12];
            wire [5:0] s = of < 0 ? 6'd0 : of > 12'sd55 ? 6'd55 : of[5:0];
            wire       raw = s >= 6'd32;
            wire [3:0] fours = s[5:2] - 4'd7;
            wire [4:0] base_class = raw ? {3'b111, s[1:0]} : s[4:0];
            wire [6:0] above;
            for (p = 0; p < 7; p = p + 1) begin : g_pair
                assign above[p] = firsts[6*p +: 6] <= {1'b0, base_class};
            end
            wire [2:0] pair_now = {2'd0, above[0]} + {2'd0, above[1]} + {2'd0, above[2]} + {2'd0, above[3]}
                                + {2'd0, above[4]} + {2'd0, above[5]} + {2'd0, above[6]};
            always @(posedge clk) begin
                if (en) begin
                    sums[12*l +: 12]   <= sum;
                    pairs[3*l +: 3]    <= pair_now;
                    raw_bits[3*l +: 3] <= raw ? fours[2:0] : 3'd0;
                end
            end
        end
    endgenerate
endmodule
