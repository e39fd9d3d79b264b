// Word stack: what the lanes give from last to first, turned round.
//
// Equals `backwards` and its reversal in `write` (models/codec/src/entropy/line/tile.rs). Up to
// eight words a cycle are put below those before them; rows of eight go to
// memory. At the end of a tile fewer than eight lie in `part`, the first of the
// tile; rows follow from the last to the first. The next tile's are written behind
// the reader in the same direction, so that there is room for one tile, not two;
// lanes wait while they would reach the reader. One port: a read waits for a write.
// Latency: 1 cycle. Throughput: 8 words/cycle.
module line_stack (
    input  wire         clk,
    input  wire         rst,
    input  wire         clear,
    input  wire [7:0]   given,
    input  wire [127:0] words,
    output reg  [127:0] part,
    output reg  [2:0]   part_count,
    output reg  [10:0]  rows,         // full rows of the tile
    output reg          overflow,
    input  wire         turn,         // the tile is whole and will be read
    output wire         pressed,      // no more words, please
    output wire         busy,         // a row is written: no read
    input  wire         re,
    output wire [127:0] rdata
);
    wire [3:0]   count = {3'd0, given[0]} + {3'd0, given[1]} + {3'd0, given[2]} + {3'd0, given[3]}
                       + {3'd0, given[4]} + {3'd0, given[5]} + {3'd0, given[6]} + {3'd0, given[7]};
    // Given words without gaps, lane 0 lowest.
    wire [127:0] packed_words;
    genvar l, j;
    generate
        for (j = 0; j < 8; j = j + 1) begin : g_place
            wire [127:0] picks;
            for (l = 0; l < 8; l = l + 1) begin : g_pick
                if (l < j) begin : g_no
                    assign picks[16*l +: 16] = 16'd0;
                end else begin : g_yes
                    wire [7:0] below = given & ~(8'hff << l);
                    wire [3:0] ahead = {3'd0, below[0]} + {3'd0, below[1]} + {3'd0, below[2]} + {3'd0, below[3]}
                                     + {3'd0, below[4]} + {3'd0, below[5]} + {3'd0, below[6]};
                    assign picks[16*l +: 16] = given[l] && ahead == j ? words[16*l +: 16] : 16'd0;
                end
            end
            assign packed_words[16*j +: 16] = picks[15:0] | picks[31:16] | picks[47:32] | picks[63:48]
                                            | picks[79:64] | picks[95:80] | picks[111:96] | picks[127:112];
        end
    endgenerate
    reg  [127:0] next_words;
    reg  [3:0]   next_count;
    wire [255:0] joined = ({128'd0, part} << {next_count, 4'd0}) | {128'd0, next_words};
    wire [4:0]   total  = {2'd0, part_count} + {1'b0, next_count};
    wire         spill  = total >= 5'd8;
    wire [2:0]   over   = total[2:0];
    wire [255:0] upper  = joined >> {over, 4'd0};
    // A step's words and escapes that are under way fill fewer rows than this.
    localparam [10:0] SLACK = 11'd16;
    reg          up;
    reg  [9:0]   put_at, take_at;
    reg  [10:0]  unread;              // rows of the tile that is read
    reg  [10:0]  ahead;               // rows read, less those written since
    wire [9:0]   last_put = rows == 11'd0 ? put_at : up ? put_at - 10'd1 : put_at + 10'd1;
    assign busy = spill && !rows[10];
    assign pressed = unread != 11'd0 && ahead < SLACK;
    line_ram #(.WIDTH(128), .DEPTH(1024), .ADDR(10)) memory (
        .clk(clk), .we(busy), .waddr(put_at), .wdata(upper[127:0]), .re(re), .raddr(take_at), .rdata(rdata)
    );
    always @(posedge clk) begin
        next_words <= clear ? 128'd0 : packed_words;
        next_count <= clear ? 4'd0 : count;
        if (clear) begin
            part       <= 128'd0;
            part_count <= 3'd0;
            rows       <= 11'd0;
            overflow   <= 1'b0;
        end else begin
            part       <= spill ? joined[127:0] & ~({128{1'b1}} << {over, 4'd0}) : joined[127:0];
            part_count <= over;
            if (spill && !rows[10]) rows <= rows + 11'd1;
            if (spill && rows[10]) overflow <= 1'b1;
        end
        if (rst) begin
            up     <= 1'b1;
            put_at <= 10'd0;
            unread <= 11'd0;
        end else if (turn) begin
            up      <= !up;
            put_at  <= last_put;
            take_at <= last_put;
            unread  <= rows;
            ahead   <= 11'd0;
        end else begin
            if (busy) put_at <= up ? put_at + 10'd1 : put_at - 10'd1;
            if (re) take_at <= up ? take_at + 10'd1 : take_at - 10'd1;
            if (re) unread <= unread - 11'd1;
            ahead <= ahead + {10'd0, re} - {10'd0, busy};
        end
    end
endmodule
