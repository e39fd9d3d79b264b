// Tail: symbols wait here until the signs of a tile's last 16 steps are known.
//
// Equals `finish` of models/codec/src/entropy/line/tile.rs. A queue of 128 beats in memory;
// beats of the tail leave once the lanes' final states have come, with their
// signs, and raise the error on a sign that no symbol has.
// A symbol has 19 bits: 18 quantizer, 17 sign pending, 16 escape; then the
// level (escape), or 13:11 raw bits, 10:5 what they hold, 4 negative, 3:0
// magnitude.
// Latency: 2 cycles, or until the tile ends. Throughput: 8 symbols/cycle.
module line_tail (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    input  wire [31:0]  in_side,
    input  wire [151:0] in_symbols,
    output wire         room,         // for twenty beats
    input  wire         finish,       // the tile has ended: signs are here
    input  wire [511:0] finish_signs,
    input  wire         finish_error,
    output wire         finish_ready,
    output wire         out_valid,
    input  wire         out_ready,
    output wire [31:0]  out_side,
    output wire [151:0] out_symbols
);
    reg  [6:0]   head, tail;
    reg  [7:0]   count;               // in memory
    reg          held;                // the memory's output is a beat
    reg          signed_now;          // the signs are those of the tile whose tail is next
    reg          wrong;
    reg  [511:0] signs;
    wire [183:0] beat;
    wire         leave;
    wire         fetch = count != 8'd0 && (!held || leave);

    line_ram #(.WIDTH(184), .DEPTH(128), .ADDR(7)) queue (
        .clk(clk), .we(in_valid), .waddr(tail), .wdata({in_side, in_symbols}),
        .re(fetch), .raddr(head), .rdata(beat)
    );
    wire [31:0]  side = beat[183:152];
    wire         in_tail = side[23];
    wire [3:0]   back = side[27:24];
    wire [1:0]   group = side[9:8];
    wire         last = side[28];

    assign room = count < 8'd100;
    assign finish_ready = !signed_now;
    assign out_valid = held && (!in_tail || signed_now);
    assign leave = out_valid && out_ready;

    wire [127:0] mine = signs[128*group +: 128];
    wire [7:0]   unasked;
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            wire sign = in_tail && mine[16*l + back];
            wire pending = beat[19*l+17];
            assign unasked[l] = sign && !pending;
            assign out_symbols[19*l +: 19] = {beat[19*l+5 +: 14], beat[19*l+4] ^ (sign && pending), beat[19*l +: 4]};
        end
    endgenerate
    wire error = in_tail && (wrong || |unasked);
    assign out_side = {side[31:30], side[29] || (last && error), side[28:0]};

    always @(posedge clk) begin
        if (rst) begin
            head  <= 7'd0;
            tail  <= 7'd0;
            count <= 8'd0;
            held  <= 1'b0;
            signed_now <= 1'b0;
            wrong <= 1'b0;
        end else begin
            if (in_valid) tail <= tail + 7'd1;
            if (fetch) head <= head + 7'd1;
            count <= count + {7'd0, in_valid} - {7'd0, fetch};
            held  <= fetch || (held && !leave);
            if (finish) begin
                signed_now <= 1'b1;
                wrong      <= finish_error;
                signs      <= finish_signs;
            end else if (leave && in_tail) begin
                wrong      <= error;
                signed_now <= !last;
            end
        end
    end
endmodule
