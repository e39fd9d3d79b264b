// rANS lanes of the encoder: 32 states, eight of them advanced per cycle.
//
// Equals `Push::push` of models/codec/src/entropy/line/tile.rs, from the last step to the
// first. Words come eight lanes at a time, lane 0 lowest; a step's escapes after
// its renewals, in four cycles of their own.
// Latency: 6 cycles. Throughput: 8 symbols/cycle; a step with escapes takes six
// more cycles.
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
    reg          v0, v1, v2, v3, v4;
    reg  [1:0]   group0, group1, group2, group3, group4;
    reg  [7:0]   mask0, mask1, mask2, mask3, mask4;
    reg          unsigned0;
    reg  [199:0] symbols0;
    reg          pending;             // the step's last beat passes, then its escapes
    reg  [2:0]   flush;               // groups of escapes still to be given
    reg  [31:0]  escaped;
    wire [255:0] now = states[group1];
    // Tables have been read when a beat is in stage 0; its states are looked at in 1.
    wire hold = flush != 3'd0;
    wire step_end = v0 && group0 == 2'd0;
    wire [7:0] escapes_now;
    wire any_escape = |escapes_now || |escaped[31:8];
    assign in_ready = !hold && !pending && !(step_end && any_escape);
    assign idle = !v0 && !v1 && !v2 && !v3 && !v4 && !pending && flush == 3'd0;
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
            line_ram #(.WIDTH(58), .DEPTH(272), .ADDR(9)) numbers (
                .clk(clk), .we(table_we), .waddr(table_addr), .wdata(table_data), .re(take),
                .raddr({in_symbol[23:19], in_symbol[24] ? 4'd15 : in_symbol[3:0]}), .rdata(entry)
            );
            wire [24:0] symbol = symbols0[25*l +: 25];
            assign      escapes_now[l] = symbol[24] && mask0[l];
            wire        full;
            wire [31:0] state = now[32*l +: 32];
            assign      gives[l] = full && mask1[l];
            line_rans_push push (
                .clk(clk), .entry(entry), .symbol(symbol), .in_unsigned(unsigned0), .state(state), .full(full),
                .next(next[32*l +: 32])
            );
            reg  [63:0] escape_words;
            always @(posedge clk) begin
                out_words[16*l +: 16] <= hold ? escape_words[16*flush_group +: 16] : state[15:0];
                if (v0) escape_words[16*group0 +: 16] <= symbol[15:0];
            end
        end
    endgenerate

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            {v0, v1, v2, v3, v4} <= 5'd0;
            pending   <= 1'b0;
            flush     <= 3'd0;
            escaped   <= 32'd0;
            out_given <= 8'd0;
        end else begin
            {v0, v1, v2, v3, v4} <= {take, v0, v1, v2, v3};
            out_given <= hold ? escaped[8*flush_group +: 8] : v1 ? gives : 8'd0;
            pending <= step_end && any_escape;
            if (pending) flush <= 3'd4;
            else if (hold) flush <= flush - 3'd1;
            if (v0) escaped[8*group0 +: 8] <= escapes_now;
            else if (flush == 3'd1) escaped <= 32'd0;
            if (step_end && !any_escape) escaped <= 32'd0;
        end
        group0    <= in_group;
        mask0     <= in_mask;
        unsigned0 <= in_unsigned;
        symbols0  <= in_symbols;
        {group1, group2, group3, group4} <= {group0, group1, group2, group3};
        {mask1, mask2, mask3, mask4} <= {mask0, mask1, mask2, mask3};
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
