// Handshakes of a stage, for a bounded proof: `cargo xtask silicon --verify`.
//
// Beats carry their number. Whatever the neighbours do, a beat that is offered
// stays until it is taken, the k-th beat that leaves is the k-th that came, none
// is lost or comes twice, and no more are inside than there is room for. Which
// stage it is, `CHECKED` says, and what its beat is called, `CARRIED_IN` and `CARRIED_OUT`.
// `FORMATTED` is for a stage that must be told that numbers are to stay as they are.
// Inputs that are not connected here may be anything in every cycle.
module line_stage_check (
    input wire clk,
    input wire offers,
    input wire takes
);
    reg  started = 1'b0;
    wire rst = !started;
    reg  waiting;                 // an offer that was not taken yet
    reg  [7:0] sent, received;
    wire in_valid = started && (waiting || offers);
    wire in_ready, out_valid;
    wire out_ready = started && takes;
    wire [`CARRIED_BITS-1:0] beat;
    `CHECKED dut (
        .clk(clk), .rst(rst),
`ifdef FORMATTED
        .format(4'd0),
`endif
        .in_valid(in_valid), .in_ready(in_ready), .`CARRIED_IN({{(`CARRIED_BITS-8){1'b0}}, sent}),
        .out_valid(out_valid), .out_ready(out_ready), .`CARRIED_OUT(beat)
    );
    reg  held;                    // a beat that was offered and not taken
    always @(posedge clk) begin
        started <= 1'b1;
        if (rst) begin
            waiting  <= 1'b0;
            held     <= 1'b0;
            sent     <= 8'd0;
            received <= 8'd0;
        end else begin
            waiting  <= in_valid && !in_ready;
            held     <= out_valid && !out_ready;
            sent     <= sent + {7'd0, in_valid && in_ready};
            received <= received + {7'd0, out_valid && out_ready};
        end
    end
    wire [7:0] coming = sent + {7'd0, in_valid};
    always @* begin
        if (started) begin
            if (held) assert (out_valid);
            if (out_valid) assert (beat[7:0] == received);
            if (out_valid) assert (coming != received);
            assert (sent - received <= `ROOM);
        end
    end
endmodule
