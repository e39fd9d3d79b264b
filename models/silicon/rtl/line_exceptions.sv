// Exceptions: values that were kept bit for bit, put where they belong.
//
// Equals the last loop of `reconstruct` (models/codec/src/stage/line/reconstruct.rs). The
// head of a tile gives up to 64 of them ahead of its values; each replaces one
// value of a beat that passes, one per cycle. What a tile's values do not reach
// is an error of the tile and is dropped with its last beat.
// Latency: 1 cycle, and up to 3 per exception. Throughput: 8 values/cycle.
module line_exceptions (
    input  wire         clk,
    input  wire         rst,
    input  wire         put,
    input  wire [3:0]   put_tag,      // number of the tile, in 16
    input  wire [15:0]  put_position,
    input  wire [31:0]  put_bits,
    output wire         put_ready,
    input  wire         in_valid,
    output wire         in_ready,
    input  wire [31:0]  in_side,
    input  wire [255:0] in_values,
    output wire         out_valid,
    input  wire         out_ready,
    output wire [31:0]  out_side,
    output wire [255:0] out_values,
    output wire [7:0]   out_kept      // values that are exceptions
);
    reg  [6:0]   head, tail;
    reg  [6:0]   count;
    reg          read_ok;             // the memory's output is one
    reg          first_ok;            // the oldest is in `first`
    wire [51:0]  read;
    reg  [51:0]  first;
    reg          held;
    reg  [255:0] values;
    reg  [31:0]  side;
    reg  [7:0]   kept;
    reg  [3:0]   tag;
    reg  [16:0]  position;            // of the beat's first value
    reg          beyond;

    wire [3:0]   size = {3'd0, side[0]} + {3'd0, side[1]} + {3'd0, side[2]} + {3'd0, side[3]}
                      + {3'd0, side[4]} + {3'd0, side[5]} + {3'd0, side[6]} + {3'd0, side[7]};
    wire         mine   = first_ok && first[51:48] == tag;
    wire [16:0]  offset = {1'b0, first[47:32]} - position;
    wire         reaches = mine && offset < {13'd0, size};
    wire         last   = side[28];
    wire         drop   = mine && last && !reaches;
    wire         pop    = held && (reaches || drop);
    wire         move   = read_ok && (!first_ok || pop);
    wire         fetch  = count != 7'd0 && !read_ok;

    line_ram #(.WIDTH(52), .DEPTH(64), .ADDR(6)) list (
        .clk(clk), .we(put && put_ready), .waddr(tail[5:0]), .wdata({put_tag, put_position, put_bits}),
        .re(fetch), .raddr(head[5:0]), .rdata(read)
    );
    assign put_ready = count < 7'd63;
    // One in the list may still be on its way to `first`.
    wire settled = first_ok || (count == 7'd0 && !read_ok);
    assign out_valid = held && settled && !pop;
    assign out_side = {side[31:30], side[29] || (last && beyond), side[28:0]};
    assign out_values = values;
    assign out_kept = kept;
    wire leave = out_valid && out_ready;
    assign in_ready = !held || leave;

    integer i;
    always @(posedge clk) begin
        if (rst) begin
            head     <= 7'd0;
            tail     <= 7'd0;
            count    <= 7'd0;
            read_ok  <= 1'b0;
            first_ok <= 1'b0;
            held     <= 1'b0;
            tag      <= 4'd0;
            position <= 17'd0;
            beyond   <= 1'b0;
        end else begin
            if (put && put_ready) tail <= tail + 7'd1;
            if (fetch) head <= head + 7'd1;
            count    <= count + {6'd0, put && put_ready} - {6'd0, fetch};
            read_ok  <= fetch || (read_ok && !move);
            first_ok <= move || (first_ok && !pop);
            held     <= (in_valid && in_ready) || (held && !leave);
            if (leave) begin
                position <= last ? 17'd0 : position + {13'd0, size};
                tag      <= tag + {3'd0, last};
                beyond   <= 1'b0;
            end else if (held && drop) begin
                beyond <= 1'b1;
            end
        end
        if (move) first <= read;
        if (in_valid && in_ready) begin
            values <= in_values;
            side   <= in_side;
            kept   <= 8'd0;
        end else if (held && reaches) begin
            for (i = 0; i < 8; i = i + 1) begin
                if (offset[2:0] == i) begin
                    values[32*i +: 32] <= first[31:0];
                    kept[i] <= 1'b1;
                end
            end
        end
    end
endmodule
