// Group of four beats: when its last has come, and which of them leaves.
//
// Control that the transforms share (`chunks_exact` of `analyse` and `synthesize`,
// models/codec/src): a group leaves in four cycles from the one after its last beat,
// while the next comes. A group takes four beats at the least, so no beat waits.
// Latency: 1 cycle after a group's last beat. Throughput: a beat per cycle.
module line_group (
    input  wire       clk,
    input  wire       rst,
    input  wire       en,
    input  wire       in_valid,
    output reg  [1:0] put_at,         // the beat that comes
    output wire       last,           // it comes, and is the last of its group
    output reg        full,           // a group is there
    output reg  [1:0] at              // the beat that leaves
);
    assign last = in_valid && put_at == 2'd3;
    always @(posedge clk) begin
        if (rst) begin
            put_at <= 2'd0;
            full   <= 1'b0;
            at     <= 2'd0;
        end else if (en) begin
            if (in_valid) put_at <= put_at + 2'd1;
            full <= last || (full && at != 2'd3);
            at   <= full ? at + 2'd1 : 2'd0;
        end
    end
endmodule
