// Skid: a beat of values waits here, so that `in_ready` comes from a flip-flop.
//
// Breaks the chain in which each stage's ready follows from the next one's.
// Latency: none. Throughput: a beat per cycle.
module line_skid (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    output reg          in_ready,
    input  wire [287:0] in_beat,
    output wire         out_valid,
    input  wire         out_ready,
    output wire [287:0] out_beat
);
    reg         full;
    reg [287:0] held;
    wire        full_next = full ? !out_ready : in_valid && !out_ready;
    assign out_valid = full || in_valid;
    assign out_beat  = full ? held : in_beat;
    always @(posedge clk) begin
        full     <= full_next && !rst;
        in_ready <= !full_next || rst;    // its own flip-flop: `full` drives every bit
        if (!full) held <= in_beat;
    end
endmodule
