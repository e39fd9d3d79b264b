// DCT-32, or none: four beats of eight targets to four of eight coefficients.
//
// Equals `analyse_whole` of models/line/src/matrix.rs for the DCT: entries of the
// inverse in 1/1024, the sum to the nearest.
// Columns of no whole group and plans without transform pass. Sums and differences
// of opposite values halve the products; the four beats of a group take turns, so
// that a product is with one of four constants.
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
    // Beats come in; with the last one the group moves on.
    reg  [503:0] waiting;             // the first three
    reg  [1:0]   put_at;
    reg  [671:0] group;               // sums and differences, or values as they came
    reg          turned, full;        // of the group; whether it is there
    reg  [1:0]   at;
    wire         last = in_valid && put_at == 2'd3;
    wire         turn = transformed && in_full;
    wire [671:0] came = {in_targets, waiting};
    genvar i, m;
    generate
        for (i = 0; i < 16; i = i + 1) begin : g_pair
            wire signed [20:0] a = came[21*i +: 21];
            wire signed [20:0] b = came[21*(31-i) +: 21];
            always @(posedge clk) begin
                if (en && last) begin
                    group[21*i +: 21]      <= turn ? a + b : a;
                    group[21*(31-i) +: 21] <= turn ? a - b : b;
                end
            end
        end
    endgenerate

    // Values that are multiplied: 16 differences, 8 of sums, 4 and 4 of sums of sums.
    wire [287:0] d;
    wire [143:0] e;
    wire [75:0]  h, c;
    wire [143:0] sums;
    generate
        for (i = 0; i < 16; i = i + 1) begin : g_odd
            assign d[18*i +: 18] = group[21*(31-i) +: 18];
        end
        for (i = 0; i < 8; i = i + 1) begin : g_even
            wire signed [17:0] a = group[21*i +: 18];
            wire signed [17:0] b = group[21*(15-i) +: 18];
            assign e[18*i +: 18] = a - b;
            assign sums[18*i +: 18] = a + b;
        end
        for (i = 0; i < 4; i = i + 1) begin : g_fourth
            wire signed [18:0] a = {sums[18*i+17], sums[18*i +: 18]};
            wire signed [18:0] b = {sums[18*(7-i)+17], sums[18*(7-i) +: 18]};
            assign h[19*i +: 19] = a - b;
            assign c[19*i +: 19] = a + b;
        end
    endgenerate

    // Coefficients 8 at + m: eight products in each of two sums, then both.
    reg          v1, turned1;
    reg  [167:0] plain1;
    generate
        for (m = 0; m < 8; m = m + 1) begin : g_coefficient
            localparam integer TERMS = m % 2 == 1 ? 16 : m % 4 == 2 ? 8 : 4;
            wire [31*TERMS-1:0] products;
            for (i = 0; i < TERMS; i = i + 1) begin : g_term
                wire signed [9:0] w = at == 2'd0 ? INVERSE[10*(16*m+i) +: 10] : at == 2'd1 ? INVERSE[10*(16*(8+m)+i) +: 10]
                    : at == 2'd2 ? INVERSE[10*(16*(16+m)+i) +: 10] : INVERSE[10*(16*(24+m)+i) +: 10];
                wire signed [18:0] x;
                if (m % 2 == 1) assign x = {d[18*i+17], d[18*i +: 18]};
                else if (m % 4 == 2) assign x = {e[18*i+17], e[18*i +: 18]};
                else if (m == 4) assign x = h[19*i +: 19];
                else assign x = c[19*i +: 19];
                wire signed [30:0] product = w * x;
                assign products[31*i +: 31] = product;
            end
            reg  signed [30:0] lower_now, upper_now, lower, upper;
            wire signed [30:0] sum = lower + upper;
            integer k;
            always @* begin
                lower_now = 31'sd512;
                upper_now = 31'sd0;
                for (k = 0; k < TERMS; k = k + 1) begin
                    if (k < 8) lower_now = lower_now + $signed(products[31*k +: 31]);
                    else upper_now = upper_now + $signed(products[31*k +: 31]);
                end
            end
            always @(posedge clk) begin
                if (en) begin
                    lower <= lower_now;
                    upper <= upper_now;
                    out_targets[21*m +: 21] <= turned1 ? sum[30:10] : plain1[21*m +: 21];
                end
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            put_at    <= 2'd0;
            full      <= 1'b0;
            at        <= 2'd0;
            v1        <= 1'b0;
            out_valid <= 1'b0;
        end else if (en) begin
            if (in_valid) put_at <= put_at + 2'd1;
            full <= last || (full && at != 2'd3);
            at   <= full ? at + 2'd1 : 2'd0;
            v1        <= full;
            out_valid <= v1;
        end
        if (en) begin
            if (in_valid) waiting <= {in_targets, waiting[503:168]};
            if (last) turned <= turn;
            turned1 <= turned;
            plain1  <= group[168*at +: 168];
        end
    end
endmodule
