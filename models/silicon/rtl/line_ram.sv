// Memory with one write and one read port, the only kind in the design.
//
// Latency: data one cycle after the address; held while `re` is low. A read of
// the address that is written in the same cycle gives what was there before.
// Synthesis leaves it out (a black box of WIDTH x DEPTH bits) and prices the
// bits by the array model of configs/silicon/asap7.toml.
module line_ram #(
    parameter WIDTH = 8,
    parameter DEPTH = 64,
    parameter ADDR  = 6
) (
    input  wire             clk,
    input  wire             we,
    input  wire [ADDR-1:0]  waddr,
    input  wire [WIDTH-1:0] wdata,
    input  wire             re,
    input  wire [ADDR-1:0]  raddr,
    output reg  [WIDTH-1:0] rdata
);
    reg [WIDTH-1:0] mem [0:DEPTH-1];
    always @(posedge clk) begin
        if (we) mem[waddr] <= wdata;
        if (re) rdata <= mem[raddr];
    end
endmodule
