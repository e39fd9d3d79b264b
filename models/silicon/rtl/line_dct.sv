// DCT-32, or none: four beats of eight targets to four of eight coefficients.
//
// Equals `analyse_whole` of models/codec/src/stage/line/matrix.rs for the DCT: entries of the
// inverse in 1/1024, the sum to the nearest.
// Columns of no whole group and plans without transform pass. Sums and differences
// of opposite values, taken as a group moves on, leave products of 16, 8, 4 and 4
// values; the four beats of a group take turns, so that a product is with one of
// four constants.
// Latency: 3 cycles after a group's last beat. Throughput: 8 values/cycle.
module line_dct (
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
    // Coefficient j's row of the inverse for columns 0 to 15, entry (j, i) at 16 j + i.
    localparam [5119:0] INVERSE = {
        -10'sd253, 10'sd257, -10'sd247, 10'sd239, -10'sd230, 10'sd220, -10'sd204, 10'sd187, -10'sd171, 10'sd151, -10'sd133, 10'sd112, -10'sd80, 10'sd58, -10'sd35, 10'sd13,
        -10'sd26, 10'sd73, -10'sd120, 10'sd158, -10'sd195, 10'sd228, -10'sd247, 10'sd254, -10'sd254, 10'sd247, -10'sd228, 10'sd195, -10'sd158, 10'sd120, -10'sd73, 10'sd26,
        10'sd257, -10'sd230, 10'sd187, -10'sd133, 10'sd58, 10'sd13, -10'sd80, 10'sd151, -10'sd204, 10'sd239, -10'sd253, 10'sd247, -10'sd220, 10'sd171, -10'sd112, 10'sd35,
        10'sd46, -10'sd144, 10'sd213, -10'sd253, 10'sd253, -10'sd213, 10'sd144, -10'sd46, -10'sd46, 10'sd144, -10'sd213, 10'sd253, -10'sd253, 10'sd213, -10'sd144, 10'sd46,
        -10'sd247, 10'sd187, -10'sd80, -10'sd35, 10'sd151, -10'sd230, 10'sd253, -10'sd220, 10'sd133, -10'sd13, -10'sd112, 10'sd204, -10'sd257, 10'sd239, -10'sd171, 10'sd58,
        -10'sd73, 10'sd195, -10'sd254, 10'sd228, -10'sd120, -10'sd26, 10'sd158, -10'sd247, 10'sd247, -10'sd158, 10'sd26, 10'sd120, -10'sd228, 10'sd254, -10'sd195, 10'sd73,
        10'sd239, -10'sd133, -10'sd35, 10'sd187, -10'sd253, 10'sd204, -10'sd58, -10'sd112, 10'sd230, -10'sd247, 10'sd151, 10'sd13, -10'sd171, 10'sd257, -10'sd220, 10'sd80,
        10'sd99, -10'sd239, 10'sd239, -10'sd99, -10'sd99, 10'sd239, -10'sd239, 10'sd99, 10'sd99, -10'sd239, 10'sd239, -10'sd99, -10'sd99, 10'sd239, -10'sd239, 10'sd99,
        -10'sd230, 10'sd58, 10'sd151, -10'sd253, 10'sd171, 10'sd35, -10'sd220, 10'sd239, -10'sd80, -10'sd133, 10'sd257, -10'sd187, -10'sd13, 10'sd204, -10'sd247, 10'sd112,
        -10'sd120, 10'sd254, -10'sd158, -10'sd73, 10'sd247, -10'sd195, -10'sd26, 10'sd228, -10'sd228, 10'sd26, 10'sd195, -10'sd247, 10'sd73, 10'sd158, -10'sd254, 10'sd120,
        10'sd220, 10'sd13, -10'sd230, 10'sd204, 10'sd35, -10'sd239, 10'sd187, 10'sd58, -10'sd247, 10'sd171, 10'sd80, -10'sd257, 10'sd151, 10'sd112, -10'sd253, 10'sd133,
        10'sd144, -10'sd253, 10'sd46, 10'sd213, -10'sd213, -10'sd46, 10'sd253, -10'sd144, -10'sd144, 10'sd253, -10'sd46, -10'sd213, 10'sd213, 10'sd46, -10'sd253, 10'sd144,
        -10'sd204, -10'sd80, 10'sd253, -10'sd58, -10'sd220, 10'sd187, 10'sd112, -10'sd257, 10'sd35, 10'sd230, -10'sd171, -10'sd133, 10'sd247, -10'sd13, -10'sd239, 10'sd151,
        -10'sd158, 10'sd228, 10'sd73, -10'sd254, 10'sd26, 10'sd247, -10'sd120, -10'sd195, 10'sd195, 10'sd120, -10'sd247, -10'sd26, 10'sd254, -10'sd73, -10'sd228, 10'sd158,
        10'sd187, 10'sd151, -10'sd220, -10'sd112, 10'sd239, 10'sd58, -10'sd257, -10'sd13, 10'sd253, -10'sd35, -10'sd247, 10'sd80, 10'sd230, -10'sd133, -10'sd204, 10'sd171,
        10'sd185, -10'sd185, -10'sd185, 10'sd185, 10'sd185, -10'sd185, -10'sd185, 10'sd185, 10'sd185, -10'sd185, -10'sd185, 10'sd185, 10'sd185, -10'sd185, -10'sd185, 10'sd185,
        -10'sd171, -10'sd204, 10'sd133, 10'sd230, -10'sd80, -10'sd247, 10'sd35, 10'sd253, 10'sd13, -10'sd257, -10'sd58, 10'sd239, 10'sd112, -10'sd220, -10'sd151, 10'sd187,
        -10'sd195, 10'sd120, 10'sd247, -10'sd26, -10'sd254, -10'sd73, 10'sd228, 10'sd158, -10'sd158, -10'sd228, 10'sd73, 10'sd254, 10'sd26, -10'sd247, -10'sd120, 10'sd195,
        10'sd151, 10'sd239, -10'sd13, -10'sd247, -10'sd133, 10'sd171, 10'sd230, -10'sd35, -10'sd257, -10'sd112, 10'sd187, 10'sd220, -10'sd58, -10'sd253, -10'sd80, 10'sd204,
        10'sd213, -10'sd46, -10'sd253, -10'sd144, 10'sd144, 10'sd253, 10'sd46, -10'sd213, -10'sd213, 10'sd46, 10'sd253, 10'sd144, -10'sd144, -10'sd253, -10'sd46, 10'sd213,
        -10'sd133, -10'sd253, -10'sd112, 10'sd151, 10'sd257, 10'sd80, -10'sd171, -10'sd247, -10'sd58, 10'sd187, 10'sd239, 10'sd35, -10'sd204, -10'sd230, -10'sd13, 10'sd220,
        -10'sd228, -10'sd26, 10'sd195, 10'sd247, 10'sd73, -10'sd158, -10'sd254, -10'sd120, 10'sd120, 10'sd254, 10'sd158, -10'sd73, -10'sd247, -10'sd195, 10'sd26, 10'sd228,
        10'sd112, 10'sd247, 10'sd204, 10'sd13, -10'sd187, -10'sd257, -10'sd133, 10'sd80, 10'sd239, 10'sd220, 10'sd35, -10'sd171, -10'sd253, -10'sd151, 10'sd58, 10'sd230,
        10'sd239, 10'sd99, -10'sd99, -10'sd239, -10'sd239, -10'sd99, 10'sd99, 10'sd239, 10'sd239, 10'sd99, -10'sd99, -10'sd239, -10'sd239, -10'sd99, 10'sd99, 10'sd239,
        -10'sd80, -10'sd220, -10'sd257, -10'sd171, -10'sd13, 10'sd151, 10'sd247, 10'sd230, 10'sd112, -10'sd58, -10'sd204, -10'sd253, -10'sd187, -10'sd35, 10'sd133, 10'sd239,
        -10'sd247, -10'sd158, -10'sd26, 10'sd120, 10'sd228, 10'sd254, 10'sd195, 10'sd73, -10'sd73, -10'sd195, -10'sd254, -10'sd228, -10'sd120, 10'sd26, 10'sd158, 10'sd247,
        10'sd58, 10'sd171, 10'sd239, 10'sd257, 10'sd204, 10'sd112, -10'sd13, -10'sd133, -10'sd220, -10'sd253, -10'sd230, -10'sd151, -10'sd35, 10'sd80, 10'sd187, 10'sd247,
        10'sd253, 10'sd213, 10'sd144, 10'sd46, -10'sd46, -10'sd144, -10'sd213, -10'sd253, -10'sd253, -10'sd213, -10'sd144, -10'sd46, 10'sd46, 10'sd144, 10'sd213, 10'sd253,
        -10'sd35, -10'sd112, -10'sd171, -10'sd220, -10'sd247, -10'sd253, -10'sd239, -10'sd204, -10'sd151, -10'sd80, -10'sd13, 10'sd58, 10'sd133, 10'sd187, 10'sd230, 10'sd257,
        -10'sd254, -10'sd247, -10'sd228, -10'sd195, -10'sd158, -10'sd120, -10'sd73, -10'sd26, 10'sd26, 10'sd73, 10'sd120, 10'sd158, 10'sd195, 10'sd228, 10'sd247, 10'sd254,
        10'sd13, 10'sd35, 10'sd58, 10'sd80, 10'sd112, 10'sd133, 10'sd151, 10'sd171, 10'sd187, 10'sd204, 10'sd220, 10'sd230, 10'sd239, 10'sd247, 10'sd257, 10'sd253,
        10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185, 10'sd185
    };
    // Beats come in; with the last one the group moves on: 16 differences, 8 of
    // sums, 4 and 4 of sums of sums, or values as they came.
    reg  [503:0] waiting;             // the first three
    reg  [671:0] group;
    reg          turned;              // of the group
    wire         last, full;
    wire [1:0]   at, put_at;
    line_group control (
        .clk(clk), .rst(rst), .en(en), .in_valid(in_valid), .put_at(put_at), .last(last), .full(full), .at(at)
    );
    wire [1:0]   next = full && !rst ? at + 2'd1 : 2'd0;
    wire         whole = transformed && in_full;
    wire [671:0] came = {in_targets, waiting};
    wire [287:0] d, sums;             // 18 bits each
    wire [143:0] e, fours;
    wire [75:0]  h, c;                // 19 bits each
    genvar i, k, m, bit_of;
    generate
        for (i = 0; i < 16; i = i + 1) begin : g_pair
            wire signed [17:0] a = came[21*i +: 18];
            wire signed [17:0] b = came[21*(31-i) +: 18];
            assign d[18*i +: 18] = a - b;
            assign sums[18*i +: 18] = a + b;
        end
        for (i = 0; i < 8; i = i + 1) begin : g_even
            wire signed [17:0] a = sums[18*i +: 18];
            wire signed [17:0] b = sums[18*(15-i) +: 18];
            assign e[18*i +: 18] = a - b;
            assign fours[18*i +: 18] = a + b;
        end
        for (i = 0; i < 4; i = i + 1) begin : g_fourth
            wire signed [18:0] a = {fours[18*i+17], fours[18*i +: 18]};
            wire signed [18:0] b = {fours[18*(7-i)+17], fours[18*(7-i) +: 18]};
            assign h[19*i +: 19] = a - b;
            assign c[19*i +: 19] = a + b;
        end
        for (i = 0; i < 32; i = i + 1) begin : g_group
            wire signed [18:0] x;
            if (i < 16) assign x = {d[18*i+17], d[18*i +: 18]};
            else if (i < 24) assign x = {e[18*(i-16)+17], e[18*(i-16) +: 18]};
            else if (i < 28) assign x = h[19*(i-24) +: 19];
            else assign x = c[19*(i-28) +: 19];
            always @(posedge clk) if (en && last) group[21*i +: 21] <= whole ? {{2{x[18]}}, x} : came[21*i +: 21];
        end
    endgenerate

    // Coefficients 8 at + m: sums of two products each, then all.
    reg          v1, turned1;
    reg  [167:0] plain1;
    generate
        for (m = 0; m < 8; m = m + 1) begin : g_coefficient
            localparam integer TERMS = m % 2 == 1 ? 16 : m % 4 == 2 ? 8 : 4;
            localparam integer FIRST = m % 2 == 1 ? 0 : m % 4 == 2 ? 16 : m == 4 ? 24 : 28;
            wire [15:0] turn;
            line_turn turns (.clk(clk), .en(en || rst), .next(next), .turn(turn));
            reg  [27*TERMS/2-1:0] pairs;
            for (i = 0; i < TERMS / 2; i = i + 1) begin : g_pair_of
                wire [53:0] products;
                for (k = 0; k < 2; k = k + 1) begin : g_term
                    localparam integer AT = 2 * i + k;
                    wire signed [9:0] w;
                    for (bit_of = 0; bit_of < 10; bit_of = bit_of + 1) begin : g_bit
                        localparam [3:0] BITS = {
                            INVERSE[10*(16*(24+m)+AT)+bit_of], INVERSE[10*(16*(16+m)+AT)+bit_of],
                            INVERSE[10*(16*(8+m)+AT)+bit_of], INVERSE[10*(16*m+AT)+bit_of]
                        };
                        assign w[bit_of] = BITS == 4'd0 ? 1'b0 : BITS == 4'd15 ? 1'b1 : turn[BITS];
                    end
                    wire signed [18:0] x = group[21*(FIRST+AT) +: 19];
                    wire signed [26:0] product = w * x;
                    assign products[27*k +: 27] = product;
                end
                always @(posedge clk) if (en) pairs[27*i +: 27] <= products[26:0] + products[53:27];
            end
            reg  [30:0] sum;
            integer n;
            always @* begin
                sum = 31'd512;
                for (n = 0; n < TERMS / 2; n = n + 1) sum = sum + {{4{pairs[27*n+26]}}, pairs[27*n +: 27]};
            end
            always @(posedge clk) if (en) out_targets[21*m +: 21] <= turned1 ? sum[30:10] : plain1[21*m +: 21];
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
            if (in_valid) waiting <= {in_targets, waiting[503:168]};
            if (last) turned <= whole;
            turned1 <= turned;
            plain1  <= group[168*at +: 168];
        end
    end
endmodule
