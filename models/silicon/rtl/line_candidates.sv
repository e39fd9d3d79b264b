// Candidates of one value: for each quantizer and parity the nearest level, or
// zero where that costs less, and what it costs.
//
// Equals `candidates` of models/codec/src/stage/line/quantize.rs where costs are below 2^13:
// a level lies within 32 units of the value, so its square has eleven bits, and
// zero can only win below 256 units.
// Latency: 2 cycles. Throughput: a value per cycle.
module line_candidates (
    input  wire         clk,
    input  wire         en,
    input  wire [20:0]  residual,
    input  wire [2:0]   raw_bits,
    input  wire [207:0] costs_0,      // of quantizer 0: 16 magnitudes, 13 bits each
    input  wire [207:0] costs_1,
    output reg  [55:0]  costs,        // 14 bits for each of 2 x quantizer + parity
    output reg  [18:0]  level         // 18:17 zero is taken (quantizers 1, 0), 16 sign, 15:0 units / 16
);
    wire        negative = residual[20];
    wire [19:0] m = negative ? -residual[19:0] : residual[19:0];
    wire [13:0] f = m[19:6];
    wire [1:0]  q = m[5:4];
    reg  [12:0] rate_zero_0, rate_zero_1;
    reg  [15:0] square_zero;
    reg         far;
    reg  [18:0] level1;
    genvar s;
    generate
        for (s = 0; s < 4; s = s + 1) begin : g_subset
            // Half the even level below, and how far the value is from the point.
            wire        up = s == 0 ? q[1] : s == 1 ? 1'b0 : s == 2 ? q != 2'd0 : q == 2'd3;
            wire [14:0] n = {1'b0, f} + {14'd0, up};
            wire [15:0] magnitude = {n, s[0]};
            wire [6:0]  phase = {1'b0, m[5:0]} + (s == 0 ? 7'd32 : s == 1 ? 7'd0 : s == 2 ? 7'd48 : 7'd16);
            wire signed [6:0] away = {1'b0, phase[5:0]} - 7'd32;
            // Level 0 lies at 0 under either quantizer.
            wire signed [6:0] distance = s == 2 && n == 15'd0 ? {1'b0, m[5:0]} : away;
            wire [15:0] middle = raw_bits == 3'd0 ? 16'd0 : (16'd1 << (raw_bits - 3'd1)) - {15'd0, negative};
            wire [15:0] symbol = (magnitude + middle) >> raw_bits;
            wire [3:0]  index = |symbol[15:4] ? 4'd15 : symbol[3:0];
            wire [207:0] table_of = s[1] ? costs_1 : costs_0;
            reg  [12:0] rate;
            reg  [6:0]  distance1;
            wire signed [6:0] d = distance1;
            wire signed [13:0] square = d * d;
            wire [13:0] best = {1'b0, rate} + square[13:0];
            wire [16:0] zero = {1'b0, square_zero} + {4'd0, s[1] ? rate_zero_1 : rate_zero_0};
            wire        is_zero = !s[0] && !far && zero < {3'd0, best};
            always @(posedge clk) begin
                if (en) begin
                    rate      <= table_of[13*index +: 13];
                    distance1 <= distance;
                    costs[14*s +: 14] <= is_zero ? zero[13:0] : best;
                    if (!s[0]) level[17+s/2] <= is_zero;
                end
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (en) begin
            rate_zero_0 <= costs_0[12:0];
            rate_zero_1 <= costs_1[12:0];
            square_zero <= m[7:0] * m[7:0];
            far         <= |m[19:8];
            level1      <= {2'd0, negative, f, q};
            level[16:0] <= level1[16:0];
        end
    end
endmodule
