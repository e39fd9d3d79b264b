// Transform of an encoder: Hadamard-32, DCT-32 or none, as the stream has it.
//
// Equals `turn_whole` of models/codec/src/stage/line/quantize.rs. Each transform has its own
// groups; the one that is not asked for stands still. None goes the way of the
// Hadamard transform and is passed on.
// Latency: 3 cycles after a group's last beat. Throughput: 8 values/cycle.
module line_analysis (
    input  wire         clk,
    input  wire         rst,
    input  wire         en,
    input  wire [1:0]   kind,         // 0 none, 1 Hadamard-32, 2 DCT-32
    input  wire         in_valid,     // four beats make a group
    input  wire         in_full,      // all 32 columns are there
    input  wire [167:0] in_targets,
    output wire         out_valid,
    output wire [167:0] out_targets
);
    wire         is_dct = kind == 2'd2;
    wire         h_valid, d_valid;
    wire [167:0] h_targets, d_targets;
    line_hadamard hadamard (
        .clk(clk), .rst(rst), .en(en), .transformed(kind == 2'd1), .in_valid(in_valid && !is_dct), .in_full(in_full),
        .in_targets(in_targets), .out_valid(h_valid), .out_targets(h_targets)
    );
    line_dct dct (
        .clk(clk), .rst(rst), .en(en), .transformed(is_dct), .in_valid(in_valid && is_dct), .in_full(in_full),
        .in_targets(in_targets), .out_valid(d_valid), .out_targets(d_targets)
    );
    assign out_valid   = is_dct ? d_valid : h_valid;
    assign out_targets = is_dct ? d_targets : h_targets;
endmodule
