// Survivors: what every value of a tile leaves for the traceback.
//
// Equals the vectors of `Path` in models/codec/src/stage/line/quantize.rs. A tile is read from
// its last entry to its first; the next one is written behind the reader in the
// same direction, and is then read in the other: there is room for one tile, not
// two. Even and odd places are two arrays with one port each. Reader and writer
// step through both by turns, so that an entry whose array is being read waits
// for one cycle, never for two.
// Latency: 1 cycle. Throughput: 8 values/cycle.
`ifndef LINE_STATES
`define LINE_STATES 8
`endif
module line_survivors #(
    parameter STATES = `LINE_STATES   // of the trellis, at most: 8, 4 or 1
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         issue,        // an entry is under way
    output wire         room,         // one more may be
    input  wire         we,
    input  wire [215:0] wdata,        // 27 bits for each lane: see line_traceback
    input  wire         turn,         // the tile is whole and will be read
    input  wire         re,
    output wire [215:0] rdata
);
    localparam KEPT = STATES == 8 ? 27 : STATES == 4 ? 23 : 17;
    reg         up;                   // places ascend, for writer and reader
    reg  [10:0] put_at, take_at;
    reg  [11:0] written;              // entries of the tile that is written
    reg  [11:0] unread;               // entries of the tile that is read
    reg  [11:0] ahead;                // entries read, less those under way since
    assign room = unread == 12'd0 || ahead != 12'd0;
    wire [10:0] last_put = up ? put_at - 11'd1 : put_at + 11'd1;
    wire [8*KEPT-1:0] in;
    wire [8*KEPT-1:0] out_even, out_odd;
    reg         odd_read;
    wire [8*KEPT-1:0] out = odd_read ? out_odd : out_even;
    genvar l, b;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            assign in[KEPT*l +: KEPT] = wdata[27*l +: KEPT];
            if (KEPT == 27) begin : g_all
                assign rdata[27*l +: 27] = out[KEPT*l +: KEPT];
            end else begin : g_part
                assign rdata[27*l +: 27] = {{(27-KEPT){1'b0}}, out[KEPT*l +: KEPT]};
            end
        end
        for (b = 0; b < 2; b = b + 1) begin : g_array
            wire [8*KEPT-1:0] found;
            wire        read = re && take_at[0] == b;
            wire        put = we && put_at[0] == b;
            reg         held;
            reg  [9:0]  held_at;
            reg  [8*KEPT-1:0] held_entry;
            line_ram #(.WIDTH(8*KEPT), .DEPTH(1024), .ADDR(10)) entries (
                .clk(clk), .we(!read && (held || put)), .waddr(held ? held_at : put_at[10:1]),
                .wdata(held ? held_entry : in), .re(read), .raddr(take_at[10:1]), .rdata(found)
            );
            if (b == 0) begin : g_even
                assign out_even = found;
            end else begin : g_odd
                assign out_odd = found;
            end
            always @(posedge clk) begin
                if (rst) held <= 1'b0;
                else held <= read && put;
                if (put) {held_at, held_entry} <= {put_at[10:1], in};
            end
        end
    endgenerate
    always @(posedge clk) begin
        if (rst) begin
            up      <= 1'b1;
            put_at  <= 11'd0;
            written <= 12'd0;
            unread  <= 12'd0;
            ahead   <= 12'd0;
        end else if (turn) begin
            up      <= !up;
            put_at  <= last_put;
            take_at <= last_put;
            written <= 12'd0;
            unread  <= written;
            ahead   <= 12'd0;
        end else begin
            if (we) begin
                put_at  <= up ? put_at + 11'd1 : put_at - 11'd1;
                written <= written + 12'd1;
            end
            if (re) begin
                take_at <= up ? take_at + 11'd1 : take_at - 11'd1;
                unread  <= unread - 12'd1;
            end
            ahead <= ahead + {11'd0, re} - {11'd0, issue};
        end
        if (re) odd_read <= take_at[0];
    end
endmodule
