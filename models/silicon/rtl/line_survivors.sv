// Survivors: what every value of two tiles leaves for the traceback.
//
// Equals the vectors of `Path` in models/line/src/quantize.rs. One tile is
// written while the one before is read, never the same half: two arrays with one
// port each.
// Latency: 1 cycle. Throughput: 8 values/cycle.
module line_survivors (
    input  wire         clk,
    input  wire         we,
    input  wire [11:0]  waddr,        // turn, beat
    input  wire [215:0] wdata,
    input  wire         re,
    input  wire [11:0]  raddr,
    output wire [215:0] rdata
);
    line_ram #(.WIDTH(216), .DEPTH(4096), .ADDR(12)) entries (
        .clk(clk), .we(we), .waddr(waddr), .wdata(wdata), .re(re), .raddr(raddr), .rdata(rdata)
    );
endmodule
