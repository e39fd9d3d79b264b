// Alignment: fp32 to integers of a sixteenth of a step.
//
// Equals `targets` of models/codec/src/stage/line/quantize.rs up to its transform: the value
// times 16 / step, rounded to single precision, then to an integer, both to
// nearest even; what is not finite or above 2^19, with a transform 2^13, is an
// exception and codes 0.
// 16 / step is a normal number below 2^100, so that a subnormal value is 0.
// Latency: 4 cycles. Throughput: 8 values/cycle.
module line_align (
    input  wire         clk,
    input  wire         en,
    input  wire [31:0]  inverse,
    input  wire         transformed,
    input  wire [255:0] in_values,
    output wire [167:0] out_targets,  // 21 bits, signed
    output wire [7:0]   out_exceptions,
    output wire [255:0] out_values
);
    genvar l;
    generate
        for (l = 0; l < 8; l = l + 1) begin : g_lane
            line_align_lane lane (
                .clk(clk), .en(en), .inverse(inverse), .transformed(transformed), .in_value(in_values[32*l +: 32]),
                .out_target(out_targets[21*l +: 21]), .out_exception(out_exceptions[l]), .out_value(out_values[32*l +: 32])
            );
        end
    endgenerate
endmodule
