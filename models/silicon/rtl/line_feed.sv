// Word feed: sixteen-bit words of one tile after the other, eight at a time.
//
// Takes beats of eight words and shows a window of the next eight of the tile
// that was started; up to eight are taken per cycle. Past the tile's end the
// window shows zeros and `missing` says so, as `Words::next` of
// models/codec/src/entropy/line/tile.rs; `skip` drops what is left of the tile.
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
    output reg          win_ok,       // eight words, or all that the tile has
    input  wire [3:0]   take,         // 0 to 8
    input  wire         go,           // late: whether they are taken
    output reg          missing,      // more were taken than the tile has
    output wire         over,         // no word of the tile is left
    output wire         three         // three words are left at least
);
    reg [127:0] row_0, row_1, row_2;  // beats held, the oldest first
    reg [1:0]   rows;
    reg [3:0]   offset;               // words that are gone; with 8 the oldest beat leaves
    reg [19:0]  left;                 // words of the tile beyond `near`
    reg [4:0]   near;                 // the next of the tile, 8 at least where it has them

    wire       pop  = offset[3];
    wire [4:0] held = {rows, 3'd0} - {1'b0, offset};
    wire [3:0] left8 = near >= 5'd8 ? 4'd8 : near[3:0];
    assign in_ready = rows != 2'd3 || pop;
    wire [3:0] from = {1'b0, offset[2:0]};
    assign over     = near == 5'd0;
    assign three    = near >= 5'd3;

    wire [383:0] shown = {row_2, row_1, row_0} >> {offset, 4'd0};
    genvar i;
    generate
        for (i = 0; i < 8; i = i + 1) begin : g_win
            assign win[16*i +: 16] = near > i ? shown[16*i +: 16] : 16'd0;
        end
    endgenerate

    // What `skip` may drop in one cycle is what is held. `take` and `go` come late:
    // what follows is computed for each number of words and chosen by them.
    wire [3:0] held8    = held >= 5'd8 ? 4'd8 : held[3:0];
    wire [3:0] skip8    = held8 < left8 ? held8 : left8;
    wire       accept   = in_valid && in_ready;
    wire [1:0] stay     = rows - {1'b0, pop};
    wire [3:0] end_skip = from + skip8;
    wire       refill   = near <= 5'd15 && left != 20'd0;
    wire [3:0] more     = !refill ? 4'd0 : left >= 20'd8 ? 4'd8 : left[3:0];
    wire [4:0] next     = near + {1'b0, more};
    // Whether the window will hold eight words, or all of the tile: two beats that stay
    // do whatever is gone of them, one does if none is gone or what is left is in it.
    function holds(input [1:0] rows_then, input [3:0] offset_then, input [4:0] near_then);
        reg [1:0] kept;
        begin
            kept  = rows_then - {1'b0, offset_then[3]};
            holds = kept[1] || (kept[0] ? offset_then[2:0] == 3'd0 || near_then + {2'd0, offset_then[2:0]} <= 5'd8 : near_then == 5'd0);
        end
    endfunction
    wire [1:0]  rows_next  = stay + {1'b0, accept};
    wire [4:0]  near_start = start_words >= 20'd16 ? 5'd16 : start_words[4:0];
    wire [4:0]  near_skip  = next - {1'b0, skip8};
    wire [8:0]  ok_take;
    wire [8:0]  short_of;             // for 0 to 8 words
    wire [35:0] end_take;
    wire [44:0] near_take;
    generate
        for (i = 0; i < 9; i = i + 1) begin : g_take
            localparam [3:0] WORDS = i;
            assign short_of[i] = WORDS > left8;
            assign end_take[4*i +: 4]  = from + (short_of[i] ? left8 : WORDS);
            assign near_take[5*i +: 5] = short_of[i] ? 5'd0 : next - {1'b0, WORDS};
            assign ok_take[i] = holds(rows_next, end_take[4*i +: 4], near_take[5*i +: 5]);
        end
    endgenerate

    always @(posedge clk) begin
        if (rst) begin
            rows    <= 2'd0;
            offset  <= 4'd0;
            left    <= 20'd0;
            near    <= 5'd0;
            missing <= 1'b0;
            win_ok  <= 1'b1;
        end else begin
            rows   <= rows_next;
            win_ok <= start ? holds(rows_next, from, near_start) : !go ? holds(rows_next, from, next)
                : skip ? holds(rows_next, end_skip, near_skip) : ok_take[take];
            offset <= !go ? from : skip ? end_skip : end_take[4*take +: 4];
            if (start) begin
                near    <= near_start;
                left    <= start_words >= 20'd16 ? start_words - 20'd16 : 20'd0;
                missing <= 1'b0;
            end else begin
                near    <= !go ? next : skip ? near_skip : near_take[5*take +: 5];
                left    <= left - {16'd0, more};
                if (go && short_of[take] && !skip) missing <= 1'b1;
            end
        end
        // Where a beat goes that comes now, and what moves up.
        row_0 <= stay == 2'd0 ? in_words : pop ? row_1 : row_0;
        row_1 <= stay == 2'd1 ? in_words : pop ? row_2 : row_1;
        row_2 <= stay == 2'd2 ? in_words : row_2;
    end
endmodule
