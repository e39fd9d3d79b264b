// rANS lanes of the encoder: 32 states, eight of them advanced per cycle.
//
// Equals `Push::push` of models/line/src/tile.rs, from the last step to the
// first. Words come eight lanes at a time, lane 0 lowest; a step's escapes after
// its renewals, in four cycles of their own. x / f is x times a reciprocal of 33
// bits, exact for x below f 2^22; with q the quotient, the new state
// q 1024 + x mod f + start is x + q (1024 - f) + start.
// Latency: 5 cycles. Throughput: 8 symbols/cycle, less in steps with escapes.
module line_rans_enc (
    input  wire          clk,
    input  wire          rst,
    // For each table and magnitude: 57:47 frequency, 46:37 start, 36:33 log2 of
    // the frequency rounded up, 32:0 the reciprocal.
    input  wire          table_we,
    input  wire [8:0]    table_addr,
    input  wire [57:0]   table_data,
    input  wire          load,
    input  wire [511:0]  load_signs,
    input  wire          in_valid,
    output wire          in_ready,
    input  wire [1:0]    in_group,
    input  wire [7:0]    in_mask,
    input  wire          in_unsigned, // of the tail
    input  wire [199:0]  in_symbols,
    output reg  [7:0]    out_given,   // lanes that gave a word
    output reg  [127:0]  out_words,
    output wire          idle,
    output wire [1023:0] states_now
);
    reg  [255:0] states [0:3];
    reg          v1, v2, v3, v4;
    reg  [1:0]   group1, group2, group3, group4;
    reg  [7:0]   mask1, mask2, mask3, mask4;
    reg          unsigned1;
    reg  [199:0] symbols1;
    reg  [2:0]   flush;               // groups of escapes still to be given
    reg  [31:0]  escaped;
    reg  [511:0] escape_words;
    wire [255:0] now = states[group1];
    // Tables have been read when a beat's states are looked at.
    wire hold = flush != 3'd0;
    wire step_end = v1 && group1 == 2'd0;
    wire [7:0] escapes_now;
    wire any_escape = |escapes_now || |escaped[31:8];
    assign in_ready = !hold && !(step_end && any_escape);
    assign idle = !v1 && !v2 && !v3 && !v4 && flush == 3'd0;
    assign states_now = {states[3], states[2], states[1], states[0]};
    wire take = in_valid && in_ready;
    wire [1:0] flush_group = flush[1:0] - 2'd1;
    wire [7:0] gives;
    wire [255:0] next;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire [57:0] entry;
            wire [24:0] in_symbol = in_symbols[25*l +: 25];
            line_ram #(.WIDTH(58), .DEPTH(512), .ADDR(9)) numbers (
                .clk(clk), .we(table_we), .waddr(table_addr), .wdata(table_data), .re(take),
                .raddr({in_symbol[23:19], in_symbol[24] ? 4'd15 : in_symbol[3:0]}), .rdata(entry)
            );
            wire [24:0] symbol = symbols1[25*l +: 25];
            wire        escape = symbol[24];
            assign      escapes_now[l] = escape && mask1[l];
            wire [2:0]  r = symbol[18:16];
            wire        both = unsigned1 && !escape && symbol[3:0] != 4'd0;
            wire [10:0] f = both ? {entry[56:47], 1'b0} : entry[57:47];
            wire [9:0]  first = entry[46:37] + (!both && !escape && symbol[4] ? entry[56:47] : 10'd0);
            wire [5:0]  low = escape ? 6'd0 : symbol[10:5];
            wire [31:0] state = now[32*l +: 32];
            // f 2^22 may be 2^32.
            wire [32:0] bound = {f, 22'd0} >> r;
            wire        full = {1'b0, state} >= bound;
            assign      gives[l] = full && mask1[l];
            wire [31:0] kept = full ? {16'd0, state[31:16]} : state;
            reg  [31:0] x2, x3, x4;
            reg  [32:0] reciprocal2;
            reg  [3:0]  log2, log3;
            reg  [10:0] f2, f3, f4;
            reg  [9:0]  first2, first3, first4;
            reg  [48:0] high3, low3;
            wire [64:0] product = {high3, 16'd0} + {16'd0, low3};
            wire [32:0] upper = product[64:32] >> log3;
            reg  [21:0] q4;
            assign next[32*l +: 32] = x4 + q4 * (11'd1024 - f4) + {22'd0, first4};
            always @(posedge clk) begin
                x2 <= (kept << r) | {26'd0, low};
                reciprocal2 <= entry[32:0];
                log2 <= entry[36:33] + {3'd0, both};
                f2 <= f;
                first2 <= first;
                high3 <= x2 * reciprocal2[32:16];
                low3  <= x2 * reciprocal2[15:0];
                {x3, log3, f3, first3} <= {x2, log2, f2, first2};
                q4 <= upper[21:0];
                {x4, f4, first4} <= {x3, f3, first3};
                out_words[16*l +: 16] <= hold ? escape_words[128*flush_group + 16*l +: 16] : state[15:0];
                if (v1 && !hold) escape_words[128*group1 + 16*l +: 16] <= symbol[15:0];
            end
        end
    endgenerate

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            {v1, v2, v3, v4} <= 4'd0;
            flush     <= 3'd0;
            escaped   <= 32'd0;
            out_given <= 8'd0;
        end else begin
            v1 <= take;
            v2 <= v1;
            v3 <= v2;
            v4 <= v3;
            out_given <= hold ? escaped[8*flush_group +: 8] : v1 ? gives : 8'd0;
            if (step_end && any_escape) flush <= 3'd4;
            else if (hold) flush <= flush - 3'd1;
            if (v1) escaped[8*group1 +: 8] <= escapes_now;
            else if (flush == 3'd1) escaped <= 32'd0;
            if (step_end && !any_escape) escaped <= 32'd0;
        end
        group1    <= in_group;
        mask1     <= in_mask;
        unsigned1 <= in_unsigned;
        symbols1  <= in_symbols;
        {group2, mask2} <= {group1, mask1};
        {group3, mask3} <= {group2, mask2};
        {group4, mask4} <= {group3, mask3};
        for (i = 0; i < 8; i = i + 1) begin
            if (v4 && mask4[i]) states[group4][32*i +: 32] <= next[32*i +: 32];
        end
        if (load) begin
            for (i = 0; i < 8; i = i + 1) begin
                states[0][32*i +: 32] <= {16'd1, load_signs[16*i +: 16]};
                states[1][32*i +: 32] <= {16'd1, load_signs[128+16*i +: 16]};
                states[2][32*i +: 32] <= {16'd1, load_signs[256+16*i +: 16]};
                states[3][32*i +: 32] <= {16'd1, load_signs[384+16*i +: 16]};
            end
        end
    end
endmodule
