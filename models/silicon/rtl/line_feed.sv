// Word feed: sixteen-bit words of one tile after the other, eight at a time.
//
// Takes beats of eight words and shows a window of the next eight of the tile
// that was started; up to eight are taken per cycle. Past the tile's end the
// window shows zeros and `missing` says so, as `Words::next` of
// models/line/src/tile.rs; `skip` drops what is left of the tile.
// Latency: a beat is in the window after one cycle. Throughput: 8 words/cycle.
module line_feed (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [127:0] in_words,     // the first word lowest
    input  wire         start,        // a tile of start_words begins
    input  wire [19:0]  start_words,
    input  wire         skip,
    output wire [127:0] win,
    output wire         win_ok,       // eight words, or all that the tile has
    input  wire [3:0]   take,         // 0 to 8
    output reg          missing,      // more were taken than the tile has
    output wire         over,         // no word of the tile is left
    output wire         three         // three words are left at least
);
    reg [383:0] held;
    reg [4:0]   count;                // words held, 0 to 24
    reg [19:0]  left;                 // words of the tile not yet taken
    reg [3:0]   left8;                // the same, 8 at most

    assign in_ready = count <= 5'd16;
    assign win_ok   = count >= 5'd8 || {1'b0, left8} <= count;
    assign over     = left8 == 4'd0;
    assign three    = left8 >= 4'd3;

    genvar i;
    generate
        for (i = 0; i < 8; i = i + 1) begin : g_win
            assign win[16*i +: 16] = left8 > i ? held[16*i +: 16] : 16'd0;
        end
    endgenerate

    // What `skip` may drop in one cycle is what is held.
    wire [3:0] held8    = count >= 5'd8 ? 4'd8 : count[3:0];
    wire [3:0] skip8    = held8 < left8 ? held8 : left8;
    wire       short_of = take > left8;
    wire [3:0] used     = skip ? skip8 : short_of ? left8 : take;
    wire       accept   = in_valid && in_ready;
    wire [383:0] merged = held | (accept ? {256'd0, in_words} << {count, 4'd0} : 384'd0);
    wire [19:0] rest    = left - {16'd0, used};

    always @(posedge clk) begin
        if (rst) begin
            held    <= 384'd0;
            count   <= 5'd0;
            left    <= 20'd0;
            left8   <= 4'd0;
            missing <= 1'b0;
        end else begin
            held  <= merged >> {used, 4'd0};
            count <= count + (accept ? 5'd8 : 5'd0) - {1'b0, used};
            if (start) begin
                left    <= start_words;
                left8   <= start_words >= 20'd8 ? 4'd8 : start_words[3:0];
                missing <= 1'b0;
            end else begin
                left    <= rest;
                left8   <= rest >= 20'd8 ? 4'd8 : rest[3:0];
                missing <= missing | (short_of && !skip);
            end
        end
    end
endmodule
