// Symbol search of one lane: fifteen comparators on a table's first slots.
//
// Equals a look-up in `Table::slots` (models/codec/src/entropy/line/table.rs): the magnitude
// whose slots hold this one, its first slot and the next magnitude's.
// Combinational; whether it is an escape is needed first and found apart.
module line_search (
    input  wire [149:0] starts,      // of magnitudes 1 to 15
    input  wire [9:0]   slot,
    output reg  [3:0]   magnitude,
    output reg  [9:0]   first,
    output reg  [10:0]  next
);
    wire [16:0] reached;
    assign reached[0]  = 1'b1;
    assign reached[16] = 1'b0;
    genvar m;
    generate
        for (m = 1; m < 16; m = m + 1) begin : g_cmp
            assign reached[m] = slot >= starts[10*(m-1) +: 10];
        end
    endgenerate
    wire [15:0] here = reached[15:0] & ~reached[16:1];
    integer i;
    always @* begin
        magnitude = 4'd0;
        first     = 10'd0;
        next      = 11'd0;
        for (i = 1; i < 16; i = i + 1) begin
            magnitude = magnitude | (here[i] ? i[3:0] : 4'd0);
            first     = first | (here[i] ? starts[10*(i-1) +: 10] : 10'd0);
            next      = next | (here[i-1] ? {1'b0, starts[10*(i-1) +: 10]} : 11'd0);
        end
        next = next | (here[15] ? 11'd1024 : 11'd0);
    end
endmodule
