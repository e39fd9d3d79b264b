// Inverse DCT-32: four beats of eight coefficients to four of x.
//
// Equals `synthesize` of models/codec/src/stage/line/reconstruct.rs for the DCT, and for
// columns of no whole group (127 times). Each beat of coefficients adds to sums of
// all 32 values, by symmetry 16 of odd coefficients and 8, 4 and 4 of even ones: 88
// products, each with one of four constants. As the group leaves, sums and
// differences of these are its values. No sum needs more than 30 bits:
// coefficients are within 16 times the largest mean and the limit of deviations.
// Latency: 4 cycles after a step's last beat. Throughput: 8 values/cycle.
module line_dct_inv (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [175:0] in_coefficients,
    output reg          out_valid,
    input  wire         out_ready,
    output reg  [31:0]  out_side,
    output reg  [255:0] out_x
);
    // Entries of the synthesis matrix for values 0 to 15, entry (i, j) at 16 j + i.
    localparam [3583:0] SYNTHESIS = {
        -7'sd32, 7'sd31, -7'sd31, 7'sd30, -7'sd29, 7'sd27, -7'sd26, 7'sd24, -7'sd21, 7'sd19, -7'sd16, 7'sd14, -7'sd11, 7'sd8, -7'sd5, 7'sd2,
        -7'sd3, 7'sd9, -7'sd15, 7'sd20, -7'sd25, 7'sd28, -7'sd30, 7'sd32, -7'sd32, 7'sd30, -7'sd28, 7'sd25, -7'sd20, 7'sd15, -7'sd9, 7'sd3,
        7'sd31, -7'sd29, 7'sd24, -7'sd16, 7'sd8, 7'sd2, -7'sd11, 7'sd19, -7'sd26, 7'sd30, -7'sd32, 7'sd31, -7'sd27, 7'sd21, -7'sd14, 7'sd5,
        7'sd6, -7'sd18, 7'sd26, -7'sd31, 7'sd31, -7'sd26, 7'sd18, -7'sd6, -7'sd6, 7'sd18, -7'sd26, 7'sd31, -7'sd31, 7'sd26, -7'sd18, 7'sd6,
        -7'sd31, 7'sd24, -7'sd11, -7'sd5, 7'sd19, -7'sd29, 7'sd32, -7'sd27, 7'sd16, -7'sd2, -7'sd14, 7'sd26, -7'sd31, 7'sd30, -7'sd21, 7'sd8,
        -7'sd9, 7'sd25, -7'sd32, 7'sd28, -7'sd15, -7'sd3, 7'sd20, -7'sd30, 7'sd30, -7'sd20, 7'sd3, 7'sd15, -7'sd28, 7'sd32, -7'sd25, 7'sd9,
        7'sd30, -7'sd16, -7'sd5, 7'sd24, -7'sd32, 7'sd26, -7'sd8, -7'sd14, 7'sd29, -7'sd31, 7'sd19, 7'sd2, -7'sd21, 7'sd31, -7'sd27, 7'sd11,
        7'sd12, -7'sd29, 7'sd29, -7'sd12, -7'sd12, 7'sd29, -7'sd29, 7'sd12, 7'sd12, -7'sd29, 7'sd29, -7'sd12, -7'sd12, 7'sd29, -7'sd29, 7'sd12,
        -7'sd29, 7'sd8, 7'sd19, -7'sd32, 7'sd21, 7'sd5, -7'sd27, 7'sd30, -7'sd11, -7'sd16, 7'sd31, -7'sd24, -7'sd2, 7'sd26, -7'sd31, 7'sd14,
        -7'sd15, 7'sd32, -7'sd20, -7'sd9, 7'sd30, -7'sd25, -7'sd3, 7'sd28, -7'sd28, 7'sd3, 7'sd25, -7'sd30, 7'sd9, 7'sd20, -7'sd32, 7'sd15,
        7'sd27, 7'sd2, -7'sd29, 7'sd26, 7'sd5, -7'sd30, 7'sd24, 7'sd8, -7'sd31, 7'sd21, 7'sd11, -7'sd31, 7'sd19, 7'sd14, -7'sd32, 7'sd16,
        7'sd18, -7'sd31, 7'sd6, 7'sd26, -7'sd26, -7'sd6, 7'sd31, -7'sd18, -7'sd18, 7'sd31, -7'sd6, -7'sd26, 7'sd26, 7'sd6, -7'sd31, 7'sd18,
        -7'sd26, -7'sd11, 7'sd32, -7'sd8, -7'sd27, 7'sd24, 7'sd14, -7'sd31, 7'sd5, 7'sd29, -7'sd21, -7'sd16, 7'sd31, -7'sd2, -7'sd30, 7'sd19,
        -7'sd20, 7'sd28, 7'sd9, -7'sd32, 7'sd3, 7'sd30, -7'sd15, -7'sd25, 7'sd25, 7'sd15, -7'sd30, -7'sd3, 7'sd32, -7'sd9, -7'sd28, 7'sd20,
        7'sd24, 7'sd19, -7'sd27, -7'sd14, 7'sd30, 7'sd8, -7'sd31, -7'sd2, 7'sd32, -7'sd5, -7'sd31, 7'sd11, 7'sd29, -7'sd16, -7'sd26, 7'sd21,
        7'sd22, -7'sd22, -7'sd22, 7'sd22, 7'sd22, -7'sd22, -7'sd22, 7'sd22, 7'sd22, -7'sd22, -7'sd22, 7'sd22, 7'sd22, -7'sd22, -7'sd22, 7'sd22,
        -7'sd21, -7'sd26, 7'sd16, 7'sd29, -7'sd11, -7'sd31, 7'sd5, 7'sd32, 7'sd2, -7'sd31, -7'sd8, 7'sd30, 7'sd14, -7'sd27, -7'sd19, 7'sd24,
        -7'sd25, 7'sd15, 7'sd30, -7'sd3, -7'sd32, -7'sd9, 7'sd28, 7'sd20, -7'sd20, -7'sd28, 7'sd9, 7'sd32, 7'sd3, -7'sd30, -7'sd15, 7'sd25,
        7'sd19, 7'sd30, -7'sd2, -7'sd31, -7'sd16, 7'sd21, 7'sd29, -7'sd5, -7'sd31, -7'sd14, 7'sd24, 7'sd27, -7'sd8, -7'sd32, -7'sd11, 7'sd26,
        7'sd26, -7'sd6, -7'sd31, -7'sd18, 7'sd18, 7'sd31, 7'sd6, -7'sd26, -7'sd26, 7'sd6, 7'sd31, 7'sd18, -7'sd18, -7'sd31, -7'sd6, 7'sd26,
        -7'sd16, -7'sd32, -7'sd14, 7'sd19, 7'sd31, 7'sd11, -7'sd21, -7'sd31, -7'sd8, 7'sd24, 7'sd30, 7'sd5, -7'sd26, -7'sd29, -7'sd2, 7'sd27,
        -7'sd28, -7'sd3, 7'sd25, 7'sd30, 7'sd9, -7'sd20, -7'sd32, -7'sd15, 7'sd15, 7'sd32, 7'sd20, -7'sd9, -7'sd30, -7'sd25, 7'sd3, 7'sd28,
        7'sd14, 7'sd31, 7'sd26, 7'sd2, -7'sd24, -7'sd31, -7'sd16, 7'sd11, 7'sd30, 7'sd27, 7'sd5, -7'sd21, -7'sd32, -7'sd19, 7'sd8, 7'sd29,
        7'sd29, 7'sd12, -7'sd12, -7'sd29, -7'sd29, -7'sd12, 7'sd12, 7'sd29, 7'sd29, 7'sd12, -7'sd12, -7'sd29, -7'sd29, -7'sd12, 7'sd12, 7'sd29,
        -7'sd11, -7'sd27, -7'sd31, -7'sd21, -7'sd2, 7'sd19, 7'sd31, 7'sd29, 7'sd14, -7'sd8, -7'sd26, -7'sd32, -7'sd24, -7'sd5, 7'sd16, 7'sd30,
        -7'sd30, -7'sd20, -7'sd3, 7'sd15, 7'sd28, 7'sd32, 7'sd25, 7'sd9, -7'sd9, -7'sd25, -7'sd32, -7'sd28, -7'sd15, 7'sd3, 7'sd20, 7'sd30,
        7'sd8, 7'sd21, 7'sd30, 7'sd31, 7'sd26, 7'sd14, -7'sd2, -7'sd16, -7'sd27, -7'sd32, -7'sd29, -7'sd19, -7'sd5, 7'sd11, 7'sd24, 7'sd31,
        7'sd31, 7'sd26, 7'sd18, 7'sd6, -7'sd6, -7'sd18, -7'sd26, -7'sd31, -7'sd31, -7'sd26, -7'sd18, -7'sd6, 7'sd6, 7'sd18, 7'sd26, 7'sd31,
        -7'sd5, -7'sd14, -7'sd21, -7'sd27, -7'sd31, -7'sd32, -7'sd30, -7'sd26, -7'sd19, -7'sd11, -7'sd2, 7'sd8, 7'sd16, 7'sd24, 7'sd29, 7'sd31,
        -7'sd32, -7'sd30, -7'sd28, -7'sd25, -7'sd20, -7'sd15, -7'sd9, -7'sd3, 7'sd3, 7'sd9, 7'sd15, 7'sd20, 7'sd25, 7'sd28, 7'sd30, 7'sd32,
        7'sd2, 7'sd5, 7'sd8, 7'sd11, 7'sd14, 7'sd16, 7'sd19, 7'sd21, 7'sd24, 7'sd26, 7'sd27, 7'sd29, 7'sd30, 7'sd31, 7'sd31, 7'sd32,
        7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22, 7'sd22
    };
    wire         en = !out_valid || out_ready;
    assign       in_ready = en;
    // 1: products of a beat, summed.
    reg  [1:0]   beat;                // that comes
    reg          v0;
    reg  [31:0]  side0;
    reg  [175:0] plain0;
    reg  [895:0] parts;               // 28 bits each: 16 of odd coefficients, 8 of 2 mod 4, 4 of 4 mod 8, 4 of 0 mod 8
    wire [1:0]   next = rst ? 2'd0 : beat + {1'b0, in_valid};
    wire [127:0] turns;               // of four values each
    genvar i, k, bit_of;
    generate
        for (i = 0; i < 8; i = i + 1) begin : g_turn
            line_turn turn (.clk(clk), .en(en || rst), .next(next), .turn(turns[16*i +: 16]));
        end
        for (i = 0; i < 32; i = i + 1) begin : g_part
            // Value i of its kind, and the coefficients of a beat that it is made of.
            localparam integer VALUE = i < 16 ? i : i < 24 ? i - 16 : i < 28 ? i - 24 : i - 28;
            localparam integer FIRST = i < 16 ? 1 : i < 24 ? 2 : i < 28 ? 4 : 0;
            localparam integer STEP  = i < 16 ? 2 : 4;
            localparam integer TERMS = i < 16 ? 4 : i < 24 ? 2 : 1;
            wire [28*TERMS-1:0] products;
            for (k = 0; k < TERMS; k = k + 1) begin : g_term
                localparam integer J = FIRST + STEP * k;
                wire signed [6:0] w;
                for (bit_of = 0; bit_of < 7; bit_of = bit_of + 1) begin : g_bit
                    localparam [3:0] BITS = {
                        SYNTHESIS[7*(16*(24+J)+VALUE)+bit_of], SYNTHESIS[7*(16*(16+J)+VALUE)+bit_of],
                        SYNTHESIS[7*(16*(8+J)+VALUE)+bit_of], SYNTHESIS[7*(16*J+VALUE)+bit_of]
                    };
                    assign w[bit_of] = BITS == 4'd0 ? 1'b0 : BITS == 4'd15 ? 1'b1 : turns[16*(i/4)+BITS];
                end
                wire signed [21:0] c = in_coefficients[22*J +: 22];
                wire signed [27:0] product = w * c;
                assign products[28*k +: 28] = product;
            end
            wire [27:0] part;
            if (TERMS == 4) assign part = products[27:0] + products[55:28] + (products[83:56] + products[111:84]);
            else if (TERMS == 2) assign part = products[27:0] + products[55:28];
            else assign part = products;
            always @(posedge clk) if (en) parts[28*i +: 28] <= part;
        end
    endgenerate

    // 2: sums over the beats of a group; without a whole one, values 127 times.
    wire         last, step_there;
    wire [1:0]   at, put_at;
    line_group control (
        .clk(clk), .rst(rst), .en(en), .in_valid(v0), .put_at(put_at), .last(last), .full(step_there), .at(at)
    );
    reg  [959:0] sums;                // 30 bits each
    wire [959:0] sums_now;
    reg  [959:0] group;
    reg  [95:0]  sides_waiting;
    reg  [127:0] sides;
    generate
        for (i = 0; i < 32; i = i + 1) begin : g_sum
            wire [29:0] part = {{2{parts[28*i+27]}}, parts[28*i +: 28]};
            wire [29:0] so_far = put_at == 2'd0 ? 30'd0 : sums[30*i +: 30];
            wire signed [29:0] own = {{8{plain0[22*(i%8)+21]}}, plain0[22*(i%8) +: 22]};
            wire [29:0] alone = put_at == i / 8 ? (own <<< 7) - own : sums[30*i +: 30];
            assign sums_now[30*i +: 30] = side0[22] ? so_far + part : alone;
        end
    endgenerate

    // 3, 4: values.
    reg          v1;
    reg  [1:0]   at1;
    reg  [31:0]  side1;
    wire [31:0]  side = sides[32*at +: 32];
    generate
        for (i = 0; i < 8; i = i + 1) begin : g_value
            // Of value i or 7 - i: what 0 and 4 mod 8 give, 2 mod 4, and odd ones.
            localparam integer NEAR = i < 4 ? i : 7 - i;
            wire        minus_2 = at[0] ^ at[1];
            wire        minus_4 = (i >= 4) ^ at[0];
            wire [29:0] zero = group[30*(28+NEAR) +: 30];
            wire [29:0] four = group[30*(24+NEAR) +: 30];
            wire [29:0] two  = at[0] ? group[30*(23-i) +: 30] : group[30*(16+i) +: 30];
            wire [29:0] odd  = at == 2'd0 ? group[30*i +: 30] : at == 2'd1 ? group[30*(8+i) +: 30]
                : at == 2'd2 ? group[30*(15-i) +: 30] : group[30*(7-i) +: 30];
            wire [29:0] eighth = minus_4 ? zero - four : zero + four;
            reg  [29:0] even1, odd1;
            wire [31:0] even = {{2{even1[29]}}, even1};
            wire [31:0] other = {{2{odd1[29]}}, odd1};
            always @(posedge clk) begin
                if (en) begin
                    even1 <= side[22] ? (minus_2 ? eighth - two : eighth + two) : group[30*(8*at+i) +: 30];
                    odd1  <= side[22] ? odd : 30'd0;
                    out_x[32*i +: 32] <= at1[1] ? even - other : even + other;
                end
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            beat      <= 2'd0;
            v0        <= 1'b0;
            v1        <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            beat      <= next;
            v0        <= in_valid;
            v1        <= step_there;
            out_valid <= v1;
        end
        if (en) begin
            side0  <= in_side;
            plain0 <= in_coefficients;
            if (v0) {sums, sides_waiting} <= {sums_now, side0, sides_waiting[95:32]};
            if (last) {group, sides} <= {sums_now, side0, sides_waiting};
            at1      <= at;
            side1    <= side;
            out_side <= side1;
        end
    end
endmodule
